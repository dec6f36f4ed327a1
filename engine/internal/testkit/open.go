package testkit

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// watched is the world of an engine: the real one, which has kept what it gave away.
type watched struct {
	env.Env
	client  *resp.Client
	timers  env.Timers
	rebuilt func(reason string)
	inside  func() env.Snapshot
}

// worlds has those of all engines that are open, by *engine.Engine.
var worlds sync.Map

func worldOf(e *engine.Engine) *watched {
	w, ok := worlds.Load(e)
	if !ok {
		panic("BUG: an engine that Open did not make")
	}
	return w.(*watched)
}

// newWorld is the real world with the time of a clock. The changes are to what the engine
// asks it for.
func newWorld(c clock.Clock, timers func(*wheel.Config), client func(*resp.Config)) *watched {
	w := &watched{Env: env.Real(c)}
	realClient, realTimers := w.Client, w.Timers
	w.Client = func(cfg resp.Config, events env.Events) env.Client {
		client(&cfg)
		opened := realClient(cfg, events)
		w.client = opened.(env.RespClient).Client
		return opened
	}
	w.Timers = func(cfg wheel.Config) env.Timers {
		timers(&cfg)
		w.rebuilt, w.timers = cfg.OnRebuild, realTimers(cfg)
		return w.timers
	}
	w.OnStart = func(inside func() env.Snapshot) { w.inside = inside }
	return w
}

func (w *watched) open(t testing.TB, url string, change []func(*engine.Config)) *engine.Engine {
	t.Helper()
	cfg, err := engine.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.NoInspect = true // the suites count commands and channels
	for _, f := range change {
		f(&cfg)
	}
	e, err := engine.New(env.With(context.Background(), w.Env), cfg)
	if err != nil {
		t.Fatal(err)
	}
	worlds.Store(e, w)
	t.Cleanup(func() {
		_ = e.Close()
		worlds.Delete(e)
	})
	return e
}

// Open connects an engine to a server and closes it with the test.
func Open(t testing.TB, url string, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	return OpenOn(t, func(*resp.Config) {}, url, change...)
}

// OpenOn is Open, with changes to what the engine asks of its connections.
func OpenOn(t testing.TB, client func(*resp.Config), url string, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	return newWorld(clock.System(), func(*wheel.Config) {}, client).open(t, url, change)
}

// OpenAt is Open, with an engine that has the time of a clock.
func OpenAt(t testing.TB, c clock.Clock, url string, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	return newWorld(c, func(*wheel.Config) {}, func(*resp.Config) {}).open(t, url, change)
}

// Behind starts a server with a fault proxy in front, and an engine that goes
// through the proxy.
func Behind(t testing.TB, change ...func(*engine.Config)) (*redistest.Server, *faultproxy.Proxy, *engine.Engine) {
	t.Helper()
	s := Server(t)
	p := faultproxy.New(t, "tcp", s.Addr())
	return s, p, Open(t, "redis://"+p.Addr(), change...)
}

// Client is what the engine's commands go through.
func Client(e *engine.Engine) *resp.Client { return worldOf(e).client }

// Inside is what the engine remembers.
func Inside(e *engine.Engine) env.Snapshot { return worldOf(e).inside() }

// RenewAll makes the engine renew everything that it holds: it is told that the wall clock
// was set, and leases count on the server's.
func RenewAll(e *engine.Engine) { worldOf(e).rebuilt(wheel.RebuildClockStepped) }

// RenewUntil makes engines renew until that has happened: once may be too few, if a renewal is out
// that the server has answered before what is to be noticed.
func RenewUntil(t testing.TB, happened <-chan struct{}, engines ...*engine.Engine) {
	t.Helper()
	Eventually(t, "it is noticed", func() bool {
		for _, e := range engines {
			RenewAll(e)
		}
		select {
		case <-happened:
			return true
		default:
			return false
		}
	})
}

// Report logs what an engine is doing, for a test that failed.
func Report(t testing.TB, e *engine.Engine) {
	t.Helper()
	t.Logf("stats: %+v", e.Stats())
	const most = 100
	for i, state := range Inside(e).States {
		if i == most {
			t.Log("and more")
			break
		}
		t.Log(state)
	}
}

// LeaseOf gives the watchdog another lease.
func LeaseOf(d time.Duration) func(*engine.Config) {
	return func(c *engine.Config) { c.Lease = d }
}

// ShortLease gives the watchdog a lease that tests can wait for. The margin is
// small: a hold is renewed after a third, and the rest is for machines under load.
func ShortLease(d time.Duration) func(*engine.Config) {
	return func(c *engine.Config) { c.Lease, c.Margin = d, 10*time.Millisecond }
}

// Patient is an engine that gives no connection up for want of an answer.
func Patient(c *engine.Config) { c.CommandTimeout = 24 * time.Hour }

// Margin is how much earlier a hold of this lease ends here than on the server, as
// Config.Margin documents it.
func Margin(lease time.Duration) time.Duration {
	return min(max(lease/10, 5*time.Millisecond), 3*time.Second)
}

// HandingOver is an engine that hands locks over for a minute, so that a test is not in a hurry.
func HandingOver(t *testing.T, url string, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	return Open(t, url, append([]func(*engine.Config){func(c *engine.Config) { c.HandOverTime = time.Minute }}, change...)...)
}
