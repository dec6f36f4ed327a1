package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/pace"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The tests of Redisson's RedissonLockTest, as they read for Pawl: an owner is an
// engine or a hold where Java has a thread, a context where Java interrupts. Each
// names the original. Left out are testLockListener, which is about Java's
// listeners, and, here, those that need a cluster.

// testSubscriptionsPerConnection
func TestChurnOfTimedWaitsLeavesNoChannel(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	const goroutines, cycles, names = 32, 150, 5
	var granted, refused atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range cycles {
				h, err := e.Mutex("L"+strconv.Itoa(rand.IntN(names))).Lock(ctxT(t), Wait(1+rand.N(4*time.Millisecond)))
				if errors.Is(err, ErrNotAcquired) {
					refused.Add(1)
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				granted.Add(1)
				if err := h.Unlock(ctxT(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if granted.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d granted, %d timed out: the test wants both", granted.Load(), refused.Load())
	}
	eventually(t, "nothing waits", func() bool { st := e.Stats(); return st.Waiting == 0 && st.Held == 0 && st.Channels == 0 })
	clean(t, s, e)
}

// testSinglePubSub
func TestPairsOnTwoNamesShareOneSubscriptionConnection(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	var all sync.WaitGroup
	for range 20 {
		for _, name := range []string{"a", "b"} {
			h := mustLock(t, e.Mutex(name))
			f := other.Mutex(name).LockAsync(ctxT(t))
			all.Go(func() {
				<-time.After(rand.N(20 * time.Millisecond))
				if err := h.Unlock(ctxT(t)); err != nil {
					t.Error(err)
				}
				h, err := f.Await(ctxT(t))
				if err != nil {
					t.Error(err)
					return
				}
				if err := h.Unlock(ctxT(t)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	clean(t, s, e, other)
}

// testLockIsNotRenewedAfterInterruptedTryLock
func TestTryLockCancelledInFlightLeavesNoRenewedLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("L")
	cancelled := 0
	for i := range 300 {
		ctx, cancel := context.WithCancel(context.Background())
		f := m.TryLockAsync(ctx)
		if i%3 > 0 {
			<-time.After(rand.N(300 * time.Microsecond))
		}
		cancel()
		h, err := f.Await(ctxT(t))
		switch {
		case err == nil:
			mustUnlock(t, h)
		case errors.Is(err, ErrNotAcquired) && errors.Is(err, context.Canceled):
			cancelled++
		case errors.Is(err, ErrNotAcquired): // the one before is still being taken back
		default:
			t.Fatal(err)
		}
	}
	if cancelled == 0 {
		t.Error("no attempt was cancelled in flight")
	}
	start := pace.Now()
	eventually(t, "the lock is free", func() bool { return s.Do("EXISTS", "L") == int64(0) })
	if d := start.Elapsed(); d > 10*time.Second {
		t.Errorf("free after %v: not given back, but expired", d)
	}
	if held := e.Stats().Held; held != 0 {
		t.Errorf("%d holds are renewed", held)
	}
	clean(t, s, e)
}

// testRedisFailed
func TestLockingAgainstADeadServerFails(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL(), func(c *Config) { c.CommandTimeout, c.CloseTimeout = 300*time.Millisecond, 300*time.Millisecond })
	s.Kill()
	start := pace.Now()
	if _, err := e.Mutex("L").TryLock(ctxT(t)); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("TryLock: %v", err)
	}
	if _, err := e.Mutex("L").Lock(ctxT(t), Wait(300*time.Millisecond)); !errors.Is(err, ErrNotAcquired) {
		t.Errorf("Lock: %v", err)
	}
	if _, err := e.Mutex("L").State(ctxT(t)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("State: %v", err)
	}
	if d := start.Elapsed(); d > 10*time.Second {
		t.Errorf("that took %v", d)
	}
}

// testRemainTimeToLive2
func TestGivingBackReentriesLeavesTheLeaseAlone(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("L")
	holds := reenter(t, m, 3, Lease(10*time.Second))
	mustUnlock(t, holds[2])
	mustUnlock(t, holds[1])
	if ttl := state(t, m).TTL; ttl < 9*time.Second || ttl > 10*time.Second {
		t.Errorf("TTL is %v", ttl)
	}
	mustUnlock(t, holds[0])
	clean(t, s)
}

// testTryLockWait
func TestWaitOnAHeldLockEndsInTime(t *testing.T) {
	t.Parallel()
	s := server(t)
	h := mustLock(t, open(t, s.URL()).Mutex("L"))
	start, used := time.Now(), pace.Now()
	_, err := open(t, s.URL()).Mutex("L").Lock(ctxT(t), Wait(time.Second))
	if !errors.Is(err, ErrNotAcquired) {
		t.Errorf("Lock: %v", err)
	}
	if d := time.Since(start); d < time.Second || used.Elapsed() > 4*time.Second {
		t.Errorf("refused after %v", d)
	}
	mustUnlock(t, h)
}

// testLockUninterruptibly
func TestCancellingSomeWaitersDisturbsNoOther(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, open(t, s.URL()).Mutex("L"))
	ctx, cancel := context.WithCancel(context.Background())
	first, last := e.Mutex("L").LockAsync(ctx), e.Mutex("L").LockAsync(ctx)
	stays := e.Mutex("L").LockAsync(ctxT(t))
	eventually(t, "the first one listens", func() bool { return e.Stats().Channels == 1 })
	cancel()
	for _, f := range []*Future[*Hold]{first, last} {
		if _, err := f.Await(ctxT(t)); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled waiter: %v", err)
		}
	}
	if _, err := stays.Result(); err != ErrPending {
		t.Fatalf("the one that was not cancelled: %v", err)
	}
	mustUnlock(t, h)
	h, err := stays.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
	clean(t, s, e)
}

// testForceUnlock
func TestForceUnlockFreesTheLockForEveryone(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	h := mustLock(t, e.Mutex("L"))
	if done, err := other.Mutex("L").ForceUnlock(ctxT(t)); !done || err != nil {
		t.Fatal(done, err)
	}
	if st := state(t, e.Mutex("L")); st.Locked {
		t.Errorf("State: %+v", st)
	}
	next := mustLock(t, other.Mutex("L"))
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Errorf("Unlock of the old holder: %v", err)
	}
	if st := state(t, other.Mutex("L")); !st.Mine {
		t.Errorf("the new holder lost it to that: %+v", st)
	}
	mustUnlock(t, next)
	if done, err := other.Mutex("L").ForceUnlock(ctxT(t)); done || err != nil {
		t.Error("of a free lock:", done, err)
	}
	clean(t, s, e, other)
}

// testExpire
func TestLeaseEndsAndTheWaiterHasTheLock(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e, other := open(t, s.URL()), open(t, s.URL())
		const lease = time.Second
		start, used := time.Now(), pace.Now()
		old := mustLock(t, e.Mutex("L"), Lease(lease))
		next := mustLock(t, other.Mutex("L"))
		// A hold ends here by the margin sooner than on the server, and is then given back.
		if d := time.Since(start); d < lease-e.margin(lease) || used.Elapsed() > lease+3*time.Second {
			t.Errorf("granted %v after the lease of %v began", d, lease)
		}
		if err := old.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("the old hold still is one: %v", err)
		}
		if err := old.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
			t.Errorf("Unlock of the old hold: %v", err)
		}
		if st := state(t, other.Mutex("L")); !st.Mine {
			t.Errorf("the new hold did not outlive that: %+v", st)
		}
		mustUnlock(t, next)
		clean(t, s, e, other)
	})
}

// testRemainTimeToLive
func TestTTLIsTheLeaseOrTheWatchdogs(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("L")
	h := mustLock(t, m, Lease(time.Hour))
	if ttl := state(t, m).TTL; ttl < time.Hour-10*time.Second || ttl > time.Hour {
		t.Errorf("with a lease of an hour: %v", ttl)
	}
	mustUnlock(t, h)
	if st := state(t, m); st.TTL != 0 || st.Locked {
		t.Errorf("of a free lock: %+v", st)
	}
	h = mustLock(t, m)
	if ttl := state(t, m).TTL; ttl < 20*time.Second || ttl > 30*time.Second {
		t.Errorf("under the watchdog: %v", ttl)
	}
	mustUnlock(t, h)
	clean(t, s)
}

// testAutoExpire
func TestLockOfAKilledProcessExpires(t *testing.T) {
	const lease = 1500 * time.Millisecond
	short := func(c *Config) { c.Lease = lease }
	if args := peerArgs(); len(args) == 1 {
		mustLock(t, open(t, args[0], short).Mutex("L"))
		<-ctxT(t).Done() // until it is killed
		t.Fatal("not killed")
	}
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		p := startPeer(t, s.URL())
		eventually(t, "the process holds the lock", func() bool { return len(fields(t, s, "L")) == 1 })
		// It is renewed: after twice the lease the process has it still.
		renewed := time.Now()
		eventually(t, "two leases pass", func() bool {
			if len(fields(t, s, "L")) != 1 {
				t.Fatal("the lock was lost while its process lived")
			}
			return time.Since(renewed) > 2*lease
		})
		f := open(t, s.URL()).Mutex("L").LockAsync(ctxT(t))
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		killed := pace.Now()
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if d := killed.Elapsed(); d > lease+3*time.Second {
			t.Errorf("free %v after the process was killed", d)
		}
		mustUnlock(t, h)
		clean(t, s)
	})
}

// testGetHoldCount
func TestHoldCountFollowsLockAndUnlock(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("L")
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
	outer := mustLock(t, m)
	count(1)
	inner, err := m.Lock(outer.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	count(2)
	mustUnlock(t, inner)
	count(1)
	mustUnlock(t, outer)
	count(0)
	clean(t, s)
}

// testIsHeldByCurrentThread, testIsHeldByCurrentThreadOtherThread, testIsLocked,
// testIsLockedOtherThread
func TestLockedIsSeenByAllAndMineByTheHolder(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	see := func(locked bool) {
		t.Helper()
		if st := state(t, e.Mutex("L")); st.Locked != locked || st.Mine != locked {
			t.Errorf("the holder sees %+v", st)
		}
		if st := state(t, other.Mutex("L")); st.Locked != locked || st.Mine {
			t.Errorf("another one sees %+v", st)
		}
	}
	see(false)
	h := mustLock(t, e.Mutex("L"))
	see(true)
	if err := h.Err(); err != nil {
		t.Errorf("held, and Err is %v", err)
	}
	mustUnlock(t, h)
	see(false)
	if err := h.Err(); !errors.Is(err, ErrReleased) {
		t.Errorf("unlocked, and Err is %v", err)
	}
	clean(t, s)
}

// testUnlockFail
func TestUnlockByAFormerOwnerFailsAndHarmsNobody(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	former := mustLock(t, e.Mutex("L"))
	mustUnlock(t, former)
	h := mustLock(t, e.Mutex("L"))
	if err := former.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("Unlock: %v", err)
	}
	if f := fields(t, s, "L"); f[h.Owner()] != "1" {
		t.Errorf("the holder's field is gone: %v", f)
	}
	mustUnlock(t, h)
	clean(t, s)
}

// testLockUnlock
func TestLockAndUnlockCanBeRepeated(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("L")
	seen := make(map[string]bool)
	for range 100 {
		h := mustLock(t, m)
		if seen[h.Owner()] {
			t.Fatalf("owner %s twice", h.Owner())
		}
		seen[h.Owner()] = true
		mustUnlock(t, h)
	}
	clean(t, s)
}

// testReentrancy
func TestReenteredLockStaysTakenUntilTheLastUnlock(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	holds := reenter(t, e.Mutex("L"), 2)
	mustUnlock(t, holds[1])
	for _, stranger := range []*Engine{e, other} {
		if _, err := stranger.Mutex("L").TryLock(ctxT(t)); !errors.Is(err, ErrNotAcquired) {
			t.Errorf("TryLock of a stranger: %v", err)
		}
	}
	mustUnlock(t, holds[0])
	mustUnlock(t, mustLock(t, other.Mutex("L")))
	clean(t, s)
}

// testConcurrencyTryLockUnLock
func TestHeldLockIsAlwaysRenewedAmidChurn(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		const lease = 3 * time.Second
		e := open(t, s.URL(), func(c *Config) { c.Lease = lease })
		const goroutines, cycles = 16, 60
		var grants atomic.Int64
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range cycles {
					h, err := e.Mutex("L").Lock(ctxT(t))
					if err != nil {
						t.Error(err)
						return
					}
					if n := grants.Add(1); n == goroutines || n == goroutines*cycles/2 {
						<-time.After(lease + lease/4)
						if n, err := s.Process.Do("HEXISTS", "L", h.Owner()); n != int64(1) || err != nil {
							t.Errorf("the hold is gone on the server after its first lease: %v, %v", n, err)
						}
					}
					if err := h.Err(); err != nil {
						t.Errorf("while held: %v", err)
					}
					if err := h.Unlock(ctxT(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := grants.Load(); n != goroutines*cycles {
			t.Errorf("%d grants", n)
		}
		clean(t, s, e)
	})
}

// testConcurrency_SingleInstance, testConcurrency_MultiInstance,
// testConcurrencyLoop_MultiInstance
func TestNoAcquisitionIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ engines, tasks, cycles int }{
		{1, 15, 1},
		{100, 1, 1},
		{16, 1, 100},
	} {
		t.Run(fmt.Sprintf("%d engines, %d tasks, %d cycles", tc.engines, tc.tasks, tc.cycles), func(t *testing.T) {
			t.Parallel()
			s := server(t)
			var all sync.WaitGroup
			for range tc.engines {
				e := open(t, s.URL())
				for range tc.tasks {
					all.Go(func() {
						for range tc.cycles {
							increment(t, s, e)
						}
					})
				}
			}
			all.Wait()
			if n, want := s.Do("GET", "n"), tc.engines*tc.tasks*tc.cycles; n != strconv.Itoa(want) {
				t.Errorf("the counter is %v, want %d", n, want)
			}
			s.Do("DEL", "n")
			clean(t, s)
		})
	}
}

// increment adds one to a counter on the server under the lock, in two steps that
// nothing else protects.
func increment(t testing.TB, s *redistest.Server, e *Engine) {
	h, err := e.Mutex("L").Lock(within(t, 2*limit))
	if err != nil {
		t.Error(err)
		return
	}
	v, err := s.Process.Do("GET", "n")
	if err != nil {
		t.Error(err)
	}
	text, _ := v.(string) // nil at first
	n, _ := strconv.Atoi(strings.TrimSpace(text))
	if _, err := s.Process.Do("SET", "n", strconv.Itoa(n+1)); err != nil {
		t.Error(err)
	}
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
}

// reenter locks n times, each under the one before.
func reenter(t testing.TB, m Mutex, n int, opts ...Option) []*Hold {
	t.Helper()
	ctx := ctxT(t)
	var holds []*Hold
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

func state(t testing.TB, m Mutex) State {
	t.Helper()
	st, err := m.State(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	return st
}
