package redisson

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// T16: in Redisson the unlock of a fair lock that has expired succeeds. Here it fails for every kind:
// what was done under the lock may have been done beside another. Nobody has taken it since, and the
// server is asked: the holder does not know yet.
func TestUnlockOfALockThatHasExpiredFails(t *testing.T) {
	everyContest(t, func(t *testing.T, on ground, c contest) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		h := testkit.MustLock(t, c.holds(e))
		s.Do("PEXPIRE", "L", "1")
		testkit.Eventually(t, "it has expired", func() bool { return s.Do("EXISTS", "L") == int64(0) })
		if err := h.Err(); err != nil {
			t.Fatalf("the holder knows: %v", err)
		}
		testkit.WantLost(t, "Unlock", h.Unlock(testkit.Ctx(t)), engine.RemovedOnServer)

		h = testkit.MustLock(t, c.holds(e), engine.Lease(200*time.Millisecond))
		testkit.Receive(t, h.Done())
		testkit.WantLost(t, "Unlock after a lease", h.Unlock(testkit.Ctx(t)), engine.LeaseEnded)
	})
}

// T33: Redisson's delete() of a fair or fenced lock, and DEL of any, is silent. The holder finds out at its
// next renewal, or its Unlock. A waiter of its process goes on then; one elsewhere asks after 30 s at most
// (TestWaiter_KeyDeletedElsewhere_IsServedWithin30s).
func TestADeletedLockIsNoticedByItsHolder(t *testing.T) {
	everyContest(t, func(t *testing.T, on ground, c contest) {
		s := on.server(t)
		for name, end := range map[string]func(e *engine.Engine, h *engine.Hold) error{
			"renews":  func(e *engine.Engine, h *engine.Hold) error { testkit.RenewUntil(t, h.Done(), e); return h.Err() },
			"unlocks": func(_ *engine.Engine, h *engine.Hold) error { return h.Unlock(testkit.Ctx(t)) },
		} {
			e := testkit.Open(t, s.URL(), testkit.LeaseOf(time.Hour))
			h := testkit.MustLock(t, c.holds(e))
			s.Do("DEL", "L", "redisson_lock_queue:{L}", "redisson_lock_timeout:{L}", "redisson_lock_token:{L}")
			testkit.WantLost(t, "it "+name, end(e, h), engine.RemovedOnServer)
			testkit.MustUnlock(t, testkit.MustLock(t, c.waits(e)))
		}
	})
}

// T33: the same of permits. A waiter takes one as soon as there are permits again, though
// nobody said so.
func TestDeletedPermitsAreNoticed(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		permits(t, s, 1)
		e, other := testkit.Open(t, s.URL(), testkit.LeaseOf(time.Hour)), testkit.Open(t, s.URL())
		h := take(t, e.PermitSemaphore("P"), 1)
		next := other.PermitSemaphore("P").AcquireAsync(testkit.Ctx(t), 1)
		listens(t, other)
		s.Do("DEL", "P", "{P}:timeout")
		s.Do("SET", "P", "1")
		testkit.RenewUntil(t, h.Done(), e)
		testkit.WantLost(t, "the holder", h.Err(), engine.RemovedOnServer)
		h, err := next.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
		counts(t, other.PermitSemaphore("P"), 1, 0)
	})
}

func listens(t testing.TB, e *engine.Engine) {
	t.Helper()
	testkit.Eventually(t, "it listens", func() bool {
		return testkit.Client(e).Stats().ChannelsConfirmed == 1 && e.Stats().InFlight == 0
	})
}
