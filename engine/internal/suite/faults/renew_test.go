package faults

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

func short(c *engine.Config) { c.Lease = 600 * time.Millisecond }

var renewals = faultproxy.Is("EVALSHA", script.Renew.SHA)

// Each of these happens to renewals, one after another; the hold survives them all,
// because the next try comes within what is left of the lease.
func TestHoldSurvivesRenewalsThatFail(t *testing.T) {
	t.Parallel()
	faults := map[string]func(p *faultproxy.Proxy) *faultproxy.Trap{
		"BUSY": func(p *faultproxy.Proxy) *faultproxy.Trap {
			return p.ReplaceReply(renewals, []byte("-BUSY Redis is busy\r\n"), 2)
		},
		"LOADING": func(p *faultproxy.Proxy) *faultproxy.Trap { return p.ReplaceReply(renewals, []byte("-LOADING\r\n"), 2) },
		"READONLY": func(p *faultproxy.Proxy) *faultproxy.Trap {
			return p.ReplaceReply(renewals, []byte("-READONLY\r\n"), 2)
		},
		"refused key by key": func(p *faultproxy.Proxy) *faultproxy.Trap {
			return p.ReplaceReply(renewals, []byte("*1\r\n:-5\r\n"), 2)
		},
		"an answer of the wrong shape": func(p *faultproxy.Proxy) *faultproxy.Trap {
			return p.ReplaceReply(renewals, []byte("+OK\r\n"), 2)
		},
		"the reply is cut":        func(p *faultproxy.Proxy) *faultproxy.Trap { return p.CutAfterRequest(renewals) },
		"the connection is reset": func(p *faultproxy.Proxy) *faultproxy.Trap { return p.CutBeforeRequest(renewals) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(t testing.TB) {
				s, p, e := testkit.Behind(t, func(c *engine.Config) { c.Lease = 3 * time.Second })
				h := testkit.MustLock(t, e.Mutex("x"))
				first := h.ValidUntil()
				fault(p).Wait(1)
				testkit.RenewedAfter(t, h, first)
				testkit.MustUnlock(t, h)
				testkit.Clean(t, s)
			})
		})
	}
}

func TestHoldSurvivesARenewalWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s, p, e := testkit.Behind(t, func(c *engine.Config) { c.Lease, c.CommandTimeout = 4*time.Second, 300*time.Millisecond })
		h := testkit.MustLock(t, e.Mutex("x"))
		first := h.ValidUntil()
		p.Delay(faultproxy.Carried("EVALSHA"), 0, 2*time.Second)
		testkit.Eventually(t, "the renewal connection is given up", func() bool { return e.Stats().Reconnects > 0 })
		p.Delay(faultproxy.All, 0, 0)
		testkit.RenewedAfter(t, h, first)
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s)
	})
}

// The network swallows everything and resets nothing: only the clock can tell.
func TestBlackHoledHoldEndsBeforeItsKeyCan(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s, p, e := testkit.Behind(t, short)
		h := testkit.MustLock(t, e.Mutex("x"))
		fixed := testkit.MustLock(t, e.Mutex("y"), engine.Lease(600*time.Millisecond))
		p.Blackhole(faultproxy.All)
		for name, h := range map[string]*engine.Hold{"x": h, "y": fixed} {
			select {
			case <-h.Done():
			case <-testkit.Ctx(t).Done():
				t.Fatal("the hold never ended")
			}
			// The server's key must outlive the hold: it is asked right after Done. If the answer comes
			// late, that proves nothing.
			asked := time.Now()
			left := s.Do("PTTL", name).(int64)
			if took := time.Since(asked); left == -2 && took < testkit.Margin(600*time.Millisecond)/2 {
				t.Errorf("%s: the key had expired before the hold ended; the answer took %v", name, took)
			}
		}
		var lost *engine.LostError
		if err := h.Err(); !errors.As(err, &lost) || lost.Reason != engine.NotRenewed {
			t.Errorf("watchdog hold: %v, want NotRenewed", err)
		}
		if err := fixed.Err(); !errors.As(err, &lost) || lost.Reason != engine.LeaseEnded {
			t.Errorf("fixed hold: %v, want LeaseEnded", err)
		}
		if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
			t.Errorf("Unlock after loss: %v", err)
		}
		p.Heal()
		testkit.Eventually(t, "what was lost is released", func() bool { return s.Do("DBSIZE") == int64(0) })
	})
}

func TestAcknowledgementAfterTheEndDoesNotReviveAHold(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s, p, e := testkit.Behind(t, short)
		h := testkit.MustLock(t, e.Mutex("x"))
		p.Pause(faultproxy.All)
		<-h.Done()
		p.Resume() // the renewals reach the server now, and their answers us
		testkit.Eventually(t, "the engine released what it lost", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
		if err := h.Err(); !errors.Is(err, engine.ErrLost) {
			t.Errorf("the hold is %v", err)
		}
		if n := e.Stats().Held; n != 0 {
			t.Errorf("%d held", n)
		}
	})
}

func TestOneForeignKeyAmongManyRenewedCostsOneHold(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.Lease = 3 * time.Second })
		holds := make([]*engine.Hold, 64)
		for i := range holds {
			holds[i] = testkit.MustLock(t, e.Mutex(fmt.Sprint("x", i)))
		}
		s.Do("SET", "x13", "another library's lock")
		<-holds[13].Done()
		var lost *engine.LostError
		if err := holds[13].Err(); !errors.As(err, &lost) || lost.Reason != engine.KeyOverwritten {
			t.Errorf("error is %v, want KeyOverwritten", err)
		}
		for round := range 2 {
			n := e.Stats().Renewed
			testkit.Eventually(t, fmt.Sprint("renewal round ", round), func() bool { return e.Stats().Renewed >= n+63 || e.Stats().Held < 63 })
		}
		for i, h := range holds {
			if err := h.Err(); i != 13 && err != nil {
				t.Errorf("hold %d: %v", i, err)
			}
		}
	})
}

func TestForceUnlockIsNoticedAtOnceWhenSomebodyWaitsHere(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL()) // lease 30 s: the next renewal is far away
	h := testkit.MustLock(t, e.Mutex("x"))
	f := e.Mutex("x").LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it listens, though it waits for a hold of its own process", func() bool { return e.Stats().Channels == 1 })
	other := testkit.Open(t, s.URL())
	if ok, err := other.Mutex("x").ForceUnlock(testkit.Ctx(t)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	start := cputime.Now()
	<-h.Done()
	if d := start.Elapsed(); d > 5*time.Second {
		t.Errorf("noticed after %v", d)
	}
	next, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, next)
	testkit.Clean(t, s)
}
