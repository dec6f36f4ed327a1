package contexts

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/driver"
)

// collected returns when the garbage collector has run, and what it calls for a dropped Hold.
func collected(t testing.TB, url string) {
	t.Helper()
	for range 2 {
		e := testkit.Open(t, url, testkit.LeaseOf(time.Second))
		func() { testkit.MustLockMany(t, e, []string{t.Name() + "1", t.Name() + "2"}) }()
		testkit.Eventually(t, "a Hold that was dropped is noticed", func() bool { runtime.GC(); return e.Stats().Leaked == 1 })
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A re-entry ends with what it re-enters, so one that is dropped keeps no lock.
func TestHold_ManyReenteredAndDropped_IsNotReported(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or the outer one is lost
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), testkit.LeaseOf(time.Second))
		outer := testkit.MustLockMany(t, e, []string{"a", "b"})
		ctx := outer.Context(context.Background())
		func() {
			if _, err := e.LockMany(ctx, []string{"a", "b"}); err != nil {
				t.Fatal(err)
			}
		}()
		collected(t, s.URL())
		if n := e.Stats().Leaked; n != 0 {
			t.Errorf("%d reported", n)
		}
		testkit.MustUnlock(t, outer)
	})
}

// Unlock was called, and its caller has let go of the Hold, but it takes long until all the locks
// are released: the first ends a context of its own before.
func TestHold_ManyUnlockedAndDropped_IsNotReported(t *testing.T) {
	t.Parallel()
	for name, unlock := range map[string]func(*engine.Hold){
		"Unlock": func(h *engine.Hold) { go func() { _ = h.Unlock(context.Background()) }() },
		"UnlockAsync": func(h *engine.Hold) {
			for range driver.FewContexts + 1 { // more than it ends itself
				_ = h.Context(context.Background())
			}
			h.UnlockAsync()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			e := testkit.Open(t, s.URL(), testkit.LeaseOf(5*time.Second))
			slow, gate := newSlowContext(), make(chan struct{})
			func() {
				h := testkit.MustLockMany(t, e, []string{"a", "b", "c"})
				_ = h.Parts()[0].Context(slow)
				slow.listenedTo(t)
				slow.slow <- gate
				done := h.Done()
				unlock(h)
				testkit.Receive(t, done)
			}()
			testkit.Eventually(t, "the first is being released", func() bool { return e.Stats().Held == 2 })
			collected(t, s.URL())
			if n := e.Stats().Leaked; n != 0 {
				t.Errorf("%d reported", n)
			}
			close(gate)
			testkit.Clean(t, s, e)
		})
	}
}
