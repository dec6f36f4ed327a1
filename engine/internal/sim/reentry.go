package sim

import (
	"context"
	"errors"
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
	switch kind := s.random.IntN(4); {
	case kind == 0:
		one.ctx, carries = engine.Detach(ctx), false
	case kind == 1:
		one.names, one.reads, carries = []string{others(h.names[0])[0]}, false, false
	case kind == 2 && slices.Contains(plain, h.names[0]):
		one.names = []string{others(h.names[0])[0], h.names[0]}
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
	case !refused && h.alone.must:
		s.fail("%s has %s, and does not want to re-enter it: %v", h.user.name, h.names, err)
	}
}
