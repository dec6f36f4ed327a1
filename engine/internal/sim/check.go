package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// held is a hold that a program has, or had a moment ago, of one name or several.
type held struct {
	user     *user
	names    []string
	hold     *engine.Hold
	owners   []string // of the names; "": it was lost before the program had it
	contexts []context.Context
	ctx      context.Context // that it was asked for with
	limit    time.Duration   // after which that ends; 0: it does not
	within   *held           // which it re-enters
	beside   *held           // a writer, beside which it reads
	under    *held           // the context that it was asked for with carries it, and it is of another name
	reads    bool            // it lets others read
	quorum   bool            // it is one of several servers
	all      bool            // it needs them all
	once     bool            // it was asked for with TryLock
	alone    *alone          // with NonReentrant

	most     time.Duration // its MaxHold
	watchdog bool          // it has no lease of its own
	fixed    bool          // a re-entry with one
	acked    bool          // a replica must have it
	last     clock.Instant // when it was last known to be believed
	until    time.Time     // what it was sure of when Unlock was called
	over     bool
	asked    clock.Instant
	granted  clock.Instant
	// failovers is how many there were when Unlock was called.
	failovers int
}

// findOwners asks the server for the owners that the engine has. One that was granted when its
// connection had ended is nobody's: what the program has may be a grant that was handed over,
// and was taken away by then.
func (h *held) findOwners() {
	s := h.user.p.sim
	h.owners = make([]string, len(h.names))
	name := h.names[0]
	// Beside others of its process, or one of them has it by now.
	if len(h.names) == 1 && !h.quorum && (name == fair || name == rw || name == fenced) {
		if owner := h.hold.Owner(); s.server.Has(name, owner) && !(name == rw && s.late[owner]) {
			h.owners[0] = owner
		}
		return
	}
	for i, name := range h.names {
		for _, owner := range s.owners(name) {
			for _, x := range h.user.p.sites {
				if strings.HasPrefix(owner, x.engine.ID()+":") && !s.ghosts[owner] && !s.late[owner] {
					h.owners[i] = owner
				}
			}
		}
	}
}

func (h *held) short() string {
	text := ""
	for _, owner := range h.owners {
		text += owner[max(0, len(owner)-6):] + " "
	}
	return strings.TrimSuffix(text, " ")
}

// checkGaveUp: whoever has waited as long as Wait allows is told that somebody has what it wants, or
// that the server is away.
func (s *Sim) checkGaveUp(who string, err error) {
	if errors.Is(err, lockerr.ErrWaited) && !errors.Is(err, engine.ErrOutcomeUnknown) &&
		errors.Is(err, engine.ErrHeld) == errors.Is(err, engine.ErrUnavailable) {
		s.fail("%s has waited as long as it may, and is told %v", who, err)
	}
}

// believed reports whether its holder may count on it.
func (h *held) believed() bool {
	return !h.over && !h.user.p.dead && h.hold.ValidUntil().After(h.user.p.wall())
}

// robbed reports whether others have removed it, or a part of it.
func (h *held) robbed() bool {
	_, yes := h.robbedAt()
	return yes
}

func (h *held) robbedAt() (clock.Instant, bool) {
	if h.quorum {
		for _, owner := range h.user.p.sim.robbedVotes {
			for _, x := range h.user.p.sites {
				if strings.HasPrefix(owner, x.engine.ID()+":") {
					return begin, true // perhaps: then it is not looked at
				}
			}
		}
		return 0, false
	}
	for _, owner := range h.owners {
		if owner == "" {
			return h.granted, true
		}
		if at, yes := h.user.p.sim.robbed[owner]; yes {
			return at, true
		}
	}
	return 0, false
}

func (h *held) isDone() bool {
	select {
	case <-h.hold.Done():
		return true
	default:
		return false
	}
}

// there is how many of its names the server has, or how many servers have it.
func (h *held) there() (n int) {
	if h.quorum {
		return h.votes()
	}
	for i, name := range h.names {
		if h.user.p.sim.server.Has(name, h.owners[i]) {
			n++
		}
	}
	return n
}

func (h *held) aliveContext() bool {
	return slices.ContainsFunc(h.contexts, func(ctx context.Context) bool { return ctx.Err() == nil })
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
		if lost.Reason == engine.EngineClosed && !slices.ContainsFunc(h.user.p.sites, func(x *site) bool { return x.ending != 0 }) {
			s.fail("%s: %s was ended, and nobody has called Close", h.user.name, h.short())
		}
		if lost.Reason == engine.NotRenewed && s.healthy() && h.last.Sub(s.quiet) > recovers+s.lease {
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
	case h.within != nil && h.within.hold.Err() != nil && (err == nil || errors.Is(err, engine.ErrNotHeld)): // with what it re-entered
	case err == nil && lostBefore:
		s.fail("%s: Unlock of %s succeeded, though it was lost before", h.user.name, h.short())
	case err == nil && h.within == nil && !h.quorum && !h.handedOver() && h.failovers == s.failovers && h.there() > 0: // of a RedLock, a program of the same process may have it by now
		s.fail("%s: Unlock of %s succeeded, and the server has it still", h.user.name, h.short())
	case err == nil, errors.Is(err, engine.ErrOutcomeUnknown):
	case errors.Is(err, engine.ErrLost):
		if !lostBefore && !h.robbed() && !h.user.p.wall().After(h.until) {
			s.fail("%s: Unlock of %s says %v, and nobody took it", h.user.name, h.short(), err)
		}
	default:
		s.fail("%s: Unlock of %s says %v", h.user.name, h.short(), err)
	}
}

// handedOver reports whether its grant may have gone to somebody else of its process. A grant
// that did not, and is there still, is found as an owner that nobody has.
func (h *held) handedOver() bool {
	return h.watchdog && !h.acked && h.most == 0 && slices.ContainsFunc(h.user.p.sites, func(x *site) bool { return x.engine.Stats().HandedOver > 0 })
}

// nested reports whether one of two holds is a re-entry of the other.
func (h *held) nested(other *held) bool {
	for up := h; up != nil; up = up.within {
		if up == other {
			return true
		}
	}
	for up := other; up != nil; up = up.within {
		if up == h {
			return true
		}
	}
	return false
}

// check holds the world against the promises.
func (s *Sim) check() {
	s.holds = slices.DeleteFunc(s.holds, func(h *held) bool { return h.over || h.user.p.dead })
	s.checkShortened()
	for i, h := range s.holds {
		if h.believed() {
			h.last = s.now
		}
		if h.robbed() {
			continue
		}
		// 0. No context of a hold is alive when the server may give its lock away.
		if h.there() < h.needs() && h.aliveContext() && h.user.p.awake() {
			s.fail("%s: a context of %s is alive, and the server has %q", h.user.name, h.short(), s.server.Record())
		}
		if !h.believed() {
			// Nor when somebody else of the process has it: it may have been handed over.
			if h.aliveContext() && h.user.p.awake() && slices.ContainsFunc(s.holds, func(other *held) bool {
				return other.believed() && other.user.p == h.user.p && !h.nested(other) && !h.together(other) && !h.quorum && other.owners[0] == h.owners[0]
			}) {
				s.fail("%s: a context of %s is alive, and its process has given it to somebody else", h.user.name, h.short())
			}
			continue
		}
		// 1. Nobody believes to have what the server may give away.
		if h.there() < h.needs() {
			s.fail("%s believes to have %s of %s until %v, and the server has %q", h.user.name, h.short(), h.names,
				h.hold.ValidUntil().Sub(h.user.p.wall()), s.server.Record())
		}
		for _, other := range s.holds[:i] {
			if !other.robbed() && other.believed() && !h.nested(other) && !h.together(other) && slices.ContainsFunc(h.names, func(name string) bool { return slices.Contains(other.names, name) }) {
				s.fail("%s and %s both believe to have one of %s and %s", h.user.name, other.user.name, h.names, other.names)
			}
		}
	}
	// 2. No lock stays for good.
	for _, v := range s.servers {
		for key, h := range v.Keys {
			if h.Expire == 0 && !h.IsCount() {
				s.fail("%s has no expiry", key)
			}
		}
	}
	s.checkHealthy()
	if s.counts != nil {
		s.checkCounts()
	}
	if s.semaphore {
		s.checkPermits()
	}
}

// checkHealthy holds a healthy world against what a promise can only be where messages
// arrive and servers answer.
func (s *Sim) checkHealthy() {
	if !s.healthy() {
		clear(s.free)
		clear(s.stray)
		clear(s.reading.open)
		return
	}
	s.checkReaders()
	// 3. A name that is free does not stay so while somebody waits for it.
	for _, name := range names {
		if s.server.Get(name) != nil || !s.awaited(name) || s.barred(name) || s.now < s.excused[name].Add(wakeUp) {
			delete(s.free, name)
		} else if since, was := s.free[name]; !was {
			s.free[name] = freed{s.now, s.announced[name] == s.now, s.heard[name] == s.now, s.server.First(fair), s.frontIsSilent(name)}
		} else if limit := since.limit(name) + s.patienceFor(name, since); s.now.Sub(since.at) > limit {
			s.fail("%s is free since %v, and somebody waits for it", name, s.now.Sub(since.at))
		}
	}
	for _, h := range s.holds {
		// 5. The end of a hold is told in time.
		over := min(s.now.Sub(h.last), h.user.p.wall().Sub(h.hold.ValidUntil()))
		if over > settled && !h.isDone() {
			s.fail("%s: the time of %s is over for %v, and its Done says nothing", h.user.name, h.short(), over)
		}
		// 6. A hold that others have removed is told at its next renewal.
		if at, robbed := h.robbedAt(); robbed && h.watchdog && !h.fixed && !h.quorum && h.believed() && s.now.Sub(max(at, s.quiet)) > recovers+s.lease*2/5 {
			s.fail("%s: %s was taken away %v ago, and it does not know", h.user.name, h.short(), s.now.Sub(at))
		}
	}
	// 4. The server has no owner for long that nobody has.
	for _, name := range names {
		for _, owner := range s.owners(name) {
			// The release of a lost hold needs the queue. It waits for it, as everybody does who
			// wants the lock.
			if s.has(owner) || s.denied[owner] != 0 || s.forgotten(owner) || name == fair && s.barred(name) {
				delete(s.stray, owner)
			} else if since, was := s.stray[owner]; !was {
				s.stray[owner] = s.now
			} else if s.now.Sub(since) > settled {
				s.fail("the server has %s for %v, and nobody else does", owner, s.now.Sub(since))
			}
		}
	}
	s.checkRests()
}

const (
	// wakeUp is how long it may take until a lock that is free has a holder again: round
	// trips, late timers.
	wakeUp = 300 * time.Millisecond
	// settled is how long it may take until one that nobody wants is free, and until an
	// end is told. An in-doubt owner is released a second time after a second.
	settled = 1200 * time.Millisecond
	// longestMinHold is the longest one that is asked for.
	longestMinHold = 5 * time.Second
)

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

// owners are those of living processes that the servers have for a name, in order.
func (s *Sim) owners(name string) (all []string) {
	for _, p := range s.processes {
		for _, x := range p.sites {
			h := x.server.Get(name)
			if h == nil || p.dead || x.closed {
				continue
			}
			for owner := range h.Fields {
				if x.owns(owner) && !x.server.HasExpired(name, owner) {
					all = append(all, owner)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// has reports whether a program has the owner.
func (s *Sim) has(owner string) bool {
	return slices.ContainsFunc(s.holds, func(h *held) bool { return slices.Contains(h.owners, owner) })
}
