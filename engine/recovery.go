package engine

import (
	"maps"
	"math/rand/v2"
	"slices"
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
// The lane of a name may change, when its part of the keys moves to another node or
// is served by none: then its lane is the zero LaneID, which is never up. See
// rerouted.
//
// Lock order: mu is taken with no shard's lock held; under it only the wheel is
// called.
type recovery struct {
	eng *Engine
	mu  struct {
		sync.Mutex
		lanes map[resp.LaneID]*recoveryLane // those that have something to do
	}
}

type recoveryLane struct {
	recovery *recovery
	id       resp.LaneID
	urgent   []*resource // with debts or releases
	tries    []*resource
	out      int // paced commands without an answer
	kicked   bool
	kick     wheel.Timer
}

const (
	maxTries = 256
	// kickAfter is how long after a stall the lane is looked at, in case that it
	// came up meanwhile, or was never down (paced tries come in here too).
	kickAfter = 5 * time.Millisecond
)

func (v *recovery) init(e *Engine) {
	v.eng = e
	v.mu.lanes = make(map[resp.LaneID]*recoveryLane)
}

func (v *recovery) laneLocked(id resp.LaneID) *recoveryLane {
	l := v.mu.lanes[id]
	if l == nil {
		l = &recoveryLane{recovery: v, id: id}
		l.kick.Init(l)
		v.mu.lanes[id] = l
	}
	return l
}

// settleLocked forgets a lane that has nothing to do.
func (v *recovery) settleLocked(l *recoveryLane) {
	if len(l.urgent)+len(l.tries)+l.out == 0 && !l.kicked {
		delete(v.mu.lanes, l.id)
	}
}

// kickLocked has the lane looked at in a moment.
func (l *recoveryLane) kickLocked() {
	if !l.kicked {
		l.kicked = true
		e := l.recovery.eng
		e.wheel.Schedule(&l.kick, e.clock.Now().Add(kickAfter))
	}
}

// Fire implements wheel.Task: the kick.
func (l *recoveryLane) Fire(*wheel.Timer, clock.Instant) {
	v := l.recovery
	v.mu.Lock()
	l.kicked = false
	v.mu.Unlock()
	v.resume(l.id)
}

// add takes a resource that is stalled. The lane may have come up since it was
// found down, with nobody left to look at r, hence the kick:
//
//	Submit: the lane is down
//	                              lane comes up; resume finds nothing
//	add
func (v *recovery) add(r *resource) {
	r.sh.mu.Lock()
	urgent := r.debts != nil || r.hold != nil
	route := r.route
	r.sh.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	// The lane is asked for with mu held: either that is after the routes changed, or
	// what is added is there when rerouted looks.
	l := v.laneLocked(v.eng.client.LaneOf(route))
	if urgent {
		l.urgent = append(l.urgent, r)
	} else {
		l.tries = append(l.tries, r)
	}
	l.kickLocked()
}

// up is called when the lane has a connection again.
func (v *recovery) up(id resp.LaneID) {
	v.mu.Lock()
	if l := v.mu.lanes[id]; l != nil {
		rand.Shuffle(len(l.tries), func(i, j int) { l.tries[i], l.tries[j] = l.tries[j], l.tries[i] })
	}
	v.mu.Unlock()
	v.resume(id)
}

// rerouted is called when parts of the keys have come to other nodes.
func (v *recovery) rerouted() {
	v.mu.Lock()
	var all []*resource
	for _, l := range slices.Collect(maps.Values(v.mu.lanes)) {
		all = append(append(all, l.urgent...), l.tries...)
		l.urgent, l.tries = nil, nil
		v.settleLocked(l)
	}
	v.mu.Unlock()
	for _, r := range all {
		v.add(r)
	}
}

// answered is called when a paced command is over; works says that the lane does,
// too.
func (v *recovery) answered(l *recoveryLane, works bool) {
	v.mu.Lock()
	l.out--
	left := len(l.urgent)+len(l.tries) > 0
	if left && !works {
		// Nobody else may be out to come back here (a full lane, say).
		l.kickLocked()
	}
	v.settleLocked(l)
	v.mu.Unlock()
	if left && works {
		v.resume(l.id)
	}
}

// resume goes on with what is stalled, as far as the bound and the connection
// allow. Every paced command that is answered calls it again.
func (v *recovery) resume(id resp.LaneID) {
	e := v.eng
	for id.Up() || e.closing.Load() {
		v.mu.Lock()
		l := v.mu.lanes[id]
		if l == nil {
			v.mu.Unlock()
			return
		}
		r := take(&l.urgent)
		if r == nil && l.out < maxTries {
			r = take(&l.tries)
		}
		if r == nil {
			v.settleLocked(l)
			v.mu.Unlock()
			return
		}
		l.out++
		v.mu.Unlock()
		switch r.goOn(l) {
		case nothingToSend:
			v.answered(l, false)
		case stalledAgain:
			// The lane is down, whatever Up says: it tells after it has failed all
			// that was in flight, and this may be running inside of that.
			v.mu.Lock()
			l.kickLocked()
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

// goOn ends a stall. What is sent counts for the lane that sent it, wherever it ends.
func (r *resource) goOn(l *recoveryLane) wentOn {
	var fx effects
	r.sh.mu.Lock()
	if r.held == stalled {
		r.held = freely
		r.next(&fx)
		if fx.send != nil {
			r.cmd.paced = l
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
