package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// subject is a client under measurement.
type subject interface {
	Name() string
	// Worker returns what locks and unlocks name once; the calls of one worker
	// follow each other.
	Worker(name string) func(ctx context.Context) error
	Server(ctx context.Context) (string, error)
	// Commands counts the client's commands that the server has executed.
	Commands(ctx context.Context) (int64, error)
}

type runConfig struct {
	Goroutines int
	Duration   time.Duration
}

const (
	// warmUpPairs are done by each worker before anything is counted: connections
	// are open and pools filled then.
	warmUpPairs = 50
	// stuckAfter is how long after the end a worker may still wait.
	stuckAfter = 10 * time.Second
)

// worker is one goroutine's share of a run; its own until done is closed.
type worker struct {
	pair    func(ctx context.Context) error
	pairs   int64
	errors  int64
	latency *hdrhistogram.Histogram // nanoseconds
	done    chan struct{}
}

// uncontended runs workers that lock and unlock a name of their own, as fast as
// they can.
func uncontended(ctx context.Context, s subject, cfg runConfig) (Result, error) {
	r := Result{Scenario: "uncontended", Peer: s.Name(), Comparable: true, Goroutines: cfg.Goroutines}
	var err error
	if r.Server, err = s.Server(ctx); err != nil {
		return r, err
	}
	workers := make([]*worker, cfg.Goroutines)
	for i := range workers {
		workers[i] = &worker{
			pair:    s.Worker("bench:" + strconv.Itoa(i)),
			latency: hdrhistogram.New(1_000, int64(time.Minute), 3),
			done:    make(chan struct{}),
		}
	}
	// Beside the workers, by what the client needs.
	idle := runtime.NumGoroutine()
	for _, w := range workers {
		for range warmUpPairs {
			if err := w.pair(ctx); err != nil {
				return r, fmt.Errorf("warm-up: %w", err)
			}
		}
	}

	begin := make(chan struct{})
	var stop atomic.Bool
	for _, w := range workers {
		go w.run(ctx, begin, &stop)
	}
	commands, err := s.Commands(ctx)
	if err != nil {
		return r, err
	}
	before := takeUsage()
	began := time.Now()
	close(begin)
	select {
	case <-time.After(cfg.Duration):
	case <-ctx.Done():
	}
	r.GoroutinesPeak = max(0, runtime.NumGoroutine()-idle-len(workers))
	stop.Store(true)
	deadline := time.After(stuckAfter)
	all := hdrhistogram.New(1_000, int64(time.Minute), 3)
	r.Fairness.Min = -1
	for _, w := range workers {
		select {
		case <-w.done:
			r.add(w, all)
		case <-deadline:
			// What it has counted is still its own.
			r.Stuck++
			deadline = closed // the others have had their time too
		}
	}
	r.DurationS = time.Since(began).Seconds()
	used := takeUsage().since(before)
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	after, err := s.Commands(ctx)
	if err != nil {
		return r, err
	}
	r.summarise(used, float64(after-commands), all)
	return r, nil
}

// closed is a deadline that has passed.
var closed = func() <-chan time.Time { c := make(chan time.Time); close(c); return c }()

func (w *worker) run(ctx context.Context, begin <-chan struct{}, stop *atomic.Bool) {
	defer close(w.done)
	<-begin
	last := time.Now()
	for !stop.Load() {
		err := w.pair(ctx)
		now := time.Now()
		if err != nil {
			w.errors++
		} else {
			w.pairs++
			// Out of range means longer than a minute.
			_ = w.latency.RecordValue(min(int64(now.Sub(last)), int64(time.Minute)))
		}
		last = now
	}
}

// add counts a worker that is done.
func (r *Result) add(w *worker, all *hdrhistogram.Histogram) {
	r.Pairs += w.pairs
	r.Errors += w.errors
	r.Fairness.Max = max(r.Fairness.Max, w.pairs)
	if r.Fairness.Min < 0 || w.pairs < r.Fairness.Min {
		r.Fairness.Min = w.pairs
	}
	all.Merge(w.latency)
}

func (r *Result) summarise(used usage, commands float64, all *hdrhistogram.Histogram) {
	us := func(q float64) float64 { return float64(all.ValueAtQuantile(q)) / 1e3 }
	r.LatencyUs = Latency{P50: us(50), P99: us(99), P999: us(99.9), Max: float64(all.Max()) / 1e3}
	r.Fairness.Min = max(r.Fairness.Min, 0)
	r.Fairness.Mean = float64(r.Pairs) / float64(r.Goroutines)
	r.PairsPerSecond = float64(r.Pairs) / r.DurationS
	if pairs := float64(r.Pairs); pairs > 0 {
		r.ClientCPUUsPerPair = float64(used.cpu.Microseconds()) / pairs
		r.AllocsPerPair = float64(used.allocs) / pairs
		r.CommandsPerPair = commands / pairs
	}
}
