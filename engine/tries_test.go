package engine

import (
	"errors"
	"testing"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// A TryLock may overtake a waiter, but others that come again and again must not keep
// it waiting for ever: it has every other turn.
func TestTryLocksDoNotStarveAWaiter(t *testing.T) {
	t.Parallel()
	_, p, e := behind(t)
	m := e.Mutex("x")
	h := mustLock(t, m)
	waiter := m.LockAsync(ctxT(t))
	for range 2 {
		p.Pause(faultproxy.Carried("EVALSHA"))
		released := h.UnlockAsync()
		try := m.TryLockAsync(ctxT(t)) // queues: the lock is being released
		p.Resume()
		if _, err := released.Await(ctxT(t)); err != nil {
			t.Fatal(err)
		}
		next, err := try.Await(ctxT(t))
		if err == nil {
			h = next
			continue
		}
		if !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
		h, err = waiter.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
		return
	}
	t.Error("a TryLock got the lock twice, and the waiter had no turn")
}
