package engine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// However the server came to keep the lock for hours, an outage that is shorter than
// that must not leave it to nobody.
func TestOutageShorterThanWhatTheServerKeepsLeavesNoLock(t *testing.T) {
	t.Parallel()
	const long = 4 * time.Hour
	for name, raise := range map[string]func(t *testing.T, s *redistest.Server, p *faultproxy.Proxy, m Mutex, h *Hold){
		"re-entry": func(t *testing.T, _ *redistest.Server, _ *faultproxy.Proxy, m Mutex, h *Hold) {
			mustReenter(t, m, h, Lease(long))
		},
		"re-entry that was unlocked": func(t *testing.T, _ *redistest.Server, _ *faultproxy.Proxy, m Mutex, h *Hold) {
			mustUnlock(t, mustReenter(t, m, h, Lease(long)))
		},
		"re-entry without an answer": func(t *testing.T, s *redistest.Server, p *faultproxy.Proxy, m Mutex, h *Hold) {
			p.Delay(faultproxy.All, 0, time.Hour)
			m.LockAsync(h.Context(ctxT(t)), Lease(long))
			eventually(t, "the server has it", func() bool { return pttl(t, s, "x") > time.Hour })
		},
		"Extend of a re-entry": func(t *testing.T, _ *redistest.Server, _ *faultproxy.Proxy, m Mutex, h *Hold) {
			if err := mustReenter(t, m, h, Lease(20*time.Second)).Extend(ctxT(t), long); err != nil {
				t.Fatal(err)
			}
		},
		"Extend without an answer": func(t *testing.T, s *redistest.Server, p *faultproxy.Proxy, m Mutex, h *Hold) {
			child := mustReenter(t, m, h, Lease(20*time.Second))
			p.Delay(faultproxy.All, 0, time.Hour)
			go func() { _ = child.Extend(ctxT(t), long) }()
			eventually(t, "the server has it", func() bool { return pttl(t, s, "x") > time.Hour })
		},
	} {
		for kind, opts := range map[string][]Option{"watched": nil, "fixed": {Lease(20 * time.Second)}} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s, p, e, clk := behindOn(t)
				m := e.Mutex("x")
				h := mustLock(t, m, opts...)
				raise(t, s, p, m, h)
				p.Down()
				p.Delay(faultproxy.All, 0, 0)
				clk.pass(time.Minute)
				receive(t, h.Done()) // nobody holds it any more
				clk.pass(3 * time.Hour)
				if left := pttl(t, s, "x"); left < time.Hour {
					t.Fatalf("the server keeps it for %v only", left)
				}
				p.Up()
				eventually(t, "the lock is free", func() bool { return len(fields(t, s, "x")) == 0 })
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
	s, p, e, clk := behindOn(t, func(c *Config) { c.CommandTimeout = 24 * time.Hour })
	m := e.Mutex("x")
	h := mustLock(t, m)
	p.Delay(faultproxy.All, 0, time.Hour)
	m.LockAsync(h.Context(ctxT(t)), Lease(4*time.Hour))
	eventually(t, "the server has it", func() bool { return pttl(t, s, "x") > time.Hour })
	clk.pass(10 * time.Minute)
	receive(t, h.Done())
	p.Down()
	p.Delay(faultproxy.All, 0, 0)
	clk.pass(time.Hour)
	p.Up()
	eventually(t, "the lock is free", func() bool { return len(fields(t, s, "x")) == 0 })
}

// An Unlock goes on as long as the server may have the lock, and no longer.
func TestUnlockGoesOnAsLongAsTheServerMayHaveTheLock(t *testing.T) {
	t.Parallel()
	s, p, e, clk := behindOn(t)
	m := e.Mutex("x")
	h := mustLock(t, m)
	mustUnlock(t, mustReenter(t, m, h, Lease(4*time.Hour)))
	p.Down()
	f := h.UnlockAsync()
	clk.pass(3 * time.Hour)
	p.Up()
	if _, err := f.Await(ctxT(t)); err != nil || len(fields(t, s, "x")) != 0 {
		t.Errorf("Unlock: %v; on the server: %v", err, fields(t, s, "x"))
	}
}

// Nor is a lock remembered for ever that no server can have any more.
func TestOutageLongerThanEveryLeaseIsForgotten(t *testing.T) {
	t.Parallel()
	_, p, e, clk := behindOn(t)
	m := e.Mutex("x")
	h := mustLock(t, m)
	mustReenter(t, m, h, Lease(4*time.Hour))
	unlocked := mustLock(t, e.Mutex("y")).UnlockAsync
	p.Down()
	f := unlocked()
	clk.pass(time.Minute)
	receive(t, h.Done())
	if _, err := f.Await(ctxT(t)); err == nil {
		t.Error("Unlock without a server succeeded")
	}
	clk.pass(5 * time.Hour)
	eventually(t, "nothing is owed", func() bool {
		clk.pass(time.Minute) // a release may be on its way to the lane, which is down
		owed := false
		e.table.Each(func(r *machine.Resource, _ *machine.Effects) { owed = owed || r.Urgent() })
		return !owed
	})
	p.Up()
	eventually(t, "the table is empty", func() bool { return e.table.Resources() == 0 })
}
