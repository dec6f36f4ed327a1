package engine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/world"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/wheel"
)

// behindOn is behind, with an engine whose time passes when told to. The server's does
// not: what was given a lease of hours there is there to stay.
func behindOn(t *testing.T, change ...func(*Config)) (*redistest.Server, *faultproxy.Proxy, *Engine, fakeTime) {
	t.Helper()
	s, clk := server(t), clock.NewFake()
	p := faultproxy.New(t, "tcp", s.Addr())
	e := openAt(t, p, clk, change...)
	return s, p, e, fakeTime{e, clk}
}

// openAt connects an engine that has this clock, through the proxy.
func openAt(t *testing.T, p *faultproxy.Proxy, clk clock.Clock, change ...func(*Config)) *Engine {
	t.Helper()
	cfg, err := ParseURL("redis://" + p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&cfg)
	}
	cfg.wheel.Workers = 1 // timers fire in order: see pass
	e := start(cfg.withDefaults(), world.Real(clk))
	t.Cleanup(func() { _ = e.Close() })
	if err := connected(e).WaitReady(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	return e
}

// fakeTime is an engine's time.
type fakeTime struct {
	eng   *Engine
	clock *clock.Fake
}

// pass lets time pass, in steps, and waits for the timers of each.
func (f fakeTime) pass(d time.Duration) {
	const steps = 20
	for range steps {
		f.clock.Advance(d / steps)
		last := lastTimer{fired: make(chan struct{})}
		last.timer.Init(&last)
		f.eng.table.Timers.Schedule(&last.timer, f.clock.Now())
		<-last.fired
	}
}

// lastTimer tells that it fired, and so that all that were due before it have.
type lastTimer struct {
	timer wheel.Timer
	fired chan struct{}
}

// Fire implements wheel.Task.
func (l *lastTimer) Fire(*wheel.Timer, clock.Instant) { close(l.fired) }
