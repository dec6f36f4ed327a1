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

// T33: Redisson's delete() of a fair or fenced lock tells nobody. The holder is told by its next
// renewal, and a waiter asks long before the lease would have ended. But outside of a cluster one that
// waits for a fenced lock in another process has no reason to ask before then.
func TestDeletedFairOrFencedLockIsNoticed(t *testing.T) {
	fair := func(e *engine.Engine) engine.Mutex { return e.FairMutex("L").Mutex }
	fenced := func(e *engine.Engine) engine.Mutex { return e.FencedMutex("L").Mutex }
	everywhere(t, func(t *testing.T, on ground) {
		for name, x := range map[string]struct {
			lock      locker
			elsewhere bool
			lease     time.Duration
		}{
			"fair":                    {fair, false, time.Hour},
			"fair, another process":   {fair, true, time.Hour},
			"fenced":                  {fenced, false, time.Hour},
			"fenced, another process": {fenced, true, 4 * time.Second},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := on.server(t)
				e := kit.Open(t, s.URL(), kit.LeaseOf(x.lease))
				waiter := e
				if x.elsewhere {
					waiter = kit.Open(t, s.URL())
				}
				h := kit.MustLock(t, x.lock(e))
				next := x.lock(waiter).LockAsync(kit.Ctx(t))
				listens(t, waiter)
				s.Do("DEL", "L", "redisson_lock_queue:{L}", "redisson_lock_timeout:{L}", "redisson_lock_token:{L}")
				kit.RenewUntil(t, h.Done(), e)
				kit.WantLost(t, "the holder", h.Err(), engine.GoneOnServer)
				h, err := next.Await(kit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				kit.MustUnlock(t, h)
			})
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
		kit.MustUnlock(t, h.Hold)
		counts(t, other.PermitSemaphore("P"), 1, 0)
	})
}

func listens(t testing.TB, e *engine.Engine) {
	t.Helper()
	kit.Eventually(t, "it listens", func() bool {
		return kit.Client(e).Stats().ChannelsConfirmed == 1 && e.Stats().InFlight == 0
	})
}
