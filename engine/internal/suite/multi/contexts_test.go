package multi

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// When one of the locks is granted to another, Done is closed and no context of the
// Hold is alive, however it ended.
func TestMultiHoldIsReportedBeforeOthersGetALock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts []engine.Option
		end  func(t *testing.T, e *engine.Engine, h *engine.Hold)
	}{
		"Unlock":      {nil, func(t *testing.T, _ *engine.Engine, h *engine.Hold) { _ = h.Unlock(testkit.Ctx(t)) }},
		"UnlockAsync": {nil, func(t *testing.T, _ *engine.Engine, h *engine.Hold) { h.UnlockAsync() }},
		"MaxHold":     {[]engine.Option{engine.MaxHold(1500 * time.Millisecond)}, func(*testing.T, *engine.Engine, *engine.Hold) {}},
		"Lease":       {[]engine.Option{engine.Lease(3 * time.Second)}, func(*testing.T, *engine.Engine, *engine.Hold) {}},
		"Close":       {nil, func(t *testing.T, e *engine.Engine, h *engine.Hold) { _ = e.Close() }},
	} {
		for _, contexts := range []int{3, 500} {
			t.Run(fmt.Sprint(name, ", ", contexts, " contexts"), func(t *testing.T) {
				t.Parallel()
				s := testkit.Server(t)
				a, b := testkit.Open(t, s.URL(), func(c *engine.Config) { c.Margin = time.Second }), testkit.Open(t, s.URL())
				all := testkit.Names(20)
				h := testkit.MustLockMany(t, a, all, c.opts...)
				ctxs := make([]context.Context, contexts)
				for i := range ctxs {
					ctxs[i] = h.Context(context.Background())
				}
				next := make([]*engine.Future[*engine.Hold], len(all))
				for i, name := range all {
					next[i] = b.Mutex(name).LockAsync(testkit.Ctx(t))
				}
				c.end(t, a, h)
				for _, f := range next {
					got, err := f.Await(testkit.Ctx(t))
					if err != nil {
						t.Fatal(err)
					}
					for _, ctx := range ctxs {
						if ctx.Err() == nil {
							t.Fatalf("%s was taken while a context of the Hold is alive", got.Name())
						}
					}
					select {
					case <-h.Done():
					default:
						t.Errorf("%s was taken before Done", got.Name())
					}
					testkit.MustUnlock(t, got)
				}
				if h.Err() == nil || h.ValidUntil().After(time.Now()) {
					t.Errorf("%v, valid until %v", h.Err(), h.ValidUntil())
				}
				_ = h.Unlock(testkit.Ctx(t))
			})
		}
	}
}

// Without an answer from one server nothing is kept on the others.
func TestMultiLockKeepsNothingWhileOneServerIsAway(t *testing.T) {
	t.Parallel()
	s, p, away := testkit.Behind(t, func(c *engine.Config) { c.CommandTimeout = 300 * time.Millisecond })
	other := testkit.Server(t)
	e := testkit.Open(t, other.URL())
	p.Down()
	l := engine.Multi(e.Mutex("x"), away.Mutex("x"))
	var refused *engine.NotAcquiredError
	if _, err := l.TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrUnavailable) || !errors.As(err, &refused) || refused.Name != "x" {
		t.Errorf("TryLock: %v", err)
	}
	f := l.LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it waits for the server that is away, and holds nothing", func() bool {
		return away.Stats().Waiting == 1 && e.Stats().Held == 0 && other.Do("DBSIZE") == int64(0)
	})
	p.Up()
	h, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	testkit.Clean(t, other, e)
	testkit.Clean(t, s, away)
}

// What one server granted ends before the other answers. Nobody had the whole, so it was not
// lost.
func TestMultiLockThatWasNotAcquiredWasNotLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(s *redistest.Server, granted *engine.Engine)
		want error
		text string
	}{
		"removed": {func(s *redistest.Server, granted *engine.Engine) { s.Do("DEL", "x"); testkit.RenewAll(granted) }, engine.ErrGrantTooLate, engine.RemovedOnServer.String()},
		"closed":  {func(_ *redistest.Server, granted *engine.Engine) { _ = granted.Close() }, engine.ErrClosed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			granting, slow := testkit.Server(t), testkit.Server(t)
			p := faultproxy.New(t, "tcp", slow.Addr())
			a, b := testkit.Open(t, granting.URL()), testkit.Open(t, "redis://"+p.Addr(), testkit.Patient)
			p.Pause(faultproxy.All)
			try := engine.Multi(a.Mutex("x"), b.Mutex("y")).TryLockAsync(testkit.Ctx(t))
			testkit.Eventually(t, "the first is granted", func() bool { return a.Stats().Held == 1 })
			c.end(granting, a)
			testkit.Eventually(t, "it has ended", func() bool { return a.Stats().Held == 0 })
			p.Resume()
			_, err := try.Await(testkit.Ctx(t))
			if !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, c.want) || errors.Is(err, engine.ErrLost) || !testkit.HasText(err, c.text) {
				t.Errorf("%v", err)
			}
			testkit.Clean(t, slow, b)
		})
	}
}
