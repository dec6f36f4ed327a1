package engine

import (
	"context"
	"time"
)

// Extend makes the fixed leases of all the locks last d from now, at the same time; see
// Hold.Extend. The error joins those of the locks that it did not succeed for; the others
// are extended.
func (m *MultiHold) Extend(ctx context.Context, d time.Duration) error {
	var wait time.Duration
	for _, l := range m.holds {
		if err := l.h.mayExtend(ctx, d); err != nil {
			return about(l.h.Name, err) // nothing was sent
		}
		wait = max(wait, l.h.extendPatience())
	}
	patience, stop := m.holds[0].h.engine().world.After(wait)
	defer stop()
	all := make([]oneExtend, len(m.holds))
	for i, l := range m.holds {
		x := newExtension(d)
		ahead, err := l.h.startExtend(x)
		all[i] = oneExtend{l.h, x, ahead, err}
	}
	for again := true; again; {
		again = false
		for i := range all {
			again = all[i].follow(ctx, patience) || again
		}
	}
	errs := make([]error, len(m.holds))
	for i, one := range all {
		errs[i] = about(one.h.Name, one.h.awaitExtend(ctx, one.x, one.ahead, one.err, patience))
	}
	return joined(errs)
}

// oneExtend is the part of one lock in an Extend of several.
type oneExtend struct {
	h        *holding
	x, ahead *extension
	err      error
}

// follow has x sent when the Extend ahead of it is done, without waiting for the answer: one
// lock after the other would take a round trip each. It reports whether yet another was faster.
func (o *oneExtend) follow(ctx context.Context, patience <-chan struct{}) bool {
	if o.ahead == nil {
		return false
	}
	if o.h.engine().world.Wait(o.ahead.done, ctx.Done(), patience) != 0 {
		return false
	}
	o.ahead, o.err = o.h.startExtend(o.x)
	return o.ahead != nil
}
