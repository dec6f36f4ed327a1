package counters

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// among are the permits that a test holds.
type among struct {
	mu    sync.Mutex
	holds map[*engine.Hold]struct{}
}

// add notes a hold, and reports how many permits are held then. One that has been lost is not held.
func (a *among) add(h *engine.Hold) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holds[h] = struct{}{}
	for h := range a.holds {
		if h.Err() != nil {
			delete(a.holds, h)
			continue
		}
		n += len(h.PermitIDs())
	}
	return n
}

func (a *among) remove(h *engine.Hold) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.holds, h)
}

// Permits with a lease are acquired, extended, released, taken away and forgotten while connections
// are cut, and the server stands still, or forgets its scripts. At no time are there more or fewer
// of them than there were, and none is held twice.
func TestPermitsWithALeaseAreConserved(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	seed := seed(t)
	stop := make(chan struct{})
	engines, vandals, cuts := behind(t, srv, 3, seed, stop, testkit.LeaseOf(3*time.Second))
	const permits, workers = 7, 18
	calm := testkit.Open(t, srv.URL())
	if err := calm.PermitSemaphore("s").SetPermits(testkit.Ctx(t), permits); err != nil {
		t.Fatal(err)
	}
	held := &among{holds: make(map[*engine.Hold]struct{})}
	var granted, refused, lost atomic.Int64
	var all sync.WaitGroup
	all.Go(func() { // trouble of the server, and a look at all permits
		random := rand.New(rand.NewPCG(seed, 99))
		for testkit.Pause(stop, time.Duration(random.IntN(40))*time.Millisecond) {
			switch random.IntN(8) {
			case 0:
				srv.Do("SCRIPT", "FLUSH")
			case 1:
				srv.Do("CLIENT", "PAUSE", fmt.Sprint(random.IntN(60)), "WRITE")
			case 2:
				if err := calm.PermitSemaphore("s").SetPermits(testkit.Ctx(t), permits); err != nil {
					t.Error(err)
				}
			default:
				if n, err := calm.PermitSemaphore("s").Capacity(testkit.Ctx(t)); n != permits || err != nil {
					t.Errorf("there are %d permits, of %d: %v", n, permits, err)
				}
			}
		}
	})
	began := time.Now()
	for i := range workers {
		random := rand.New(rand.NewPCG(seed, 1000+uint64(i)))
		s := engines[i%len(engines)].PermitSemaphore("s")
		all.Go(func() {
			for time.Since(began) < 8*time.Second {
				n := 1 + random.IntN(3)
				var opts []engine.Option
				fixed := random.IntN(3) == 0
				if fixed {
					opts = append(opts, engine.Lease(time.Duration(100+random.IntN(900))*time.Millisecond))
				}
				var h *engine.Hold
				var err error
				switch random.IntN(8) {
				case 0:
					h, err = s.TryAcquire(context.Background(), n, opts...)
				case 1:
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(20))*time.Millisecond)
					h, err = s.Acquire(ctx, n, opts...)
					cancel()
				case 2:
					f := s.AcquireAsync(context.Background(), n, opts...)
					testkit.Pause(nil, time.Duration(random.IntN(3))*time.Millisecond)
					f.Abandon()
					continue
				default:
					h, err = s.Acquire(context.Background(), n, opts...)
				}
				if err != nil {
					refused.Add(1)
					continue
				}
				granted.Add(1)
				if now := held.add(h); now > permits {
					t.Errorf("%d permits are held, of %d", now, permits)
				}
				testkit.Pause(nil, time.Duration(random.IntN(4))*time.Millisecond)
				switch random.IntN(40) {
				case 0, 1, 2:
					if !fixed {
						break
					}
					if err := h.Extend(context.Background(), time.Duration(random.IntN(2000)+10)*time.Millisecond); err != nil && !errors.Is(err, engine.ErrLost) && !errors.Is(err, engine.ErrUnavailable) && !errors.Is(err, engine.ErrOutcomeUnknown) {
						t.Errorf("Extend: %v", err)
					}
				case 3: // somebody takes one of them
					held.remove(h)
					if _, err := calm.PermitSemaphore("s").ForceRelease(context.Background(), h.PermitIDs()[0]); err != nil {
						t.Error(err)
					}
					if random.IntN(2) == 0 && !fixed {
						<-h.Done()
						lost.Add(1)
						continue
					}
				case 4:
					if fixed { // it is forgotten
						continue
					}
				}
				held.remove(h)
				if random.IntN(4) == 0 {
					h.UnlockAsync()
				} else if err := h.Unlock(context.Background()); err != nil {
					lost.Add(1)
				}
			}
		})
	}
	testkit.Pause(nil, 8*time.Second)
	close(stop)
	vandals()
	srv.Do("CLIENT", "UNPAUSE")
	all.Wait()
	t.Logf("%d cuts, %d granted, %d refused, %d lost", cuts.Load(), granted.Load(), refused.Load(), lost.Load())
	s := calm.PermitSemaphore("s")
	testkit.Eventually(t, "all permits are back", func() bool {
		n, err := s.Available(testkit.Ctx(t))
		return err == nil && n == permits
	})
	testkit.Eventually(t, "nothing is left", func() bool {
		for _, e := range engines {
			if in := testkit.Inside(e); in.Names+in.Watched+in.Listed != 0 {
				return false
			}
		}
		return true
	})
	if keys := fmt.Sprint(srv.Do("KEYS", "*")); keys != "[s]" {
		t.Errorf("the server has the keys %v", keys)
	}
}
