package redisson

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The tests of Redisson's RedissonFairLockTest, as they read for Pawl. Those that need a peer of
// Java are in engine/internal/suite/interop.

const (
	fairQueue   = "redisson_lock_queue:{F}"
	fairTimeout = "redisson_lock_timeout:{F}"
)

func fairQueued(t testing.TB, s *redistest.Server, n int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d are queued", n), func() bool { return s.Do("LLEN", fairQueue) == int64(n) })
}

// line has n more requests in the queue of F, one after the other.
func line(t testing.TB, s *redistest.Server, n int, opts []engine.Option, engines ...*engine.Engine) (all []*engine.Future[*engine.Hold]) {
	t.Helper()
	before := int(s.Do("LLEN", fairQueue).(int64))
	for i := range n {
		all = append(all, engines[i%len(engines)].FairMutex("F").LockAsync(testkit.Ctx(t), opts...))
		fairQueued(t, s, before+i+1)
	}
	return all
}

// scoresOf fails the test unless each place in the queue is waited for until its turn, counted
// from now: what is left of the lease, and the room of each up to it.
func scoresOf(t testing.TB, s *redistest.Server, room time.Duration) {
	t.Helper()
	lease := max(0, testkit.PTTL(t, s, "F"))
	for i := range s.Do("LLEN", fairQueue).(int64) {
		left := waitedFor(t, s, int(i))
		if want := lease + time.Duration(i+1)*room; left < want-3*time.Second || left > want+3*time.Second {
			t.Errorf("place %d: waited for during %v, want %v", i, left, want)
		}
	}
}

// waitedFor is how long the server waits for a place in the queue still.
func waitedFor(t testing.TB, s *redistest.Server, place int) time.Duration {
	t.Helper()
	owner, _ := s.Do("LINDEX", fairQueue, strconv.Itoa(place)).(string)
	score, _ := s.Do("ZSCORE", fairTimeout, owner).(string)
	ms, err := strconv.ParseInt(score, 10, 64)
	if err != nil {
		t.Errorf("place %d: %v", place, err)
	}
	clock := s.Do("TIME").([]any)
	sec, _ := strconv.ParseInt(clock[0].(string), 10, 64)
	micro, _ := strconv.ParseInt(clock[1].(string), 10, 64)
	return time.UnixMilli(ms).Sub(time.Unix(sec, micro*1000))
}

// testLeaseTimeout
func TestFairOwnersAreServedInOrderByTheEndsOfLeases(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			var owners []*engine.Engine // who has had the lock has gone
			var networks []*faultproxy.Proxy
			for range 4 {
				e, network := mayGo(t, s)
				owners, networks = append(owners, e), append(networks, network)
			}
			const lease = 1500 * time.Millisecond
			start := begin(lease)
			last := start
			testkit.MustLock(t, owners[0].FairMutex("F"), engine.Lease(lease))
			networks[0].Down()
			waits := line(t, s, 3, []engine.Option{engine.Lease(lease)}, owners[1:]...)
			for i, f := range waits {
				h, err := f.Await(testkit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				who := fmt.Sprint("waiter ", i)
				start.notBefore(t, who)
				last.notLong(t, who)
				for j, later := range waits[i+1:] {
					if _, err := later.Result(); err != engine.ErrPending {
						t.Errorf("waiter %d has it before %d: %v", i+1+j, i, err)
					}
				}
				start.lease, last = start.lease+lease, begin(lease)
				if i == len(waits)-1 {
					testkit.MustUnlock(t, h)
				}
				networks[i+1].Down()
			}
			testkit.Clean(t, s)
		})
	})
}

// testMultipleLocks
func TestFiveHundredWaitOnOneFairLock(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		engines := []*engine.Engine{testkit.Open(t, s.URL()), testkit.Open(t, s.URL())}
		first := testkit.MustLock(t, engines[0].FairMutex("F"))
		const n = 500
		done := make(chan error, n)
		for i := range n {
			engines[i%2].FairMutex("F").LockAsync(testkit.Ctx(t)).OnComplete(func(h *engine.Hold, err error) {
				if err == nil {
					h.UnlockAsync()
				}
				done <- err
			})
		}
		fairQueued(t, s, n)
		testkit.MustUnlock(t, first)
		for range n {
			if err := testkit.Receive(t, done); err != nil {
				t.Error(err)
			}
		}
		testkit.Clean(t, s, engines...)
	})
}

// testWaitTimeoutDrift, testLockAcquiredTimeoutDrift, testFirstThreadDeathTimeoutDrift,
// testAcquireFailedTimeoutDrift_Descrete, testLockAcquiredTimeoutDrift_Descrete
func TestScoresOfAFairQueueDoNotDrift(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		room := 10 * time.Second
		of := func(c *engine.Config) { c.FairWaitTimeout = room }
		e, other := testkit.Open(t, s.URL(), of), testkit.Open(t, s.URL(), of)
		h := testkit.MustLock(t, e.FairMutex("F"))
		waits := line(t, s, 6, nil, other, e)
		scoresOf(t, s, room)
		for n, i := range []int{2, 5, 0} { // the middle, the end, the head
			waits[i].Abandon()
			fairQueued(t, s, 5-n)
			scoresOf(t, s, room)
		}
		for n, i := range []int{1, 3, 4} {
			testkit.MustUnlock(t, h)
			var err error
			if h, err = waits[i].Await(testkit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
			fairQueued(t, s, 2-n)
			if n < 2 {
				scoresOf(t, s, room)
			}
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s, e, other)
	})
}

// testLockAcquiredBooleanTimeoutDrift_Descrete, testTryLockNonDelayed, testTryLockWait
func TestATimedTryOfAFairLockLeavesNoResidue(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		h := testkit.MustLock(t, e.FairMutex("F"))
		if _, err := other.FairMutex("F").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("TryLock: %v", err)
		}
		if n := s.Do("EXISTS", fairQueue, fairTimeout); n != int64(0) {
			t.Error("TryLock is queued")
		}
		began, used := time.Now(), cputime.Now()
		if _, err := other.FairMutex("F").Lock(testkit.Ctx(t), engine.Wait(2*time.Second)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("Wait: %v", err)
		}
		if d := time.Since(began); d < 2*time.Second || used.Elapsed() > 4*time.Second {
			t.Errorf("a wait of two seconds took %v", d)
		}
		fairQueued(t, s, 0)
		testkit.MustUnlock(t, h)
		if h, err := other.FairMutex("F").TryLock(testkit.Ctx(t)); err != nil {
			t.Errorf("TryLock of a free lock: %v", err)
		} else {
			testkit.MustUnlock(t, h)
		}
		testkit.Clean(t, s, e, other)
	})
}

// Each waiting owner has the channel that Redisson gives it, and only the head is told.
func TestOnlyTheHeadOfAFairQueueIsReported(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		h := testkit.MustLock(t, e.FairMutex("F"))
		ctx, cancel := context.WithCancel(testkit.Ctx(t))
		defer cancel()
		waits := line(t, s, 1, nil, e)
		second := e.FairMutex("F").LockAsync(ctx)
		fairQueued(t, s, 2)
		owners := s.Do("LRANGE", fairQueue, "0", "-1").([]any)
		var listeners []*listener
		for _, o := range owners {
			if !strings.Contains(o.(string), ":") {
				t.Errorf("owner %s", o)
			}
			listeners = append(listeners, listen(t, s, javaChannel("F")+":"+o.(string)))
		}
		testkit.MustUnlock(t, h)
		listeners[0].hears(t, "0")
		h, err := waits[0].Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		listeners[1].hearsNothing(t)
		cancel()
		if _, err := second.Await(testkit.Ctx(t)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		fairQueued(t, s, 0)
		testkit.MustUnlock(t, h)
		for _, x := range listeners {
			x.conn.Close()
		}
		testkit.Clean(t, s, e)
	})
}

// T15: a head of Redisson's that gives up leaves the queue and tells nobody, also if the lock has
// just been announced to it. The one behind it does not sleep until the lease would have ended.
func TestAHeadThatLeavesWithoutAWordHoldsUpNobodyForLong(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		java := testkit.MustLock(t, testkit.Open(t, s.URL()).FairMutex("F"), engine.Lease(time.Hour))
		head := "11111111-2222-4333-8444-555555555555:7"
		at := fmt.Sprint(time.Now().Add(2 * time.Hour).UnixMilli())
		s.Do("RPUSH", fairQueue, head)
		s.Do("ZADD", fairTimeout, at, head)
		heard := listen(t, s, javaChannel("F")+":"+head)
		next := e.FairMutex("F").LockAsync(testkit.Ctx(t))
		fairQueued(t, s, 2)
		testkit.Eventually(t, "it has been refused again, when it listened", func() bool { return s.CommandStats()["lpos"] > 0 })
		testkit.MustUnlock(t, java)
		heard.hears(t, "0")
		s.Do("ZREM", fairTimeout, head)
		s.Do("LREM", fairQueue, "0", head)
		h, err := next.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
		heard.conn.Close()
		testkit.Clean(t, s, e)
	})
}

// testAbandonedTimeoutDrift_Descrete: heads that ask no more are taken out by time, one after the
// other, and those behind them are served. Nobody here can count who hears.
func TestAbandonedHeadsOfAFairQueueAreTakenOutByTime(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) { // or they are gone before all are queued
			s := on.server(t)
			of := func(c *engine.Config) { c.FairWaitTimeout = time.Second }
			e, other := testkit.Open(t, s.URL(), of), testkit.Open(t, s.URL(), of)
			h := testkit.MustLock(t, e.FairMutex("F"), engine.Lease(time.Second))
			now := time.Now()
			var listeners []*listener
			for i := range 3 {
				owner := fmt.Sprintf("11111111-2222-4333-8444-555555555555:%d", i)
				listeners = append(listeners, listen(t, s, javaChannel("F")+":"+owner)) // heard, but it never asks
				s.Do("RPUSH", fairQueue, owner)
				s.Do("ZADD", fairTimeout, fmt.Sprint(now.Add(time.Duration(i+2)*time.Second).UnixMilli()), owner)
			}
			next := other.FairMutex("F").LockAsync(testkit.Ctx(t))
			fairQueued(t, s, 4)
			<-h.Done()
			h, err := next.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(now); d < 4*time.Second || d > 8*time.Second {
				t.Errorf("served after %v, and the last before it was waited for until 4s", d)
			}
			testkit.MustUnlock(t, h)
			for _, x := range listeners {
				x.conn.Close()
			}
			testkit.Clean(t, s, e, other)
		})
	})
}

// testUnlockFail: who does not hold it cannot unlock it while another does.
func TestAnotherOwnerDoesNotUnlockAFairLock(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		old := testkit.MustLock(t, e.FairMutex("F"), engine.Lease(500*time.Millisecond))
		<-old.Done()
		h := testkit.MustLock(t, other.FairMutex("F"))
		if err := old.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
			t.Errorf("Unlock by another owner: %v", err)
		}
		if done, err := e.FairMutex("F").ForceUnlock(testkit.Ctx(t), engine.IfHolder(old.Owner())); done || err != nil {
			t.Errorf("ForceUnlock of another owner's lock: %t, %v", done, err)
		}
		if st, err := e.FairMutex("F").State(testkit.Ctx(t)); err != nil || !st.Locked || st.Holders[0].ID != h.Owner() {
			t.Errorf("%+v, %v", st, err)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s, e, other)
	})
}

// testConcurrency_MultiInstance_Ordering
func TestFairOwnersOfManyInstancesAreServedInOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		var engines []*engine.Engine
		for range 4 {
			engines = append(engines, testkit.Open(t, s.URL()))
		}
		first := testkit.MustLock(t, engines[0].FairMutex("F"))
		waiters := line(t, s, 16, nil, engines...)
		testkit.MustUnlock(t, first)
		for i, f := range waiters {
			h, err := f.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			for j, later := range waiters[i+1:] {
				if _, err := later.Result(); err != engine.ErrPending {
					t.Errorf("waiter %d has it before %d: %v", i+1+j, i, err)
				}
			}
			testkit.MustUnlock(t, h)
		}
		testkit.Clean(t, s, engines...)
	})
}

// testNameMapper
func TestFairQueueHasTheMappedName(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.NameMapper = func(name string) string { return "test::" + name } })
		h := testkit.MustLock(t, e.FairMutex("F"))
		next := e.FairMutex("F").LockAsync(testkit.Ctx(t))
		testkit.Eventually(t, "it is queued", func() bool {
			return s.Do("EXISTS", "test::F", "redisson_lock_queue:{test::F}", "redisson_lock_timeout:{test::F}") == int64(3)
		})
		testkit.MustUnlock(t, h)
		h, err := next.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s, e)
	})
}

// testAcquireFailedNotCalledOnRedisTimeout: a server that answers nobody for a while. A wait that
// ends meanwhile says so, and nothing of it stays in the queue.
func TestFairWaitThatEndsWhileTheServerIsPaused(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) { // or it ends before it is seen in the queue
			s := on.server(t)
			e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
			h := testkit.MustLock(t, e.FairMutex("F"))
			waits := other.FairMutex("F").LockAsync(testkit.Ctx(t), engine.Wait(time.Second))
			fairQueued(t, s, 1)
			s.Do("CLIENT", "PAUSE", "3000", "WRITE")
			if _, err := waits.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) {
				t.Errorf("Lock: %v", err)
			}
			fairQueued(t, s, 0)
			testkit.MustUnlock(t, h)
			testkit.Clean(t, s, e, other)
		})
	})
}
