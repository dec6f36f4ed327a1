package multi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// UnlockAsync leaves many contexts to a goroutine.
func TestMultiHold_ErrAfterUnlockAsync_IsReleased(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	for range 50 {
		m := testkit.MustLockMany(t, e, []string{"x", "y"})
		for range driver.FewContexts + 1 {
			_ = m.Context(context.Background())
		}
		f := m.UnlockAsync()
		if err := m.Err(); err != engine.ErrReleased {
			t.Fatalf("Err after UnlockAsync: %v", err)
		}
		if _, err := f.Await(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Clean(t, s, e)
}

// It waits for a lock of the one engine when the other closes. It cannot succeed any more,
// and its Wait was on the first engine's wheel.
func TestMultiLock_CloseOfOneEngine_EndsTheWaitOnAnother(t *testing.T) {
	t.Parallel()
	for _, home := range []bool{true, false} {
		s1, s2 := testkit.Server(t), testkit.Server(t)
		closes, waits, holder := testkit.Open(t, s1.URL()), testkit.Open(t, s2.URL()), testkit.Open(t, s2.URL())
		h := testkit.MustLock(t, holder.Mutex("y"))
		l := engine.Multi(waits.Mutex("y"), closes.Mutex("x"))
		if home {
			l = engine.Multi(closes.Mutex("x"), waits.Mutex("y"))
		}
		f := l.LockAsync(context.Background(), engine.Wait(time.Hour))
		testkit.Eventually(t, "it waits for y", func() bool { return waits.Stats().Waiting == 1 && closes.Stats().Held == 0 })
		if err := closes.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("home %v: %v", home, err)
		}
		for _, e := range []*engine.Engine{closes, waits} {
			if n := testkit.Inside(e).Many; n != 0 {
				t.Errorf("home %v: %d are listed", home, n)
			}
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s1, closes)
		testkit.Clean(t, s2, waits, holder)
	}
}

// One was refused, another has no answer yet when the context ends: the error has both.
func TestMultiLock_Error_HasWhatEndedTheWaiting(t *testing.T) {
	t.Parallel()
	s2, p, away := testkit.Behind(t, func(c *engine.Config) { c.CommandTimeout = testkit.Limit }) // nobody gives that up first
	s1 := testkit.Server(t)
	e, holder := testkit.Open(t, s1.URL()), testkit.Open(t, s1.URL())
	h := testkit.MustLock(t, holder.Mutex("x"))
	p.Pause(faultproxy.All)
	defer p.Resume()
	const patience = 1500 * time.Millisecond // the answer for x comes within it
	for what, c := range map[string]struct {
		opts []engine.Option
		is   error
	}{
		"deadline":  {nil, context.DeadlineExceeded},
		"cancelled": {nil, context.Canceled},
		"Wait":      {[]engine.Option{engine.Wait(patience)}, lockerr.ErrWaited},
	} {
		ctx, cancel := context.WithCancel(testkit.Ctx(t))
		defer cancel()
		switch c.is {
		case context.DeadlineExceeded:
			ctx, cancel = context.WithTimeout(ctx, patience)
			defer cancel()
		case context.Canceled:
			time.AfterFunc(patience, cancel)
		}
		_, err := engine.Multi(e.Mutex("x"), away.Mutex("y")).Lock(ctx, c.opts...)
		if !errors.Is(err, c.is) || !errors.Is(err, engine.ErrHeld) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.Resume()
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s1, e, holder)
	testkit.Clean(t, s2, away)
}

// The context of a re-entry ends with the outer Hold, whatever it was made from.
func TestMultiHold_UnlockWithTheContextOfAReentry_Works(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	outer := testkit.MustLockMany(t, e, []string{"x", "y"})
	inner := testkit.MustReenterWith(t, outer.Context(testkit.Ctx(t)), e.Mutex("y"))
	if err := outer.Unlock(inner.Context(testkit.Ctx(t))); err != nil {
		t.Error(err)
	}
	_ = inner.Unlock(testkit.Ctx(t))
	testkit.Clean(t, s, e)
}
