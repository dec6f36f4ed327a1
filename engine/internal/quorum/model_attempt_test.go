package quorum

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
)

// attempt is a try of a client at a server.
type attempt struct {
	c       *client
	m       *Machine
	server  *server
	waits   bool
	ended   bool
	asleep  bool
	refusal Refusal // what it has heard
}

// begin sends it, behind a release of the same process; sent is not the time at which it is
// answered.
func (a *attempt) begin() {
	s, sent, answered := a.server, a.server.now, false
	if a.ended {
		return
	}
	if s.releasing(a.c.process) {
		s.behind = append(s.behind, a)
		return
	}
	var got *grant
	s.call(func(ok bool) {
		switch {
		case !ok:
		case s.owner == nil:
			got = &grant{c: a.c, m: a.m, server: s, there: sent, until: sent.Add(s.lease - s.lease/50)}
			got.Port, got.Member = got, s.id
			s.owner, s.expires = got, s.now.Add(s.lease)
		default:
			a.refusal = heldFor(s.expires.Sub(s.now))
		}
	}, func(ok bool) {
		answered = true
		switch {
		case got != nil && a.ended:
			got.release(nil)
		case a.ended:
		case got != nil && s.now >= got.until:
			got.release(nil)
			a.refused(late)
		case got != nil:
			a.end(got, Refusal{})
		case !ok:
			a.refused(away)
		default:
			a.refused(a.refusal)
		}
	})
	s.in(300*time.Millisecond, func() {
		if !answered && !a.ended {
			a.refusal = away // it hangs
		}
	})
	s.in(time.Second, func() {
		if !answered && !a.ended && !a.waits {
			a.end(nil, away)
		}
	})
}

// refused ends it, or lets it sleep until the lock is released. Now and then it asks by itself.
func (a *attempt) refused(r Refusal) {
	if !a.waits {
		a.end(nil, r)
		return
	}
	a.refusal, a.asleep = r, true
	a.server.sleepers = append(a.server.sleepers, a)
}

func (a *attempt) wake() {
	if a.asleep && !a.ended {
		a.asleep = false
		a.server.sleepers = slices.DeleteFunc(a.server.sleepers, func(one *attempt) bool { return one == a })
		a.begin()
	}
}

// cancel ends it, with what it has waited for.
func (a *attempt) cancel() {
	if a.ended {
		return
	}
	if a.refusal.none() {
		a.refusal = cut
	}
	a.end(nil, a.refusal)
}

func (a *attempt) end(g *grant, r Refusal) {
	a.ended = true
	a.server.sleepers = slices.DeleteFunc(a.server.sleepers, func(one *attempt) bool { return one == a })
	a.c.notified(a, g, r)
}

// grant is a hold at a server.
type grant struct {
	Vote
	c      *client
	m      *Machine
	server *server
	there  clock.Instant
	until  clock.Instant
	ended  bool
}

func (g *grant) InTime() bool         { return g.server.now < g.until }
func (g *grant) Until() clock.Instant { return g.until }

// live starts the watchdog, if it has one, and what notices the end.
func (g *grant) live() {
	if g.m.Renewal != 0 {
		g.server.in(g.server.between(g.server.lease/6, g.server.lease/3), func() { g.renew(true) })
	}
	g.server.in(g.until.Sub(g.server.now), g.expire)
}

func (g *grant) expire() {
	switch {
	case g.ended:
	case g.InTime():
		g.server.in(g.until.Sub(g.server.now), g.expire)
	case g.m.Renewal != 0:
		g.lost(lock.NotRenewed)
	default:
		g.lost(lock.LeaseEnded)
	}
}

func (g *grant) renew(again bool) {
	if g.ended {
		return
	}
	s, sent, gone := g.server, g.server.now, false
	s.call(func(ok bool) {
		if gone = ok && s.owner != g; ok && !gone && g.m.Renewal != 0 {
			s.expires = s.now.Add(s.lease)
		}
	}, func(ok bool) {
		switch {
		case g.ended:
		case gone:
			g.lost(lock.RemovedOnServer)
		case ok:
			g.there = max(g.there, sent)
			if g.m.Renewal != 0 {
				g.until = max(g.until, sent.Add(s.lease-s.lease/50))
			}
		}
		if again {
			s.in(s.lease/4, func() { g.renew(true) })
		}
	})
}

// lost ends it: first here, then at the server.
func (g *grant) lost(why lock.Loss) {
	g.end(endOf(g.server.id, fmt.Errorf("loss %d at %d", why, g.server.id), why))
	if why != lock.RemovedOnServer {
		g.release(nil)
	}
}

func (g *grant) end(e End) {
	if g.ended {
		return
	}
	g.ended = true
	g.until = min(g.until, g.server.now)
	g.c.of(g.m, func(do *Ready) { g.m.Leave(&g.Vote, e, g.there, do) })
}

// release frees it at the server, which may take several attempts.
func (g *grant) release(then func()) {
	s := g.server
	g.ended, g.until = true, min(g.until, s.now)
	if !slices.Contains(s.releases, g) {
		s.releases = append(s.releases, g)
	}
	s.call(func(ok bool) {
		if ok && s.owner == g {
			s.free()
		}
	}, func(ok bool) {
		switch {
		case !ok:
			s.in(200*time.Millisecond, func() { g.release(then) })
			return
		case then != nil:
			then()
		}
		s.released(g)
	})
}
