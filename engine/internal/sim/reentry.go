package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// makeContext makes a context that ends with the hold, and perhaps takes the lock once
// more under it.
func (h *held) makeContext() {
	s, p := h.user.p.sim, h.user.p
	if h.over {
		return
	}
	parent := s.ctx
	if s.chance(4) {
		parent = p.limit(s.between(0, s.lease))
	}
	ctx := h.hold.Context(parent)
	h.contexts = append(h.contexts, ctx)
	if ctx.Err() != nil && h.believed() {
		s.fail("%s: a context of %s has ended, and the hold has not", h.user.name, h.short())
	}
	if len(h.names) == 1 && !h.quorum && s.chance(16) { // so many that a goroutine ends them, a moment after Unlock was called
		for range 65 {
			h.contexts = append(h.contexts, h.hold.Context(s.ctx))
		}
	}
	if len(h.names) > 1 || h.quorum || !s.chance(2) {
		return
	}
	if s.chance(2) {
		ctx = context.WithoutCancel(ctx)
	}
	if s.chance(4) {
		s.after(s.between(0, time.Second), p, func() { h.askAlone(ctx) })
		return
	}
	inner := &held{user: &user{p: p, name: h.user.name + "'", busy: true, inner: true}, names: h.names, watchdog: h.watchdog && !h.fixed, within: h, ctx: ctx}
	if inner.reads = h.reads; h.names[0] == rw && !h.reads && s.chance(2) {
		inner.reads, inner.within, inner.beside = true, nil, h
	}
	p.users = append(p.users, inner.user)
	s.tell("%s asks for %s once more, beside it %v", h.user.name, h.names, inner.beside != nil)
	var options []engine.Option
	inner.fixed = s.chance(4)
	if inner.beside != nil {
		inner.watchdog = !inner.fixed
	}
	if inner.fixed {
		options = append(options, engine.Lease(s.between(margin+time.Millisecond, 2*s.lease)))
	}
	takeOne(inner, s.chance(3), options)
}

// alone is what is known of one that is asked for with NonReentrant: whether its context carried a hold of
// it then, for certain or perhaps.
type alone struct{ must, may bool }

// askAlone asks with NonReentrant under a context that carries the hold, or did.
func (h *held) askAlone(ctx context.Context) {
	s, p := h.user.p.sim, h.user.p
	one := &held{user: &user{p: p, name: h.user.name + "\"", busy: true, inner: true}, names: h.names, reads: h.reads, watchdog: true, ctx: ctx, alone: new(alone)}
	p.users = append(p.users, one.user)
	carries := true
	one.under = h
	switch kind := s.random.IntN(4); {
	case kind == 0:
		one.ctx, one.under, carries = engine.Detach(ctx), nil, false
	case kind == 1:
		one.names, one.reads, one.under, carries = []string{others(h.names[0])[0]}, false, h, false
	case kind == 2 && slices.Contains(plain, h.names[0]):
		one.names, one.under = []string{others(h.names[0])[0], h.names[0]}, h
	case h.names[0] == rw && !h.reads:
		one.reads = s.chance(2)
	}
	for up := h; carries && up != nil && ctx.Err() == nil; up = up.within {
		live := up.hold.Err() == nil
		one.alone.must, one.alone.may = one.alone.must || up == h && live, one.alone.may || live
	}
	try := s.chance(2)
	s.tell("%s asks for %s and nothing that it has, try %v, as it has it for certain %v, perhaps %v", one.user.name, one.names, try, one.alone.must, one.alone.may)
	if options := []engine.Option{engine.NonReentrant()}; len(one.names) > 1 {
		take(one, p.engine().Many(one.names...), try, options)
	} else {
		takeOne(one, try, options)
	}
}

// others are plain names that are not the one.
func others(name string) []string {
	return slices.DeleteFunc(slices.Clone(plain), func(other string) bool { return other == name })
}

// checkAlone: what is asked for with NonReentrant is refused at once if the context carries it, and only then.
func (h *held) checkAlone(err error) {
	s, refused := h.user.p.sim, errors.Is(err, engine.ErrReentry)
	switch {
	case h.alone == nil && refused:
		s.fail("%s may re-enter %s: %v", h.user.name, h.names, err)
	case h.alone == nil:
	case refused && !h.alone.may:
		s.fail("%s does not have %s: %v", h.user.name, h.names, err)
	case refused && s.now.Sub(h.asked) > prompt && h.user.p.awake():
		s.fail("%s has %s, and was told %v later", h.user.name, h.names, s.now.Sub(h.asked))
	case !refused && h.alone.must && !(len(h.names) > 1 && errors.Is(err, engine.ErrClosed)): // of several that is found first
		s.fail("%s has %s, and does not want to re-enter it: %v", h.user.name, h.names, err)
	}
}

// lookout is what was true, moment by moment, while somebody looked for deadlocks.
type lookout struct{ moments []moment }

// moment is which engine waits for a name, also under each name that a waiter's context carries, and which has one.
type moment struct{ waits, owns map[claim]bool }

type claim struct{ engine, name, under string }

func (o *lookout) note(s *Sim) {
	m := moment{make(map[claim]bool), make(map[claim]bool)}
	for _, p := range s.processes {
		for _, x := range p.sites {
			id := x.engine.ID()
			for _, u := range p.users {
				if u.wants == nil || u.wants.once || p.dead {
					continue
				}
				for _, name := range u.wants.names {
					m.waits[claim{id, name, ""}] = true
					for up := u.wants.under; up != nil; up = up.within {
						for _, under := range up.names {
							m.waits[claim{id, name, under}] = true
						}
					}
				}
			}
			for name, h := range x.server.Keys {
				for owner := range h.Fields {
					if x.owns(owner) {
						m.owns[claim{id, name, ""}] = true
					}
				}
			}
		}
	}
	o.moments = append(o.moments, m)
}

// had reports whether all of a cycle was true at one moment.
func (o *lookout) had(c engine.Cycle) bool {
	n := len(c.Waits)
	return slices.ContainsFunc(o.moments, func(m moment) bool {
		for i, u := range c.Waits {
			before, next := c.Waits[(i+n-1)%n].Name, c.Waits[(i+1)%n].Engine.ID
			id := u.Engine.ID
			if !m.waits[claim{id, u.Name, ""}] || !c.Possible && !m.waits[claim{id, u.Name, before}] || !m.owns[claim{next, u.Name, ""}] {
				return false
			}
		}
		return true
	})
}

// findDeadlocks looks for deadlocks, again and again. None may be found that is none.
func (p *process) findDeadlocks() {
	s := p.sim
	if !s.inspected || s.calm || p.left {
		return
	}
	s.after(s.between(time.Second, 10*time.Second), p, p.findDeadlocks)
	x := p.sites[s.random.IntN(len(p.sites))]
	s.start(p, func() {
		c, seen := p.begin(p.name), new(lookout)
		s.lookouts = append(s.lookouts, seen)
		seen.note(s)
		cycles, err := x.engine.Deadlocks(c.ctx)
		seen.note(s)
		s.lookouts = slices.DeleteFunc(s.lookouts, func(o *lookout) bool { return o == seen })
		s.tell("%s finds deadlocks: %d, %v", p.name, len(cycles), err)
		c.barred = true // a question is sent once, perhaps before there is a connection
		c.end(err, 4*time.Second+2*commandTimeout)
		for _, cycle := range cycles {
			if !seen.had(cycle) {
				s.fail("%s: there was no such deadlock, possible %v: %v", p.name, cycle.Possible, asText(cycle))
			}
			if cycle.Possible {
				s.suspected++
			} else {
				s.deadlocks++
			}
		}
	})
}

func asText(c engine.Cycle) (text []string) {
	for _, w := range c.Waits {
		text = append(text, fmt.Sprintf("%s waits for %s under %s", w.Engine.ID, w.Name, w.Under))
	}
	return text
}

// askUnder asks for another lock under a context of a hold.
func (h *held) askUnder() {
	p, ctx := h.user.p, h.hold.Context(h.user.p.sim.ctx)
	h.contexts = append(h.contexts, ctx)
	one := &held{user: &user{p: p, name: h.user.name + "+", busy: true, inner: true}, names: []string{others(h.names[0])[0]}, watchdog: true, ctx: ctx, under: h}
	p.users = append(p.users, one.user)
	p.sim.tell("%s asks for %s under %s", one.user.name, one.names, h.names)
	takeOne(one, false, nil)
}
