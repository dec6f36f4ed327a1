package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"
)

// Hooks are called one at a time, in order, and never under a lock of the engine:
// they may use it.
func TestHooksTellWhatHappenedInOrder(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		var e *Engine
		ready := make(chan struct{})
		var mu sync.Mutex
		var events []string
		var acquired []AcquiredEvent
		note := func(what string) {
			<-ready
			_, _ = e.Stats(), e.Mutex("other").LockAsync(context.Background(), Wait(time.Millisecond))
			mu.Lock()
			events = append(events, what)
			mu.Unlock()
		}
		seen := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return events
		}
		e = open(t, s.URL(), shortLease(time.Second), func(c *Config) {
			c.NameMapper = func(name string) string { return "app:" + name }
			c.Hooks = Hooks{
				Acquired: func(ev AcquiredEvent) {
					if ev.Name == "other" {
						return
					}
					note("acquired " + ev.Name)
					mu.Lock()
					acquired = append(acquired, ev)
					mu.Unlock()
				},
				Released: func(ev HoldEvent) { note("released " + ev.Name) },
				Lost:     func(ev HoldEvent) { note("lost " + ev.Name + ": " + ev.Reason.String()) },
			}
		})
		close(ready)
		h := mustLock(t, e.Mutex("x"))
		if _, err := e.Mutex("x").TryLock(ctxT(t)); err == nil {
			t.Fatal("TryLock got it")
		}
		mustUnlock(t, h)
		lost := mustLock(t, e.Mutex("y"), Lease(100*time.Millisecond))
		receive(t, lost.Done())
		eventually(t, "all are told", func() bool { return len(seen()) >= 5 })
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
		if a := acquired[1]; !errors.Is(a.Err, ErrNotAcquired) || a.Attempts != 0 {
			t.Errorf("the refusal: %+v", a)
		}
	})
}

// A hook that never returns stops the hooks and nothing else; Close gives up on it.
func TestHookThatBlocksStopsNothingButHooks(t *testing.T) {
	t.Parallel()
	s := server(t)
	gate := make(chan struct{})
	defer close(gate)
	e := open(t, s.URL(), func(c *Config) {
		c.CloseTimeout = 300 * time.Millisecond
		c.Hooks.Acquired = func(AcquiredEvent) { <-gate }
	})
	for range 100 {
		mustUnlock(t, mustLock(t, e.Mutex("x")))
	}
	if err := e.Close(); err == nil {
		t.Error("Close says that all ended well")
	}
}

// handler is a slog.Handler that uses the engine whenever it is asked something.
type handler struct {
	slog.Handler
	use func()
}

func (h handler) Enabled(context.Context, slog.Level) bool  { h.use(); return true }
func (h handler) Handle(context.Context, slog.Record) error { h.use(); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handler) WithGroup(string) slog.Handler             { return h }

func TestLoggerMayUseTheEngine(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		var e *Engine
		ready, told := make(chan struct{}), make(chan struct{}, 1000)
		use := func() {
			select {
			case <-ready:
			default:
				return // while the engine is opened
			}
			_ = e.Stats() // takes every shard's lock
			select {
			case told <- struct{}{}:
			default:
			}
		}
		e = open(t, s.URL(), func(c *Config) { c.Logger = slog.New(handler{use: use}) })
		close(ready)
		h := mustLock(t, e.Mutex("x"), Lease(100*time.Millisecond))
		receive(t, h.Done()) // a loss is logged
		receive(t, told)
		mustUnlock(t, mustLock(t, e.Mutex("x")))
	})
}
