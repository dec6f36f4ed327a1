//go:build unix

// Command cost measures what an Observer costs: pairs of Lock and Unlock a second without one, with
// pawlprom and with pawlotel, in rounds of all of them in a random order, so that what else the machine does
// falls on each. It prints the median and the spread of the ratios to the run without, and the processor time of this
// process, which depends less on what else the machine does.
//
//	go run . --addr redis://127.0.0.1:6379 --rounds 20
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/plugin/pawlotel"
	"github.com/pawl-lock/pawl/plugin/pawlprom"
)

// variants are the Observers; the first two have none, so that their ratio shows the noise.
var variants = []struct {
	name     string
	observer func() engine.Observer
}{
	{"off", func() engine.Observer { return nil }},
	{"off again", func() engine.Observer { return nil }},
	{"prometheus", func() engine.Observer { return pawlprom.New(prometheus.NewRegistry()) }},
	{"otel, every span, exported to nowhere", func() engine.Observer {
		return pawlotel.New(pawlotel.TracerProvider(trace.NewTracerProvider(trace.WithSyncer(tracetest.NewNoopExporter()))))
	}},
	{"otel, nothing sampled", func() engine.Observer {
		return pawlotel.New(pawlotel.TracerProvider(trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))))
	}},
	{"otel, no-op provider", func() engine.Observer { return pawlotel.New(pawlotel.TracerProvider(noop.NewTracerProvider())) }},
}

const (
	goroutines = 64
	warmUp     = 200 * time.Millisecond
)

func main() {
	addr := flag.String("addr", "redis://127.0.0.1:6379", "URL of the server")
	rounds := flag.Int("rounds", 20, "how often each is measured")
	each := flag.Duration("duration", time.Second, "how long each is measured in a round")
	flag.Parse()
	for _, scenario := range []struct {
		name string
		lock func(worker int) string
	}{
		{"uncontended", func(worker int) string { return fmt.Sprint("cost:", worker) }},
		{"hot", func(int) string { return "cost" }},
	} {
		pairs, cpu, allocs := make([][]float64, len(variants)), make([][]float64, len(variants)), make([][]float64, len(variants))
		for range *rounds {
			for _, v := range rand.Perm(len(variants)) {
				m, err := measure(*addr, variants[v].observer(), scenario.lock, *each)
				if err != nil {
					log.Fatal(err)
				}
				pairs[v], cpu[v], allocs[v] = append(pairs[v], m.pairs), append(cpu[v], m.cpu), append(allocs[v], m.allocs)
			}
		}
		for v := range variants {
			ratios := make([]float64, *rounds)
			for i := range ratios {
				ratios[i] = pairs[v][i] / pairs[0][i]
			}
			slices.Sort(ratios)
			fmt.Printf("%-12s %-38s %8.0f pairs/s  ratio %.3f (%.2f to %.2f)  a pair: %5.0f ns of processor time, %.1f allocations\n", scenario.name, variants[v].name,
				median(pairs[v]), median(ratios), ratios[0], ratios[len(ratios)-1], median(cpu[v]), median(allocs[v]))
		}
	}
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// measurement is that of one variant: pairs a second, and what a pair takes: nanoseconds of processor time, and allocations.
type measurement struct{ pairs, cpu, allocs float64 }

func measure(addr string, o engine.Observer, name func(int) string, d time.Duration) (m measurement, _ error) {
	cfg, err := engine.ParseURL(addr)
	if err != nil {
		return m, err
	}
	cfg.Observer = o
	ctx := context.Background()
	e, err := engine.New(ctx, cfg)
	if err != nil {
		return m, err
	}
	defer e.Close()
	var n atomic.Int64
	var over atomic.Bool
	var failed atomic.Value
	var all sync.WaitGroup
	for w := range goroutines {
		all.Go(func() {
			m := e.Mutex(name(w))
			for !over.Load() {
				h, err := m.Lock(ctx)
				if err == nil {
					err = h.Unlock(ctx)
				}
				if err != nil {
					failed.Store(err)
					return
				}
				n.Add(1)
			}
		})
	}
	time.Sleep(warmUp) // what is measured is what follows
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	from, used, begun := n.Load(), cpuTime(), time.Now()
	time.Sleep(d) // the time of the measurement
	count, took := float64(n.Load()-from), time.Since(begun)
	m.cpu = float64(cpuTime()-used) / count
	runtime.ReadMemStats(&after)
	m.pairs, m.allocs = count/took.Seconds(), float64(after.Mallocs-before.Mallocs)/count
	over.Store(true)
	all.Wait()
	if err, ok := failed.Load().(error); ok {
		return m, err
	}
	return m, nil
}

// cpuTime is the processor time that this process has used.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
