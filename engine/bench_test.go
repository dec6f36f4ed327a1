//go:build !race

package engine

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/recovery"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Every release goes by here, on its way to the caller of Unlock.
func TestRecovery_RememberARelease_MakesNoGarbage(t *testing.T) {
	e := open(t, redistest.StartReplicated(t, 1).URL())
	server, at := e.table.Client.ServerOf(0), e.clock.Now()
	note := func() {
		at = at.Add(recovery.RememberFor / 1000) // a few pages, of which the oldest is used again
		e.table.Recovery.Note(server, 0, recovery.Release{Name: "x", At: at})
	}
	for range 5000 {
		note()
	}
	if n := testing.AllocsPerRun(20_000, note); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if _, n := remembered(e); n > 2000 {
		t.Errorf("%d releases are remembered", n)
	}
}

func BenchmarkRecovery_RememberARelease(b *testing.B) {
	e := open(b, redistest.StartReplicated(b, 1).URL())
	server, at := e.table.Client.ServerOf(0), e.clock.Now()
	for b.Loop() {
		at = at.Add(recovery.RememberFor / 500_000) // 100,000 a second
		e.table.Recovery.Note(server, 0, recovery.Release{Name: "x", At: at})
	}
}

// Not parallel: it counts the goroutines of the whole process.
//
// A hold may have any number of contexts. When it ends on an event loop, that costs one
// goroutine for all of them, and none of those that would forget each.
func TestHold_ManyContexts_EndInOneGoroutine(t *testing.T) {
	const n = 10_000
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	contexts := make([]context.Context, n)
	for i := range contexts {
		contexts[i] = h.Context(context.Background())
	}
	s.Do("DEL", "x")
	done, idle, peak := h.Done(), runtime.NumGoroutine(), 0
	oneOf(h).Renewable().Gone(script.Gone) // as its renewal does
	for ended := false; !ended; {
		peak = max(peak, runtime.NumGoroutine()-idle)
		select {
		case <-done:
			ended = true
		default:
		}
	}
	if k := alive(contexts); k > 0 {
		t.Errorf("Done is closed and %d of %d contexts are alive", k, n)
	}
	t.Logf("%d goroutines more while %d contexts ended", peak, n)
	if peak > 5 {
		t.Errorf("%d goroutines more while %d contexts ended, want one", peak, n)
	}
}

// What an Observer that does nothing costs; see plugin/cost for those that do something.
func BenchmarkObserver_LockAndUnlock(b *testing.B) {
	url := server(b).URL()
	for _, names := range []string{"uncontended", "hot"} {
		for _, observer := range []Observer{nil, ObserverFuncs{}} {
			b.Run(fmt.Sprintf("%s/%T", names, observer), func(b *testing.B) {
				e := open(b, url, func(c *Config) { c.Observer = observer })
				var worker atomic.Int64
				b.SetParallelism(64 / runtime.GOMAXPROCS(0))
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					m := e.Mutex("x")
					if names == "uncontended" {
						m = e.Mutex(fmt.Sprint("x", worker.Add(1)))
					}
					for pb.Next() {
						h, err := m.Lock(context.Background())
						if err == nil {
							err = h.Unlock(context.Background())
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
