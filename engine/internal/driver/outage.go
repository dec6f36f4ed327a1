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
//	one begins to wait            Add: it is looked at
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
	Sites []Site
	Need  int           // of these must have a connection
	Most  time.Duration // in a row without
	End   func(why error)

	place waitq.Elem[*Outage]
}

// Site is the server of a name.
type Site struct {
	Client env.Client
	Route  uint64
}

// since is when it came about that fewer than Need have a connection, and what keeps one of them from
// having one; 0: as many have.
func (o *Outage) since() (at clock.Instant, why Site) {
	type away struct {
		at clock.Instant
		Site
	}
	var buf [8]away
	down := buf[:0]
	for _, s := range o.Sites {
		if at := s.Client.DownSince(s.Route); at != 0 {
			down = append(down, away{at, s})
		}
	}
	if len(o.Sites)-len(down) >= o.Need {
		return 0, Site{}
	}
	slices.SortFunc(down, func(a, b away) int { return cmp.Compare(a.at, b.at) })
	last := down[len(o.Sites)-o.Need] // with it they were too few
	return last.at, last.Site
}

// Late returns why the servers have been away for too long; nil if they have not.
func (o *Outage) Late(now clock.Instant) error {
	if at, s := o.since(); at != 0 && at.Add(o.Most) <= now {
		return s.why()
	}
	return nil
}

func (s Site) why() error {
	if why := s.Client.LaneError(s.Route); why != nil {
		return why
	}
	return lockerr.ErrSilent
}

// Add has o ended when its servers have been away for too long. The caller may hold the lock of a
// shard.
func (all *Outages) Add(o *Outage) {
	o.place.Value = o
	all.mu.Lock()
	defer all.mu.Unlock()
	all.mu.all.PushBack(&o.place)
	if at, _ := o.since(); at != 0 {
		all.armLocked(at.Add(o.Most))
	}
}

// Remove forgets o. The caller may hold the lock of a shard.
func (all *Outages) Remove(o *Outage) {
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
		at, s := o.since()
		switch due := at.Add(o.Most); {
		case at == 0:
		case due <= now:
			all.mu.all.Remove(&o.place)
			ends = append(ends, end{o, s.why()})
		case next == 0 || due < next:
			next = due
		}
	}
	if next != 0 {
		all.armLocked(next)
	}
	all.mu.Unlock()
	for _, e := range ends {
		e.End(e.why)
	}
}

// away ends a request whose server is away for too long.
type away struct {
	limit
	Outage
}

// Outage ends the request when its server has been away for d, or returns why that is so already.
// The caller holds the lock.
func (a *Request) Outage(route uint64, d time.Duration) error {
	x := &away{limit: limit{a.Shard, a}}
	t := a.Shard.Table
	x.Outage = Outage{Sites: []Site{{t.Client, route}}, Need: 1, Most: d, End: x.end}
	if why := x.Late(a.Shard.Now()); why != nil {
		return why
	}
	a.More().Outage = x
	t.Outages.Add(&x.Outage)
	return nil
}

func (x *away) end(why error) { x.cancel(lockerr.Cancel{Away: why, TimedOut: true}) }
