package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// Which context bounds an Unlock that is given something made of the hold's own, which
// ends when Unlock is called. Here what that was made from has been cancelled before.
func TestUnlock_Context_IsItsOnlyBound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given func(own context.Context) context.Context
		free  bool // of what the hold's context was made from
	}{
		"the hold's own":           {func(own context.Context) context.Context { return own }, false},
		"with a deadline":          {func(own context.Context) context.Context { return soon(t, own) }, false},
		"detached":                 {engine.Detach, false},
		"without cancel":           {context.WithoutCancel, true},
		"without cancel, deadline": {func(own context.Context) context.Context { return soon(t, context.WithoutCancel(own)) }, true},
	} {
		for when, cancelled := range map[string]bool{"": false, ", whose parent was cancelled": true} {
			t.Run(name+when, func(t *testing.T) {
				t.Parallel()
				s, p, e := testkit.Behind(t, testkit.Patient)
				h := testkit.MustLock(t, e.Mutex("x"))
				parent, cancel := context.WithCancel(context.Background())
				defer cancel()
				ctx := c.given(h.Context(parent))
				if cancelled {
					cancel()
				}
				p.Pause(faultproxy.Carried("EVALSHA"))
				unlocked := testkit.Background(func() error { return h.Unlock(ctx) })
				testkit.Eventually(t, "the release is out", func() bool { return h.Err() == engine.ErrReleased })
				if !cancelled || c.free {
					select {
					case err := <-unlocked:
						t.Errorf("Unlock did not wait: %v", err)
					case <-time.After(20 * time.Millisecond): // it may be too short to see it, never too long
					}
					p.Resume()
				}
				switch err := testkit.Receive(t, unlocked); {
				case !cancelled || c.free:
					if err != nil {
						t.Errorf("Unlock: %v", err)
					}
				case !errors.Is(err, engine.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled):
					t.Errorf("Unlock: %v, want that the parent was cancelled", err)
				}
				p.Resume()
				testkit.Eventually(t, "it is released", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
			})
		}
	}
}

// soon returns a context that ends an hour from now at the latest.
func soon(t *testing.T, parent context.Context) context.Context {
	ctx, cancel := context.WithTimeout(parent, time.Hour)
	t.Cleanup(cancel)
	return ctx
}
