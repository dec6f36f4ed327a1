package engine

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// recovery holds the resources whose commands could not be sent, per lane, and
// goes on with them when the lane works again: those with something to release
// first, then those that want to acquire, from a random start, at most maxTries
// tries unanswered per lane. Without the bound, 100,000 heads would try at the
// same moment against a server that has just come back.
//
// Lock order: mu is taken with no shard's lock held; under it only the wheel is
// called.
type recovery struct {
	mu    sync.Mutex
	lanes []recoveryLane
}

type recoveryLane struct {
	urgent []*resource // with debts or releases
	tries  []*resource
	out    int // paced commands without an answer
	kick   wheel.Timer
}

const (
	maxTries = 256
	// kickAfter is how long after a stall the lane is looked at, in case that it
	// came up meanwhile, or was never down (paced tries come in here too).
	kickAfter = 5 * time.Millisecond
)

func (v *recovery) init(e *Engine, lanes int) {
	v.lanes = make([]recoveryLane, lanes)
	for i := range v.lanes {
		v.lanes[i].kick.Init(recoveryKick{e, i})
	}
}

// recoveryKick is the wheel.Task of a lane's kick.
type recoveryKick struct {
	e    *Engine
	lane int
}

func (k recoveryKick) Fire(*wheel.Timer, clock.Instant) { k.e.recovery.resume(k.e, k.lane) }

// add takes a resource that is stalled. The lane may have come up since it was
// found down, with nobody left to look at r, hence the kick:
//
//	Submit: the lane is down
//	                              lane comes up; resume finds nothing
//	add
func (v *recovery) add(e *Engine, r *resource) {
	r.sh.mu.Lock()
	urgent := r.debts != nil || r.hold != nil
	lane := e.client.LaneOf(r.hash)
	r.sh.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	l := &v.lanes[lane]
	if urgent {
		l.urgent = append(l.urgent, r)
	} else {
		l.tries = append(l.tries, r)
	}
	if len(l.urgent)+len(l.tries) == 1 {
		e.wheel.Schedule(&l.kick, e.clock.Now().Add(kickAfter))
	}
}

// up is called when the lane has a connection again.
func (v *recovery) up(e *Engine, lane int) {
	v.mu.Lock()
	tries := v.lanes[lane].tries
	rand.Shuffle(len(tries), func(i, j int) { tries[i], tries[j] = tries[j], tries[i] })
	v.mu.Unlock()
	v.resume(e, lane)
}

// answered is called when a paced command is over; works says that the lane does,
// too.
func (v *recovery) answered(e *Engine, lane int, works bool) {
	v.mu.Lock()
	l := &v.lanes[lane]
	l.out--
	left := len(l.urgent)+len(l.tries) > 0
	if left && !works {
		// Nobody else may be out to come back here (a full lane, say).
		e.wheel.Schedule(&l.kick, e.clock.Now().Add(kickAfter))
	}
	v.mu.Unlock()
	if left && works {
		v.resume(e, lane)
	}
}

// resume goes on with what is stalled, as far as the bound and the connection
// allow. Every paced command that is answered calls it again.
func (v *recovery) resume(e *Engine, lane int) {
	for e.client.Up(resp.RoleLane, lane) || e.closing.Load() {
		v.mu.Lock()
		l := &v.lanes[lane]
		r := take(&l.urgent)
		if r == nil && l.out < maxTries {
			r = take(&l.tries)
		}
		if r != nil {
			l.out++
		}
		v.mu.Unlock()
		if r == nil {
			return
		}
		switch r.goOn() {
		case nothingToSend:
			v.answered(e, lane, false)
		case stalledAgain:
			// The lane is down, whatever Up says: it tells after it has failed all
			// that was in flight, and this may be running inside of that.
			v.mu.Lock()
			e.wheel.Schedule(&l.kick, e.clock.Now().Add(kickAfter))
			v.mu.Unlock()
			return
		}
	}
}

func take(list *[]*resource) *resource {
	n := len(*list)
	if n == 0 {
		*list = nil
		return nil
	}
	r := (*list)[n-1]
	(*list)[n-1] = nil
	*list = (*list)[:n-1]
	return r
}

// wentOn is what became of a resource that was stalled.
type wentOn uint8

const (
	nothingToSend wentOn = iota
	commandSent          // its answer comes to recovery
	stalledAgain         // and recovery has been told
)

// goOn ends a stall.
func (r *resource) goOn() wentOn {
	var fx effects
	r.sh.mu.Lock()
	if r.held == stalled {
		r.held = freely
		r.next(&fx)
		if fx.send != nil {
			r.cmd.paced = true
		}
		r.settled()
	}
	r.sh.mu.Unlock()
	fx.run(r.sh.eng)
	if fx.send == nil {
		return nothingToSend
	}
	r.sh.mu.Lock()
	defer r.sh.mu.Unlock()
	if r.held == stalled {
		return stalledAgain
	}
	return commandSent
}
