package sim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// takeOne asks for one lock, of the kind that its name has.
func takeOne(h *held, try bool, options []engine.Option) {
	switch p, name := h.user.p, h.names[0]; name {
	case fenced:
		take(h, p.engine().FencedMutex(name), try, options)
	case rw:
		take(h, p.rw(h.reads), try, options)
	case spin:
		take(h, p.mutex(name), try, append(options, p.sim.backoff.options()...))
	default:
		take(h, p.mutex(name), try, options)
	}
}

func (p *process) mutex(name string) engine.Mutex { return p.sites[0].mutex(name) }

func (x *site) mutex(name string) engine.Mutex {
	switch x.sim.kindOf(name) {
	case rw:
		return x.engine.RWMutex(name).Writer()
	case spin:
		return x.engine.SpinMutex(name)
	case fenced:
		return x.engine.FencedMutex(name)
	case fair:
		return x.engine.FairMutex(name)
	}
	return x.engine.Mutex(name)
}

// rw is a half of the read-write lock.
func (p *process) rw(reads bool) engine.Mutex {
	if l := p.engine().RWMutex(rw); reads {
		return l.Reader()
	} else {
		return l.Writer()
	}
}

// downgrade keeps a read lock.
func (u *user) downgrade(h *held) {
	s := u.p.sim
	s.tell("%s downgrades %s", u.name, h.short())
	next := &held{user: u, names: h.names, reads: true, beside: h, watchdog: true, asked: s.now, ctx: u.p.limit(s.between(0, time.Second))}
	s.start(u.p, func() {
		r, err := u.p.engine().RWMutex(rw).Downgrade(next.ctx, h.hold)
		s.tell("%s has downgraded %s: %v", u.name, h.short(), err)
		was := h.hold.Err()
		switch {
		case err != nil:
			if was == nil && !h.robbed() && errors.Is(err, engine.ErrHeld) {
				s.fail("%s: %s is refused a read lock: %v", u.name, h.short(), err)
			}
			u.giveBack(h) // if it is held still
		case was != engine.ErrReleased:
			s.fail("%s: %s was downgraded, and has ended with %v", u.name, h.short(), was)
		default:
			h.over = true
			next.hold = r
			u.granted(next)
		}
	})
}

// together reports whether two may have a lock at the same time. Of those who re-enter one reader only
// one may.
func (h *held) together(other *held) bool {
	return h.reads && other.reads && !h.reenters(other.within) && !other.reenters(h.within) || h.besideOf(other) || other.besideOf(h)
}

// reenters reports whether h re-enters another, or what re-enters that. Under the context of what has ended it
// does not.
func (h *held) reenters(outer *held) bool {
	for up := h.within; up != nil; up = up.within {
		if up == outer {
			return outer.believed()
		}
	}
	return false
}

// besideOf reports whether h reads beside the owner that a writer is.
func (h *held) besideOf(writer *held) bool {
	for up := h; up != nil; up = up.within {
		if up.beside != nil && up.beside.owners[0] == writer.owners[0] {
			return true
		}
	}
	return false
}

// checkRests: what a MinHold has left keeps the lock no longer than that. Among readers, who keep
// the lock themselves, it may stay.
func (s *Sim) checkRests() {
	for _, p := range s.processes {
		for _, x := range p.sites {
			for _, name := range names {
				h := x.server.Get(name)
				if h == nil {
					continue
				}
				for owner := range h.Fields {
					if since, was := s.stray[owner]; !x.owned(owner) || h.Fields["mode"] == "read" {
					} else if !was {
						s.stray[owner] = s.now
					} else if s.now.Sub(since) > longestMinHold+settled {
						s.fail("%s is kept by %s, which is nobody, for %v", name, owner, s.now.Sub(since))
					}
				}
			}
		}
	}
}

// checkToken holds the fencing token against all that programs have had.
func (h *held) checkToken() {
	s := h.user.p.sim
	f := h.hold
	switch {
	case h.robbed() || h.quorum || len(h.names) != 1 || s.kindOf(h.names[0]) != fenced:
	case h.within != nil && f.Owner() == h.within.hold.Owner(): // which may have ended by now
		if outer := h.within.hold.Token(); f.Token() != outer {
			s.fail("%s: %s has token %d, and entered again %d", h.user.name, h.short(), outer, f.Token())
		}
	case f.Token() <= s.tokens[h.names[0]]:
		s.fail("%s: %s has token %d, and %d was given before", h.user.name, h.short(), f.Token(), s.tokens[h.names[0]])
	default:
		s.tokens[h.names[0]] = f.Token()
	}
}

// takePlainly asks for what most ask for: one of two names, and all in the same way.
func (u *user) takePlainly(h *held) {
	s := u.p.sim
	h.watchdog, h.ctx = true, context.Background()
	h.names = []string{s.contended[s.random.IntN(len(s.contended))]}
	u.waits = h.names[0]
	var options []engine.Option
	if h.acked = s.acked; h.acked {
		options = append(options, engine.Acked(1))
	}
	s.tell("%s asks for %s, %v", u.name, h.names, options)
	takeOne(h, false, options)
}

// readPlainly asks for a read lock without options, most often.
func (u *user) readPlainly(h *held) {
	s := u.p.sim
	h.watchdog, h.ctx, h.names, h.reads = true, context.Background(), []string{rw}, true
	s.tell("%s asks for %s, to read", u.name, h.names)
	take(h, u.p.rw(true), s.chance(20), nil)
}

// throngs has a throng of readers, and again.
func (s *Sim) throngs() {
	if s.calm {
		return
	}
	s.throng = s.now.Add(s.between(0, 100*time.Millisecond))
	s.tell("a throng reads %s until %v", rw, s.throng)
	for _, p := range s.processes {
		for _, u := range p.users {
			if !u.busy {
				u.rest()
			}
		}
	}
	s.after(s.between(0, time.Minute), nil, s.throngs)
}

func (s *Sim) thronged() bool { return s.now < s.throng && !s.calm }

func (s *Sim) holdFor() time.Duration {
	switch {
	case s.thronged() && !s.chance(20):
		return s.soon()
	case s.contended != nil && !s.chance(16):
		return s.between(0, 100*time.Millisecond)
	case s.inspected && !s.calm && s.chance(2): // a deadlock lasts as long as its holds
		return s.between(time.Second, 20*time.Second)
	case s.calm || !s.chance(4):
		return s.between(0, time.Second)
	}
	return s.between(0, 3*s.lease)
}

// quorum is the name of locks that are on all servers: RedLocks, and MultiLocks that need them all. They
// are of one kind in each world: that of another name, Sim.voting.
const quorum = "quorum"

// kindOf is the name whose kind a name has.
func (s *Sim) kindOf(name string) string {
	if name == quorum {
		return s.voting
	}
	return name
}

// takeVotes asks for a lock on several servers.
func (u *user) takeVotes(h *held, try bool, options []engine.Option) {
	s := u.p.sim
	h.names, h.quorum, h.all, h.reads = []string{quorum}, true, s.chance(4), s.voting == rw && !s.chance(3)
	s.tell("%s asks for all %v, or a majority, reads %v, try %v, %v", u.name, h.all, h.reads, try, options)
	var locks []engine.Mutex
	for _, x := range u.p.sites {
		if m := x.mutex(quorum); h.reads {
			locks = append(locks, x.engine.RWMutex(quorum).Reader())
		} else {
			locks = append(locks, m)
		}
	}
	if h.all {
		take(h, engine.Multi(locks...), try, options)
	} else {
		take(h, engine.RedLock(locks...), try, options)
	}
}

// needs is of how many names, or servers, it must be the owner.
func (h *held) needs() int {
	if h.quorum && !h.all {
		return len(h.user.p.sites)/2 + 1
	}
	return max(len(h.names), len(h.user.p.sites)*bit(h.all))
}

// votes is how many servers have it.
func (h *held) votes() (n int) {
	for _, x := range h.user.p.sites {
		if v := x.server.Get(quorum); v != nil && slices.ContainsFunc(slices.Collect(maps.Keys(v.Fields)), x.isOf) {
			n++
		}
	}
	return n
}

func (x *site) isOf(owner string) bool { return strings.HasPrefix(owner, x.engine.ID()+":") }

// clashes has programs use a name for one kind that their engine has in use as another. They are told
// so at once, and nothing is asked.
func (p *process) clashes() {
	s := p.sim
	if s.calm || p.left {
		return
	}
	s.after(s.between(0, 20*time.Second), p, p.clashes)
	name, family := p.inUse()
	if name == "" || p.refuses != 0 {
		return
	}
	e, ctx := p.engine(), context.Background()
	ways := []struct {
		family string
		ask    func() error
	}{
		{plain[0], func() error { _, err := e.Mutex(name).Lock(ctx); return err }},
		{fair, func() error { _, err := e.FairMutex(name).Lock(ctx); return err }},
		{rw, func() error { _, err := e.RWMutex(name).Reader().Lock(ctx); return err }},
		{permits, func() error { _, err := e.PermitSemaphore(name).Acquire(ctx, 1); return err }},
		{permits, func() error { return e.PermitSemaphore(name).AddPermits(ctx, 1) }},
		{tallied, func() error { _, err := e.Semaphore(name).Acquire(ctx, 1); return err }},
		{tallied, func() error { return e.Semaphore(name).AddPermits(ctx, 1) }},
		{latch, func() error { return e.Latch(name).Await(ctx) }},
	}
	way := ways[s.random.IntN(len(ways))]
	if way.family == family {
		return
	}
	s.tell("%s uses %s as %s", p.name, name, way.family)
	began, answered := s.now, false
	s.after(prompt, p, func() {
		if !answered && p.wakes < began && p.refuses == 0 {
			s.fail("%s has %s in use, and is not told at once that it is no %s", p.name, name, way.family)
		}
	})
	s.start(p, func() {
		err := way.ask()
		if answered = true; !errors.Is(err, engine.ErrKindConflict) {
			s.fail("%s has %s in use, and using it as %s says %v", p.name, name, way.family, err)
		}
	})
}

// inUse is a name that somebody has in the first engine of a process, and what stands for the kinds that
// share it; "" if there is none.
func (p *process) inUse() (name, family string) {
	s := p.sim
	var all [][2]string
	for _, h := range s.holds {
		if h.user.p == p && !h.quorum && !h.over && h.hold.Err() == nil {
			for _, name := range h.names {
				if family = name; !slices.Contains([]string{fair, rw}, name) {
					family = plain[0]
				}
				all = append(all, [2]string{name, family})
			}
		}
	}
	for _, u := range s.permitUsers {
		if u.p == p && u.have != nil && u.have.Err() == nil {
			all = append(all, [2]string{permits, permits})
		}
	}
	if s.counts != nil && s.holdsOf(p) > 0 {
		all = append(all, [2]string{tallied, tallied})
	}
	if len(all) == 0 {
		return "", ""
	}
	one := all[s.random.IntN(len(all))]
	return one[0], one[1]
}
