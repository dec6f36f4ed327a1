package counters

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// seed is that of the histories, printed.
func seed(t *testing.T) uint64 {
	s, err := strconv.ParseUint(os.Getenv("PAWL_HISTORY_SEED"), 10, 64)
	if err != nil {
		s = rand.Uint64()
	}
	t.Logf("PAWL_HISTORY_SEED=%d", s)
	return s
}

// behind opens engines, each with a network of its own, which a vandal breaks until stop is
// closed.
func behind(t *testing.T, srv *redistest.Server, n int, seed uint64, stop <-chan struct{}, change ...func(*engine.Config)) (engines []*engine.Engine, wait func(), cuts *atomic.Int64) {
	cuts = new(atomic.Int64)
	var vandals sync.WaitGroup
	for i := range n {
		p := faultproxy.New(t, "tcp", srv.Addr())
		engines = append(engines, testkit.Open(t, "redis://"+p.Addr(), append(change, func(c *engine.Config) { c.CommandTimeout = time.Second })...))
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		vandals.Go(func() { vandalize(p, random, stop, cuts) })
	}
	return engines, vandals.Wait, cuts
}

func vandalize(p *faultproxy.Proxy, random *rand.Rand, stop <-chan struct{}, cuts *atomic.Int64) {
	scripts := []*script.Script{script.Counter, script.PermitTake, script.PermitFree, script.PermitRenew}
	for testkit.Pause(stop, time.Duration(random.IntN(150))*time.Millisecond) {
		cuts.Add(1)
		command := func(c faultproxy.Command) bool {
			return slices.ContainsFunc(scripts, func(s *script.Script) bool { return faultproxy.Is("EVALSHA", s.SHA)(c) })
		}
		outage := time.Duration(random.IntN(60)) * time.Millisecond
		if random.IntN(20) == 0 {
			outage = 1200 * time.Millisecond // longer than the command timeout
		}
		switch random.IntN(6) {
		case 0:
			p.Cut(faultproxy.All)
		case 1:
			trap := p.CutAfterRequest(command) // executed, and the answer is lost
			testkit.Pause(stop, outage)
			trap.Remove()
		case 2:
			trap := p.CutBeforeRequest(command)
			testkit.Pause(stop, outage)
			trap.Remove()
		case 3:
			p.Blackhole(faultproxy.All)
			testkit.Pause(stop, outage)
			p.Heal()
		case 4: // what is under way is lost, late
			p.Pause(faultproxy.All)
			testkit.Pause(stop, outage)
			p.Cut(faultproxy.All)
			p.Resume()
		case 5:
			p.Down()
			testkit.Pause(stop, outage)
			p.Up()
		}
	}
}

// Five thousand times permits are acquired and released while connections are cut. None is
// lost, and none is made.
func TestNoPermitIsLostOrMade(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	seed := seed(t)
	stop := make(chan struct{})
	engines, vandals, cuts := behind(t, srv, 3, seed, stop)
	const permits, rounds, workers = 7, 5_000, 24
	calm := testkit.Open(t, srv.URL())
	if _, err := calm.Semaphore("s").TrySetPermits(testkit.Ctx(t), permits); err != nil {
		t.Fatal(err)
	}
	var inside, done, refused, given atomic.Int64
	var all sync.WaitGroup
	for i := range workers {
		random := rand.New(rand.NewPCG(seed, 1000+uint64(i)))
		s := engines[i%len(engines)].Semaphore("s")
		all.Go(func() {
			for done.Load() < rounds {
				n := 1 + random.IntN(3)
				var p *engine.Permits
				var err error
				switch random.IntN(8) {
				case 0:
					p, err = s.TryAcquire(context.Background(), n)
				case 1:
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(20))*time.Millisecond)
					p, err = s.Acquire(ctx, n)
					cancel()
				case 2:
					f := s.AcquireAsync(context.Background(), n)
					testkit.Pause(nil, time.Duration(random.IntN(3))*time.Millisecond)
					f.Abandon()
					given.Add(1)
					continue
				default:
					p, err = s.Acquire(context.Background(), n)
				}
				if errors.Is(err, engine.ErrOutcomeUnknown) {
					t.Errorf("no outage was that long: %v", err)
				}
				if err != nil {
					refused.Add(1)
					continue
				}
				if now := inside.Add(int64(n)); now > permits {
					t.Errorf("%d permits are held, of %d", now, permits)
				}
				runtime.Gosched() // others could come in
				inside.Add(int64(-n))
				if random.IntN(4) == 0 {
					p.ReleaseAsync()
				} else if err := p.Release(context.Background()); err != nil {
					t.Errorf("Release: %v", err)
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	close(stop)
	vandals()
	available := func() string { return fmt.Sprint(srv.Do("GET", "s")) }
	testkit.Eventually(t, "all permits are back", func() bool { return available() == fmt.Sprint(permits) })
	testkit.Eventually(t, "nothing is left", func() bool {
		for _, e := range engines {
			if in := testkit.Inside(e); in.Names+in.Watched+in.Listed != 0 {
				return false
			}
		}
		return true
	})
	if got := available(); got != fmt.Sprint(permits) {
		t.Errorf("%s permits, of %d", got, permits)
	}
	var reconnects int
	for _, e := range engines {
		n := e.Stats()
		reconnects += n.Reconnects
		if n.UnknownOutcomes != 0 || n.Acquired != n.Released {
			t.Errorf("%+v", n)
		}
	}
	t.Logf("%d rounds, %d refused, %d abandoned, %d faults, %d reconnects", done.Load(), refused.Load(), given.Load(), cuts.Load(), reconnects)
	if reconnects == 0 {
		t.Error("no connection was cut")
	}
}

// Each CountDown counts once, whatever is cut, and everybody who awaits the latch is told.
func TestEveryCountDownCountsOnce(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	stop := make(chan struct{})
	engines, vandals, cuts := behind(t, srv, 3, seed(t), stop)
	calm := testkit.Open(t, srv.URL())
	for round := 0; cuts.Load() < 100; round++ {
		name := fmt.Sprint("l", round)
		const each = 20
		if set, err := calm.Latch(name).TrySetCount(testkit.Ctx(t), 3*each+1); err != nil || !set {
			t.Fatal(set, err)
		}
		var awaits []*engine.Future[struct{}]
		var all sync.WaitGroup
		for _, e := range engines {
			awaits = append(awaits, e.Latch(name).AwaitAsync(context.Background()))
			for range each {
				all.Go(func() {
					if err := e.Latch(name).CountDown(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if n, err := calm.Latch(name).Count(testkit.Ctx(t)); n != 1 || err != nil {
			t.Errorf("the count is %d, %v", n, err)
		}
		for _, f := range awaits {
			if _, err := f.Result(); err != engine.ErrPending {
				t.Errorf("it is open: %v", err)
			}
		}
		if err := calm.Latch(name).CountDown(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
		if _, err := engine.AwaitAll(testkit.Ctx(t), awaits...); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	vandals()
}
