package testkit

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// BehindInTime is Behind, with an engine whose time passes when told to. The server's does
// not: what was given a lease of hours there is there to stay.
func BehindInTime(t testing.TB, change ...func(*engine.Config)) (*redistest.Server, *faultproxy.Proxy, *engine.Engine, FakeTime) {
	t.Helper()
	s, clk := Server(t), clock.NewFake()
	p := faultproxy.New(t, "tcp", s.Addr())
	inOrder := func(c *wheel.Config) { c.Workers = 1 } // see Pass
	w := newWorld(clk, inOrder, func(*resp.Config) {})
	lazy := func(c *engine.Config) { c.Lazy = true } // New would wait in the engine's time
	e := w.open(t, "redis://"+p.Addr(), append([]func(*engine.Config){lazy}, change...))
	if err := w.client.WaitReady(Ctx(t)); err != nil {
		t.Fatal(err)
	}
	return s, p, e, FakeTime{Clock: clk, timers: w.timers}
}

// FakeTime is an engine's time.
type FakeTime struct {
	Clock  *clock.Fake
	timers interface {
		Schedule(t *wheel.Timer, at clock.Instant)
	}
}

// Pass lets time pass, in steps, and waits for the timers of each.
func (f FakeTime) Pass(d time.Duration) {
	const steps = 20
	for range steps {
		f.Clock.Advance(d / steps)
		last := lastTimer{fired: make(chan struct{})}
		last.timer.Init(&last)
		f.timers.Schedule(&last.timer, f.Clock.Now())
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
