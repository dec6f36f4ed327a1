package engine

import "context"

// holdsKey is where a context carries its holds.
type holdsKey struct{}

// heldContext is what Context adds to a context: a hold, and those that the parent
// context carried before. It keeps the Hold alive for as long as the context is.
type heldContext struct {
	hold   *Hold // nil: Detach; nothing further out counts
	outer  *heldContext
	parent context.Context
	cancel context.CancelCauseFunc
}

// Context returns a context that ends with parent or with the hold, whichever is
// first, and that carries the hold: acquiring the same name under it, on the same
// engine, re-enters. That is what takes the place of the thread's identity in other
// languages. A re-entered hold has the same owner on the server and a count one
// higher; Unlock gives one back. The cause of the end is ErrReleased or a
// *LostError.
//
// A hold has at most one live re-entry at a time: a second acquisition under the
// same context waits for the first to be unlocked. So goroutines that share the
// context exclude each other. The end of a hold ends its re-entries. For work that
// shall be a stranger to the hold, see Detach.
func (l *Hold) Context(parent context.Context) context.Context {
	h := l.h
	c := &heldContext{hold: l, parent: parent}
	c.outer, _ = parent.Value(holdsKey{}).(*heldContext)
	inner, cancel := context.WithCancelCause(context.WithValue(parent, holdsKey{}, c))
	c.cancel = cancel

	var fx effects
	h.sh.mu.Lock()
	h.check(h.eng.clock.Now(), &fx) // no timer may have run since the machine slept
	why := h.ending
	if why == nil {
		x := h.more()
		if x.contexts == nil {
			x.contexts = make(map[*heldContext]struct{})
		}
		x.contexts[c] = struct{}{}
	} else {
		h.res.goOnAfter(&fx)
	}
	h.sh.mu.Unlock()
	fx.run(h.eng)
	if why != nil {
		cancel(why)
		return inner
	}
	// A context that ends before its hold is forgotten, or a long hold would
	// gather them.
	context.AfterFunc(inner, func() {
		h.sh.mu.Lock()
		if h.extra.contexts != nil {
			delete(h.extra.contexts, c)
		}
		h.sh.mu.Unlock()
		cancel(nil)
	})
	return inner
}

// outside returns ctx, or if it would end with h, as h's own contexts and those of
// its re-entries do, what they were made from, with ctx's deadline.
func (h *holding) outside(ctx context.Context) (context.Context, context.CancelFunc) {
	var outermost *heldContext
	c, _ := ctx.Value(holdsKey{}).(*heldContext)
	for ; c != nil && c.hold != nil; c = c.outer {
		for up := c.hold.h; up != nil; up = up.parent {
			if up == h {
				outermost = c
			}
		}
	}
	if outermost == nil {
		return ctx, func() {}
	}
	if at, ok := ctx.Deadline(); ok {
		return context.WithDeadline(outermost.parent, at)
	}
	return outermost.parent, func() {}
}

// Detach returns a context without the holds that ctx carries, for work that is
// started under a lock and shall wait for it like a stranger.
func Detach(ctx context.Context) context.Context {
	return context.WithValue(ctx, holdsKey{}, (*heldContext)(nil))
}

// carried returns the innermost live hold of that name in ctx, nil if there is
// none.
func carried(ctx context.Context, e *Engine, k key) *holding {
	c, _ := ctx.Value(holdsKey{}).(*heldContext)
	for ; c != nil && c.hold != nil; c = c.outer {
		h := c.hold.h
		if h.eng != e {
			continue
		}
		h.sh.mu.Lock()
		found := h.innermostLive()
		ok := found != nil && found.res.name == k.name && found.res.kind == k.kind
		h.sh.mu.Unlock()
		if ok {
			return found
		}
	}
	return nil
}
