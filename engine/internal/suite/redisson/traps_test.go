package redisson

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// What can go wrong between two clients of these locks, where no other test shows it. The list is
// docs/redisson.md.

// T3: a lock of Redisson's without an expiry is held, though a TTL of -1 looks like none.
func TestLockWithoutAnExpiryIsHeld(t *testing.T) {
	everyContest(t, func(t *testing.T, on ground, c contest) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		s.Do(append([]string{"HSET", "L"}, c.fields...)...)
		if _, err := c.waits(e).TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("TryLock: %v", err)
		}
		next := c.waits(e).LockAsync(testkit.Ctx(t))
		testkit.Eventually(t, "it waits", func() bool { return e.Stats().Waiting == 1 && e.Stats().InFlight == 0 })
		if ttl := s.Do("PTTL", "L"); ttl != int64(-1) {
			t.Errorf("the lock has got an expiry: %v", ttl)
		}
		s.Do("DEL", "L")
		s.Do(verb(s, "PUBLISH"), c.channel, c.message)
		h, err := next.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
		s.Do("DEL", "redisson_lock_token:{L}") // a counter of tokens stays
		testkit.Clean(t, s, e)
	})
}

// T3: a lock of ours whose expiry somebody removed has one again with its next renewal. A reader
// has a second key.
func TestExpiryThatWasRemovedComesBackWithARenewal(t *testing.T) {
	everyContest(t, func(t *testing.T, on ground, c contest) {
		s := on.server(t)
		e := testkit.Open(t, s.URL(), testkit.LeaseOf(time.Hour))
		h := testkit.MustLock(t, c.holds(e))
		keys := []string{"L"}
		if timeout := "{L}:" + h.Owner() + ":rwlock_timeout:1"; s.Do("EXISTS", timeout) == int64(1) {
			keys = append(keys, timeout)
		}
		for _, key := range keys {
			if s.Do("PERSIST", key) != int64(1) {
				t.Fatalf("%s had no expiry", key)
			}
		}
		testkit.RenewAll(e)
		for _, key := range keys {
			testkit.Eventually(t, key+" has an expiry", func() bool { return s.Do("PTTL", key).(int64) > 0 })
		}
		testkit.MustUnlock(t, h)
		s.Do("DEL", "redisson_lock_token:{L}")
		testkit.Clean(t, s, e)
	})
}

// Redisson counts the fields of the hash and takes their values for numbers: nothing else may be
// in it.
func TestHashHasTheFieldsOfRedissonAndNoOther(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		for kind, x := range map[string]struct {
			of   func(e *engine.Engine) engine.Mutex
			want func(h *engine.Hold) map[string]string
		}{
			"Mutex":       {func(e *engine.Engine) engine.Mutex { return e.Mutex("L") }, func(h *engine.Hold) map[string]string { return map[string]string{h.Owner(): "1"} }},
			"FairMutex":   {func(e *engine.Engine) engine.Mutex { return e.FairMutex("L") }, func(h *engine.Hold) map[string]string { return map[string]string{h.Owner(): "1"} }},
			"FencedMutex": {func(e *engine.Engine) engine.Mutex { return e.FencedMutex("L") }, func(h *engine.Hold) map[string]string { return map[string]string{h.Owner(): "1"} }},
			"Reader": {func(e *engine.Engine) engine.Mutex { return e.RWMutex("L").Reader() }, func(h *engine.Hold) map[string]string {
				return map[string]string{"mode": "read", h.Owner(): "1"}
			}},
			"Writer": {func(e *engine.Engine) engine.Mutex { return e.RWMutex("L").Writer() }, func(h *engine.Hold) map[string]string {
				return map[string]string{"mode": "write", h.Owner(): "1"}
			}},
		} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				s := on.server(t)
				m := x.of(testkit.Open(t, s.URL()))
				h := testkit.MustLock(t, m)
				if got := testkit.Fields(t, s, "L"); !maps.Equal(got, x.want(h)) {
					t.Errorf("the hash is %v, want %v", got, x.want(h))
				}
				testkit.MustUnlock(t, h)
			})
		}
	})
}

// A 1 lets all readers of Redisson in, a 0 one thread of each process: a writer that leaves says 1,
// and 00 for a thread that was about to sleep; readers that leave say 0.
func TestMessagesOfAReadWriteLock(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		l := testkit.Open(t, s.URL()).RWMutex("L")
		heard := listen(t, s, "redisson_rwlock:{L}")
		testkit.MustUnlock(t, testkit.MustLock(t, l.Writer()))
		heard.hears(t, "1")
		heard.hears(t, "00")
		testkit.MustUnlock(t, testkit.MustLock(t, l.Reader()))
		heard.hears(t, "0")
		heard.hearsNothing(t)
	})
}

// A reader inside its writer does not take the writer's lease with it when it leaves.
func TestAReaderThatLeavesItsWriterKeepsTheLeaseOfThat(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		l := testkit.Open(t, s.URL()).RWMutex("L")
		w := testkit.MustLock(t, l.Writer(), engine.Lease(time.Hour))
		r, err := l.Reader().Lock(w.Context(testkit.Ctx(t)), engine.Lease(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, r)
		if ttl := testkit.PTTL(t, s, "L"); ttl < 50*time.Minute {
			t.Errorf("the writer's lease of an hour is %v now", ttl)
		}
		testkit.MustUnlock(t, w)
	})
}

// Redisson's waiters of a spin lock each ask the server. Those of one engine ask as one.
func TestSpinWaitersOfAnEngineAskAsOne(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		holder, e := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		h := testkit.MustLock(t, holder.SpinMutex("L"))
		const waiters, pause = 50, 20 * time.Millisecond
		var waits []*engine.Future[*engine.Hold]
		for range waiters {
			waits = append(waits, e.SpinMutex("L").LockAsync(testkit.Ctx(t), engine.Backoff(pause, pause)))
		}
		began, before := time.Now(), e.Stats().Commands
		var polls float64
		testkit.Eventually(t, "it has asked for a while", func() bool {
			polls = float64(e.Stats().Commands - before)
			return time.Since(began) > 10*pause && polls >= 2
		})
		if most := 3 + 2*float64(time.Since(began))/float64(pause); polls > most {
			t.Errorf("%d waiters asked %.0f times in %v, want at most %.0f", waiters, polls, time.Since(began), most)
		}
		testkit.MustUnlock(t, h)
		for _, f := range waits {
			h, err := f.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			testkit.MustUnlock(t, h)
		}
		testkit.Clean(t, s, e, holder)
	})
}
