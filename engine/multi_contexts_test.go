package engine

import (
	"context"
	"errors"
	"testing"
)

// A context that ends before the locks is forgotten, and one that is made after the end has
// ended.
func TestMultiHoldKeepsNoContextThatHasEnded(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLockMany(t, e, []string{"x", "y"})
	for range 100 {
		parent, cancel := context.WithCancel(context.Background())
		ctx := h.Context(parent)
		cancel()
		receive(t, ctx.Done())
	}
	eventually(t, "they are forgotten", func() bool {
		g := h.h.(*multiHold).group
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.contexts.Len() == 0
	})
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	if cause := context.Cause(h.Context(context.Background())); cause != ErrReleased {
		t.Errorf("a context after the end: %v", cause)
	}
	var none context.Context
	if cause := context.Cause(h.Context(none)); !errors.Is(cause, ErrInvalid) {
		t.Errorf("a context of nil: %v", cause)
	}
	clean(t, s, e)
}
