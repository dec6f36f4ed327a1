package redisson

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The tests of Redisson's RedissonPermitExpirableSemaphoreTest, as they read for Pawl. Left out
// are those of release of a batch of ids by one who does not hold them: here permits that were
// taken together are given back together, or one by one by ForceRelease.

func permits(t testing.TB, s *redistest.Server, n int) engine.PermitSemaphore {
	t.Helper()
	sem := testkit.Open(t, s.URL()).PermitSemaphore("P")
	if set, err := sem.TrySetPermits(testkit.Ctx(t), n); !set || err != nil {
		t.Fatalf("TrySetPermits: %v, %v", set, err)
	}
	return sem
}

func take(t testing.TB, sem engine.PermitSemaphore, n int, opts ...engine.Option) *engine.Hold {
	t.Helper()
	h, err := sem.TryAcquire(testkit.Ctx(t), n, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// counts fails the test unless so many are to be had, and held.
func counts(t testing.TB, sem engine.PermitSemaphore, available, acquired int) {
	t.Helper()
	a, err1 := sem.Available(testkit.Ctx(t))
	b, err2 := sem.Acquired(testkit.Ctx(t))
	c, err3 := sem.Capacity(testkit.Ctx(t))
	if err := errors.Join(err1, err2, err3); err != nil || a != available || b != acquired || c != available+acquired {
		t.Errorf("%d are to be had, %d held, %d in all, %v; want %d and %d", a, b, c, err, available, acquired)
	}
}

// testNotExistent
func TestPermitsOfASemaphoreThatDoesNotExist(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		sem := testkit.Open(t, on.server(t).URL()).PermitSemaphore("P")
		counts(t, sem, 0, 0)
		// Redisson says null, as it does where others hold all.
		if _, err := sem.TryAcquire(testkit.Ctx(t), 1); !errors.Is(err, engine.ErrNoPermits) {
			t.Errorf("TryAcquire: %v", err)
		}
	})
}

// testTrySetPermits, testSetPermits, testAddPermits
func TestNumberOfPermitsChanges(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		sem := permits(t, on.server(t), 10)
		counts(t, sem, 10, 0)
		if set, err := sem.TrySetPermits(testkit.Ctx(t), 15); set || err != nil {
			t.Errorf("TrySetPermits once more: %v, %v", set, err)
		}
		two := take(t, sem, 2)
		for _, x := range []struct {
			change    func() error
			available int
		}{
			{func() error { return sem.AddPermits(testkit.Ctx(t), 5) }, 13},
			{func() error { return sem.AddPermits(testkit.Ctx(t), -10) }, 3},
			{func() error { return sem.SetPermits(testkit.Ctx(t), 9) }, 7},
			{func() error { return sem.SetPermits(testkit.Ctx(t), 1) }, -1}, // fewer than are held
		} {
			if err := x.change(); err != nil {
				t.Error(err)
			}
			counts(t, sem, x.available, 2)
		}
		if err := two.Unlock(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
		counts(t, sem, 1, 0)
	})
}

// testAvailablePermits, testAcquiredPermits, testGetPermits, testReleaseManyExpiredDoesNotThrow
func TestExpiredPermitsAreCountedAsFree(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		sem := permits(t, s, 0)
		for i := range 100 {
			s.Do("ZADD", "{P}:timeout", "1", "id"+strconv.Itoa(i))
		}
		counts(t, sem, 100, 0)
		s.Do("ZADD", "{P}:timeout", "922337203685477", "0123456789abcdef") // one of Redisson's that never expires
		counts(t, sem, 100, 1)
	})
}

// testUpdateLeaseTime, testGetLeaseTime, testReleaseExpired
func TestLeaseOfPermits(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		cputime.Steady(t, 50*time.Millisecond, func(t testing.TB) {
			sem := permits(t, on.server(t), 1)
			h := take(t, sem, 1, engine.Lease(time.Second))
			if err := h.Extend(testkit.Ctx(t), 3*time.Second); err != nil {
				t.Error(err)
			}
			if left := time.Until(h.ValidUntil()); left < 2*time.Second || left > 3*time.Second {
				t.Errorf("%v left", left)
			}
			<-h.Done()
			if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
				t.Errorf("Unlock of what has expired: %v", err)
			}
			if err := h.Extend(testkit.Ctx(t), time.Minute); !errors.Is(err, engine.ErrLost) {
				t.Errorf("Extend of what has expired: %v", err)
			}
			testkit.Eventually(t, "it is back", func() bool { n, err := sem.Available(testkit.Ctx(t)); return n == 1 && err == nil })
		})
	})
}

// testExpiration
func TestExpiryOfASemaphoreIsThatOfItsIDs(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		sem := permits(t, s, 3)
		s.Do("PEXPIRE", "P", "60000")
		take(t, sem, 1, engine.Lease(time.Hour))
		for _, key := range []string{"P", "{P}:timeout"} {
			if left := s.Do("PTTL", key).(int64); left < 50_000 || left > 60_000 {
				t.Errorf("%s ends in %d ms", key, left)
			}
		}
	})
}

// testExpire, testExpireTryAcquire
func TestWaiterGetsAPermitAtTheEndOfALease(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		cputime.Steady(t, 50*time.Millisecond, func(t testing.TB) {
			s := on.server(t)
			sem := permits(t, s, 0)
			start, used := time.Now(), cputime.Now()
			s.Do("ZADD", "{P}:timeout", strconv.FormatInt(time.Now().Add(2*time.Second).UnixMilli(), 10), "one of Redisson")
			h, err := sem.Acquire(testkit.Ctx(t), 1)
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d < 1900*time.Millisecond || used.Elapsed() > 3*time.Second {
				t.Errorf("granted after %v", d)
			}
			if err := h.Unlock(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
		})
	})
}

// testTryAcquire, testBlockingAcquire
func TestTimedWaitForPermits(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		cputime.Steady(t, 50*time.Millisecond, func(t testing.TB) {
			sem := permits(t, on.server(t), 1)
			h := take(t, sem, 1)
			if len(h.PermitIDs()[0]) != 32 {
				t.Errorf("id %q", h.PermitIDs()[0])
			}
			start, used := time.Now(), cputime.Now()
			_, err := sem.Acquire(testkit.Ctx(t), 1, engine.Wait(500*time.Millisecond))
			if d := time.Since(start); !errors.Is(err, engine.ErrHeld) || d < 450*time.Millisecond || used.Elapsed() > time.Second {
				t.Errorf("%v after %v", err, d)
			}
			waits := sem.AcquireAsync(testkit.Ctx(t), 1)
			if err := h.Unlock(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
			if h, err = waits.Await(testkit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
			if err := h.Unlock(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
		})
	})
}

// testBlockingAcquireMany, testTryAcquireMany, testConcurrencyMultiPermits, testConcurrencyMultiPermits2
func TestWaiterForTwoPermitsIsWoken(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		for what, parts := range map[string][]int{"by two at once": {2}, "by one after the other": {1, 1}} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				s := on.server(t)
				sem := permits(t, s, 2)
				var held []*engine.Hold
				for _, n := range parts {
					held = append(held, take(t, sem, n))
				}
				other := testkit.Open(t, s.URL()).PermitSemaphore("P")
				waits := other.AcquireAsync(testkit.Ctx(t), 2)
				for _, h := range held {
					if _, err := waits.Result(); !errors.Is(err, engine.ErrPending) {
						t.Errorf("too soon: %v", err)
					}
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
				}
				h, err := waits.Await(testkit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				counts(t, sem, 0, 2)
				if err := h.Unlock(testkit.Ctx(t)); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// testRelease, testReleaseWithoutPermits, testReleaseManyNotExistOrExpired. There, a batch of which
// one is gone is refused whole; here those that are held come back.
func TestReleaseOfPermitsByTheirIDs(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		sem := permits(t, on.server(t), 4)
		h := take(t, sem, 3, engine.Lease(time.Hour))
		for i, x := range []struct {
			id   string
			want bool
		}{{h.PermitIDs()[0], true}, {h.PermitIDs()[0], false}, {"00000000000000000000000000000000", false}} {
			if ok, err := sem.ForceRelease(testkit.Ctx(t), x.id); ok != x.want || err != nil {
				t.Errorf("release %d: %v, %v", i, ok, err)
			}
		}
		counts(t, sem, 2, 2)
		if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
			t.Errorf("Unlock of what is there in part: %v", err)
		}
		counts(t, sem, 4, 0)
	})
}

// testConcurrency_SingleInstance, testConcurrencyLoop_MultiInstance
func TestOnePermitExcludes(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		permits(t, s, 1)
		one := section{s: s, room: 1}
		var all sync.WaitGroup
		const instances, loops = 8, 25
		for range instances {
			sem := testkit.Open(t, s.URL()).PermitSemaphore("P")
			all.Go(func() {
				for range loops {
					h, err := sem.Acquire(testkit.Ctx(t), 1)
					if err != nil {
						t.Error(err)
						return
					}
					one.pass(t, 1)
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := one.passed.Load(); n != instances*loops {
			t.Errorf("%d have passed, want %d", n, instances*loops)
		}
	})
}

// testGetInClusterNameMapper
func TestPermitsHaveTheMappedName(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		s := on.server(t)
		sem := testkit.Open(t, s.URL(), func(c *engine.Config) { c.NameMapper = func(name string) string { return "test::" + name } }).PermitSemaphore("P")
		if set, err := sem.TrySetPermits(testkit.Ctx(t), 2); !set || err != nil {
			t.Fatal(set, err)
		}
		h := take(t, sem, 1)
		counts(t, sem, 1, 1)
		if n := s.Do("EXISTS", "test::P", "{test::P}:timeout"); n != int64(2) {
			t.Errorf("the keys are %v", s.Do("KEYS", "*"))
		}
		if err := h.Unlock(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
	})
}

// testAcquire, testAcquireAsyncMany, testReleaseAsyncMany
func TestFuturesOfPermits(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		sem := permits(t, on.server(t), 20)
		var takes []*engine.Future[*engine.Hold]
		for range 5 {
			takes = append(takes, sem.AcquireAsync(testkit.Ctx(t), 4))
		}
		holds, err := engine.AwaitAll(testkit.Ctx(t), takes...)
		if err != nil {
			t.Fatal(err)
		}
		counts(t, sem, 0, 20)
		var gives []*engine.Future[struct{}]
		for _, h := range holds {
			gives = append(gives, h.UnlockAsync())
		}
		if _, err := engine.AwaitAll(testkit.Ctx(t), gives...); err != nil {
			t.Error(err)
		}
		counts(t, sem, 20, 0)
	})
}

// testTryReleaseManyExpired
func TestReleaseOfManyBesideExpiredOnes(t *testing.T) {
	everywhere(t, func(t *testing.T, on ground) {
		sem := permits(t, on.server(t), 10)
		old := take(t, sem, 5, engine.Lease(500*time.Millisecond))
		h := take(t, sem, 3, engine.Lease(time.Hour))
		<-old.Done()
		if err := old.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
			t.Errorf("Unlock of what has expired: %v", err)
		}
		if err := h.Unlock(testkit.Ctx(t)); err != nil {
			t.Errorf("Unlock beside it: %v", err)
		}
		testkit.Eventually(t, "all are to be had", func() bool { n, err := sem.Available(testkit.Ctx(t)); return n == 10 && err == nil })
		counts(t, sem, 10, 0)
	})
}
