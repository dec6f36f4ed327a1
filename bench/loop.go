package bench

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/pawl-lock/pawl/bench/internal/latency"
	"github.com/pawl-lock/pawl/bench/internal/process"
)

// RunLoop measures a closed loop (Single, Uncontended or Hot) of any client. The
// server, and the client with its connections, are the caller's.
func RunLoop(ctx context.Context, server *Server, client Client, cfg Config) (*Result, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Scenario == Single {
		cfg.Goroutines = 1
	}
	l := &loop{ctx: ctx, server: server, cfg: cfg, result: &Result{
		Scenario: cfg.Scenario, Client: client.Name(), Server: server.name,
		Comparable: server.comparable, Goroutines: cfg.Goroutines, Conditions: conditionsOf(cfg),
	}}
	for i := range cfg.Goroutines {
		name := server.prefix + "hot"
		if cfg.Scenario != Hot {
			name = server.prefix + strconv.Itoa(i)
		}
		l.workers = append(l.workers, &worker{pair: client.Worker(name)})
	}
	if cfg.Warmup > 0 {
		if err := l.warmUp(); err != nil {
			return nil, err
		}
	}
	if err := l.measure(); err != nil {
		return nil, err
	}
	if err := server.conclude(ctx, l.result); err != nil {
		return nil, err
	}
	return l.result, nil
}

// loop is one run of a closed loop.
type loop struct {
	ctx     context.Context
	server  *Server
	cfg     Config
	workers []*worker
	latency []*latency.Recorder
	result  *Result
}

// warmUp opens connections and fills pools. A worker that is stuck already takes no part
// in the measurement.
func (l *loop) warmUp() error {
	l.renew()
	none := func() error { return nil }
	stuck, err := runRound(l.ctx, l.workers, l.cfg.Warmup, l.cfg.patience(), none, none, l.tick("warm-up", l.cfg.Warmup))
	if err != nil || l.ctx.Err() != nil {
		return firstError(l.ctx, err)
	}
	l.drop(stuck)
	for _, w := range l.workers {
		if w.pairs.Load() == 0 && w.err != nil {
			return fmt.Errorf("bench: warm-up: %w", w.err)
		}
	}
	return nil
}

// measure runs the loop and fills the result.
func (l *loop) measure() error {
	l.renew()
	r := l.result
	idle := runtime.NumGoroutine()
	heap := process.LiveHeap()
	var used process.Meter
	var watch *process.Sampler
	var before, after counts
	var counted float64 // pairs between the two
	var serverCPU time.Duration
	stuck, err := runRound(l.ctx, l.workers, l.cfg.Duration, l.cfg.patience(), func() (err error) {
		if before, err = l.server.counts(l.cfg.Plain...); err != nil {
			return err
		}
		if serverCPU, err = l.server.cpuTime(); err != nil {
			return err
		}
		watch = process.SampleGoroutines(idle + len(l.workers))
		used.Start()
		return nil
	}, func() (err error) {
		// Those who still wait are served afterwards, with ever fewer beside them.
		if l.cfg.Scenario == Hot {
			counted = l.pairs() / 2
			after, err = l.server.counts(l.cfg.Plain...)
			counted += l.pairs() / 2
		}
		return err
	}, l.tick(l.cfg.Scenario, l.cfg.Duration))
	if watch != nil {
		r.GoroutinesPeak = watch.Stop()
	}
	if err != nil || l.ctx.Err() != nil {
		return firstError(l.ctx, err)
	}
	used.StopAt(l.ended(stuck, used.Began))
	l.drop(stuck)
	if err := l.server.noteCPU(r, serverCPU, used.Total.Elapsed); err != nil {
		return err
	}
	r.HeapBytes = process.LiveHeap() - heap
	if l.cfg.Scenario != Hot {
		if after, err = l.server.counts(l.cfg.Plain...); err != nil {
			return err
		}
		counted = l.pairs()
	}
	for i, w := range l.workers {
		pairs := w.pairs.Load()
		r.Pairs += pairs
		r.Errors += w.errors
		if w.err != nil && r.FirstError == "" {
			r.FirstError = w.err.Error()
		}
		r.Fairness.Max = max(r.Fairness.Max, pairs)
		if i == 0 || pairs < r.Fairness.Min {
			r.Fairness.Min = pairs
		}
	}
	if r.Stuck > 0 {
		r.Fairness.Min = 0 // what they did before is not known
	}
	r.Fairness.Mean = float64(r.Pairs) / float64(r.Goroutines)
	r.finish(used.Total, after.since(before), counted, latency.Merged(l.latency))
	return nil
}

// pairs is how many all workers have made.
func (l *loop) pairs() float64 {
	var sum int64
	for _, w := range l.workers {
		sum += w.pairs.Load()
	}
	return float64(sum)
}

// renew gives every worker fresh counters.
func (l *loop) renew() {
	l.latency = latency.Recorders(len(l.workers))
	for i, w := range l.workers {
		*w = worker{pair: w.pair, latency: l.latency[i%len(l.latency)]}
	}
}

// drop forgets workers that are stuck.
func (l *loop) drop(stuck map[*worker]bool) {
	l.result.Stuck += len(stuck)
	var rest []*worker
	for _, w := range l.workers {
		if !stuck[w] {
			rest = append(rest, w)
		}
	}
	l.workers = rest
}

// ended is when the last worker that ended did so: the patience with stuck ones is
// not part of the duration.
func (l *loop) ended(stuck map[*worker]bool, began time.Time) time.Time {
	last := began
	for _, w := range l.workers {
		if !stuck[w] && w.ended.After(last) {
			last = w.ended
		}
	}
	if last.Equal(began) {
		return time.Now() // all are stuck
	}
	return last
}

func (l *loop) tick(stage string, total time.Duration) func(time.Duration) {
	return func(done time.Duration) {
		l.cfg.progress(stage, min(done, total).Milliseconds(), total.Milliseconds())
	}
}

// firstError is err, or why ctx ended.
func firstError(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}
