package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/world"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// recovery holds the resources whose commands could not be sent, per lane, and goes on
// with them when the lane works again. Those with something to release go first. Then
// follow those that want to acquire, from a random start, with at most maxTries
// unanswered tries per lane. Without that bound 100,000 heads would try at the same
// moment against a server that has just come back. Releases that are sent once more
// after a failover take turns with the tries, within the same bound.
//
// The lane of a name changes when its slot moves to another node. While no node serves
// the slot, its lane is nowhere, and never up. See rerouted.
//
// Lock order: a shard's lock, then mu; under it only the wheel is
// called.
type recovery struct {
	eng *Engine
	mu  struct {
		sync.Mutex
		lanes map[world.Lane]*recoveryLane // those that have something to do
		// dropped is how many resources were dropped since the lists were swept; at sweepAt
		// of them that is done again.
		dropped, sweepAt int
	}
}

type recoveryLane struct {
	recovery *recovery
	id       world.Lane
	urgent   []*machine.Resource // with debts or releases
	tries    []*machine.Resource
	again    []pastRelease // the latest comes last: it is the most likely to be needed
	againAt  clock.Instant // not before
	turn     bool          // again has the next turn
	out      int           // paced commands without an answer
	pace     machine.Pace  // by which these know the lane
	kicked   bool
	kick     wheel.Timer
}

const (
	maxTries = 256
	// kickAfter is how long after a stall the lane is checked, in case it came up
	// meanwhile or was never down (paced tries are stalled too).
	kickAfter = 5 * time.Millisecond
	// againAfter is the pause of past releases that the server has refused for now.
	againAfter = 100 * time.Millisecond
	// sweepAt is how many dropped resources the lists may have at least.
	sweepAt = 256
)

func (v *recovery) init(e *Engine) {
	v.eng = e
	v.mu.lanes = make(map[world.Lane]*recoveryLane)
	v.mu.sweepAt = sweepAt
}

func (v *recovery) laneLocked(id world.Lane) *recoveryLane {
	l := v.mu.lanes[id]
	if l == nil {
		l = &recoveryLane{recovery: v, id: id}
		l.kick.Init(l)
		l.pace.Counter = l
		v.mu.lanes[id] = l
	}
	return l
}

// settleLocked forgets a lane that has nothing to do.
func (v *recovery) settleLocked(l *recoveryLane) {
	if len(l.urgent)+len(l.tries)+len(l.again)+l.out == 0 && !l.kicked {
		delete(v.mu.lanes, l.id)
	}
}

// kickLocked has the lane looked at in a moment.
func (l *recoveryLane) kickLocked() { l.kickAtLocked(l.recovery.eng.clock.Now().Add(kickAfter)) }

func (l *recoveryLane) kickAtLocked(at clock.Instant) {
	if !l.kicked {
		l.kicked = true
		l.recovery.eng.table.Timers.Schedule(&l.kick, at)
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
// found down, with nobody left to look at r. That is what the kick is for:
//
//	Submit: the lane is down
//	                              lane comes up; resume finds nothing
//	add
func (v *recovery) Add(r *machine.Resource) {
	sh := drive.ShardOf(r)
	sh.Lock()
	urgent, route := r.Urgent(), r.Route
	sh.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.Dropped {
		return
	}
	// The lane is asked for with mu held: either that is after the routes changed, or
	// what is added is there when rerouted looks.
	l := v.laneLocked(v.eng.table.Client.LaneOf(route))
	if urgent {
		l.urgent = append(l.urgent, r)
	} else {
		l.tries = append(l.tries, r)
	}
	l.kickLocked()
}

// drop is told that nobody wants any more what a stalled resource was to send. The caller
// holds the shard's lock. The lists are swept when half of what they have is dropped, or
// so: in an outage they must not grow with each name that somebody has asked for.
func (v *recovery) Drop(r *machine.Resource) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r.Dropped = true
	if v.mu.dropped++; v.mu.dropped < v.mu.sweepAt {
		return
	}
	left := 0
	for _, l := range v.mu.lanes {
		for _, list := range []*[]*machine.Resource{&l.urgent, &l.tries} {
			*list = slices.DeleteFunc(*list, func(r *machine.Resource) bool { return r.Dropped })
			left += len(*list)
		}
		v.settleLocked(l)
	}
	v.mu.dropped, v.mu.sweepAt = 0, max(left, sweepAt)
}

// addReleases takes releases that are to be sent again, not before an instant.
func (v *recovery) addReleases(list []pastRelease, at clock.Instant) {
	const some = 256 // a lock of the event loop is not held for long
	for len(list) > 0 {
		part := list[:min(some, len(list))]
		list = list[len(part):]
		v.mu.Lock()
		for _, r := range part {
			l := v.laneLocked(v.eng.table.Client.LaneOf(v.eng.table.Client.Route(r.name)))
			l.again = append(l.again, r)
			l.againAt = max(l.againAt, at)
			l.kickLocked()
		}
		v.mu.Unlock()
	}
}

// up is called when the lane has a connection again.
func (v *recovery) up(id world.Lane) {
	v.mu.Lock()
	if l := v.mu.lanes[id]; l != nil {
		v.eng.world.Shuffle(len(l.tries), func(i, j int) { l.tries[i], l.tries[j] = l.tries[j], l.tries[i] })
	}
	v.mu.Unlock()
	v.resume(id)
}

// rerouted is called when parts of the keys have come to other nodes.
func (v *recovery) rerouted() {
	v.mu.Lock()
	var all []*machine.Resource
	var again []pastRelease
	for _, l := range slices.Collect(maps.Values(v.mu.lanes)) {
		all = append(append(all, l.urgent...), l.tries...)
		again = append(again, l.again...)
		l.urgent, l.tries, l.again = nil, nil, nil
		v.settleLocked(l)
	}
	v.mu.Unlock()
	v.addReleases(again, 0)
	for _, r := range all {
		v.Add(r)
	}
}

// answered is called when a paced command is over; works says that the lane does,
// too.
func (v *recovery) answered(l *recoveryLane, works bool) {
	v.mu.Lock()
	l.out--
	left := len(l.urgent)+len(l.tries)+len(l.again) > 0
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
func (v *recovery) resume(id world.Lane) {
	e := v.eng
	for {
		up := id.Up()
		if !up && !e.table.Closing() {
			return
		}
		v.mu.Lock()
		l := v.mu.lanes[id]
		if l == nil {
			v.mu.Unlock()
			return
		}
		r, past := l.nextLocked(up)
		if r == nil && past == nil {
			v.settleLocked(l)
			v.mu.Unlock()
			return
		}
		l.out++
		v.mu.Unlock()
		if past != nil {
			if !past.send(l) {
				return // as with stalledAgain
			}
			continue
		}
		switch goOn(r, l) {
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

// nextLocked takes out what is to be sent next, if anything may be.
func (l *recoveryLane) nextLocked(up bool) (*machine.Resource, *pastRelease) {
	if r, ok := take(&l.urgent); ok {
		return r, nil
	}
	if l.out >= maxTries {
		return nil, nil
	}
	if l.turn = !l.turn; l.turn || len(l.tries) == 0 {
		if past, ok := l.takePastLocked(up); ok {
			return nil, &past
		}
	}
	r, _ := take(&l.tries)
	return r, nil
}

func (l *recoveryLane) takePastLocked(up bool) (past pastRelease, ok bool) {
	if !up { // the engine is being closed, which Shutdown may delay: up goes on
		return past, false
	}
	if len(l.again) > 0 && l.recovery.eng.clock.Now() < l.againAt {
		l.kickAtLocked(l.againAt)
		return past, false
	}
	return take(&l.again)
}

// take takes the last one out of a list.
func take[T any](list *[]T) (last T, ok bool) {
	n := len(*list)
	if n == 0 {
		*list = nil
		return last, false
	}
	var none T
	last, (*list)[n-1] = (*list)[n-1], none
	*list = (*list)[:n-1]
	return last, true
}

// wentOn is what became of a resource that was stalled.
type wentOn uint8

const (
	nothingToSend wentOn = iota
	commandSent          // its answer comes to recovery
	stalledAgain         // and recovery has been told
)

// goOn ends a stall. What is sent counts for the lane that sent it, wherever it ends.
func goOn(r *machine.Resource, l *recoveryLane) wentOn {
	var fx machine.Effects
	sh := drive.ShardOf(r)
	sh.Lock()
	r.Resume(&l.pace, &fx)
	sh.Unlock()
	sh.Table.Run(&fx)
	if fx.Send == nil {
		return nothingToSend
	}
	sh.Lock()
	defer sh.Unlock()
	if r.Held() == machine.Stalled {
		return stalledAgain
	}
	return commandSent
}

// Answered implements drive.Recovery.
func (v *recovery) Answered(p *machine.Pace, works bool) {
	v.answered(p.Counter.(*recoveryLane), works)
}

// ServerOf implements drive.Recovery.
func (v *recovery) ServerOf(route uint64) resp.ServerID { return v.eng.released.serverOf(route) }

// Released implements drive.Recovery.
func (v *recovery) Released(r *machine.Resource, by machine.Server, id int64, at, end clock.Instant) {
	v.eng.released.note(resp.ServerID(by), r.Route, pastRelease{name: r.Name, id: id, at: at, end: end, kind: drive.KindOf(r)})
}
