package sim

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/internal/clock"
)

// replica is what the replica of a server has: what the server had a moment ago. With the
// replica's acknowledgement of a write it has everything until then.
type replica struct {
	data model.Data
	// epoch counts the promotions. What was sent to an earlier primary, and not executed, is
	// never executed.
	epoch int
}

// replicate brings the replica up to date.
func (v *server) replicate() {
	if v.replica != nil {
		v.replica.data = v.Data.Clone()
	}
}

// epochOf is which primary a server is; they all look the same.
func (v *server) epochOf() int {
	if v.replica == nil {
		return 0
	}
	return v.replica.epoch
}

// replicas gives each server a replica, which lags behind by up to a second.
func (s *Sim) replicas() {
	for _, v := range s.servers {
		v.replica = new(replica)
		v.replicate()
		s.lag(v)
	}
}

func (s *Sim) lag(v *server) {
	s.after(s.between(0, time.Second), nil, func() {
		if !s.calm { // nothing fails over any more
			v.replicate()
			s.lag(v)
		}
	})
}

// failover promotes the replica. The engines learn of it in a while, each at another time.
//
// What the replica did not have is gone: holds that no replica has acknowledged, and leases
// that were raised since. And what was released since is back: the engines release that again.
func (s *Sim) failover(v *server) {
	s.tell("%s fails over", v.name)
	s.failovers++
	for _, p := range s.processes {
		for _, x := range p.sites {
			if x.server == v && !p.dead {
				x.cut()
			}
		}
	}
	old := v.Keys
	v.Data = v.replica.data
	if v == s.server { // which has the semaphore
		s.failoverPermits()
	}
	s.turns.loseAll()
	for _, name := range names {
		for _, engine := range v.WaitersFor(name) {
			s.latePlaces[engine+" "+name] = true
		}
	}
	clear(s.tokens) // those that the replica has not heard of may be given again
	v.replicate()
	v.replica.epoch++
	for _, name := range slices.Sorted(maps.Keys(old)) {
		h := old[name]
		if h.Expire < v.Milliseconds() {
			continue
		}
		for _, owner := range slices.Sorted(maps.Keys(h.Fields)) {
			if promoted := v.Get(name); promoted != nil && promoted.Fields[owner] != "" && promoted.Expire >= h.Expire {
				continue
			}
			switch {
			case s.acknowledged(owner):
			case name == quorum:
				s.robbedVotes = append(s.robbedVotes, owner)
				s.robbed[owner] = s.now
			case v.Has(name, owner):
				s.shortened[owner] = shortened{name, h.Expire}
			default:
				s.robbed[owner] = s.now
			}
		}
		left := time.Duration(h.Expire-v.Milliseconds()) * time.Millisecond
		s.excused[name] = max(s.excused[name], s.now.Add(min(left, lock.LongestSleep))) // waiters ask by then
	}
	for name, h := range v.Keys {
		for owner := range h.Fields {
			if before := old[name]; before == nil || before.Fields[owner] == "" {
				s.ghosts[owner] = true
			}
			if _, was := s.robbed[owner]; was { // others have removed it, and now it is back
				delete(s.robbed, owner)
				s.shortened[owner] = shortened{name, math.MaxInt64} // for how long it was there is not known
				s.denied[owner] = s.now                             // its engine may know that it is lost, and owes nothing
			}
		}
	}
	for _, p := range s.processes {
		for _, x := range p.sites {
			if x.server == v && !p.dead {
				epoch := v.replica.epoch
				s.after(s.between(0, 2*time.Second), p, func() { x.rerouted(epoch) })
			}
		}
	}
}

// shortened is a lease that a failover has shortened: the name, and when it ended before.
type shortened struct {
	name   string
	expire int64
}

// checkShortened looks at leases that a failover has shortened: they may end before their
// holders can know, until they are renewed.
func (s *Sim) checkShortened() {
	for owner, was := range s.shortened {
		switch h := s.server.Get(was.name); {
		case h == nil || h.Fields[owner] == "":
			s.robbed[owner] = s.now
			delete(s.shortened, owner)
		case h.Expire >= was.expire:
			delete(s.shortened, owner)
		}
	}
}

// acknowledged reports whether a replica has acknowledged what somebody believes to have.
func (s *Sim) acknowledged(owner string) bool {
	return slices.ContainsFunc(s.holds, func(h *held) bool {
		return h.acked && h.believed() && slices.Contains(h.owners, owner)
	})
}

// rerouted tells an engine that its names are at another server.
func (x *site) rerouted(epoch int) {
	if x.epoch = max(x.epoch, epoch); x.epoch > epoch || x.closed {
		return // that server has been replaced, too
	}
	for _, n := range x.nodes {
		for i, c := range n.lanes {
			c.lane = lane{n, x, i, x.epoch}
		}
	}
	x.sim.tell("%s knows of it", x.name)
	x.events.Routes()
}

// mayConnect reports whether the site knows who is primary, and the server can be reached;
// else it says when to try again.
func (x *site) mayConnect(v *server) (again clock.Instant, ok bool) {
	switch s := x.sim; {
	case s.now < v.down:
		return v.down, false
	case x.epoch != v.epochOf():
		return s.now.Add(50 * time.Millisecond), false
	}
	return 0, true
}
