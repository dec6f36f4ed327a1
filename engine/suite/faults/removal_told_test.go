package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// A lock was removed without a message. The pass to the next one of this process finds out, but that one has
// given up by then. Who waits in another process is told.
func TestAPassThatFindsTheLockRemovedWakesOtherProcesses(t *testing.T) {
	t.Parallel()
	for _, gaveUp := range []bool{false, true} {
		s, p, e := kit.Behind(t, kit.LeaseOf(time.Hour), func(c *engine.Config) { c.HandOver = time.Minute })
		other := kit.Open(t, s.URL())
		first := kit.MustLock(t, e.FencedMutex("L").Mutex)
		ctx, cancel := context.WithCancel(kit.Ctx(t))
		defer cancel()
		second := e.FencedMutex("L").LockAsync(ctx)
		third := other.FencedMutex("L").LockAsync(kit.Ctx(t))
		kit.Eventually(t, "both listen", func() bool {
			return kit.Client(e).Stats().ChannelsConfirmed == 1 && kit.Client(other).Stats().ChannelsConfirmed == 1 && other.Stats().InFlight == 0
		})
		s.Do("DEL", "L")
		sent := p.Watch(kit.ScriptOn(script.Pass, "L"))
		p.Delay(faultproxy.All, 0, 300*time.Millisecond)
		u := first.UnlockAsync()
		sent.Wait(1)
		if gaveUp {
			cancel()
		}
		_, err := u.Await(kit.Ctx(t))
		kit.WantLost(t, "Unlock", err, engine.GoneOnServer)
		p.Delay(faultproxy.All, 0, 0)
		elsewhere := kit.Background(func() error { // either may be faster
			h, err := third.Await(kit.Ctx(t))
			if err != nil {
				return err
			}
			return h.Unlock(kit.Ctx(t))
		})
		if h, err := second.Await(kit.Ctx(t)); err == nil {
			kit.MustUnlock(t, h.Hold)
		} else if !gaveUp {
			t.Error(err)
		}
		if err := kit.Receive(t, elsewhere); err != nil {
			t.Errorf("the second gave up: %v; the third: %v", gaveUp, err)
		}
	}
}

// The server has said that it does not have the lock, and refuses writes from then on. Nothing depends on the
// release but the waiters of other processes: a Shutdown does not wait for it.
func TestAShutdownDoesNotWaitToTellOfARemovedLock(t *testing.T) {
	t.Parallel()
	s, p, e := kit.Behind(t, kit.LeaseOf(time.Hour))
	h := kit.MustLock(t, e.Mutex("L"))
	s.Do("DEL", "L")
	refused := p.ReplaceReply(kit.ReleaseOf("L"), []byte("-NOREPLICAS Not enough good replicas to write.\r\n"), -1)
	kit.RenewUntil(t, h.Done(), e)
	kit.WantLost(t, "the holder", h.Err(), engine.GoneOnServer)
	refused.Wait(1)
	if err := e.Shutdown(kit.Ctx(t)); err != nil {
		t.Error(err)
	}
}

// The lock is gone, and its holder was told. That the release is refused for good leaves no lock, and is
// no failure of the Shutdown.
func TestARemovedLockThatCannotBeToldOfFailsNoShutdown(t *testing.T) {
	t.Parallel()
	s, p, e := kit.Behind(t, kit.LeaseOf(time.Hour))
	h := kit.MustLock(t, e.Mutex("L"))
	down := kit.Background(func() error { return e.Shutdown(kit.Ctx(t)) })
	kit.Eventually(t, "it shuts down", func() bool {
		h, err := e.Mutex("M").TryLock(kit.Ctx(t))
		if err == nil {
			kit.MustUnlock(t, h) // or the Shutdown waits for it
		}
		return errors.Is(err, engine.ErrClosed)
	})
	s.Do("DEL", "L")
	p.ReplaceReply(kit.ReleaseOf("L"), []byte("-NOPERM this user has no permissions\r\n"), -1)
	kit.RenewUntil(t, h.Done(), e)
	kit.WantLost(t, "the holder", h.Err(), engine.GoneOnServer)
	if err := kit.Receive(t, down); err != nil {
		t.Error(err)
	}
}
