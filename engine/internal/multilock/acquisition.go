package multilock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Acquisition takes many locks as one: all or none. The zero Acquisition is over.
//
//	trying --all granted---------------------------------------> over: all are held
//	  ^  |
//	  |  +--one refused: the others are given back--> pausing
//	  |                                                  |
//	  +--granted-- blocked, on the one that refused <----+  (or whose server is away)
//
//	any --context, Wait, Abandon, Close, a refusal for good----> over: all given back
//
// It waits, for a lock or for time, only while it has none of the others. So two that want
// the same locks in another order do not wait for each other. They may refuse each other,
// though, again and again; the pause, of random length, ends that.
//
// Invariants:
//
//  1. out counts the results of the current round that have not come. The call of OnResult that
//     brings it to 0 leaves the next step, so there is one at a time.
//  2. While it is pausing, nothing is held; when it begins to be blocked, too.
type Acquisition struct {
	port  Port
	once  bool // TryLock: one round
	async bool

	stage  Stage
	stop   *lockerr.Cancel // it is given up
	parts  []part          // the locks
	held   int             // locks that were granted
	out    int
	last   Refusal // the latest that decided; the lock that it blocks on
	rounds int     // that ended with a refusal
	late   int     // that ended with a lock that was lost meanwhile, or came too late
}

// part is what is known of one lock.
type part struct {
	why error // it was not granted in this round
	cut bool  // why is no answer, perhaps: the whole was given up first
}

// Port is what surrounds an acquisition of many. It is called under the acquisition's lock, and does not
// block.
type Port interface {
	// Draw returns a random part of d.
	Draw(d time.Duration) time.Duration
}

// Stage is what an acquisition of many is up to.
type Stage uint8

// The stages.
const (
	Over Stage = iota
	Trying
	Blocked
	Pausing
)

// Refusal says of which lock, and why.
type Refusal struct {
	At  int
	Why error // nil: none
}

// New returns an acquisition of many of n locks, at least one, that may be given up from now on. once is
// TryLock. async is for a caller who does not block: if a lane is full at first, he is told.
func New(port Port, n int, once, async bool) Acquisition {
	return Acquisition{
		port: port, once: once, async: async,
		stage: Trying, parts: make([]part, n), last: Refusal{At: -1},
	}
}

// Start begins.
func (g *Acquisition) Start() Ready {
	if g.once {
		return g.try()
	}
	return Ready{Do: CheckServers}
}

// ServersChecked is called with a lock that is not held and whose server is away, which is why it is
// refused; -1 if there is none. That lock is waited for first: the others would be kept until
// it is given up.
func (g *Acquisition) ServersChecked(away int, why error) Ready {
	if away < 0 {
		return g.try()
	}
	g.last = Refusal{away, why}
	return g.giveBack()
}

// try begins a round: every lock that is not held yet is tried once, all of them at the same
// time.
func (g *Acquisition) try() Ready {
	g.stage, g.out = Trying, len(g.parts)-g.held
	// Only the first round may find a lane full: no caller could try later ones again.
	return Ready{Do: Try, Count: g.out, Patient: !g.async || g.rounds > 0}
}

// OnResult is called with the result of one lock: granted, or why not.
func (g *Acquisition) OnResult(i int, why error) Ready {
	g.parts[i] = part{why, g.stop != nil}
	if why == nil {
		g.held++
	}
	if g.out--; g.out > 0 {
		return Ready{}
	}
	n := g.held
	if g.stage == Blocked && n > 0 && g.stop == nil { // the others are next
		n = len(g.parts)
	}
	return Ready{Do: Decide, Count: n}
}

// Decide goes on after a round.
func (g *Acquisition) Decide() Ready {
	i := g.worst()
	switch {
	case i >= 0:
		return g.refused(i)
	case g.stage != Blocked || len(g.parts) == 1:
		return Ready{Do: Bind}
	case g.stop != nil:
		return g.fail(g.stoppedAt(g.last))
	}
	return Ready{Do: CheckServers}
}

// Bound is called when the holds were bound together: all are held, as one.
func (g *Acquisition) Bound() { g.stage = Over }

// Lost is called when a lock had ended before the holds could be bound together.
func (g *Acquisition) Lost(i int, why error) Ready {
	lost := Refusal{i, why}
	if g.late++; g.once || g.late >= lock.MaxLate {
		return g.fail(lost)
	}
	g.last = lost
	return g.giveBack()
}

func (g *Acquisition) giveBack() Ready {
	g.held = 0
	clear(g.parts)
	return Ready{Do: GiveBack}
}

// The pause before an acquisition of many blocks: none after the first refusal, as most locks are held
// by an owner that does not want the others; then up to a bound that doubles. Each is as long as
// a round at least: where the server is slow, all who have come meanwhile would begin their
// next rounds at the same time, refuse each other, and make it slower by that.
const (
	firstPause = time.Millisecond
	longPause  = 64 * time.Millisecond
	longRounds = 16
)

// GivenBack is called when all that were held have been given back; the round has taken so long. It
// pauses, and then blocks on the lock that refused.
func (g *Acquisition) GivenBack(round time.Duration) Ready {
	d := time.Duration(0)
	if g.rounds > 0 {
		most := max(longPause, longRounds*round)
		d = g.port.Draw(min(max(firstPause, round)<<min(g.rounds, 16), most))
	}
	g.rounds++
	if g.stop != nil {
		return g.fail(g.stoppedAt(g.last))
	}
	g.stage = Pausing
	return Ready{Do: Pause, For: d}
}

// PauseOver blocks on the lock that refused, unless the acquisition was given up.
func (g *Acquisition) PauseOver() Ready {
	if g.stage != Pausing {
		return Ready{}
	}
	g.stage, g.out = Blocked, 1
	return Ready{Do: Wait, At: g.last.At, Patient: true}
}

// Cancel gives the acquisition up. It leaves Nothing if that has ended or was given up before.
func (g *Acquisition) Cancel(s lockerr.Cancel) Ready {
	if g.stage == Over || g.stop != nil {
		return Ready{}
	}
	g.stop = &s
	if g.stage == Pausing {
		return g.fail(g.stoppedAt(g.last))
	}
	return Ready{Do: CancelTries}
}

// fail ends the acquisition without the locks.
func (g *Acquisition) fail(r Refusal) Ready {
	g.stage, g.held = Over, 0
	if g.stop != nil && g.stop.Away != nil {
		r.Why = g.stop.Err()
	}
	return Ready{Do: Fail, At: max(r.At, 0), Why: r.Why}
}
