package redisson

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The tests of Redisson's RedissonReadWriteLockTest, as they read for Pawl. Times are shorter
// than there. Left out are those that Redisson has disabled.

func refused(t testing.TB, m engine.Mutex, opts ...engine.Option) {
	t.Helper()
	if h, err := m.TryLock(testkit.Ctx(t), opts...); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("it is granted: %v, %v", h, err)
	}
}

// testReadLockExpiration, testReadLockLeaseTimeoutDiffThreadsRRW
func TestAWriterWaitsForTheLongestLeaseOfReaders(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e := testkit.Open(t, s.URL())
			gone, network := mayGo(t, s)
			short := testkit.MustLock(t, e.RWMutex("L").Reader(), engine.Lease(time.Second))
			lease := begin(2 * time.Second)
			long := testkit.MustLock(t, gone.RWMutex("L").Reader(), engine.Lease(lease.lease))
			network.Down()
			testkit.MustUnlock(t, short)
			h := testkit.MustLock(t, e.RWMutex("L").Writer())
			lease.ended(t, "the writer")
			testkit.MustUnlock(t, h)
			if err := long.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
				t.Errorf("the reader whose lease is over: %v", err)
			}
			testkit.Clean(t, s, e)
		})
	})
}

// testReadLockIsLocked, testIsLocked, testIsLockedOtherThread, testIsHeldByCurrentThread,
// testIsHeldByCurrentThreadOtherThread, testHoldCount, testReentrancy
func TestStateOfReadersAndWriters(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		l := e.RWMutex("L")
		is := func(what, mode string, mine bool, counts map[string]int) {
			t.Helper()
			for x, own := range map[*engine.Engine]bool{e: mine, other: false} {
				st, err := x.RWMutex("L").State(testkit.Ctx(t))
				if err != nil || st.Mode != mode || st.Locked != (mode != "") || st.Mine != own || len(st.Holders) != len(counts) {
					t.Fatalf("%s: %+v, %v", what, st, err)
				}
				for _, one := range st.Holders {
					if counts[one.ID] != one.Count {
						t.Errorf("%s: %+v, want %v", what, st, counts)
					}
				}
			}
		}
		is("free", "", false, nil)
		w := testkit.MustLock(t, l.Writer())
		is("written", "write", true, map[string]int{w.Owner(): 1})
		again := testkit.MustReenter(t, l.Writer(), w)
		is("written twice", "write", true, map[string]int{w.Owner(): 2})
		r, err := l.Reader().Lock(w.Context(testkit.Ctx(t)))
		if err != nil {
			t.Fatal(err)
		}
		is("written and read", "write", true, map[string]int{w.Owner(): 2, r.Owner(): 1})
		testkit.MustUnlock(t, again)
		testkit.MustUnlock(t, w)
		is("read", "read", true, map[string]int{r.Owner(): 1})
		twice := testkit.MustReenter(t, l.Reader(), r)
		also := testkit.MustLock(t, l.Reader())
		is("read by one process", "read", true, map[string]int{r.Owner(): 1})
		testkit.MustUnlock(t, twice)
		testkit.MustUnlock(t, also)
		testkit.MustUnlock(t, r)
		is("free again", "", false, nil)
		testkit.Clean(t, s, e, other)
	})
}

// testReadLockExpirationRenewal, testReadWriteTTL
func TestReadersAndWritersLiveLongerThanTheWatchdogsLease(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e := testkit.Open(t, s.URL(), testkit.LeaseOf(600*time.Millisecond))
			var held []*engine.Hold
			for range 50 {
				held = append(held, testkit.MustLock(t, e.RWMutex("L").Reader()))
			}
			w := testkit.MustLock(t, e.RWMutex("W").Writer())
			r, err := e.RWMutex("W").Reader().Lock(w.Context(testkit.Ctx(t)))
			if err != nil {
				t.Fatal(err)
			}
			start := cputime.Now()
			for start.Elapsed() < 2*time.Second {
				for _, name := range []string{"L", "W"} {
					if left := testkit.PTTL(t, s, name); left < 100*time.Millisecond {
						t.Fatalf("%s has %v", name, left)
					}
				}
				if start.Elapsed() > time.Second && w.Err() == nil {
					testkit.MustUnlock(t, w)
				}
				time.Sleep(20 * time.Millisecond) // a poll
			}
			for _, h := range append(held, r) {
				testkit.MustUnlock(t, h)
			}
			testkit.Clean(t, s, e)
		})
	})
}

// testName
func TestReadWriteLocksWithTagsInTheirNames(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := testkit.Open(t, s.URL())
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				l := e.RWMutex(fmt.Sprintf("{service:%d}:x:y", i%4))
				for _, m := range []engine.Mutex{l.Reader(), l.Writer()} {
					if h, err := m.Lock(testkit.Ctx(t)); err != nil {
						t.Error(err)
					} else if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		testkit.Clean(t, s, e)
	})
}

// testWriteLockExpiration: there a re-entry adds to the lease; here it makes it no longer than
// what it asks for.
func TestAWritersReentryDoesNotAddItsLease(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		w := testkit.MustLock(t, e.RWMutex("L").Writer(), engine.Lease(10*time.Second))
		again := testkit.MustReenter(t, e.RWMutex("L").Writer(), w, engine.Lease(15*time.Second))
		if left := testkit.PTTL(t, s, "L"); left > 15*time.Second || left < 13*time.Second {
			t.Errorf("the lock has %v", left)
		}
		refused(t, other.RWMutex("L").Writer())
		testkit.MustUnlock(t, again)
		testkit.MustUnlock(t, w)
		testkit.Clean(t, s, e, other)
	})
}

// testReadLockLeaseTimeoutDiffThreadsWRR, testExpireWrite
func TestReadersAndAWriterGetInWhenAWritersLeaseIsOver(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
			gone, network := mayGo(t, s)
			lease := begin(time.Second)
			for _, name := range []string{"read", "written"} {
				testkit.MustLock(t, gone.RWMutex(name).Writer(), engine.Lease(lease.lease))
			}
			network.Down()
			var all sync.WaitGroup
			for who, m := range map[string]engine.Mutex{
				"a reader": e.RWMutex("read").Reader(), "another reader": other.RWMutex("read").Reader(), "a writer": e.RWMutex("written").Writer(),
			} {
				all.Go(func() {
					h, err := m.Lock(testkit.Ctx(t))
					if err != nil {
						t.Errorf("%s: %v", who, err)
						return
					}
					lease.ended(t, who)
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Errorf("%s: %v", who, err)
					}
				})
			}
			all.Wait()
			testkit.Clean(t, s, e, other)
		})
	})
}

// testReadLockLeaseTimeout
func TestTheEndOfALongReentryRestoresTheLeaseOfTheReader(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
			r := testkit.MustLock(t, e.RWMutex("L").Reader(), engine.Lease(time.Second))
			long := testkit.MustReenter(t, e.RWMutex("L").Reader(), r, engine.Lease(time.Hour))
			w := other.RWMutex("L").Writer().LockAsync(testkit.Ctx(t)) // it sleeps for an hour
			testkit.Eventually(t, "it listens", func() bool { return testkit.Client(other).Stats().ChannelsConfirmed == 1 })
			testkit.MustUnlock(t, long)
			start := cputime.Now()
			if left := testkit.PTTL(t, s, "L"); left > time.Second {
				t.Errorf("the lock has %v", left)
			}
			h, err := w.Await(testkit.Ctx(t))
			if took := start.Elapsed(); err != nil || took > 2*time.Second {
				t.Fatalf("%v, after %v", err, took)
			}
			testkit.MustUnlock(t, h)
			testkit.Clean(t, s, e, other)
		})
	})
}

// testWR, testInCluster, testWriteReadReentrancy, testWriteLock
func TestAReaderInsideItsWriter(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func() *testkit.Site{
		"standalone": func() *testkit.Site { return testkit.Single(testkit.Server(t)) },
		"cluster":    func() *testkit.Site { return testkit.Clustered(redistest.StartCluster(t, false)) },
	} {
		at := at()
		e, other := at.Open(t), at.Open(t)
		l, far := e.RWMutex("L"), other.RWMutex("L")
		w := testkit.MustLock(t, l.Writer())
		again := testkit.MustReenter(t, l.Writer(), w)
		r, err := l.Reader().Lock(again.Context(testkit.Ctx(t)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		testkit.MustUnlock(t, r)
		refused(t, far.Reader()) // the writer writes still
		testkit.MustUnlock(t, again)
		refused(t, far.Reader())
		if r, err = l.Reader().Lock(w.Context(testkit.Ctx(t))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		testkit.MustUnlock(t, w)
		testkit.MustUnlock(t, testkit.MustLock(t, far.Reader()))
		refused(t, far.Writer())
		testkit.MustUnlock(t, r)
		testkit.MustUnlock(t, testkit.MustLock(t, far.Writer()))
		at.Clean(t)
	}
}

// testWriteRead
func TestAllReadersEnterWhenAWriterLeaves(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
			w := testkit.MustLock(t, e.RWMutex("L").Writer())
			var waiting []*engine.Future[*engine.Hold]
			for i := range 20 {
				waiting = append(waiting, []*engine.Engine{e, other}[i%2].RWMutex("L").Reader().LockAsync(testkit.Ctx(t)))
			}
			testkit.Eventually(t, "they listen", func() bool { return testkit.Client(other).Stats().ChannelsConfirmed == 1 })
			testkit.MustUnlock(t, w)
			start := cputime.Now()
			for _, f := range waiting {
				h, err := f.Await(testkit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				defer testkit.MustUnlock(t, h)
			}
			if took := start.Elapsed(); took > time.Second {
				t.Errorf("the last one is in after %v", took)
			}
		})
	})
}

// testForceUnlock
func TestForceUnlockTakesFromReadersOrFromTheWriter(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		l, far := e.RWMutex("L"), other.RWMutex("L")
		for mode, x := range map[string]struct {
			held  []engine.Mutex
			other engine.Mutex // takes nothing from those
			same  engine.Mutex
		}{
			"read":  {[]engine.Mutex{l.Reader(), far.Reader()}, far.Writer(), far.Reader()},
			"write": {[]engine.Mutex{l.Writer()}, far.Reader(), far.Writer()},
		} {
			var holds []*engine.Hold
			for _, m := range x.held {
				holds = append(holds, testkit.MustLock(t, m))
			}
			if done, err := x.other.ForceUnlock(testkit.Ctx(t)); done || err != nil {
				t.Errorf("%s, the other mode: %t, %v", mode, done, err)
			}
			if st := state(t, x.same); st.Mode != mode || len(st.Holders) != len(holds) {
				t.Errorf("%s, after that: %+v", mode, st)
			}
			if done, err := x.same.ForceUnlock(testkit.Ctx(t)); !done || err != nil {
				t.Errorf("%s: %t, %v", mode, done, err)
			}
			next := testkit.MustLock(t, far.Writer())
			for _, h := range holds {
				if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
					t.Errorf("%s, Unlock of what was taken away: %v", mode, err)
				}
			}
			if st := state(t, far.Writer()); !st.Mine || st.Mode != "write" {
				t.Errorf("%s, the next one lost it to that: %+v", mode, st)
			}
			testkit.MustUnlock(t, next)
		}
		testkit.Clean(t, s, e, other)
	})
}

// testMultiRead, testUnlockFail, testLockUnlock
func TestAWriterGetsInWhenAllReadersHaveLeft(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		l := e.RWMutex("L")
		if ok, err := l.Reader().ForceUnlock(testkit.Ctx(t)); ok || err != nil {
			t.Errorf("a free lock: %v, %v", ok, err)
		}
		for range 3 {
			one, two := testkit.MustLock(t, l.Reader()), testkit.MustLock(t, other.RWMutex("L").Reader())
			testkit.MustUnlock(t, one)
			if err := one.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotHeld) {
				t.Errorf("once more: %v", err)
			}
			refused(t, l.Writer())
			testkit.MustUnlock(t, two)
			testkit.MustUnlock(t, testkit.MustLock(t, l.Writer()))
		}
		testkit.Clean(t, s, e, other)
	})
}

// testExpireRead
func TestAReadersFixedLeaseDoesNotKeepReadersOut(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		one := testkit.MustLock(t, e.RWMutex("L").Reader(), engine.Lease(2*time.Second))
		two := testkit.MustLock(t, other.RWMutex("L").Reader())
		testkit.MustUnlock(t, one)
		testkit.MustUnlock(t, two)
		testkit.Clean(t, s, e, other)
	})
}

// testMultiInstanceReadLockZombieCleanup
func TestReadersOfADeadProcessKeepAWriterOutForTheirLease(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e := testkit.Open(t, s.URL())
			gone, network := mayGo(t, s)
			lease := begin(time.Second)
			for range 3 { // nobody renews or unlocks them
				testkit.MustLock(t, gone.RWMutex("L").Reader(), engine.Lease(lease.lease))
			}
			alive := testkit.MustLock(t, e.RWMutex("L").Reader())
			network.Down()
			testkit.MustUnlock(t, alive)
			h := testkit.MustLock(t, e.RWMutex("L").Writer())
			lease.ended(t, "the writer")
			testkit.MustUnlock(t, h)
			testkit.Clean(t, s, e)
		})
	})
}

// testMultiInstanceReadLockZombieCleanup
func TestReadersWhoseLeaseHasEndedKeepNobodyOut(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e := testkit.Open(t, s.URL())
			gone, network := mayGo(t, s)
			alive := testkit.MustLock(t, e.RWMutex("L").Reader())
			lease := begin(time.Second)
			for range 3 {
				testkit.MustLock(t, gone.RWMutex("L").Reader(), engine.Lease(lease.lease))
			}
			network.Down()
			timeouts := func() int { return len(s.Do("KEYS", "*rwlock_timeout*").([]any)) }
			testkit.Eventually(t, "the dead have no timeout keys", func() bool { return timeouts() == 1 })
			lease.ended(t, "the end of their keys")
			if n := len(testkit.Fields(t, s, "L")); n != 1+4 {
				t.Errorf("the hash has %d fields, want the mode, one who lives, and three dead", n)
			}
			start := begin(0)
			testkit.MustUnlock(t, alive)
			testkit.MustUnlock(t, testkit.MustLock(t, e.RWMutex("L").Writer()))
			start.notLong(t, "the writer")
			testkit.Clean(t, s, e)
		})
	})
}

// testConcurrency_SingleInstance, testConcurrency_MultiInstance, testConcurrencyLoop_MultiInstance
func TestReadersAndWritersAtRandomComplete(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		engines := []*engine.Engine{testkit.Open(t, s.URL()), testkit.Open(t, s.URL()), testkit.Open(t, s.URL())}
		const goroutines, each = 60, 8
		all := section{s: s, room: goroutines} // for all who read, or for one who writes
		var ended sync.WaitGroup
		for i := range goroutines {
			ended.Go(func() {
				l := engines[i%len(engines)].RWMutex("L")
				for range each {
					m, takes := l.Reader(), int64(1)
					if rand.IntN(4) == 0 {
						m, takes = l.Writer(), goroutines
					}
					err := m.Do(testkit.Ctx(t), func(context.Context, *engine.Hold) error {
						all.pass(t, takes)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		ended.Wait()
		if n := all.passed.Load(); n != goroutines*each {
			t.Errorf("%d have passed, want %d", n, goroutines*each)
		}
		testkit.Clean(t, s, engines...)
	})
}
