package engine

import (
	"errors"
	"testing"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// As without a hold: it waits for its turn, and is not told that somebody has the lock.
func TestTryLockBehindTheReleaseOfAReentryWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"that is answered": false, "that has no answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := behind(t)
			m := e.Mutex("x")
			h := mustLock(t, m)
			child := mustReenter(t, m, h)
			p.Pause(faultproxy.All)
			released := child.UnlockAsync()
			try := m.TryLockAsync(h.Context(ctxT(t)))
			if _, err := try.Result(); err != ErrPending {
				t.Fatalf("TryLock: %v", err)
			}
			if hangs {
				try.source.(*acquisition).giveUpNow()
				if _, err := try.Await(ctxT(t)); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) {
					t.Errorf("TryLock: %v", err)
				}
			}
			p.Resume()
			if _, err := released.Await(ctxT(t)); err != nil {
				t.Error(err)
			}
			if !hangs {
				again, err := try.Await(ctxT(t))
				if err != nil {
					t.Fatalf("TryLock: %v", err)
				}
				if got := count(t, again, fields(t, s, "x")); got != "2" {
					t.Errorf("the server counts %q", got)
				}
				mustUnlock(t, again)
			}
			mustUnlock(t, h)
			clean(t, s)
		})
	}
}

// The first may get no answer, and then nobody has what the second was refused for.
func TestTryLockUnderAHoldBehindAnotherOneGoesByItsOwnTry(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"that is granted": false, "that has no answer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := behind(t)
			m := e.Mutex("x")
			h := mustLock(t, m)
			ctx := h.Context(ctxT(t))
			p.Pause(faultproxy.All)
			first, second := m.TryLockAsync(ctx), m.TryLockAsync(ctx)
			if _, err := second.Result(); err != ErrPending {
				t.Fatalf("the second: %v", err)
			}
			if hangs {
				for _, try := range []*Future[*Hold]{first, second} {
					try.source.(*acquisition).giveUpNow()
					if _, err := try.Await(ctxT(t)); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) {
						t.Errorf("TryLock: %v", err)
					}
				}
			}
			p.Resume()
			if !hangs {
				child, err := first.Await(ctxT(t))
				if err != nil {
					t.Fatalf("the first: %v", err)
				}
				if _, err := second.Await(ctxT(t)); !errors.Is(err, ErrHeld) {
					t.Errorf("the second: %v", err)
				}
				mustUnlock(t, child)
			}
			mustUnlock(t, h)
			clean(t, s)
		})
	}
}
