package rw

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// 64 goroutines take and unlock: a read lock of one name, or each a Mutex of its own.
func BenchmarkRWMutex_ReadersOfOneName(b *testing.B) {
	const goroutines = 64
	for name, lock := range map[string]func(e *engine.Engine, i int) engine.Mutex{
		"readers": func(e *engine.Engine, _ int) engine.Mutex { return e.RWMutex("x").Reader() },
		"mutexes": func(e *engine.Engine, i int) engine.Mutex { return e.Mutex("x" + strconv.Itoa(i)) },
	} {
		b.Run(name, func(b *testing.B) {
			e := testkit.Open(b, testkit.Server(b).URL())
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for i := range goroutines {
				all.Go(func() {
					m := lock(e, i)
					for left.Add(-1) >= 0 {
						h, err := m.Lock(b.Context())
						if err != nil {
							b.Error(err)
							return
						}
						if err := h.Unlock(b.Context()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
	}
}

// Many readers share a grant, and a writer of another process gets in as they leave for a moment.
func TestRWMutex_ManyReadersOfAProcess_ShareAGrant(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	const rounds, pairs = 5, 4_000
	for range rounds {
		var left atomic.Int64
		var all sync.WaitGroup
		left.Store(pairs)
		ctx := testkit.Ctx(t) // one for all: many thousands would burden the tests beside this one
		for range 64 {
			all.Go(func() {
				for m := e.RWMutex("x").Reader(); left.Add(-1) >= 0; {
					h, err := m.Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					if err := h.Unlock(ctx); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		w := testkit.MustLock(t, other.RWMutex("x").Writer())
		testkit.MustUnlock(t, w)
		all.Wait()
	}
	if n := e.Stats().HandedOver; n < rounds*pairs/2 {
		t.Errorf("%d of %d joined", n, rounds*pairs)
	}
	testkit.Eventually(t, "nothing is left", func() bool { return testkit.Inside(e).Names == 0 })
	testkit.Clean(t, s, e, other)
}

// More contexts than the caller of Unlock ends itself have ended when it returns, though other readers stay.
func TestRWMutex_UnlockOfOneReader_ReturnsWhenItsContextsHaveEnded(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.RWMutex("x").Reader()
	stays := testkit.MustLock(t, m)
	for range 50 {
		h := testkit.MustLock(t, m)
		ctxs := make([]context.Context, 1000)
		for i := range ctxs {
			ctxs[i] = h.Context(t.Context())
		}
		testkit.MustUnlock(t, h)
		for i, c := range ctxs {
			if c.Err() == nil {
				t.Fatalf("context %d is alive", i)
			}
		}
	}
	testkit.MustUnlock(t, stays)
	testkit.Clean(t, s, e)
}
