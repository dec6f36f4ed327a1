package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// When one of the locks is granted to another, Done is closed and no context of the
// MultiHold is alive, however it ended.
func TestMultiHoldIsToldBeforeOthersGetALock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts []Option
		end  func(t *testing.T, h *MultiHold)
	}{
		"Unlock":      {nil, func(t *testing.T, h *MultiHold) { _ = h.Unlock(ctxT(t)) }},
		"UnlockAsync": {nil, func(t *testing.T, h *MultiHold) { h.UnlockAsync() }},
		"MaxHold":     {[]Option{MaxHold(1500 * time.Millisecond)}, func(*testing.T, *MultiHold) {}},
		"Lease":       {[]Option{Lease(1500 * time.Millisecond)}, func(*testing.T, *MultiHold) {}},
		"Close":       {nil, func(t *testing.T, h *MultiHold) { _ = h.locks[0].engine().Close() }},
	} {
		for _, contexts := range []int{3, 500} {
			t.Run(fmt.Sprint(name, ", ", contexts, " contexts"), func(t *testing.T) {
				t.Parallel()
				s := server(t)
				a, b := open(t, s.URL(), func(c *Config) { c.Margin = time.Second }), open(t, s.URL())
				all := someNames(20)
				h := mustLockMany(t, a, all, c.opts...)
				ctxs := make([]context.Context, contexts)
				for i := range ctxs {
					ctxs[i] = h.Context(context.Background())
				}
				next := make([]*Future[*Hold], len(all))
				for i, name := range all {
					next[i] = b.Mutex(name).LockAsync(ctxT(t))
				}
				c.end(t, h)
				for _, f := range next {
					got, err := f.Await(ctxT(t))
					if err != nil {
						t.Fatal(err)
					}
					for _, ctx := range ctxs {
						if ctx.Err() == nil {
							t.Fatalf("%s was taken while a context of the MultiHold is alive", got.Name())
						}
					}
					select {
					case <-h.Done():
					default:
						t.Errorf("%s was taken before Done", got.Name())
					}
					mustUnlock(t, got)
				}
				if h.Err() == nil || h.ValidUntil().After(time.Now()) {
					t.Errorf("%v, valid until %v", h.Err(), h.ValidUntil())
				}
				_ = h.Unlock(ctxT(t))
			})
		}
	}
}

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
		h.fate.mu.Lock()
		defer h.fate.mu.Unlock()
		return len(h.fate.contexts) == 0
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

// Pending, and while their common context is cancelled, they cost no goroutine each.
func TestPendingMultiLocksCostNoGoroutines(t *testing.T) {
	for _, c := range []struct{ n, names int }{{2000, 10}, {500, 3 * fewLocks}} {
		pendingCostNoGoroutines(t, c.n, c.names)
	}
}

func pendingCostNoGoroutines(t *testing.T, n, each int) {
	t.Helper()
	s := server(t)
	a, e := open(t, s.URL()), open(t, s.URL())
	held := mustLock(t, a.Mutex("shared"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	idle := runtime.NumGoroutine()
	futures := make([]*Future[*MultiHold], n)
	for i := range futures {
		names := []string{"shared"}
		for j := range each - 1 {
			names = append(names, fmt.Sprint("own", i, "/", j))
		}
		futures[i] = e.Many(names...).LockAsync(ctx)
		if i%(1000/each) == 0 {
			eventually(t, "the server keeps up", func() bool { return e.Stats().InFlight < 1000 })
		}
	}
	// Their tries of the one name go one after another, so their number alone says nothing.
	eventually(t, "all wait for the lock that is held, and have none", func() bool {
		return e.Stats().Waiting == n && e.Stats().InFlight == 0 && s.Do("DBSIZE") == int64(1)
	})
	if more := runtime.NumGoroutine() - idle; more > 20 {
		t.Errorf("%d goroutines more", more)
	}
	cancel()
	peak := 0
	for _, f := range futures {
		peak = max(peak, runtime.NumGoroutine()-idle)
		if _, err := f.Await(ctxT(t)); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
	}
	if peak > 20 {
		t.Errorf("%d goroutines more while they are cancelled", peak)
	}
	mustUnlock(t, held)
	clean(t, s, a, e)
}

// Without an answer from one server nothing is kept on the others.
func TestMultiLockKeepsNothingWhileOneServerIsAway(t *testing.T) {
	t.Parallel()
	s, p, away := behind(t, func(c *Config) { c.CommandTimeout = 300 * time.Millisecond })
	other := server(t)
	e := open(t, other.URL())
	p.Down()
	l := Multi(e.Mutex("x"), away.Mutex("x"))
	var refused *NotAcquiredError
	if _, err := l.TryLock(ctxT(t)); !errors.Is(err, ErrUnavailable) || !errors.As(err, &refused) || refused.Name != "x" {
		t.Errorf("TryLock: %v", err)
	}
	f := l.LockAsync(ctxT(t))
	eventually(t, "it waits for the server that is away, and holds nothing", func() bool {
		return away.Stats().Waiting == 1 && e.Stats().Held == 0 && other.Do("DBSIZE") == int64(0)
	})
	p.Up()
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	clean(t, other, e)
	clean(t, s, away)
}
