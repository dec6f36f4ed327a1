package bench

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/pawl-lock/pawl/bench/internal/latency"
	"github.com/pawl-lock/pawl/bench/internal/process"
	"github.com/pawl-lock/pawl/engine"
)

// engineRun is what the scenarios have in common that fill an engine, look at it
// while it idles, and empty it again.
type engineRun struct {
	ctx     context.Context
	cfg     Config
	server  *Server
	eng     *engine.Engine
	result  *Result
	used    process.Meter
	latency *hdrhistogram.Histogram
	base    int // goroutines of the idle engine
	watch   *process.Sampler
	before  counts
	began   time.Time
	cpu     time.Duration // of the server when it began
}

func startEngine(ctx context.Context, server *Server, cfg Config, ec engine.Config) (*engineRun, error) {
	eng, err := newEngine(ctx, ec)
	if err != nil {
		return nil, err
	}
	e := &engineRun{
		ctx: ctx, cfg: cfg, server: server, eng: eng, latency: latency.NewHistogram(),
		result: &Result{
			Scenario: cfg.Scenario, Client: "pawl", Server: server.name, Comparable: server.comparable,
			Goroutines: 1, Count: cfg.Count, Conditions: conditionsOf(cfg),
		},
	}
	if e.before, err = server.counts(); err != nil {
		return nil, errors.Join(err, eng.Close())
	}
	if e.cpu, err = server.cpuTime(); err != nil {
		return nil, errors.Join(err, eng.Close())
	}
	e.began = time.Now()
	e.base = runtime.NumGoroutine()
	return e, nil
}

// names returns n names of locks.
func (e *engineRun) names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = e.server.prefix + strconv.Itoa(i)
	}
	return names
}

// begin starts a stage that counts as work.
func (e *engineRun) begin() {
	e.watch = process.SampleGoroutines(e.base)
	e.used.Start()
}

// end ends it, at an instant that may be past.
func (e *engineRun) end(at time.Time) {
	e.used.StopAt(at)
	e.result.GoroutinesPeak = max(e.result.GoroutinesPeak, e.watch.Stop())
}

// idle looks on for Config.Duration.
func (e *engineRun) idle(stage string) process.Usage {
	e.result.GoroutinesPeak = max(e.result.GoroutinesPeak, runtime.NumGoroutine()-e.base)
	var used process.Meter
	used.Start()
	for left := e.cfg.Duration; left > 0; left = e.cfg.Duration - time.Since(used.Began) {
		// Seldom, so as not to be what is measured.
		if !sleep(e.ctx, min(left, time.Second)) {
			break
		}
		e.cfg.progress(stage, min(time.Since(used.Began), e.cfg.Duration).Milliseconds(), e.cfg.Duration.Milliseconds())
	}
	used.Stop()
	return used.Total
}

// settled waits until the engine has had nothing to say to the server, nor to hear
// from it, for some time, and returns since when.
func (e *engineRun) settled(quiet time.Duration) time.Time {
	last, since := e.eng.Stats(), time.Now()
	for sleep(e.ctx, 10*time.Millisecond) {
		now := e.eng.Stats()
		if now.InFlight > 0 || now.Commands != last.Commands || now.BytesIn != last.BytesIn {
			last, since = now, time.Now()
		} else if time.Since(since) > quiet {
			break
		}
	}
	return since
}

// close ends the run: the engine tidies up, the server is looked at, and the ratios
// are computed.
func (e *engineRun) close(err error) (*Result, error) {
	if err == nil {
		err = e.conclude()
	}
	if err = errors.Join(err, e.eng.Close()); err != nil {
		return nil, err
	}
	return e.result, nil
}

func (e *engineRun) conclude() error {
	after, err := e.server.counts()
	if err != nil {
		return err
	}
	if err := e.server.noteCPU(e.result, e.cpu, time.Since(e.began)); err != nil {
		return err
	}
	e.result.finish(e.used.Total, after.since(e.before), float64(e.result.Pairs), e.latency)
	return e.server.conclude(e.ctx, e.result)
}

// unlocker returns one whose failures go into the result; other, if not nil, may
// take them first.
func (e *engineRun) unlocker(p *patience, other func(error) bool) *unlocker {
	return &unlocker{patience: p, ended: func(err error) {
		switch {
		case err == nil:
			e.result.Pairs++
		case errors.Is(err, errStuck):
			e.result.Stuck++
		case other != nil && other(err):
		default:
			e.result.failed(err)
		}
	}}
}
