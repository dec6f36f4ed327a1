package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// leaving is the end of a process that closes its engines.
type leaving struct {
	refuses clock.Instant // since when it refuses what is new; 0: it does not
	left    bool          // it is closed
	leaves  int           // calls of Close and Shutdown that have not returned
	looks   int           // of vanish
}

const (
	// closeTimeout is the default of Config.CloseTimeout.
	closeTimeout = 5 * time.Second
	// prompt is how long an answer takes for which nothing is sent.
	prompt = 10 * time.Millisecond
)

// departures has processes close their engines every now and then. Others take their place.
func (s *Sim) departures() {
	if s.calm {
		return
	}
	s.after(s.between(0, 3*time.Minute), nil, s.departures)
	p := s.processes[s.random.IntN(len(s.processes))]
	for _, h := range s.holds { // some re-entries are to wait then
		for h.user.p == p && s.chance(2) {
			s.after(s.between(0, time.Second), p, h.makeContext)
		}
	}
	s.after(time.Second, p, func() {
		if p.refuses == 0 {
			p.leave()
		}
	})
}

// leave closes all engines of a process, or shuts them down; perhaps both.
func (p *process) leave() {
	s := p.sim
	p.leaves++ // one engine may be closed before the next one begins
	defer p.returned()
	for _, x := range p.sites {
		if !s.mild() && s.chance(3) {
			s.refuse(x.server)
		}
		gently := s.chance(2)
		if gently {
			s.start(p, func() { x.shutdown(s.chance(2), s.between(0, s.lease)) })
		}
		if !gently || s.chance(2) {
			s.start(p, x.close)
		}
	}
}

func (x *site) close() {
	s, p := x.sim, x.process
	s.tell("%s closes", x.name)
	p.refuse()
	x.ends()
	began := s.now
	err := x.engine.Close()
	s.tell("%s has closed: %v", x.name, err)
	x.hasLeft(err, began)
}

// shutdown is a Shutdown whose context ends, or does not.
func (x *site) shutdown(limited bool, limit time.Duration) {
	s, p := x.sim, x.process
	s.tell("%s shuts down", x.name)
	p.refuse()
	began, ctx := s.now, context.Background()
	if limited {
		inner, cancel := context.WithCancelCause(ctx)
		ctx = inner
		s.after(limit, p, func() {
			s.tell("%s shuts down no longer", x.name)
			began = s.now
			x.ends()
			cancel(errStopped)
		})
	}
	err := x.engine.Shutdown(ctx)
	s.tell("%s has shut down: %v", x.name, err)
	if errors.Is(err, engine.ErrClosed) != (errors.Is(err, errStopped) && !errors.Is(err, engine.ErrOutcomeUnknown) && !errors.Is(err, engine.ErrPending)) {
		s.fail("%s: Shutdown says %v", x.name, err)
	}
	if errors.Is(err, errStopped) {
		if ctx.Err() == nil {
			s.fail("%s: the context has not ended: %v", x.name, err)
		}
		if errors.Is(err, engine.ErrClosed) {
			err = nil
		}
	} else {
		began = s.now // it has waited for holders; how long Close took is not known
		for _, h := range s.holds {
			if h.user.p == p && !h.quorum && x == p.sites[0] && h.hold.Err() == nil {
				s.fail("%s: Shutdown did not wait for %s", x.name, h.short())
			}
		}
	}
	x.hasLeft(err, began)
}

// ends notes that the site may end holds.
func (x *site) ends() {
	if x.ending == 0 {
		x.ending = x.sim.now
		x.endsCounts()
	}
}

func (p *process) refuse() {
	p.leaves++
	if p.refuses != 0 {
		return
	}
	p.refuses = p.sim.now
	p.sim.after(settled, p, func() {
		if p.sim.now.Sub(p.refuses) > settled || !p.awake() { // it was paused
			return
		}
		for _, u := range p.users {
			if u.asks && !u.ofQuorum && p.sim.now.Sub(u.asked) > prompt {
				p.sim.fail("%s waits still, and its engine is being closed", u.name)
			}
		}
	})
}

// hasLeft checks an engine that is closed, with that error of Close.
func (x *site) hasLeft(err error, began clock.Instant) {
	s, p := x.sim, x.process
	defer p.returned()
	// Close may have been called before.
	if s.now.Sub(began) > closeTimeout+settled && p.wakes < began && p.awake() {
		s.fail("%s: Close took %v", x.name, s.now.Sub(began))
	}
	var refused *resp.ServerError
	denied := errors.As(err, &refused) && refused.Code == "ERR"
	switch {
	case err == nil, errors.Is(err, engine.ErrPending):
		for key := range x.server.Keys {
			h := x.server.Get(key)
			if h == nil {
				continue
			}
			for owner := range h.Fields {
				at, denied := s.denied[owner]
				if x.owns(owner) && !x.server.HasExpired(key, owner) && !(denied && at <= p.refuses) && !s.late[owner] && !s.ghosts[owner] {
					s.fail("%s: Close says %v, and %s has %q", x.name, err, x.server.name, x.server.Record())
				}
			}
		}
	case !errors.Is(err, engine.ErrOutcomeUnknown):
		s.fail("%s: Close says %v", x.name, err)
	case denied && x.denied < p.refuses:
		s.fail("%s: Close says %v, and no release was denied", x.name, err)
	case refused == nil && x.ending != 0 && s.now.Sub(x.ending) < closeTimeout:
		s.fail("%s: Close had time still: %v", x.name, err)
	}
	// A Shutdown that waited for holders may have been denied a release long ago.
	denied = denied && !strings.Contains(err.Error(), "CloseTimeout")
	permitsStuck := s.barred(permits) || s.excused[permits] >= began ||
		s.counts != nil && min(s.barredSince(tallied), s.barredSince(latch)) < closeTimeout+settled
	if err != nil && !denied && !permitsStuck && !s.fairMoved(closeTimeout+settled) && s.healthy() && began.Sub(s.quiet) > recovers {
		s.fail("%s: nothing has gone wrong: %v", x.name, err)
	}
	if n := x.engine.Stats(); n.Held != 0 || n.Waiting != 0 {
		s.fail("%s is closed, and has %d holds and %d who wait", x.name, n.Held, n.Waiting)
	}
	if wanted := x.wanted(); len(x.timers) > 0 || len(wanted) > 0 {
		s.fail("%s is closed, and has %d timers and %d subscriptions", x.name, len(x.timers), len(wanted))
	}
	x.hasLeftCounts(err)
	if x == p.sites[0] {
		for _, h := range s.holds {
			if h.user.p == p && !h.quorum && (h.hold.Err() == nil || h.believed() || h.aliveContext()) {
				s.fail("%s is closed, and %s is a hold still", x.name, h.short())
			}
		}
	}
}

// returned is called when a Close or Shutdown has.
func (p *process) returned() {
	if p.leaves--; p.leaves == 0 {
		p.left = true
		p.sim.after(2*closeTimeout, p, p.vanish)
	}
}

// vanish ends a process whose engines were closed a while ago.
func (p *process) vanish() {
	s := p.sim
	if !p.awake() { // what was missed comes first
		s.after(time.Second, p, p.vanish)
		return
	}
	if p.looks++; p.looks < 3 && (p.calls > 0 || slices.ContainsFunc(p.users, func(u *user) bool { return u.asks || u.unlocks })) {
		s.after(time.Second, p, p.vanish) // it may have begun just now
		return
	}
	s.tell("%s has ended", p.name)
	for _, u := range p.users {
		if u.asks || u.unlocks {
			s.fail("%s waits, and its engine is closed", u.name)
		}
	}
	if p.calls > 0 {
		s.fail("%d calls of %s have not returned, and its engine is closed", p.calls, p.name)
	}
	for _, h := range s.holds {
		if h.user.p == p && (h.hold.Err() == nil || h.aliveContext()) {
			s.fail("%s has ended, and %s is a hold still", p.name, h.short())
		}
	}
	p.kill()
	if !s.calm && !s.dictated {
		s.newProcess()
	}
}
