package multi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
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

const (
	safetyLease   = 400 * time.Millisecond
	safetyWorkers = 3
)

// section is a time in which a hold of a process was valid; the machine's clock is one for
// all.
type section struct {
	from, to time.Time
	who      string
	lost     bool
}

// voters are the engines of one process, one for each server.
type voters []*engine.Engine

func (v voters) lock(name string) engine.QuorumLock {
	locks := make([]engine.Mutex, len(v))
	for i, e := range v {
		locks[i] = e.Mutex(name)
	}
	return engine.RedLock(locks...)
}

// Two processes take one lock again and again, while at most two of five servers at a time
// are killed or hang. No two sections overlap. A server that is killed has no data when it
// comes back, and stays away for longer than the lease: without that two could hold the lock,
// as RedLock says. PAWL_REDLOCK_SECTIONS=10000 is the long run.
func TestRedLockIsSafeWhileServersAreKilledAndRestarted(t *testing.T) {
	if urls := testkit.PeerArgs(); len(urls) > 0 {
		safetyProcess(t, urls)
		return
	}
	t.Parallel()
	sections := 120
	if n, err := strconv.Atoi(os.Getenv("PAWL_REDLOCK_SECTIONS")); err == nil {
		sections = n
	}
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("PAWL_REDLOCK_SEED"), 10, 64); err == nil {
		seed = n
	}
	var servers []*redistest.Server
	var urls []any
	for range 5 {
		one := testkit.Server(t)
		servers, urls = append(servers, one), append(urls, one.URL())
	}
	var mu sync.Mutex
	var all []section
	var done atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for process := range 2 {
		p := testkit.StartPeer(t, urls...)
		wg.Go(func() {
			<-stop
			p.EndInput() // tells it to end
		})
		wg.Go(func() {
			if err := p.Follow(func(text string) {
				var who, from, to int64
				var lost bool
				if n, _ := fmt.Sscanf(text, "section %d %d %d %t", &who, &from, &to, &lost); n != 4 {
					if strings.HasPrefix(text, "error") {
						t.Errorf("process %d: %s", process, text)
					}
					return
				}
				mu.Lock()
				all = append(all, section{time.Unix(0, from), time.Unix(0, to), fmt.Sprint(process, "/", who), lost})
				mu.Unlock()
				done.Add(1)
			}); err != nil {
				t.Errorf("process %d: %v", process, err)
			}
		})
	}
	faults := trouble5(servers, seed, &done, int64(sections))
	close(stop)
	wg.Wait()
	slices.SortFunc(all, func(a, b section) int { return a.from.Compare(b.from) })
	lost := 0
	by := map[string]int{}
	for i, one := range all {
		by[one.who]++
		if one.lost {
			lost++
		}
		if i > 0 && one.from.Before(all[i-1].to) {
			t.Errorf("seed %d: %s had it until %v, and %s from %v on: %v of both", seed, all[i-1].who, all[i-1].to, one.who, one.from, all[i-1].to.Sub(one.from))
		}
	}
	t.Logf("%d sections, %d of them lost, under %d faults, %v", len(all), lost, faults, by)
	if len(all) < sections {
		t.Errorf("%d sections of %d", len(all), sections)
	}
}

// trouble5 kills and stops servers until so many sections are done, or none comes any more,
// and returns how often. Up to two of five are away at a time.
func trouble5(servers []*redistest.Server, seed uint64, done *atomic.Int64, enough int64) (faults int) {
	rng := rand.New(rand.NewPCG(seed, 5))
	away := make(chan struct{}, 2)
	var wg sync.WaitGroup
	busy := make([]atomic.Bool, len(servers))
	last, since := int64(0), time.Now()
	for done.Load() < enough {
		if n := done.Load(); n != last {
			last, since = n, time.Now()
		} else if time.Since(since) > 3*testkit.Limit {
			break // the caller complains
		}
		time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond)))) // faults come when they come
		i, kill, d := rng.IntN(len(servers)), rng.IntN(2) == 0, time.Duration(rng.Int64N(int64(2*safetyLease)))
		if !busy[i].CompareAndSwap(false, true) {
			continue
		}
		away <- struct{}{}
		faults++
		wg.Go(func() {
			defer func() { busy[i].Store(false); <-away }()
			s := servers[i].Process
			if !kill {
				_ = s.Stop()
				time.Sleep(d) // the server hangs for that long
				_ = s.Cont()
				return
			}
			_ = s.Kill()
			time.Sleep(safetyLease + safetyLease/4) // longer than the longest lease
			_ = s.Restart(context.Background())
		})
	}
	wg.Wait()
	return faults
}

// safetyProcess is one of the processes.
func safetyProcess(t *testing.T, urls []string) {
	var v voters
	for _, url := range urls {
		v = append(v, testkit.Open(t, url, testkit.LeaseOf(safetyLease), func(c *engine.Config) { c.CommandTimeout, c.Lazy = 300*time.Millisecond, true }))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	var wg sync.WaitGroup
	for who := range safetyWorkers {
		rng := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(who)))
		wg.Go(func() {
			for ctx.Err() == nil {
				h, err := v.lock("x").Lock(ctx, engine.Wait(time.Minute))
				if err != nil {
					if ctx.Err() == nil {
						say("error %v", err)
					}
					continue
				}
				from := time.Now()
				to, work := from, time.Duration(rng.IntN(3))*time.Millisecond
				if rng.IntN(50) == 0 {
					work = time.Duration(rng.Int64N(int64(3 * safetyLease)))
				}
				for {
					now := time.Now()
					if h.Err() != nil {
						break
					}
					to = now
					if now.Sub(from) >= work {
						break
					}
					select {
					case <-h.Done():
					case <-time.After(min(work, time.Millisecond)):
					}
				}
				lost := h.Err() != nil
				uctx, stop := context.WithTimeout(context.Background(), time.Second)
				_ = h.Unlock(uctx)
				stop()
				if to.After(from) {
					say("section %d %d %d %t", who, from.UnixNano(), to.UnixNano(), lost)
				}
			}
		})
	}
	wg.Wait()
}
