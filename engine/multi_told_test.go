package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
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
		return h.fate.contexts.Len() == 0
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

// What one server granted ends before the other answers. Nobody had the whole, so it was not
// lost.
func TestMultiLockThatWasNotAcquiredWasNotLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(s *redistest.Server, granted *Engine)
		want error
		text string
	}{
		"removed": {func(s *redistest.Server, _ *Engine) { s.Do("DEL", "x") }, ErrLate, GoneOnServer.String()},
		"closed":  {func(_ *redistest.Server, granted *Engine) { _ = granted.Close() }, ErrClosed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			granting, slow := server(t), server(t)
			p := faultproxy.New(t, "tcp", slow.Addr())
			a, b := open(t, granting.URL(), shortLease(time.Second)), open(t, "redis://"+p.Addr())
			p.Pause(faultproxy.All)
			try := Multi(a.Mutex("x"), b.Mutex("y")).TryLockAsync(ctxT(t))
			eventually(t, "the first is granted", func() bool { return a.Stats().Held == 1 })
			c.end(granting, a)
			eventually(t, "it has ended", func() bool { return a.Stats().Held == 0 })
			p.Resume()
			_, err := try.Await(ctxT(t))
			if !errors.Is(err, ErrNotAcquired) || !errors.Is(err, c.want) || errors.Is(err, ErrLost) || !hasText(err, c.text) {
				t.Errorf("%v", err)
			}
			clean(t, slow, b)
		})
	}
}
