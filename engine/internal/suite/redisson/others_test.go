package redisson

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/resp"
)

// What smaller test classes of Redisson prove of its locks, as they read for Pawl. Each names the
// original.

// RedissonFencedLockTest.testTokenIncrease: lockAndGetToken, lock, lock with a lease,
// tryLockAndGetToken
func TestTokensCountEveryWayToLock(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		m := testkit.Open(t, s.URL()).FencedMutex("L")
		for i, lock := range []func() (*engine.Hold, error){
			func() (*engine.Hold, error) { return m.Lock(testkit.Ctx(t)) },
			func() (*engine.Hold, error) { return m.LockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t)) },
			func() (*engine.Hold, error) { return m.Lock(testkit.Ctx(t), engine.Lease(time.Minute)) },
			func() (*engine.Hold, error) { return m.TryLock(testkit.Ctx(t)) },
			func() (*engine.Hold, error) { return m.Lock(testkit.Ctx(t), engine.Wait(time.Second)) },
		} {
			h, err := lock()
			if err != nil {
				t.Fatal(err)
			}
			if h.Token() != int64(i+1) {
				t.Errorf("grant %d has the token %d", i+1, h.Token())
			}
			testkit.MustUnlock(t, h)
		}
	})
}

// RedissonSpinLockTest: testTryLockAsync, testTimedTryLockAsync, testTryLockAsyncWaitTime,
// testTryLockAsyncFailed, testTryLockAsyncSucceed
func TestFuturesOfALock(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		h, err := lock(e).TryLockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lock(other).TryLockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("a try of a lock that is held: %v", err)
		}
		began := time.Now()
		if _, err := lock(other).LockAsync(testkit.Ctx(t), engine.Wait(2*time.Second)).Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("a wait that is over: %v", err)
		}
		if d := time.Since(began); d < 2*time.Second {
			t.Errorf("a wait of 2s was over after %v", d)
		}
		next := lock(other).LockAsync(testkit.Ctx(t), engine.Wait(testkit.Limit))
		testkit.Eventually(t, "it waits", func() bool { return other.Stats().Waiting == 1 })
		testkit.MustUnlock(t, h)
		if h, err = next.Await(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s, e, other)
	})
}

// LockExpirationRenewalTest: testLockAfterTimeout, testWriteLockAfterTimeout,
// testReadLockAfterTimeout, testLockReentrantRenew
func TestLockAfterAServerThatLostItIsRenewed(t *testing.T) {
	for kind, lock := range map[string]locker{
		"Mutex":  func(e *engine.Engine) engine.Mutex { return e.Mutex("L") },
		"Reader": func(e *engine.Engine) engine.Mutex { return e.RWMutex("L").Reader() },
		"Writer": func(e *engine.Engine) engine.Mutex { return e.RWMutex("L").Writer() },
	} {
		t.Run(kind, func(t *testing.T) {
			everywhere(t, func(t *testing.T, on ground) {
				testkit.Steady(t, func(t testing.TB) {
					s := on.server(t)
					e := testkit.Open(t, s.URL(), testkit.LeaseOf(2*time.Second))
					h := testkit.MustLock(t, lock(e))
					testkit.MustUnlock(t, testkit.MustReenter(t, lock(e), h))
					s.Restart()
					testkit.Receive(t, h.Done())
					if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
						t.Errorf("Unlock of what the server lost: %v", err)
					}
					h, err := lock(e).Lock(testkit.Ctx(t))
					if err != nil {
						t.Fatal(err)
					}
					renewed := e.Stats().Renewed
					testkit.Eventually(t, "it is renewed ten times", func() bool { return h.Err() != nil || e.Stats().Renewed >= renewed+10 })
					testkit.MustUnlock(t, h)
					testkit.Clean(t, s, e)
				})
			})
		})
	}
}

// LockReactiveTest, LockRxTest: testIsHeldByThread. What a context carries is the owner, in
// whatever goroutine.
func TestOwnerIsWhatAContextCarries(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		h := testkit.MustLock(t, lock(e))
		var both sync.WaitGroup
		both.Go(func() {
			again, err := lock(e).TryLock(h.Context(testkit.Ctx(t)))
			if err != nil || again.Owner() != h.Owner() {
				t.Errorf("the owner elsewhere: %v, %v", again, err)
				return
			}
			if err := again.Unlock(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if _, err := lock(e).TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("another owner here: %v", err)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s, e)
	})
}

// ReadLockEntryTest.shouldHaveNoThreadsAfterReentrantAcquireAndRelease
func TestReentriesOfAReaderLeaveNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		r := e.RWMutex("L").Reader()
		holds := reenter(t, r, 3)
		for i := range holds {
			testkit.MustUnlock(t, holds[len(holds)-1-i])
		}
		if st := e.Stats(); st.Held != 0 || st.Waiting != 0 || st.Channels != 0 {
			t.Errorf("%+v", st)
		}
		testkit.Clean(t, s, e)
	})
}

// PublishSubscribeTest.testSubscribeForRaceCondition: waits that end while they subscribe do not
// harm the next.
func TestWaitsThatEndWhileTheySubscribe(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		for range 50 {
			h := testkit.MustLock(t, e.Mutex("L"))
			for range 3 {
				if _, err := other.Mutex("L").Lock(testkit.Ctx(t), engine.Wait(1+rand.N(2*time.Millisecond))); !errors.Is(err, engine.ErrNotAcquired) {
					t.Fatal(err)
				}
			}
			next := other.Mutex("L").LockAsync(testkit.Ctx(t))
			testkit.MustUnlock(t, h)
			began := time.Now()
			h, err := next.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d > 10*time.Second { // the lease is 30 s
				t.Errorf("woken after %v", d)
			}
			testkit.MustUnlock(t, h)
		}
		testkit.Clean(t, s, e, other)
	})
}

// PublishSubscribeTest.testSubscribeNoTimeoutReleasesSemaphoreIfEntryIsMissing: a slot that nobody
// serves keeps a waiter back only as long as that lasts.
func TestSlotThatNobodyServesForAWhile(t *testing.T) {
	t.Parallel()
	s := ground{clustered}.server(t)
	e := testkit.Open(t, s.URL())
	slot := fmt.Sprint(resp.SlotOf("L"))
	s.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	s.Do("CLUSTER", "DELSLOTS", slot)
	if _, err := e.Mutex("L").Lock(testkit.Ctx(t), engine.Wait(300*time.Millisecond)); !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("while nobody serves it: %v", err)
	}
	waits := e.Mutex("L").LockAsync(testkit.Ctx(t))
	s.Do("CLUSTER", "ADDSLOTS", slot)
	h, err := waits.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s, e)
}

// RedissonLockHeavyTest: lockUnlockRLock, tryLockUnlockRLock, scaled down
func TestManyNamesBesideASemaphore(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		sem := e.Semaphore("{sem}")
		wantSet(t, sem, 2, true)
		const goroutines, names = 8, 80
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for i := range names {
					h, err := e.Mutex(fmt.Sprint("L", i)).Lock(testkit.Ctx(t))
					if err != nil {
						t.Error(err)
						return
					}
					p, err := sem.Acquire(testkit.Ctx(t), 1)
					if err != nil {
						t.Error(err)
						return
					}
					if err := errors.Join(p.Release(testkit.Ctx(t)), h.Unlock(testkit.Ctx(t))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		wantAvailable(t, sem, 2)
		if st := e.Stats(); st.Held != 0 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
	})
}
