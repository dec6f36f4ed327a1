package redisson

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// testConcurrencyTryLockUnLock
func TestHeldLockIsAlwaysRenewedAmidChurn(t *testing.T) {
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		testkit.Steady(t, func(t testing.TB) {
			s := on.server(t)
			const lease = 3 * time.Second
			e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.Lease = lease })
			const goroutines, cycles = 16, 30
			least := leastPTTL(t, s, "L")
			var grants atomic.Int64
			var all sync.WaitGroup
			for range goroutines {
				all.Go(func() {
					for range cycles {
						h, err := lock(e).Lock(testkit.Ctx(t))
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
						if err := h.Unlock(testkit.Ctx(t)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if n := grants.Load(); n != goroutines*cycles {
				t.Errorf("%d grants", n)
			}
			if left := least(); left < lease/3 || left > lease { // it is renewed after a third
				t.Errorf("the least that was left of the lease of %v while it was held is %v", lease, left)
			}
			testkit.Clean(t, s, e)
		})
	})
}

// leastPTTL watches a key until the function is called that it returns. That says how long the
// server would have kept it, at the least, while it was there.
func leastPTTL(t testing.TB, s *redistest.Server, key string) func() time.Duration {
	t.Helper()
	over, least := make(chan struct{}), time.Hour
	var watch sync.WaitGroup
	watch.Go(func() {
		for testkit.Pause(over, 20*time.Millisecond) {
			v, err := s.Process.Do("PTTL", key)
			if err != nil {
				t.Error(err)
				return
			}
			if ms := v.(int64); ms != -2 {
				least = min(least, time.Duration(ms)*time.Millisecond)
			}
		}
	})
	stop := sync.OnceFunc(func() {
		close(over)
		watch.Wait()
	})
	t.Cleanup(stop) // also if the test ends before it asks
	return func() time.Duration {
		stop()
		return least
	}
}

// testConcurrency_SingleInstance, testConcurrency_MultiInstance,
// testConcurrencyLoop_MultiInstance
func TestNoAcquisitionIsLostOrDoubled(t *testing.T) {
	many, several, cycles := 100, 16, 100
	if testkit.Race {
		many, several, cycles = 16, 8, 6 // all of them without it: .ci/run
	}
	everyLock(t, func(t *testing.T, on ground, lock locker) {
		for _, tc := range []struct{ engines, tasks, cycles int }{
			{1, 15, 1},
			{many, 1, 1},
			{several, 1, cycles},
		} {
			t.Run(fmt.Sprintf("%d engines, %d tasks, %d cycles", tc.engines, tc.tasks, tc.cycles), func(t *testing.T) {
				t.Parallel()
				s := on.server(t)
				var all sync.WaitGroup
				for range tc.engines {
					e := testkit.Open(t, s.URL())
					for range tc.tasks {
						all.Go(func() {
							for range tc.cycles {
								increment(t, s, lock(e))
							}
						})
					}
				}
				all.Wait()
				if n, want := s.Do("GET", "n"), tc.engines*tc.tasks*tc.cycles; n != strconv.Itoa(want) {
					t.Errorf("the counter is %v, want %d", n, want)
				}
				s.Do("DEL", "n")
				testkit.Clean(t, s)
			})
		}
	})
}

// increment adds one to a counter on the server under the lock, in two steps that
// nothing else protects.
func increment(t testing.TB, s *redistest.Server, m engine.Mutex) {
	h, err := m.Lock(testkit.Within(t, 2*testkit.Limit))
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
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
}
