package multi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Several engines on two servers take overlapping sets while contexts end, futures are
// abandoned, locks are removed, connections cut and engines closed. Whatever happens, nobody
// enters while a context of the one before is alive, unless a lock was removed by force;
// everybody gets an answer; and nothing is left. PAWL_MULTI_SEED runs one more.
func TestMultiLocksUnderEverything(t *testing.T) {
	t.Parallel()
	seeds := []uint64{1}
	if s, err := strconv.ParseUint(os.Getenv("PAWL_MULTI_SEED"), 10, 64); err == nil {
		seeds = []uint64{s}
	}
	for _, seed := range seeds {
		multiStress(t, seed)
	}
}

func multiStress(t *testing.T, seed uint64) {
	const names, workers, rounds = 12, 4, 15
	s1, s2 := testkit.Server(t), testkit.Server(t)
	p := faultproxy.New(t, "tcp", s2.Addr())
	short := func(c *engine.Config) { c.CommandTimeout = 200 * time.Millisecond }
	var inside [2][names]atomic.Pointer[context.Context]
	var bad atomic.Pointer[string]
	var force atomic.Bool // locks have been removed: two may be inside
	var answers atomic.Int64
	var wg sync.WaitGroup
	var engines []*engine.Engine
	for pair := range 3 {
		e1, e2 := testkit.Open(t, s1.URL(), short), testkit.Open(t, "redis://"+p.Addr(), short)
		engines = append(engines, e1, e2)
		for w := range workers {
			rng := rand.New(rand.NewPCG(seed, uint64(10*pair+w)))
			wg.Go(func() {
				for range rounds {
					var l []engine.Mutex
					var at [][2]int
					for _, k := range rng.Perm(2 * names)[:1+rng.IntN(8)] {
						e, side := e1, k%2
						if side == 1 {
							e = e2
						}
						l, at = append(l, e.Mutex(fmt.Sprint("n", k/2))), append(at, [2]int{side, k / 2})
					}
					ctx, cancel := testkit.Ctx(t), context.CancelFunc(func() {})
					if rng.IntN(3) == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(5000))*time.Microsecond)
					}
					var opts []engine.Option
					if rng.IntN(3) == 0 {
						opts = append(opts, engine.Wait(time.Duration(1+rng.IntN(20))*time.Millisecond))
					}
					f := engine.Multi(l...).LockAsync(ctx, opts...)
					if rng.IntN(8) == 0 {
						time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond) // the variable of the test
						f.Abandon()
						cancel()
						continue
					}
					h, err := f.Await(testkit.Ctx(t))
					answers.Add(1)
					if err != nil {
						if errors.Is(err, engine.ErrPending) {
							msg := fmt.Sprintf("no answer: %v", err)
							bad.Store(&msg)
						}
						cancel()
						if errors.Is(err, engine.ErrClosed) {
							return
						}
						continue
					}
					c := h.Context(context.Background())
					for _, k := range at {
						if before := inside[k[0]][k[1]].Swap(&c); before != nil && (*before).Err() == nil && c.Err() == nil && !force.Load() {
							msg := fmt.Sprintf("two are inside %v", k)
							bad.Store(&msg)
						}
					}
					if rng.IntN(6) == 0 {
						inner, err := engine.Multi(l[0]).LockAsync(c).Await(testkit.Ctx(t))
						if err == nil {
							_ = inner.Context(c)
							inner.UnlockAsync()
						}
					}
					if rng.IntN(2) == 0 {
						h.UnlockAsync()
						_ = h.Unlock(c)
					} else {
						_ = h.Unlock(testkit.Ctx(t))
					}
					if c.Err() == nil || h.Err() == nil {
						msg := "alive after Unlock"
						bad.Store(&msg)
					}
					select {
					case <-h.Done():
					default:
						msg := "Done is open after Unlock"
						bad.Store(&msg)
					}
					cancel()
				}
			})
		}
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	stop := make(chan struct{})
	troubled := make(chan struct{})
	var closed *engine.Engine
	go func() {
		defer close(troubled)
		before := int64(-1)
		for i := 0; ; {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rng.IntN(20)) * time.Millisecond): // trouble comes when it comes
			}
			if now := answers.Load(); now != before { // else trouble may leave nobody the time for an answer
				before = now
			} else {
				continue
			}
			i++
			switch {
			case i == 12:
				closed = engines[2*rng.IntN(3)+rng.IntN(2)]
				_ = closed.Close()
			case i < 6:
			case rng.IntN(3) == 0:
				force.Store(true)
				s1.Do("FLUSHALL")
			case rng.IntN(2) == 0:
				force.Store(true)
				_, _ = engines[0].Mutex(fmt.Sprint("n", rng.IntN(names))).ForceUnlock(testkit.Ctx(t))
			default:
				p.Cut(faultproxy.All)
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-troubled
	if msg := bad.Load(); msg != nil {
		t.Errorf("seed %d: %s", seed, *msg)
	}
	for i, e := range engines {
		testkit.Eventually(t, fmt.Sprintf("seed %d: engine %d has nothing left", seed, i), func() bool {
			st := e.Stats()
			in := testkit.Inside(e)
			return st.Held == 0 && st.Waiting == 0 && in.Many == 0 && in.Watched == 0 // an in-doubt owner's compensation may stay for a lease
		})
	}
	for _, s := range []*redistest.Server{s1, s2} {
		if closed != nil {
			testkit.RemovePlaces(s, closed)
		}
		testkit.Clean(t, s, engines...)
	}
}
