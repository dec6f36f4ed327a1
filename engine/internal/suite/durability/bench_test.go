package durability

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// What plain locks of an engine notice of its durable ones: latencies of lock + unlock
// of 16 goroutines, alone, beside 64 that wait for two replicas each time, and beside
// them while one of the replicas is stopped. Compare within a run:
//
//	go test ./engine -run - -bench PlainBesideDurable -benchtime 300000x -count 5
func BenchmarkPlainBesideDurable(b *testing.B) {
	for _, how := range []string{"alone", "durable", "replica stopped"} {
		b.Run(how, func(b *testing.B) {
			r := redistest.StartReplicated(b, 2, redistest.Line("repl-timeout 300"))
			e := testkit.Open(b, r.Primary().URL())
			ctx, cancel := context.WithCancel(context.Background())
			var durable sync.WaitGroup
			if how != "alone" {
				for i := range 64 {
					durable.Go(func() {
						m := e.Mutex(fmt.Sprint("durable", i))
						for ctx.Err() == nil {
							if h, err := m.Lock(ctx, engine.Acked(engine.AllReplicas)); err == nil {
								_ = h.Unlock(ctx)
							}
						}
					})
				}
			}
			if how == "replica stopped" {
				r.Servers()[1].Stop()
				defer r.Servers()[1].Cont()
			}
			latencies := make([][]time.Duration, 16)
			b.ResetTimer()
			var plain sync.WaitGroup
			for i := range latencies {
				plain.Go(func() {
					m := e.Mutex(fmt.Sprint("plain", i))
					for range max(1, b.N/len(latencies)) {
						start := time.Now()
						h, err := m.Lock(ctx)
						if err == nil {
							err = h.Unlock(ctx)
						}
						if err != nil {
							b.Error(err)
							return
						}
						latencies[i] = append(latencies[i], time.Since(start))
					}
				})
			}
			plain.Wait()
			b.StopTimer()
			cancel()
			durable.Wait()
			all := slices.Concat(latencies...)
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
			b.ReportMetric(float64(e.Stats().NotAcked), "not-acked")
		})
	}
}
