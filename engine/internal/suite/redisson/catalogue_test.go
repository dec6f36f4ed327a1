package redisson

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The tests of Redisson's RedissonLockTest, as they read for Pawl: an owner is an
// engine or a hold where Java has a thread, a context where Java interrupts. Each
// names the original. What RedissonSpinLockTest, RedissonFairLockTest and the tests of
// the non-reentrant locks repeat of it runs with their locks, too. Left out is
// testLockListener, which is about Java's listeners.

// testSubscriptionsPerConnection
func TestChurnOfTimedWaitsLeavesNoChannel(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		const goroutines, cycles, names = 32, 150, 5
		var granted, refused atomic.Int64
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range cycles {
					h, err := e.Mutex("L"+strconv.Itoa(rand.IntN(names))).Lock(testkit.Ctx(t), engine.Wait(1+rand.N(4*time.Millisecond)))
					if errors.Is(err, engine.ErrNotAcquired) {
						refused.Add(1)
						continue
					}
					if err != nil {
						t.Error(err)
						continue
					}
					granted.Add(1)
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if granted.Load() == 0 || refused.Load() == 0 {
			t.Errorf("%d granted, %d timed out: the test wants both", granted.Load(), refused.Load())
		}
		testkit.Eventually(t, "nothing waits", func() bool { st := e.Stats(); return st.Waiting == 0 && st.Held == 0 && st.Channels == 0 })
		testkit.Clean(t, s, e)
	})
}

// testSinglePubSub
func TestPairsOnTwoNamesShareOneSubscriptionConnection(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		var all sync.WaitGroup
		for range 20 {
			for _, name := range []string{"a", "b"} {
				h := testkit.MustLock(t, e.Mutex(name))
				f := other.Mutex(name).LockAsync(testkit.Ctx(t))
				all.Go(func() {
					<-time.After(rand.N(20 * time.Millisecond))
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
					h, err := f.Await(testkit.Ctx(t))
					if err != nil {
						t.Error(err)
						return
					}
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		testkit.Clean(t, s, e, other)
	})
}

// testLockIsNotRenewedAfterInterruptedTryLock
func TestTryLockCancelledInFlightLeavesNoRenewedLock(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		m := e.Mutex("L")
		cancelled := 0
		for i := range 300 {
			ctx, cancel := context.WithCancel(context.Background())
			f := m.TryLockAsync(ctx)
			if i%3 > 0 {
				<-time.After(rand.N(300 * time.Microsecond))
			}
			cancel()
			h, err := f.Await(testkit.Ctx(t))
			switch {
			case err == nil:
				testkit.MustUnlock(t, h)
			case errors.Is(err, engine.ErrNotAcquired) && errors.Is(err, context.Canceled):
				cancelled++
			case errors.Is(err, engine.ErrNotAcquired): // the one before is still being taken back
			default:
				t.Fatal(err)
			}
		}
		if cancelled == 0 {
			t.Error("no attempt was cancelled in flight")
		}
		start := cputime.Now()
		testkit.Eventually(t, "the lock is free", func() bool { return s.Do("EXISTS", "L") == int64(0) })
		if d := start.Elapsed(); d > 10*time.Second {
			t.Errorf("free after %v: not given back, but expired", d)
		}
		if held := e.Stats().Held; held != 0 {
			t.Errorf("%d holds are renewed", held)
		}
		testkit.Clean(t, s, e)
	})
}

// testRedisFailed
func TestLockingAgainstADeadServerFails(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.CommandTimeout, c.CloseTimeout = 300*time.Millisecond, 300*time.Millisecond })
		s.Kill()
		start := cputime.Now()
		if _, err := lock(e).TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("TryLock: %v", err)
		}
		if _, err := lock(e).Lock(testkit.Ctx(t), engine.Wait(300*time.Millisecond)); !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("Lock: %v", err)
		}
		if _, err := lock(e).State(testkit.Ctx(t)); !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("State: %v", err)
		}
		if d := start.Elapsed(); d > 10*time.Second {
			t.Errorf("that took %v", d)
		}
	})
}

// testRemainTimeToLive2
func TestGivingBackReentriesLeavesTheLeaseAlone(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		m := lock(testkit.Open(t, s.URL()))
		holds := reenter(t, m, 3, engine.Lease(time.Minute))
		testkit.MustUnlock(t, holds[2])
		testkit.MustUnlock(t, holds[1])
		if ttl := state(t, m).TTL; ttl < 50*time.Second || ttl > time.Minute {
			t.Errorf("TTL is %v", ttl)
		}
		testkit.MustUnlock(t, holds[0])
		testkit.Clean(t, s)
	})
}

// testTryLockWait
func TestWaitOnAHeldLockEndsInTime(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		h := testkit.MustLock(t, lock(testkit.Open(t, s.URL())))
		start, used := time.Now(), cputime.Now()
		_, err := lock(testkit.Open(t, s.URL())).Lock(testkit.Ctx(t), engine.Wait(time.Second))
		if !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("Lock: %v", err)
		}
		if d := time.Since(start); d < time.Second || used.Elapsed() > 4*time.Second {
			t.Errorf("refused after %v", d)
		}
		testkit.MustUnlock(t, h)
	})
}

// testLockUninterruptibly
func TestCancellingSomeWaitersDisturbsNoOther(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		h := testkit.MustLock(t, lock(testkit.Open(t, s.URL())))
		ctx, cancel := context.WithCancel(context.Background())
		first, last := lock(e).LockAsync(ctx), lock(e).LockAsync(ctx)
		stays := lock(e).LockAsync(testkit.Ctx(t))
		testkit.Eventually(t, "they wait, and one has been refused", func() bool { return e.Stats().Waiting == 3 && e.Stats().Commands > 0 })
		cancel()
		for _, f := range []*engine.Future[*engine.Hold]{first, last} {
			if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled waiter: %v", err)
			}
		}
		if _, err := stays.Result(); err != engine.ErrPending {
			t.Fatalf("the one that was not cancelled: %v", err)
		}
		testkit.MustUnlock(t, h)
		h, err := stays.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s, e)
	})
}

// testForceUnlock
func TestForceUnlockFreesTheLockForEveryone(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		h := testkit.MustLock(t, lock(e))
		if done, err := lock(other).ForceUnlock(testkit.Ctx(t)); !done || err != nil {
			t.Fatal(done, err)
		}
		if st := state(t, lock(e)); st.Locked {
			t.Errorf("State: %+v", st)
		}
		next := testkit.MustLock(t, lock(other))
		if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
			t.Errorf("Unlock of the old holder: %v", err)
		}
		if st := state(t, lock(other)); !st.Mine {
			t.Errorf("the new holder lost it to that: %+v", st)
		}
		testkit.MustUnlock(t, next)
		if done, err := lock(other).ForceUnlock(testkit.Ctx(t)); done || err != nil {
			t.Error("of a free lock:", done, err)
		}
		testkit.Clean(t, s, e, other)
	})
}

// testRemainTimeToLive
func TestTTLIsTheLeaseOrTheWatchdogs(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		m := lock(testkit.Open(t, s.URL()))
		h := testkit.MustLock(t, m, engine.Lease(time.Hour))
		if ttl := state(t, m).TTL; ttl < time.Hour-10*time.Second || ttl > time.Hour {
			t.Errorf("with a lease of an hour: %v", ttl)
		}
		testkit.MustUnlock(t, h)
		if st := state(t, m); st.TTL != 0 || st.Locked {
			t.Errorf("of a free lock: %+v", st)
		}
		h = testkit.MustLock(t, m)
		if ttl := state(t, m).TTL; ttl < 20*time.Second || ttl > 30*time.Second {
			t.Errorf("under the watchdog: %v", ttl)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s)
	})
}

// testGetHoldCount
func TestHoldCountFollowsLockAndUnlock(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		m := lock(testkit.Open(t, s.URL()))
		count := func(want int) {
			t.Helper()
			n := 0
			for _, holder := range state(t, m).Holders {
				n += holder.Count
			}
			if n != want {
				t.Errorf("count is %d, want %d", n, want)
			}
		}
		count(0)
		outer := testkit.MustLock(t, m)
		count(1)
		inner, err := m.Lock(outer.Context(testkit.Ctx(t)))
		if err != nil {
			t.Fatal(err)
		}
		count(2)
		testkit.MustUnlock(t, inner)
		count(1)
		testkit.MustUnlock(t, outer)
		count(0)
		testkit.Clean(t, s)
	})
}

// testIsHeldByCurrentThread, testIsHeldByCurrentThreadOtherThread, testIsLocked,
// testIsLockedOtherThread
func TestLockedIsSeenByAllAndMineByTheHolder(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		see := func(locked bool) {
			t.Helper()
			if st := state(t, lock(e)); st.Locked != locked || st.Mine != locked {
				t.Errorf("the holder sees %+v", st)
			}
			if st := state(t, lock(other)); st.Locked != locked || st.Mine {
				t.Errorf("another one sees %+v", st)
			}
		}
		see(false)
		h := testkit.MustLock(t, lock(e))
		see(true)
		if err := h.Err(); err != nil {
			t.Errorf("held, and Err is %v", err)
		}
		testkit.MustUnlock(t, h)
		see(false)
		if err := h.Err(); !errors.Is(err, engine.ErrReleased) {
			t.Errorf("unlocked, and Err is %v", err)
		}
		testkit.Clean(t, s)
	})
}

// testUnlockFail
func TestUnlockByAFormerOwnerFailsAndHarmsNobody(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		former := testkit.MustLock(t, lock(e))
		testkit.MustUnlock(t, former)
		h := testkit.MustLock(t, lock(e))
		if err := former.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotHeld) {
			t.Errorf("Unlock: %v", err)
		}
		if f := testkit.Fields(t, s, "L"); f[h.Owner()] != "1" {
			t.Errorf("the holder's field is gone: %v", f)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s)
	})
}

// testLockUnlock (failovers are in engine/internal/suite/topology)
func TestLockAndUnlockCanBeRepeated(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		m := lock(testkit.Open(t, s.URL()))
		seen := make(map[string]bool)
		for range 100 {
			h := testkit.MustLock(t, m)
			if seen[h.Owner()] {
				t.Fatalf("owner %s twice", h.Owner())
			}
			seen[h.Owner()] = true
			testkit.MustUnlock(t, h)
		}
		testkit.Clean(t, s)
	})
}

// testInCluster, testLockFailoverInCluster, on three nodes
func TestLocksOnEveryNodeOfACluster(t *testing.T) {
	t.Parallel()
	at := testkit.Clustered(redistest.StartCluster(t, false))
	e, other := at.Open(t), at.Open(t)
	for kind, lock := range map[string]func(e *engine.Engine, name string) engine.Mutex{
		"Mutex":       (*engine.Engine).Mutex,
		"SpinMutex":   func(e *engine.Engine, name string) engine.Mutex { return e.SpinMutex(name) },
		"FairMutex":   func(e *engine.Engine, name string) engine.Mutex { return e.FairMutex(name) },
		"FencedMutex": func(e *engine.Engine, name string) engine.Mutex { return e.FencedMutex(name) },
		"Writer":      func(e *engine.Engine, name string) engine.Mutex { return e.RWMutex(name).Writer() },
	} {
		for i := range 30 {
			name := fmt.Sprint(kind, i)
			m, far := lock(e, name), lock(other, name)
			h := testkit.MustLock(t, m)
			again := testkit.MustReenter(t, m, h)
			refused(t, far)
			next := far.LockAsync(testkit.Ctx(t))
			testkit.Eventually(t, "the other one waits", func() bool { return other.Stats().Waiting == 1 && other.Stats().InFlight == 0 })
			testkit.MustUnlock(t, again)
			unlocked := cputime.Now()
			testkit.MustUnlock(t, h)
			h, err := next.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if d := unlocked.Elapsed(); d > 5*time.Second { // the lease is 30 s
				t.Errorf("%s: woken after %v", name, d)
			}
			if st := state(t, far); !st.Mine {
				t.Errorf("%s: %+v", name, st)
			}
			testkit.MustUnlock(t, h)
		}
	}
	for _, s := range at.Servers() {
		if s.CommandStats()["evalsha"] < 30 {
			t.Errorf("%s had few of them: %v", s.Addr(), s.CommandStats())
		}
	}
}

// testReentrancy
func TestReenteredLockStaysTakenUntilTheLastUnlock(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		holds := reenter(t, lock(e), 2)
		testkit.MustUnlock(t, holds[1])
		for _, stranger := range []*engine.Engine{e, other} {
			if _, err := lock(stranger).TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) {
				t.Errorf("TryLock of a stranger: %v", err)
			}
		}
		testkit.MustUnlock(t, holds[0])
		testkit.MustUnlock(t, testkit.MustLock(t, lock(other)))
		testkit.Clean(t, s)
	})
}

// NonReentrant: testSameThreadReacquireThrows, testCrossInstanceSameThreadReentryThrows,
// testContendingThreadBlocksAndAcquiresOnRelease
func TestNonReentrantLockRefusesItsHolder(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		h := testkit.MustLock(t, lock(e))
		mine := h.Context(testkit.Ctx(t))
		for what, err := range map[string]error{
			"lock":    testkit.ErrOf(lock(e).Lock(mine, engine.NonReentrant())),
			"tryLock": testkit.ErrOf(lock(e).TryLock(mine, engine.NonReentrant())),
			"timed":   testkit.ErrOf(lock(e).Lock(mine, engine.NonReentrant(), engine.Wait(time.Second))),
		} {
			if !errors.Is(err, engine.ErrReentry) {
				t.Errorf("%s: %v", what, err)
			}
		}
		next := lock(other).LockAsync(testkit.Ctx(t), engine.NonReentrant())
		testkit.Eventually(t, "the other one waits", func() bool { return other.Stats().Waiting == 1 })
		testkit.MustUnlock(t, h)
		h, err := next.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s, e, other)
	})
}

// reenter locks n times, each under the one before.
func reenter(t testing.TB, m engine.Mutex, n int, opts ...engine.Option) []*engine.Hold {
	t.Helper()
	ctx := testkit.Ctx(t)
	var holds []*engine.Hold
	for range n {
		h, err := m.Lock(ctx, opts...)
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
		ctx = h.Context(ctx)
	}
	return holds
}

func state(t testing.TB, m engine.Mutex) engine.State {
	t.Helper()
	st, err := m.State(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	return st
}
