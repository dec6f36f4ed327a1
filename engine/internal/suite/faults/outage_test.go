package faults

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// However the server came to keep the lock for hours, an outage that is shorter than
// that must not leave it to nobody.
func TestOutageShorterThanWhatTheServerKeepsLeavesNoLock(t *testing.T) {
	t.Parallel()
	const long = 4 * time.Hour
	for name, raise := range map[string]func(t *testing.T, s *redistest.Server, p *faultproxy.Proxy, m engine.Mutex, h *engine.Hold){
		"re-entry": func(t *testing.T, _ *redistest.Server, _ *faultproxy.Proxy, m engine.Mutex, h *engine.Hold) {
			testkit.MustReenter(t, m, h, engine.Lease(long))
		},
		"re-entry that was unlocked": func(t *testing.T, _ *redistest.Server, _ *faultproxy.Proxy, m engine.Mutex, h *engine.Hold) {
			testkit.MustUnlock(t, testkit.MustReenter(t, m, h, engine.Lease(long)))
		},
		"re-entry without an answer": func(t *testing.T, s *redistest.Server, p *faultproxy.Proxy, m engine.Mutex, h *engine.Hold) {
			p.Delay(faultproxy.All, 0, time.Hour)
			m.LockAsync(h.Context(testkit.Ctx(t)), engine.Lease(long))
			testkit.Eventually(t, "the server has it", func() bool { return testkit.PTTL(t, s, "x") > time.Hour })
		},
		"Extend of a re-entry": func(t *testing.T, _ *redistest.Server, _ *faultproxy.Proxy, m engine.Mutex, h *engine.Hold) {
			if err := testkit.MustReenter(t, m, h, engine.Lease(20*time.Second)).Extend(testkit.Ctx(t), long); err != nil {
				t.Fatal(err)
			}
		},
		"Extend without an answer": func(t *testing.T, s *redistest.Server, p *faultproxy.Proxy, m engine.Mutex, h *engine.Hold) {
			child := testkit.MustReenter(t, m, h, engine.Lease(20*time.Second))
			p.Delay(faultproxy.All, 0, time.Hour)
			go func() { _ = child.Extend(testkit.Ctx(t), long) }()
			testkit.Eventually(t, "the server has it", func() bool { return testkit.PTTL(t, s, "x") > time.Hour })
		},
	} {
		for kind, opts := range map[string][]engine.Option{"watched": nil, "fixed": {engine.Lease(20 * time.Second)}} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s, p, e, clk := testkit.BehindInTime(t)
				m := e.Mutex("x")
				h := testkit.MustLock(t, m, opts...)
				raise(t, s, p, m, h)
				p.Down()
				p.Delay(faultproxy.All, 0, 0)
				clk.Pass(time.Minute)
				testkit.Receive(t, h.Done()) // nobody holds it any more
				clk.Pass(3 * time.Hour)
				if left := testkit.PTTL(t, s, "x"); left < time.Hour {
					t.Fatalf("the server keeps it for %v only", left)
				}
				p.Up()
				testkit.Eventually(t, "the lock is free", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
			})
		}
	}
}

// A hold is lost while its re-entry is out, for longer than the server would have kept
// the hold: what is owed is not forgotten before it is known what the re-entry did.
//
//	engine                       server
//	re-enter, 4 h lease  ----->  executed; its answer is stuck
//	the hold is lost
//	its own lease is over
//	the connection is lost
func TestLossIsNotForgottenWhileAReentryOfItIsOut(t *testing.T) {
	t.Parallel()
	s, p, e, clk := testkit.BehindInTime(t, func(c *engine.Config) { c.CommandTimeout = 24 * time.Hour })
	m := e.Mutex("x")
	h := testkit.MustLock(t, m)
	p.Delay(faultproxy.All, 0, time.Hour)
	m.LockAsync(h.Context(testkit.Ctx(t)), engine.Lease(4*time.Hour))
	testkit.Eventually(t, "the server has it", func() bool { return testkit.PTTL(t, s, "x") > time.Hour })
	clk.Pass(10 * time.Minute)
	testkit.Receive(t, h.Done())
	p.Down()
	p.Delay(faultproxy.All, 0, 0)
	clk.Pass(time.Hour)
	p.Up()
	testkit.Eventually(t, "the lock is free", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
}

// An Unlock goes on as long as the server may have the lock, and no longer.
func TestUnlockGoesOnAsLongAsTheServerMayHaveTheLock(t *testing.T) {
	t.Parallel()
	s, p, e, clk := testkit.BehindInTime(t)
	m := e.Mutex("x")
	h := testkit.MustLock(t, m)
	testkit.MustUnlock(t, testkit.MustReenter(t, m, h, engine.Lease(4*time.Hour)))
	p.Down()
	f := h.UnlockAsync()
	clk.Pass(3 * time.Hour)
	p.Up()
	if _, err := f.Await(testkit.Ctx(t)); err != nil || len(testkit.Fields(t, s, "x")) != 0 {
		t.Errorf("Unlock: %v; on the server: %v", err, testkit.Fields(t, s, "x"))
	}
}

// However long an outage is, what may be on the server is released when that is back: nobody knows what of it
// the server has forgotten.
func TestCompensation_OutageLongerThanEveryLease_IsSentAfterIt(t *testing.T) {
	t.Parallel()
	_, p, e, clk := testkit.BehindInTime(t)
	m := e.Mutex("x")
	h := testkit.MustLock(t, m)
	testkit.MustReenter(t, m, h, engine.Lease(4*time.Hour))
	unlocked := testkit.MustLock(t, e.Mutex("y")).UnlockAsync
	p.Down()
	f := unlocked()
	clk.Pass(time.Minute)
	testkit.Receive(t, h.Done())
	if _, err := f.Await(testkit.Ctx(t)); err == nil {
		t.Error("Unlock without a server succeeded")
	}
	clk.Pass(5 * time.Hour)
	p.Up()
	testkit.Eventually(t, "the table is empty", func() bool { return testkit.Inside(e).Names == 0 })
}

// A Shutdown does not wait for a server that is gone, if it is not known what became of an acquire.
func TestShutdownForgetsAnAcquireWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(e *engine.Engine) engine.Mutex{
		"Mutex":     func(e *engine.Engine) engine.Mutex { return e.Mutex("x") },
		"FairMutex": func(e *engine.Engine) engine.Mutex { return e.FairMutex("x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, e, clk := testkit.BehindInTime(t)
			p.Delay(faultproxy.All, 0, time.Hour)
			lock(e).LockAsync(testkit.Ctx(t))
			testkit.Eventually(t, "the acquire is out", func() bool { return e.Stats().InFlight == 1 })
			p.Down()
			testkit.Eventually(t, "its answer is lost", func() bool { return e.Stats().InDoubt == 1 })
			down := testkit.Background(func() error { return e.Shutdown(context.Background()) })
			testkit.Eventually(t, "Shutdown returns", func() bool {
				clk.Clock.Advance(time.Minute) // Pass waits for timers, which end with the engine
				return len(down) == 1
			})
			if err := <-down; err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		})
	}
}
