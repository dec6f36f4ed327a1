package recovery

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// Recovery holds the names whose commands could not be sent, per lane, and goes on with them
// when the lane works again; see backlog. It also remembers releases; see memory.
//
// The lane of a name changes when its slot moves to another node. While no node serves
// the slot, its lane is nowhere, and never up. See Rerouted.
type Recovery struct {
	cfg Config
	mu  struct {
		sync.Mutex
		lanes map[env.Lane]*lane // those that have something to do
		count uint64             // of lanes that ever had
		drops sweeper
	}
	released releaseLog
}

// lane is one that has something to do. Its Recovery's mu guards it.
type lane struct {
	recovery *Recovery
	id       env.Lane
	number   uint64 // in the order in which they came to have something to do
	backlog
	pace  lock.Throttle // by which commands know the lane
	timer wheel.Timer   // the recheck
}

// New makes a Recovery.
func New(cfg Config) *Recovery {
	v := &Recovery{cfg: cfg}
	v.mu.lanes = make(map[env.Lane]*lane)
	v.released.init(v)
	return v
}

func (v *Recovery) laneLocked(id env.Lane) *lane {
	l := v.mu.lanes[id]
	if l == nil {
		v.mu.count++
		l = &lane{recovery: v, id: id, number: v.mu.count}
		l.timer.Init(l)
		l.pace.Counter = l
		v.mu.lanes[id] = l
	}
	return l
}

// scheduleLocked forgets a lane that has nothing to do.
func (v *Recovery) scheduleLocked(l *lane) {
	if l.over() {
		delete(v.mu.lanes, l.id)
	}
}

// recheckLocked has the lane looked at in a moment.
func (l *lane) recheckLocked() { l.recheckAtLocked(l.recovery.cfg.Clock.Now().Add(recheckAfter)) }

func (l *lane) recheckAtLocked(at clock.Instant) {
	if l.recheck() {
		l.recovery.cfg.Wheel.Schedule(&l.timer, at)
	}
}

// Fire implements wheel.Task: the recheck.
func (l *lane) Fire(*wheel.Timer, clock.Instant) {
	v := l.recovery
	v.mu.Lock()
	l.rechecking = false
	v.mu.Unlock()
	v.resume(l.id)
}

// Add takes a name that is stalled. The lane may have come up since it was found down, with
// nobody left to look at r. That is what the recheck is for:
//
//	Submit: the lane is down
//	                              lane comes up; resume finds nothing
//	Add
func (v *Recovery) Add(r Stalled) {
	_, urgent, route := r.Status()
	v.mu.Lock()
	defer v.mu.Unlock()
	if *r.Unwanted() {
		return
	}
	// The lane is asked for with mu held: either that is after the routes changed, or
	// what is added is there when Rerouted looks.
	l := v.laneLocked(v.cfg.Client.LaneOf(route))
	l.add(r, urgent)
	l.recheckLocked()
}

// Drop is told that nobody wants any more what a stalled name was to send. The caller holds
// the shard's lock.
func (v *Recovery) Drop(r Stalled) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*r.Unwanted() = true
	if !v.mu.drops.dropped() {
		return
	}
	left := 0
	for _, l := range v.mu.lanes {
		left += l.sweep()
		v.scheduleLocked(l)
	}
	v.mu.drops.swept(left)
}

// Resend takes releases that are to be sent again, not before an instant.
func (v *Recovery) Resend(list []Release, at clock.Instant) {
	const some = 256 // a lock of the event loop is not held for long
	for len(list) > 0 {
		part := list[:min(some, len(list))]
		list = list[len(part):]
		v.mu.Lock()
		for _, r := range part {
			l := v.laneLocked(v.cfg.Client.LaneOf(v.cfg.Client.Route(r.Name)))
			l.addPast(r, at)
			l.recheckLocked()
		}
		v.mu.Unlock()
	}
}

// Up is called when the lane has a connection again. Where the tries start is random, so that
// the processes do not all ask for the same names.
func (v *Recovery) Up(id env.Lane) {
	v.mu.Lock()
	if l := v.mu.lanes[id]; l != nil {
		v.cfg.Shuffle(len(l.tries), func(i, j int) { l.tries[i], l.tries[j] = l.tries[j], l.tries[i] })
	}
	v.mu.Unlock()
	v.resume(id)
}

// Rerouted is called when parts of the keys have come to other nodes: what waits may have
// another lane, and what was released another server.
func (v *Recovery) Rerouted() {
	v.mu.Lock()
	var names []Stalled
	var past []Release
	inOrder := slices.SortedFunc(maps.Values(v.mu.lanes), func(a, b *lane) int { return cmp.Compare(a.number, b.number) })
	for _, l := range inOrder {
		moreNames, morePast := l.takeAll()
		names, past = append(names, moreNames...), append(past, morePast...)
		v.scheduleLocked(l)
	}
	v.mu.Unlock()
	v.Resend(past, 0)
	for _, r := range names {
		v.Add(r)
	}
	v.released.rerouted()
}

// Answered is called when a command that has a pace is over; works says that its lane does,
// too.
func (v *Recovery) Answered(pace *lock.Throttle, works bool) {
	v.answered(pace.Counter.(*lane), works)
}

func (v *Recovery) answered(l *lane, works bool) {
	v.mu.Lock()
	more := l.answered()
	if more && !works { // nobody else may be out to come back here (a full lane, say)
		l.recheckLocked()
	}
	v.scheduleLocked(l)
	v.mu.Unlock()
	if more && works {
		v.resume(l.id)
	}
}

// resume goes on with what waits, as far as the bound and the connection allow. Every answer
// that is counted calls it again.
func (v *Recovery) resume(id env.Lane) {
	for {
		up := id.Up()
		if !up && !v.cfg.Engine.Closing() {
			return
		}
		l, s := v.next(id, up)
		switch {
		case s.isPast:
			if !l.send(&s.past) {
				return // as below
			}
		case s.res == nil:
			return
		default:
			if !s.res.Advance(&l.pace) {
				v.answered(l, false)
			} else if stalled, _, _ := s.res.Status(); stalled {
				// Add was told. The lane is down, whatever Up says: it tells after it has failed all
				// that was in flight, and this may be running inside of that.
				v.mu.Lock()
				l.recheckLocked()
				v.mu.Unlock()
				return
			}
		}
	}
}

// next takes out what is to be sent next on a lane.
func (v *Recovery) next(id env.Lane, up bool) (*lane, ready) {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.mu.lanes[id]
	if l == nil {
		return nil, ready{}
	}
	var now clock.Instant
	if len(l.resend) > 0 { // nobody else asks for the time
		now = v.cfg.Clock.Now()
	}
	s := l.next(up, now)
	if s.wakeAt != 0 {
		l.recheckAtLocked(s.wakeAt)
	}
	if s.res == nil && !s.isPast {
		v.scheduleLocked(l)
	}
	return l, s
}
