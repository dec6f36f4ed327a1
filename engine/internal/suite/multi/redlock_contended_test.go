package multi

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// far are servers whose answers take a round trip.
type far struct {
	t       testing.TB
	trip    time.Duration
	servers []*redistest.Server // in the order of the proxies' addresses
	proxies []*faultproxy.Proxy
}

func farServers(t testing.TB, n int, trip time.Duration) *far {
	f := &far{t: t, trip: trip}
	behind := make(map[*faultproxy.Proxy]*redistest.Server)
	for range n {
		s := testkit.Server(t)
		p := faultproxy.New(t, "tcp", s.Addr())
		behind[p], f.proxies = s, append(f.proxies, p)
	}
	slices.SortFunc(f.proxies, func(a, b *faultproxy.Proxy) int {
		return strings.Compare(a.Addr(), b.Addr())
	})
	for _, p := range f.proxies {
		f.servers = append(f.servers, behind[p])
	}
	return f
}

// open are the engines of one process.
func (f *far) open() (v voters) {
	for _, p := range f.proxies {
		v = append(v, testkit.Open(f.t, "redis://"+p.Addr()))
	}
	return v
}

// contend has so many processes take the lock for a while, with pauses up to 50 ms, and returns how long it
// was free each time, from Unlock to the next owner. Their engines are connected when ready is called.
func (f *far) contend(processes int, d time.Duration, ready func()) (free []time.Duration) {
	var mu sync.Mutex
	var released time.Time
	inside := 0
	var wg sync.WaitGroup
	var all []voters
	for range processes {
		v := f.open()
		h, err := v.lock("warm").Lock(testkit.Ctx(f.t)) // connections and scripts
		if err != nil {
			f.t.Fatal(err)
		}
		if err := h.Unlock(testkit.Ctx(f.t)); err != nil {
			f.t.Fatal(err)
		}
		all = append(all, v)
	}
	for _, p := range f.proxies {
		p.Delay(faultproxy.All, f.trip/2, f.trip/2)
	}
	ready()
	end := time.Now().Add(d)
	for _, v := range all {
		wg.Go(func() {
			for time.Now().Before(end) {
				h, err := v.lock("x").Lock(f.t.Context(), engine.Wait(5*time.Minute))
				if err != nil {
					f.t.Error(err)
					return
				}
				mu.Lock()
				if inside++; inside != 1 {
					f.t.Error("two are inside")
				}
				if !released.IsZero() {
					free = append(free, time.Since(released))
				}
				mu.Unlock()
				time.Sleep(rand.N(10 * time.Millisecond)) // the variable of the test
				mu.Lock()
				inside--
				released = time.Now()
				mu.Unlock()
				if err := h.Unlock(f.t.Context()); err != nil {
					f.t.Error(err)
				}
				time.Sleep(rand.N(50 * time.Millisecond)) // so is the pause
			}
		})
	}
	wg.Wait()
	slices.Sort(free)
	return free
}

// Twelve processes contend for servers that are 0.2 s away. Between two owners the lock is free for a few round
// trips, also if the first server hangs, or somebody else keeps the lock there.
// More deployments are in TestModel_Group_IsFreeForAFewRoundTrips of engine/internal/quorum.
func TestRedLock_Contended_IsFreeForAFewRoundTrips(t *testing.T) {
	t.Parallel()
	const processes = 12
	for what, c := range map[string]struct {
		servers []int
		most    float64 // round trips, in the median
		prepare func(t testing.TB, f *far)
	}{
		"all answer": {[]int{3}, 8, func(testing.TB, *far) {}},
		"the first server hangs": {[]int{3, 5}, 12, func(t testing.TB, f *far) {
			f.servers[0].Stop()
			t.Cleanup(func() { _ = f.servers[0].Process.Cont() })
		}},
		"the first server is kept": {[]int{3}, 10, func(t testing.TB, f *far) {
			testkit.MustLock(t, testkit.Open(t, f.servers[0].URL()).Mutex("x"))
		}},
	} {
		for _, servers := range c.servers {
			t.Run(fmt.Sprint(what, ", ", servers, " servers"), func(t *testing.T) {
				t.Parallel()
				testkit.Steady(t, func(t testing.TB) {
					f := farServers(t, servers, 200*time.Millisecond)
					free := f.contend(processes, 6*time.Second, func() { c.prepare(t, f) })
					if len(free) == 0 {
						t.Fatal("nobody got it after another")
					}
					sum := time.Duration(0)
					for _, d := range free {
						sum += d
					}
					trips := func(d time.Duration) float64 { return float64(d) / float64(f.trip) }
					median := trips(free[len(free)/2])
					t.Logf("%d times free, for %.1f round trips in the median, %.1f in the mean, %.1f at most", len(free), median, trips(sum)/float64(len(free)), trips(free[len(free)-1]))
					if median > c.most {
						t.Errorf("free for %.1f round trips in the median", median)
					}
				})
			})
		}
	}
}
