package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/queue"
)

// fate is the end that several locks share. That of a MultiHold is brought by the first lock
// that ends, which keeps it as one of its contexts: so it comes before the release of the
// lock, and before others can have the lock. A QuorumHold decides about its own; see quorum.
//
// It is apart from the MultiHold, so that one that was dropped can be noticed.
type fate struct {
	mu       sync.Mutex
	ending   error
	begun    bool // somebody ends the contexts
	contexts queue.Set[*heldContext]
	done     chan struct{} // closed when the contexts have ended, too
}

// bind has f end with h, or returns why h has ended.
func (h *holding) bind(f machine.Context) error {
	var fx machine.Effects
	h.Shard().Lock()
	err := h.Check(h.Shard().Now(), &fx)
	if err == nil {
		h.Bind(f)
	}
	h.Shard().Unlock()
	h.Shard().Table.Run(&fx)
	return err
}

// unbind undoes bind, unless h has ended.
func (h *holding) unbind(f machine.Context) {
	h.Shard().Lock()
	h.Unbind(f)
	h.Shard().Unlock()
}

// End implements machine.Context. It returns when the contexts have ended, no matter which goroutine
// ends them.
func (f *fate) End(why error) {
	f.mu.Lock()
	first := !f.begun
	var contexts queue.Set[*heldContext]
	if f.ending == nil {
		f.ending = why
	}
	why = f.ending
	if first {
		f.begun, contexts, f.contexts = true, f.contexts, queue.Set[*heldContext]{}
	}
	f.mu.Unlock()
	if !first {
		<-f.done
		return
	}
	defer close(f.done)
	endThese(contexts.InOrder(), why)
}

// endThese ends all, even if one panics: then the panic goes on after that.
func endThese(contexts []*heldContext, why error) {
	defer func() {
		if len(contexts) > 0 {
			endThese(contexts, why)
		}
	}()
	for len(contexts) > 0 {
		c := contexts[0]
		contexts = contexts[1:]
		c.End(why)
	}
}

// forget takes out a context that has ended before the locks.
func (f *fate) forget(c *heldContext) {
	f.mu.Lock()
	c.over = true
	f.contexts.Remove(c)
	f.mu.Unlock()
}

// add has the context end with f, or returns why f has ended.
func (f *fate) add(c *heldContext) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending == nil && !c.over {
		f.contexts.Add(c)
	}
	return f.ending
}

// settle makes why the end, if it is one and the first, and returns the end. The
// contexts may end later: the lock may have ended already, and the goroutine that is to end
// them may not have run yet.
func (f *fate) settle(why error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending == nil {
		f.ending = why
	}
	return f.ending
}

// endsSoon reports whether end takes a moment only.
func (f *fate) endsSoon() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.done:
		return true
	default:
		return !f.begun && f.contexts.Len() <= drive.FewContexts
	}
}

// group is a hold of several locks: a MultiHold or a QuorumHold.
type group interface {
	Err() error
	home() *Engine
	shared() *fate
	// all are the holds of the locks.
	all() []*Hold
	// find returns the hold of a name, nil if there is none.
	find(*Engine, drive.Key) *Hold
}

// contextOf makes a context that ends with parent or with the group.
func contextOf(g group, parent context.Context) context.Context {
	if parent == nil {
		return endedContext()
	}
	c := &heldContext{group: g, parent: parent}
	inner := c.make(&g.home().world)
	why := g.Err()
	if why == nil {
		why = g.shared().add(c)
	}
	if why != nil {
		c.End(why)
	}
	return inner
}

// isOf reports whether c is a context of g, whose holds are those, or of a re-entry under
// it.
func (c *heldContext) isOf(g group, holds []*Hold) bool {
	for _, l := range c.holds() {
		for up := &l.h.Hold; up != nil; up = up.Parent {
			if slices.ContainsFunc(holds, func(l *Hold) bool { return &l.h.Hold == up }) {
				return true
			}
		}
	}
	return c.group == g
}
