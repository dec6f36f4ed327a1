package redisson

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
)

// T16: in Redisson the unlock of a fair lock that has expired succeeds. Here it fails for every kind:
// what was done under the lock may have been done beside another. Nobody has taken it since, and the
// server is asked: the holder does not know yet.
func TestUnlockOfALockThatHasExpiredFails(t *testing.T) {
	everyContest(t, func(t *testing.T, on ground, c contest) {
		s := on.server(t)
		e := kit.Open(t, s.URL())
		h := kit.MustLock(t, c.holds(e))
		s.Do("PEXPIRE", "L", "1")
		kit.Eventually(t, "it has expired", func() bool { return s.Do("EXISTS", "L") == int64(0) })
		if err := h.Err(); err != nil {
			t.Fatalf("the holder knows: %v", err)
		}
		kit.WantLost(t, "Unlock", h.Unlock(kit.Ctx(t)), engine.GoneOnServer)

		h = kit.MustLock(t, c.holds(e), engine.Lease(200*time.Millisecond))
		kit.Receive(t, h.Done())
		kit.WantLost(t, "Unlock after a lease", h.Unlock(kit.Ctx(t)), engine.LeaseEnded)
	})
}

// T33: Redisson's delete() of a fair or fenced lock, and DEL of any, is silent. The holder finds out at its
// next renewal, or its Unlock. A waiter of its process goes on then; one elsewhere asks after 30 s at most
// (TestWaiter_KeyDeletedElsewhere_IsServedWithin30s).
func TestADeletedLockIsNoticedByItsHolder(t *testing.T) {
	everyContest(t, func(t *testing.T, on ground, c contest) {
		s := on.server(t)
		for name, end := range map[string]func(e *engine.Engine, h *engine.Hold) error{
			"renews":  func(e *engine.Engine, h *engine.Hold) error { kit.RenewUntil(t, h.Done(), e); return h.Err() },
			"unlocks": func(_ *engine.Engine, h *engine.Hold) error { return h.Unlock(kit.Ctx(t)) },
		} {
			e := kit.Open(t, s.URL(), kit.LeaseOf(time.Hour))
			h := kit.MustLock(t, c.holds(e))
			s.Do("DEL", "L", "redisson_lock_queue:{L}", "redisson_lock_timeout:{L}", "redisson_lock_token:{L}")
			kit.WantLost(t, "it "+name, end(e, h), engine.GoneOnServer)
			kit.MustUnlock(t, kit.MustLock(t, c.waits(e)))
		}
	})
}

// T33: the same of permits. A waiter takes one as soon as there are permits again, though
// nobody said so.
func TestDeletedPermitsAreNoticed(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		permits(t, s, 1)
		e, other := kit.Open(t, s.URL(), kit.LeaseOf(time.Hour)), kit.Open(t, s.URL())
		h := take(t, e.PermitSemaphore("P"), 1)
		next := other.PermitSemaphore("P").AcquireAsync(kit.Ctx(t), 1)
		listens(t, other)
		s.Do("DEL", "P", "{P}:timeout")
		s.Do("SET", "P", "1")
		kit.RenewUntil(t, h.Done(), e)
		kit.WantLost(t, "the holder", h.Err(), engine.GoneOnServer)
		h, err := next.Await(kit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		kit.MustUnlock(t, h)
		counts(t, other.PermitSemaphore("P"), 1, 0)
	})
}

func listens(t testing.TB, e *engine.Engine) {
	t.Helper()
	kit.Eventually(t, "it listens", func() bool {
		return kit.Client(e).Stats().ChannelsConfirmed == 1 && e.Stats().InFlight == 0
	})
}
