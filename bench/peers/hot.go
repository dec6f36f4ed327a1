package main

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/bench"
	"github.com/pawl-lock/pawl/bench/internal/latency"
)

// locker is a client that can wait for a lock that somebody else has.
type locker interface {
	// For returns what locks name, for one goroutine: it waits, and returns what unlocks.
	For(name string) func(ctx context.Context) (unlock func(context.Context) error, err error)
	Close() error
}

// HotTurn is what only a turn of hot measures.
type HotTurn struct {
	// TimedOut are acquisitions that did not end within --patience.
	TimedOut int64 `json:"timed_out"`
	// LostUpdates are increments of an unguarded counter that are missing: two had the
	// lock at once.
	LostUpdates int64 `json:"lost_updates"`
	// WithoutPair are goroutines that had no pair in the duration.
	WithoutPair int `json:"without_pair"`
}

// hotConfig is what only hot needs.
type hotConfig struct {
	patience time.Duration // after which an acquisition is given up
	engines  int           // how many of each client contend, each with connections of its own
}

// lockers are several of one kind, as several processes would have them.
type lockers []locker

func openLockers(ctx context.Context, s subject, url string, n int) (all lockers, err error) {
	for range n {
		l, err := s.contend(ctx, url)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, l)
	}
	return all, nil
}

func (all lockers) Close() error {
	var errs []error
	for _, l := range all {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// contender is lockers as a bench.Client: it times acquisitions, bounds them, and counts
// under the lock.
type contender struct {
	name     string
	lockers  lockers // the goroutines are shared out among them
	patience time.Duration
	window   time.Duration // of the measuring; pairs that end later do not count

	begin   sync.Once
	began   time.Time
	waits   []*latency.Recorder
	inTime  []*atomic.Int64 // pairs of each goroutine
	entered atomic.Int64
	late    atomic.Int64
	counter atomic.Int64 // loaded and stored, never added to: only the lock guards it
}

func (c *contender) Name() string { return c.name }
func (c *contender) Close() error { return c.lockers.Close() }

// Worker returns what locks and unlocks name once.
func (c *contender) Worker(name string) func(ctx context.Context) error {
	lock, wait := c.lockers[len(c.waits)%len(c.lockers)].For(name), latency.Recorders(1)[0]
	inTime := new(atomic.Int64)
	c.waits, c.inTime = append(c.waits, wait), append(c.inTime, inTime)
	return func(ctx context.Context) error {
		start := time.Now()
		c.begin.Do(func() { c.began = start })
		bounded, cancel := context.WithTimeout(ctx, c.patience)
		defer cancel()
		unlock, err := lock(bounded)
		if err != nil {
			if bounded.Err() != nil && ctx.Err() == nil {
				c.late.Add(1)
			}
			return err
		}
		wait.Record(time.Since(start))
		c.count()
		if err := unlock(ctx); err != nil {
			return err
		}
		if time.Since(c.began) <= c.window {
			inTime.Add(1)
		}
		return nil
	}
}

// count increments the counter. Now and then it gives up the processor in between, so that
// another holder would be noticed.
func (c *contender) count() {
	n := c.counter.Load()
	if c.entered.Add(1)%16 == 0 {
		runtime.Gosched()
	}
	c.counter.Store(n + 1)
}

// hotTurn gives a client its turn: on one set of connections, first a warm-up and then
// the measuring.
func hotTurn(ctx context.Context, server *bench.Server, s subject, cfg bench.Config, hot hotConfig) (*bench.Result, *HotTurn, error) {
	l, err := openLockers(ctx, s, server.URL(), hot.engines)
	if err != nil {
		return nil, nil, err
	}
	run := func(d time.Duration) (*bench.Result, *HotTurn, error) {
		c := &contender{name: s.name, lockers: l, patience: hot.patience, window: d}
		own := cfg
		own.Duration, own.Warmup, own.Plain = d, 0, s.plain
		result, err := bench.RunLoop(ctx, server, c, own)
		if err != nil {
			return nil, nil, err
		}
		result.WarmupS = cfg.Warmup.Seconds()
		return result, c.conclude(result), nil
	}
	if cfg.Warmup > 0 {
		_, _, err = run(cfg.Warmup)
	}
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	result, turn, err := run(cfg.Duration)
	return result, turn, errors.Join(err, l.Close())
}

// conclude puts the contender's own figures into the result: those who still waited at the
// end are a figure of their own, and must not stretch the time in which pairs were made.
func (c *contender) conclude(r *bench.Result) *HotTurn {
	hot := &HotTurn{TimedOut: c.late.Load(), LostUpdates: c.entered.Load() - c.counter.Load()}
	var sum int64
	r.Fairness = bench.Fairness{Min: math.MaxInt64}
	for _, own := range c.inTime {
		n := own.Load()
		sum += n
		r.Fairness.Min, r.Fairness.Max = min(r.Fairness.Min, n), max(r.Fairness.Max, n)
		if n == 0 {
			hot.WithoutPair++
		}
	}
	r.Fairness.Mean = float64(sum) / float64(len(c.inTime))
	r.PairsPerSecond = float64(sum) / c.window.Seconds()
	all := latency.Merged(c.waits)
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	r.LatencyUs = bench.Latency{
		P50: us(all.ValueAtQuantile(50)), P99: us(all.ValueAtQuantile(99)),
		P999: us(all.ValueAtQuantile(99.9)), Max: us(all.Max()),
	}
	if r.Errors -= hot.TimedOut; r.Errors <= 0 {
		r.Errors, r.FirstError = 0, ""
	}
	return hot
}
