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
	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The tests of Redisson's RedissonReadWriteLockTest, as they read for Pawl. Times are shorter
// than there. Left out are those that Redisson has disabled.

func refused(t testing.TB, m engine.Mutex, opts ...engine.Option) {
	t.Helper()
	if h, err := m.TryLock(kit.Ctx(t), opts...); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("it is granted: %v, %v", h, err)
	}
}

// testReadLockExpiration, testReadLockLeaseTimeoutDiffThreadsRRW
func TestAWriterWaitsForTheLongestLeaseOfReaders(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		kit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e := kit.Open(t, s.URL())
			gone, network := mayGo(t, s)
			short := kit.MustLock(t, e.RWMutex("L").Reader(), engine.Lease(time.Second))
			lease := begin(2 * time.Second)
			long := kit.MustLock(t, gone.RWMutex("L").Reader(), engine.Lease(lease.lease))
			network.Down()
			kit.MustUnlock(t, short)
			h := kit.MustLock(t, e.RWMutex("L").Writer())
			lease.ended(t, "the writer")
			kit.MustUnlock(t, h)
			if err := long.Unlock(kit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
				t.Errorf("the reader whose lease is over: %v", err)
			}
			kit.Clean(t, s, e)
		})
	})
}

// testReadLockIsLocked, testIsLocked, testIsLockedOtherThread, testIsHeldByCurrentThread,
// testIsHeldByCurrentThreadOtherThread, testHoldCount, testReentrancy
func TestStateOfReadersAndWriters(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
		l := e.RWMutex("L")
		is := func(what, mode string, mine bool, counts map[string]int) {
			t.Helper()
			for x, own := range map[*engine.Engine]bool{e: mine, other: false} {
				st, err := x.RWMutex("L").State(kit.Ctx(t))
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
		w := kit.MustLock(t, l.Writer())
		is("written", "write", true, map[string]int{w.Owner(): 1})
		again := kit.MustReenter(t, l.Writer(), w)
		is("written twice", "write", true, map[string]int{w.Owner(): 2})
		r, err := l.Reader().Lock(w.Context(kit.Ctx(t)))
		if err != nil {
			t.Fatal(err)
		}
		is("written and read", "write", true, map[string]int{w.Owner(): 2, r.Owner(): 1})
		kit.MustUnlock(t, again)
		kit.MustUnlock(t, w)
		is("read", "read", true, map[string]int{r.Owner(): 1})
		twice := kit.MustReenter(t, l.Reader(), r)
		also := kit.MustLock(t, l.Reader())
		is("read by one process", "read", true, map[string]int{r.Owner(): 1})
		kit.MustUnlock(t, twice)
		kit.MustUnlock(t, also)
		kit.MustUnlock(t, r)
		is("free again", "", false, nil)
		kit.Clean(t, s, e, other)
	})
}

// testReadLockExpirationRenewal, testReadWriteTTL
func TestReadersAndWritersLiveLongerThanTheWatchdogsLease(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		kit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e := kit.Open(t, s.URL(), kit.LeaseOf(600*time.Millisecond))
			var held []*engine.Hold
			for range 50 {
				held = append(held, kit.MustLock(t, e.RWMutex("L").Reader()))
			}
			w := kit.MustLock(t, e.RWMutex("W").Writer())
			r, err := e.RWMutex("W").Reader().Lock(w.Context(kit.Ctx(t)))
			if err != nil {
				t.Fatal(err)
			}
			start := cputime.Now()
			for start.Elapsed() < 2*time.Second {
				for _, name := range []string{"L", "W"} {
					if left := kit.PTTL(t, s, name); left < 100*time.Millisecond {
						t.Fatalf("%s has %v", name, left)
					}
				}
				if start.Elapsed() > time.Second && w.Err() == nil {
					kit.MustUnlock(t, w)
				}
				time.Sleep(20 * time.Millisecond) // a poll
			}
			for _, h := range append(held, r) {
				kit.MustUnlock(t, h)
			}
			kit.Clean(t, s, e)
		})
	})
}

// testName
func TestReadWriteLocksWithTagsInTheirNames(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e := kit.Open(t, s.URL())
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				l := e.RWMutex(fmt.Sprintf("{service:%d}:x:y", i%4))
				for _, m := range []engine.Mutex{l.Reader(), l.Writer()} {
					if h, err := m.Lock(kit.Ctx(t)); err != nil {
						t.Error(err)
					} else if err := h.Unlock(kit.Ctx(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		kit.Clean(t, s, e)
	})
}

// testWriteLockExpiration: there a re-entry adds to the lease; here it makes it no longer than
// what it asks for.
func TestAWritersReentryDoesNotAddItsLease(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
		w := kit.MustLock(t, e.RWMutex("L").Writer(), engine.Lease(10*time.Second))
		again := kit.MustReenter(t, e.RWMutex("L").Writer(), w, engine.Lease(15*time.Second))
		if left := kit.PTTL(t, s, "L"); left > 15*time.Second || left < 13*time.Second {
			t.Errorf("the lock has %v", left)
		}
		refused(t, other.RWMutex("L").Writer())
		kit.MustUnlock(t, again)
		kit.MustUnlock(t, w)
		kit.Clean(t, s, e, other)
	})
}

// testReadLockLeaseTimeoutDiffThreadsWRR, testExpireWrite
func TestReadersAndAWriterGetInWhenAWritersLeaseIsOver(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		kit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
			gone, network := mayGo(t, s)
			lease := begin(time.Second)
			for _, name := range []string{"read", "written"} {
				kit.MustLock(t, gone.RWMutex(name).Writer(), engine.Lease(lease.lease))
			}
			network.Down()
			var all sync.WaitGroup
			for who, m := range map[string]engine.Mutex{
				"a reader": e.RWMutex("read").Reader(), "another reader": other.RWMutex("read").Reader(), "a writer": e.RWMutex("written").Writer(),
			} {
				all.Go(func() {
					h, err := m.Lock(kit.Ctx(t))
					if err != nil {
						t.Errorf("%s: %v", who, err)
						return
					}
					lease.ended(t, who)
					if err := h.Unlock(kit.Ctx(t)); err != nil {
						t.Errorf("%s: %v", who, err)
					}
				})
			}
			all.Wait()
			kit.Clean(t, s, e, other)
		})
	})
}

// testReadLockLeaseTimeout
func TestTheEndOfALongReentryRestoresTheLeaseOfTheReader(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		kit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
			r := kit.MustLock(t, e.RWMutex("L").Reader(), engine.Lease(time.Second))
			long := kit.MustReenter(t, e.RWMutex("L").Reader(), r, engine.Lease(time.Hour))
			w := other.RWMutex("L").Writer().LockAsync(kit.Ctx(t)) // it sleeps for an hour
			kit.Eventually(t, "it listens", func() bool { return kit.Client(other).Stats().ChannelsConfirmed == 1 })
			kit.MustUnlock(t, long)
			start := cputime.Now()
			if left := kit.PTTL(t, s, "L"); left > time.Second {
				t.Errorf("the lock has %v", left)
			}
			h, err := w.Await(kit.Ctx(t))
			if took := start.Elapsed(); err != nil || took > 2*time.Second {
				t.Fatalf("%v, after %v", err, took)
			}
			kit.MustUnlock(t, h)
			kit.Clean(t, s, e, other)
		})
	})
}

// testWR, testInCluster, testWriteReadReentrancy, testWriteLock
func TestAReaderInsideItsWriter(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func() *kit.Site{
		"standalone": func() *kit.Site { return kit.Single(kit.Server(t)) },
		"cluster":    func() *kit.Site { return kit.Clustered(redistest.StartCluster(t, false)) },
	} {
		at := at()
		e, other := at.Open(t), at.Open(t)
		l, far := e.RWMutex("L"), other.RWMutex("L")
		w := kit.MustLock(t, l.Writer())
		again := kit.MustReenter(t, l.Writer(), w)
		r, err := l.Reader().Lock(again.Context(kit.Ctx(t)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kit.MustUnlock(t, r)
		refused(t, far.Reader()) // the writer writes still
		kit.MustUnlock(t, again)
		refused(t, far.Reader())
		if r, err = l.Reader().Lock(w.Context(kit.Ctx(t))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kit.MustUnlock(t, w)
		kit.MustUnlock(t, kit.MustLock(t, far.Reader()))
		refused(t, far.Writer())
		kit.MustUnlock(t, r)
		kit.MustUnlock(t, kit.MustLock(t, far.Writer()))
		at.Clean(t)
	}
}

// testWriteRead
func TestAllReadersEnterWhenAWriterLeaves(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		kit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
			w := kit.MustLock(t, e.RWMutex("L").Writer())
			var waiting []*engine.Future[*engine.Hold]
			for i := range 20 {
				waiting = append(waiting, []*engine.Engine{e, other}[i%2].RWMutex("L").Reader().LockAsync(kit.Ctx(t)))
			}
			kit.Eventually(t, "they listen", func() bool { return kit.Client(other).Stats().ChannelsConfirmed == 1 })
			kit.MustUnlock(t, w)
			start := cputime.Now()
			for _, f := range waiting {
				h, err := f.Await(kit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				defer kit.MustUnlock(t, h)
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
		e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
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
				holds = append(holds, kit.MustLock(t, m))
			}
			if done, err := x.other.ForceUnlock(kit.Ctx(t)); done || err != nil {
				t.Errorf("%s, the other mode: %t, %v", mode, done, err)
			}
			if st := state(t, x.same); st.Mode != mode || len(st.Holders) != len(holds) {
				t.Errorf("%s, after that: %+v", mode, st)
			}
			if done, err := x.same.ForceUnlock(kit.Ctx(t)); !done || err != nil {
				t.Errorf("%s: %t, %v", mode, done, err)
			}
			next := kit.MustLock(t, far.Writer())
			for _, h := range holds {
				if err := h.Unlock(kit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
					t.Errorf("%s, Unlock of what was taken away: %v", mode, err)
				}
			}
			if st := state(t, far.Writer()); !st.Mine || st.Mode != "write" {
				t.Errorf("%s, the next one lost it to that: %+v", mode, st)
			}
			kit.MustUnlock(t, next)
		}
		kit.Clean(t, s, e, other)
	})
}

// testMultiRead, testUnlockFail, testLockUnlock
func TestAWriterGetsInWhenAllReadersHaveLeft(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
		l := e.RWMutex("L")
		if ok, err := l.Reader().ForceUnlock(kit.Ctx(t)); ok || err != nil {
			t.Errorf("a free lock: %v, %v", ok, err)
		}
		for range 3 {
			one, two := kit.MustLock(t, l.Reader()), kit.MustLock(t, other.RWMutex("L").Reader())
			kit.MustUnlock(t, one)
			if err := one.Unlock(kit.Ctx(t)); !errors.Is(err, engine.ErrNotHeld) {
				t.Errorf("once more: %v", err)
			}
			refused(t, l.Writer())
			kit.MustUnlock(t, two)
			kit.MustUnlock(t, kit.MustLock(t, l.Writer()))
		}
		kit.Clean(t, s, e, other)
	})
}

// testExpireRead
func TestAReadersFixedLeaseDoesNotKeepReadersOut(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
		one := kit.MustLock(t, e.RWMutex("L").Reader(), engine.Lease(2*time.Second))
		two := kit.MustLock(t, other.RWMutex("L").Reader())
		kit.MustUnlock(t, one)
		kit.MustUnlock(t, two)
		kit.Clean(t, s, e, other)
	})
}

// testMultiInstanceReadLockZombieCleanup
func TestReadersOfADeadProcessKeepAWriterOutForTheirLease(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		kit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e := kit.Open(t, s.URL())
			gone, network := mayGo(t, s)
			lease := begin(time.Second)
			for range 3 { // nobody renews or unlocks them
				kit.MustLock(t, gone.RWMutex("L").Reader(), engine.Lease(lease.lease))
			}
			alive := kit.MustLock(t, e.RWMutex("L").Reader())
			network.Down()
			kit.MustUnlock(t, alive)
			h := kit.MustLock(t, e.RWMutex("L").Writer())
			lease.ended(t, "the writer")
			kit.MustUnlock(t, h)
			kit.Clean(t, s, e)
		})
	})
}

// testMultiInstanceReadLockZombieCleanup
func TestReadersWhoseLeaseHasEndedKeepNobodyOut(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		kit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			e := kit.Open(t, s.URL())
			gone, network := mayGo(t, s)
			alive := kit.MustLock(t, e.RWMutex("L").Reader())
			lease := begin(time.Second)
			for range 3 {
				kit.MustLock(t, gone.RWMutex("L").Reader(), engine.Lease(lease.lease))
			}
			network.Down()
			timeouts := func() int { return len(s.Do("KEYS", "*rwlock_timeout*").([]any)) }
			kit.Eventually(t, "the dead have no timeout keys", func() bool { return timeouts() == 1 })
			lease.ended(t, "the end of their keys")
			if n := len(kit.Fields(t, s, "L")); n != 1+4 {
				t.Errorf("the hash has %d fields, want the mode, one who lives, and three dead", n)
			}
			start := begin(0)
			kit.MustUnlock(t, alive)
			kit.MustUnlock(t, kit.MustLock(t, e.RWMutex("L").Writer()))
			start.notLong(t, "the writer")
			kit.Clean(t, s, e)
		})
	})
}

// testConcurrency_SingleInstance, testConcurrency_MultiInstance, testConcurrencyLoop_MultiInstance
func TestReadersAndWritersAtRandomComplete(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		engines := []*engine.Engine{kit.Open(t, s.URL()), kit.Open(t, s.URL()), kit.Open(t, s.URL())}
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
					err := m.Do(kit.Ctx(t), func(context.Context, *engine.Hold) error {
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
		kit.Clean(t, s, engines...)
	})
}
