package redisson

import (
	"strings"
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

// T33: Redisson's delete() of a fair or fenced lock, and DEL of any, tells nobody. The holder is told by
// its next renewal, or its Unlock, and tells those who wait in other processes; here the lease would
// last for an hour. (Nobody knows any more who was in a fair queue, but they ask again.)
func TestADeletedLockIsNoticedByItsHolderAndByWhoWaits(t *testing.T) {
	everyContest(t, func(t *testing.T, on ground, c contest) {
		s := on.server(t)
		for _, x := range []struct {
			name              string
			elsewhere, unlock bool
		}{
			{"the holder renews, the waiter is in its process", false, false},
			{"the holder renews", true, false},
			{"the holder unlocks", true, true},
		} {
			if x.unlock && strings.HasSuffix(t.Name(), "FairMutex") {
				continue // the queue is gone as well: again its waiter asks after ten seconds
			}
			e := kit.Open(t, s.URL(), kit.LeaseOf(time.Hour))
			waiter := e
			if x.elsewhere {
				waiter = kit.Open(t, s.URL())
			}
			h := kit.MustLock(t, c.holds(e))
			next := c.waits(waiter).LockAsync(kit.Ctx(t))
			if !strings.HasSuffix(t.Name(), "SpinMutex") { // whose waiters do not listen
				listens(t, waiter)
			}
			s.Do("DEL", "L", "redisson_lock_queue:{L}", "redisson_lock_timeout:{L}", "redisson_lock_token:{L}")
			if x.unlock {
				kit.WantLost(t, "Unlock", h.Unlock(kit.Ctx(t)), engine.GoneOnServer)
			} else {
				kit.RenewUntil(t, h.Done(), e)
				kit.WantLost(t, "the holder", h.Err(), engine.GoneOnServer)
			}
			h, err := next.Await(kit.Ctx(t))
			if err != nil {
				t.Fatalf("%s: %v", x.name, err)
			}
			kit.MustUnlock(t, h)
		}
	})
}

// A reader of a third process gets the lock before the writer finds out that it was deleted. A reader that
// waits elsewhere may read beside that one, and is told.
func TestReadersHearOfADeletedWriterThoughTheLockIsReadByNow(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		for name, end := range map[string]func(e *engine.Engine, h *engine.Hold) error{
			"Unlock":  func(_ *engine.Engine, h *engine.Hold) error { return h.Unlock(kit.Ctx(t)) },
			"renewal": func(e *engine.Engine, h *engine.Hold) error { kit.RenewUntil(t, h.Done(), e); return h.Err() },
		} {
			for _, minHold := range []time.Duration{time.Millisecond, time.Minute} { // over, and not
				e := kit.Open(t, s.URL(), kit.LeaseOf(time.Hour))
				waits, third := kit.Open(t, s.URL()), kit.Open(t, s.URL())
				h := kit.MustLock(t, e.RWMutex("L").Writer(), engine.MinHold(minHold))
				next := waits.RWMutex("L").Reader().LockAsync(kit.Ctx(t))
				listens(t, waits)
				s.Do("DEL", "L")
				r := kit.MustLock(t, third.RWMutex("L").Reader())
				kit.WantLost(t, name, end(e, h), engine.GoneOnServer)
				n, err := next.Await(kit.Ctx(t))
				if err != nil {
					t.Fatalf("%s, MinHold %v: %v", name, minHold, err)
				}
				kit.MustUnlock(t, n)
				kit.MustUnlock(t, r)
			}
		}
	})
}

// The process of the holder is dead, so nobody finds out. A ForceUnlock finds nothing, and tells those
// who wait.
func TestForceUnlockOfADeletedLockWakesWhoWaits(t *testing.T) {
	everyContest(t, func(t *testing.T, on ground, c contest) {
		if strings.HasSuffix(t.Name(), "SpinMutex") {
			return // its waiters sleep for no longer than their back-off, and may be faster
		}
		s := on.server(t)
		s.Do(append([]string{"HSET", "L"}, c.fields...)...)
		s.Do("PEXPIRE", "L", "3600000")
		waits := kit.Open(t, s.URL())
		next := c.waits(waits).LockAsync(kit.Ctx(t))
		listens(t, waits)
		s.Do("DEL", "L")
		if was, err := c.holds(kit.Open(t, s.URL())).ForceUnlock(kit.Ctx(t)); err != nil || was {
			t.Error(was, err)
		}
		h, err := next.Await(kit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		kit.MustUnlock(t, h)
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
