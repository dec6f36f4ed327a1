package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// Hooks are called one at a time, in order, and never under a lock of the engine:
// they may use it.
func TestHooks_Events_AreReportedInOrder(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		var e *engine.Engine
		ready := make(chan struct{})
		var mu sync.Mutex
		var events []string
		var acquired []engine.AcquiredEvent
		note := func(what string) {
			<-ready
			_, _ = e.Stats(), e.Mutex("other").LockAsync(context.Background(), engine.Wait(time.Millisecond))
			mu.Lock()
			events = append(events, what)
			mu.Unlock()
		}
		seen := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return events
		}
		e = testkit.Open(t, s.URL(), testkit.ShortLease(time.Second), func(c *engine.Config) {
			c.NameMapper = func(name string) string { return "app:" + name }
			c.Hooks = engine.Hooks{
				Acquired: func(ev engine.AcquiredEvent) {
					if ev.Name == "other" {
						return
					}
					note("acquired " + ev.Name)
					mu.Lock()
					acquired = append(acquired, ev)
					mu.Unlock()
				},
				Released: func(ev engine.HoldEvent) { note("released " + ev.Name) },
				Lost:     func(ev engine.HoldEvent) { note("lost " + ev.Name + ": " + ev.Reason.String()) },
			}
		})
		close(ready)
		h := testkit.MustLock(t, e.Mutex("x"))
		if _, err := e.Mutex("x").TryLock(testkit.Ctx(t)); err == nil {
			t.Fatal("TryLock got it")
		}
		testkit.MustUnlock(t, h)
		lost := testkit.MustLock(t, e.Mutex("y"), engine.Lease(100*time.Millisecond))
		testkit.Receive(t, lost.Done())
		testkit.Eventually(t, "all are told", func() bool { return len(seen()) >= 5 })
		want := []string{"acquired x", "acquired x", "released x", "acquired y", "lost y: its lease ended"}
		for i, what := range want {
			if got := seen()[i]; got != what {
				t.Errorf("event %d is %q, want %q", i, got, what)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		a := acquired[0]
		if a.Kind != "mutex" || a.Attempts != 1 || a.Err != nil || a.Wait <= 0 || time.Since(a.Start) > time.Minute {
			t.Errorf("the grant: %+v", a)
		}
		if a := acquired[1]; !errors.Is(a.Err, engine.ErrNotAcquired) || a.Attempts != 0 {
			t.Errorf("the refusal: %+v", a)
		}
	})
}

// A hook that never returns stops the hooks and nothing else; Close gives up on it.
func TestHooks_OneBlocks_StopsNothingButHooks(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	gate := make(chan struct{})
	defer close(gate)
	e := testkit.Open(t, s.URL(), func(c *engine.Config) {
		c.CloseTimeout = 300 * time.Millisecond
		c.Hooks.Acquired = func(engine.AcquiredEvent) { <-gate }
	})
	for range 100 {
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	}
	if err := e.Close(); err == nil {
		t.Error("Close says that all ended well")
	}
}
