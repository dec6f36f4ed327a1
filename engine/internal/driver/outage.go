package driver

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// Outages ends what does not wait for servers that are away for too long. How long they have been
// is known by their command_conns, so those that wait have no timer each. There is one for all of them,
// which is set only while a server is away:
//
//	a lane is lost, names move    Check: all are looked at, on a goroutine of the wheel
//	one begins to wait            add: it is looked at
//	the timer                     those whose time is over end; it is set to the next of the others
//
// An outage that ends and begins again counts anew, as its lane says.
//
// mu is taken under the lock of a shard, and takes those of links and of the wheel.
type Outages struct {
	clock  clock.Clock
	timers env.Timers
	timer  wheel.Timer

	mu struct {
		sync.Mutex
		all waitq.List[*Outage]
		at  clock.Instant // what the timer is set to; 0: it is not
	}
}

func (o *Outages) init(c clock.Clock, timers env.Timers) {
	o.clock, o.timers = c, timers
	o.timer.Init(o)
}

// Outage is how long something waits for servers that are away.
type Outage struct {
	of    canceller
	sites []site
	need  int           // of these must have a connection
	most  time.Duration // in a row without
	place waitq.Elem[*Outage]
}

// site is the server of a name.
type site struct {
	client env.Client
	route  uint64
}

// over is when fewer than need will have been without a connection for too long, and what keeps one of the
// others from having one; 0: enough have one.
func (o *Outage) over() (at clock.Instant, why site) {
	type away struct {
		at clock.Instant
		site
	}
	var buf [8]away
	down := buf[:0]
	for _, s := range o.sites {
		if at := s.client.DownSince(s.route); at != 0 {
			down = append(down, away{at, s})
		}
	}
	if len(o.sites)-len(down) >= o.need {
		return 0, site{}
	}
	slices.SortFunc(down, func(a, b away) int { return cmp.Compare(a.at, b.at) })
	last := down[len(o.sites)-o.need] // with it they were too few
	return last.at.Add(o.most), last.site
}

func (s site) why() error { return cmp.Or(s.client.LaneError(s.route), lockerr.ErrSilent) }

// add has o end what it is of when its servers have been away for too long, or returns why they have been
// already. The caller may hold the lock of a shard.
func (all *Outages) add(o *Outage) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	at, s := o.over()
	if at != 0 && at <= all.clock.Now() {
		return s.why()
	}
	o.place.Value = o
	if all.mu.all.PushBack(&o.place); at != 0 {
		all.armLocked(at)
	}
	return nil
}

// remove forgets o. The caller may hold the lock of a shard.
func (all *Outages) remove(o *Outage) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.mu.all.Remove(&o.place)
}

// Check is called when a lane was lost, or names have come to other servers.
func (all *Outages) Check() {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.mu.all.Len() > 0 {
		all.armLocked(all.clock.Now())
	}
}

func (all *Outages) armLocked(at clock.Instant) {
	if all.mu.at == 0 || at < all.mu.at {
		all.mu.at = at
		all.timers.Schedule(&all.timer, at)
	}
}

// Fire implements wheel.Task.
func (all *Outages) Fire(*wheel.Timer, clock.Instant) {
	type end struct {
		*Outage
		why error
	}
	var ends []end
	next := clock.Instant(0)
	all.mu.Lock()
	all.mu.at = 0
	now := all.clock.Now()
	for o := range all.mu.all.All() {
		switch at, s := o.over(); {
		case at == 0:
		case at <= now:
			all.mu.all.Remove(&o.place)
			ends = append(ends, end{o, s.why()})
		case next == 0 || at < next:
			next = at
		}
	}
	if next != 0 {
		all.armLocked(next)
	}
	all.mu.Unlock()
	for _, e := range ends {
		e.of.Cancel(lockerr.Cancel{Away: e.why, TimedOut: true})
	}
}
