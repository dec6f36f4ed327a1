package engine

import (
	"runtime"
	"slices"
	"sync"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/queue"
)

// group is the end that several locks share. That of a multiHold is brought by the first lock
// that ends, which has the group among its contexts: so it comes before the release of the
// lock, and before others can have the lock. A quorumHold decides about its own; see quorum.
//
// It leads to no Hold, so that one that was dropped can be noticed.
type group struct {
	mu       sync.Mutex
	ending   error
	begun    bool // somebody ends the contexts
	contexts queue.Set[*heldContext]
	done     chan struct{}    // closed when the contexts have ended, too
	watched  *runtime.Cleanup // leakedGroup is called, until all have ended
	left     int              // of its locks, or 1, whose end ends that watch
}

func newGroup(locks int) *group { return &group{done: make(chan struct{}), left: locks} }

// newHold makes the user's Hold of the whole. If the watchdog renews its locks it is watched: one
// that is garbage, while one of its locks is held still, is reported.
func (g *group) newHold(whole hold, renewed bool) *Hold {
	l := &Hold{h: whole}
	if !renewed {
		return l
	}
	c := runtime.AddCleanup(l, leakedGroup, whole)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watched = &c; g.left <= 0 {
		g.unwatchLocked()
	}
	return l
}

// unwatchLocked ends the watch; see lockHold.unwatch.
func (g *group) unwatchLocked() {
	if g.watched != nil {
		g.watched.Stop()
		g.watched = nil
	}
}

// leakedGroup runs when the user's Hold of several locks is garbage.
func leakedGroup(whole hold) {
	for _, h := range whole.locks() {
		if h.live() {
			reportLeak(whole, h)
			return
		}
	}
}

// bind makes f end with h, or returns why h has ended. From then on h belongs to the whole,
// which is watched for leaks instead.
func (h *lockHold) bind(f machine.Context) error {
	var fx machine.Effects
	h.Shard().Lock()
	err := h.Check(h.Shard().Now(), &fx)
	if err == nil {
		h.Bind(f)
		h.unwatch()
	}
	h.Shard().Unlock()
	h.Shard().Table.Run(&fx)
	return err
}

// unbind undoes bind, unless h has ended.
func (h *lockHold) unbind(f machine.Context) {
	h.Shard().Lock()
	h.Unbind(f)
	h.Shard().Unlock()
}

// End implements machine.Context. It returns when the contexts have ended, no matter which goroutine
// ends them.
func (g *group) End(why error) {
	g.mu.Lock()
	first := !g.begun
	if g.left--; g.left <= 0 {
		g.unwatchLocked()
	}
	var contexts queue.Set[*heldContext]
	if g.ending == nil {
		g.ending = why
	}
	why = g.ending
	if first {
		g.begun, contexts, g.contexts = true, g.contexts, queue.Set[*heldContext]{}
	}
	g.mu.Unlock()
	if !first {
		<-g.done
		return
	}
	defer close(g.done)
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
func (g *group) forget(c *heldContext) {
	g.mu.Lock()
	c.over = true
	g.contexts.Remove(c)
	g.mu.Unlock()
}

// add has the context end with the group, or returns why that has ended.
func (g *group) add(c *heldContext) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending == nil && !c.over {
		g.contexts.Add(c)
	}
	return g.ending
}

// settle makes why the end, if it is one and the first, and returns the end. The
// contexts may end later: the lock may have ended already, and the goroutine that is to end
// them may not have run yet.
func (g *group) settle(why error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending == nil {
		g.ending = why
	}
	return g.ending
}

// endsSoon reports whether end takes a moment only.
func (g *group) endsSoon() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.done:
		return true
	default:
		return !g.begun && g.contexts.Len() <= drive.FewContexts
	}
}

// isOf reports whether c is a context of the whole, whose locks are those, or of a re-entry under
// it.
func (c *heldContext) isOf(whole hold, locks []*lockHold) bool {
	if c.hold == nil {
		return false
	}
	for _, h := range c.hold.h.locks() {
		for up := &h.Hold; up != nil; up = up.Parent {
			if slices.ContainsFunc(locks, func(h *lockHold) bool { return &h.Hold == up }) {
				return true
			}
		}
	}
	return c.hold.h == whole
}
