package sim

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// held is a hold that a program has, or had a moment ago.
type held struct {
	user  *user
	hold  *engine.Hold
	name  string
	owner string

	watchdog bool      // it has no lease of its own
	acked    bool      // a replica must have it
	until    time.Time // what it was sure of when Unlock was called
	over     bool
}

func (h *held) short() string { return h.owner[len(h.owner)-6:] }

// believed reports whether its holder may count on it.
func (h *held) believed() bool {
	return !h.over && !h.user.p.dead && h.hold.ValidUntil().After((*processClock)(h.user.p).Wall())
}

func (h *held) isDone() bool {
	select {
	case <-h.hold.Done():
		return true
	default:
		return false
	}
}

// look asks the hold whether it is one still.
func (h *held) look() error {
	s := h.user.p.sim
	err := h.hold.Err()
	var lost *engine.LostError
	switch {
	case err == nil:
		if !h.believed() {
			s.fail("%s: Err of %s is nil though its time is over", h.user.name, h.short())
		}
	case errors.As(err, &lost):
		if lost.Reason == engine.NotRenewed && s.healthy() && s.now.Sub(s.quiet) > recovers+s.lease {
			s.fail("%s: %s was not renewed, though nothing has gone wrong", h.user.name, h.short())
		}
	case err == engine.ErrReleased:
	default:
		s.fail("%s: Err of %s is %v", h.user.name, h.short(), err)
	}
	return err
}

// unlocked checks what Unlock has said.
func (h *held) unlocked(err error, lostBefore bool) {
	s := h.user.p.sim
	h.over = true
	switch {
	case err == nil && lostBefore:
		s.fail("%s: Unlock of %s succeeded, though it was lost before", h.user.name, h.short())
	case err == nil && s.server.has(h.name, h.owner):
		s.fail("%s: Unlock of %s succeeded, and the server has it still", h.user.name, h.short())
	case err == nil, errors.Is(err, engine.ErrOutcomeUnknown):
	case errors.Is(err, engine.ErrLost):
		if !lostBefore && !s.wasRobbed(h.owner) && !(*processClock)(h.user.p).Wall().After(h.until) {
			s.fail("%s: Unlock of %s says %v, and nobody took it", h.user.name, h.short(), err)
		}
	default:
		s.fail("%s: Unlock of %s says %v", h.user.name, h.short(), err)
	}
}

// check holds the world against the promises.
func (s *Sim) check() {
	s.holds = slices.DeleteFunc(s.holds, func(h *held) bool { return h.over || h.user.p.dead })
	for i, h := range s.holds {
		if s.wasRobbed(h.owner) || !h.believed() {
			continue
		}
		// 1. Nobody believes to have what the server may give away.
		if !s.server.has(h.name, h.owner) {
			s.fail("%s believes to have %s of %s until %v, and the server has %q", h.user.name, h.short(), h.name,
				h.hold.ValidUntil().Sub((*processClock)(h.user.p).Wall()), s.server.record())
		}
		for _, other := range s.holds[:i] {
			if other.name == h.name && !s.wasRobbed(other.owner) && other.believed() {
				s.fail("%s and %s both believe to have %s", h.user.name, other.user.name, h.name)
			}
		}
	}
	// 2. No lock stays for good.
	for key, h := range s.server.keys {
		if h.expire == 0 {
			s.fail("%s has no expiry", key)
		}
	}
	s.checkHealthy()
}

// checkHealthy holds a healthy world against what a promise can only be where messages
// arrive and servers answer.
func (s *Sim) checkHealthy() {
	if !s.healthy() {
		clear(s.free)
		clear(s.stray)
		return
	}
	// 3. A name that is free does not stay so while somebody waits for it.
	for _, name := range names {
		if s.server.get(name) != nil || !s.awaited(name) || s.now < s.excused[name].Add(wakeUp) {
			delete(s.free, name)
		} else if since, was := s.free[name]; !was {
			s.free[name] = s.now
		} else if s.now.Sub(since) > wakeUp {
			s.fail("%s is free since %v, and somebody waits for it", name, s.now.Sub(since))
		}
	}
	for _, h := range s.holds {
		// 5. The end of a hold is told in time.
		if over := (*processClock)(h.user.p).Wall().Sub(h.hold.ValidUntil()); over > wakeUp && !h.isDone() {
			s.fail("%s: the time of %s is over for %v, and its Done says nothing", h.user.name, h.short(), over)
		}
		// 6. A hold that others have removed is told at its next renewal.
		if at, robbed := s.robbed[h.owner]; robbed && h.watchdog && h.believed() && s.now.Sub(max(at, s.quiet)) > recovers+s.lease*2/5 {
			s.fail("%s: %s was taken away %v ago, and it does not know", h.user.name, h.short(), s.now.Sub(at))
		}
	}
	// 4. The server has no owner for long that nobody has.
	for _, owner := range s.owners() {
		if s.has(owner) || s.denied[owner] {
			delete(s.stray, owner)
		} else if since, was := s.stray[owner]; !was {
			s.stray[owner] = s.now
		} else if s.now.Sub(since) > wakeUp {
			s.fail("the server has %s for %v, and nobody else does", owner, s.now.Sub(since))
		}
	}
}

func (s *Sim) wasRobbed(owner string) bool {
	_, yes := s.robbed[owner]
	return yes
}

// wakeUp is how long it may take until a lock that is free has a holder again, and one
// that nobody wants is free. A head whose subscription is not confirmed looks every second.
const wakeUp = 1200 * time.Millisecond

func (s *Sim) awaited(name string) bool {
	for _, p := range s.processes {
		for _, u := range p.users {
			if !p.dead && u.waits == name {
				return true
			}
		}
	}
	return false
}

// owners are those of living processes that the server has.
func (s *Sim) owners() (all []string) {
	for _, name := range names {
		h := s.server.get(name)
		if h == nil {
			continue
		}
		for owner := range h.fields {
			for _, p := range s.processes {
				if !p.dead && strings.HasPrefix(owner, p.engine.ID()+":") && !strings.HasPrefix(owner, p.engine.ID()+":-") {
					all = append(all, owner)
				}
			}
		}
	}
	return all
}

// has reports whether a program has the owner.
func (s *Sim) has(owner string) bool {
	return slices.ContainsFunc(s.holds, func(h *held) bool { return h.owner == owner })
}

// rest checks that a world in which nothing happens any more has nothing left.
func (s *Sim) rest() {
	if left := s.server.record(); len(left) > 0 {
		s.fail("at rest the server has %q", left)
	}
	for _, p := range s.processes {
		if p.dead {
			continue
		}
		for _, u := range p.users {
			if u.busy {
				s.fail("at rest %s waits still", u.name)
			}
		}
		if n := p.engine.Stats(); n.Held != 0 || n.Waiting != 0 {
			s.fail("at rest %s has %d holds and %d who wait", p.name, n.Held, n.Waiting)
		}
		if len(p.pubsub.wanted) > 0 {
			s.fail("at rest %s is subscribed to %s", p.name, p.pubsub.wanted[0].name)
		}
		if len(p.timers) > 0 {
			s.fail("at rest %s has %d timers", p.name, len(p.timers))
		}
	}
}
