package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/resp"
)

// chronicle notes the events of holds.
type chronicle struct {
	mu     sync.Mutex
	events []string
}

func (c *chronicle) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, what)
}

func (c *chronicle) observe(cfg *Config) {
	cfg.Observer = ObserverFuncs{
		OnAcquireEnd: func(_ context.Context, _ Acquisition, end AcquireEnd) {
			if end.Outcome == Granted {
				c.note("acquired")
			}
		},
		OnHoldEnd: func(_ context.Context, _ Acquisition, end HoldEnd) {
			if end.Reason == 0 {
				c.note("released")
			} else {
				c.note("lost: " + end.Reason.String())
			}
		},
	}
}

// want waits for as many events, and compares them.
func (c *chronicle) want(t *testing.T, events ...string) {
	t.Helper()
	seen := func() []string {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Clone(c.events)
	}
	eventually(t, "the events", func() bool { return len(seen()) >= len(events) })
	if got := seen(); !slices.Equal(got, events) {
		t.Errorf("events: %v, want %v", got, events)
	}
}

// What is granted ends: else a gauge of holds never gets back to zero. Re-entries end with
// what they re-enter, whether or not they are unlocked.
func TestObserver_EndOfEveryReentry_IsReportedAndCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end      func(*testing.T, *faultproxy.Proxy, *Hold, *Hold)
		events   []string
		released uint64
		lost     LostReason
	}{
		"the outermost is unlocked": {
			end:    func(t *testing.T, _ *faultproxy.Proxy, h, _ *Hold) { mustUnlock(t, h) },
			events: []string{"released", "released", "released"}, released: 3,
		},
		"the outermost is unlocked while the innermost is": {
			end: func(t *testing.T, p *faultproxy.Proxy, h, innermost *Hold) {
				p.Pause(faultproxy.All)
				innermost.UnlockAsync()
				f := h.UnlockAsync()
				p.Resume()
				if _, err := f.Await(ctxT(t)); err != nil {
					t.Error(err)
				}
			},
			events: []string{"released", "released", "released"}, released: 3,
		},
		"lost": {
			end:    func(_ *testing.T, _ *faultproxy.Proxy, h, _ *Hold) { _ = oneOf(h).home().Close() },
			events: []string{"lost: the engine was closed", "lost: the engine was closed", "lost: the engine was closed"}, lost: EngineClosed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leakCheck := new(chronicle)
			_, p, e := behind(t, leakCheck.observe)
			h := mustLock(t, e.Mutex("x"))
			child := mustReenter(t, e.Mutex("x"), h)
			c.end(t, p, h, mustReenter(t, e.Mutex("x"), child))
			leakCheck.want(t, append([]string{"acquired", "acquired", "acquired"}, c.events...)...)
			st := e.Stats()
			if st.Held != 0 || st.Acquired != 3 || st.Released != c.released || st.Lost[c.lost] != 3-c.released {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A hold may be lost before anybody is told of its grant, here by Close.
func TestObserver_GrantAndLossAtOnce_AreReportedInOrder(t *testing.T) {
	t.Parallel()
	leakCheck := new(chronicle)
	e := open(t, server(t).URL(), leakCheck.observe)
	m := e.Mutex("x")
	_, seen := e.observe(ctxT(t), m.acquisition(false), true)
	a := e.newAcquisition(m, options{}, true, seen)
	now := e.clock.Now()
	var rd lock.Ready
	a.Shard.Lock()
	r, _ := a.Shard.Get(m.key, m.route, &a.Request.Request)
	r.Admit(&a.Request.Request, &rd)
	r.Replied(&lock.Outcome{Sent: now, Now: now}, &rd)
	a.Shard.Unlock()
	e.table.EndHolds()
	rd.Send = nil // it has been answered
	e.table.Apply(&rd)
	leakCheck.want(t, "acquired", "lost: the engine was closed")
}

// Several locks may be lost while the whole is being made of them.
func TestObserver_WholeLostBeforeItIsReported_ComesAfterTheGrant(t *testing.T) {
	t.Parallel()
	events := new(chronicle)
	e := open(t, server(t).URL(), events.observe)
	for _, early := range []bool{true, false} { // the loss before the grant is reported, and after
		_, o := e.observe(ctxT(t), Acquisition{Kind: kindMulti}, false)
		h := &severalHold{seen: o}
		h.Ending = &LostError{Reason: NotRenewed}
		if early {
			h.noteEnd(nil)
			o.finish(nil)
		} else {
			o.finish(nil)
			h.noteEnd(nil)
		}
	}
	events.want(t, "acquired", "lost: "+NotRenewed.String(), "acquired", "lost: "+NotRenewed.String())
}

// If a context panics while Lock waits for it, Lock has failed; what is granted later is given back, and
// was nobody's hold.
func TestObserver_GrantedAfterTheFailure_IsNoHold(t *testing.T) {
	t.Parallel()
	events := new(chronicle)
	e := open(t, server(t).URL(), events.observe)
	for _, async := range []bool{false, true} {
		_, o := e.observe(ctxT(t), Acquisition{Kind: "mutex"}, async)
		o.finish(ErrClosed)
		o.over(0, e.clock.Now())
	}
	mustUnlock(t, mustLock(t, e.Mutex("x")))
	events.want(t, "acquired", "released")
}

// A server whose disk is full, or that has too few replicas, answers all the time and refuses
// every write. It must be said somewhere, for the engineer that looks for why locks are lost.
func TestHold_ServerRefusesToWrite_NamesIt(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		rounds := make(chan error, 1000)
		e := open(t, s.URL(), func(c *Config) {
			c.CommandTimeout = 2 * time.Second
			c.CloseTimeout = 500 * time.Millisecond
			c.Observer = ObserverFuncs{OnRenewEnd: func(end RenewEnd) { rounds <- end.Err }}
		})
		mustLock(t, e.Mutex("watched"))
		long := mustLock(t, e.Mutex("long"), Lease(time.Minute))
		short := mustLock(t, e.Mutex("short"), Lease(4*time.Second))
		s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
		named := func(what string, err error) {
			t.Helper()
			var refused *resp.ServerError
			if !errors.As(err, &refused) || refused.Code != "NOREPLICAS" || !hasText(err, "NOREPLICAS") {
				t.Errorf("%s: %v", what, err)
			}
		}

		gone, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond) // long enough for an answer
		defer cancel()
		err := short.Unlock(gone)
		named("Unlock whose context ends", err)
		if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Unlock whose context ends: %v", err)
		}
		err = short.Unlock(ctxT(t)) // joins the release, until the lease ends
		named("Unlock", err)
		if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("Unlock: %v", err)
		}
		err = long.Extend(ctxT(t), 2*time.Minute)
		named("Extend", err)
		if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("Extend: %v", err)
		}

		e.table.Renewer.All()
		named("a renewal", <-rounds)
		s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
		eventually(t, "it is extended", func() bool { return long.Extend(ctxT(t), 2*time.Minute) == nil })
		for err := <-rounds; err != nil; err = <-rounds { // it goes on by itself
			named("a renewal", err)
		}
	})
}

// Extend says at once that a right is missing, which waiting does not bring back, and the
// renewals say it, too.
func TestHold_RightToRenewMissing_NamesIt(t *testing.T) {
	t.Parallel()
	s := server(t)
	rounds := make(chan error, 1000)
	e := open(t, s.URL(), func(c *Config) { c.Observer = ObserverFuncs{OnRenewEnd: func(end RenewEnd) { rounds <- end.Err }} })
	mustLock(t, e.Mutex("watched"))
	h := mustLock(t, e.Mutex("long"), Lease(time.Minute))
	s.Do("ACL", "SETUSER", "default", "-pexpire")
	err := h.Extend(ctxT(t), 2*time.Minute)
	if !hasText(err, "NOPERM") || errors.Is(err, ErrUnavailable) {
		t.Errorf("Extend: %v", err)
	}
	e.table.Renewer.All()
	if err := <-rounds; !hasText(err, "NOPERM") {
		t.Errorf("a renewal: %v", err)
	}
	s.Do("ACL", "SETUSER", "default", "+pexpire")
}

// What an Extend was told says nothing about the next one, whose server may hang.
func TestExtend_AfterARefusedOne_DoesNotNameThatRefusal(t *testing.T) {
	t.Parallel()
	s, net, e := behind(t)
	h := mustLock(t, e.Mutex("long"), Lease(time.Minute))
	s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	gone, cancel := context.WithCancel(context.Background())
	defer cancel()
	given := make(chan error, 1)
	go func() { given <- h.Extend(gone, 2*time.Minute) }()
	idle := func(refusals uint8) bool {
		oneOf(h).Shard().Lock()
		defer oneOf(h).Shard().Unlock()
		return oneOf(h).Entry.Cmd.Action == lock.NoCommand && oneOf(h).Entry.View().Refusals >= refusals
	}
	eventually(t, "the next try is a while away", func() bool { return idle(5) })
	cancel()
	if err := <-given; !hasText(err, "NOREPLICAS") {
		t.Errorf("Extend given up: %v", err)
	}
	s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	eventually(t, "nothing is out", func() bool { return idle(0) })
	net.Pause(faultproxy.All)
	err := h.Extend(gone, 2*time.Minute)
	net.Resume()
	if !errors.Is(err, context.Canceled) || hasText(err, "NOREPLICAS") {
		t.Errorf("Extend of a server that hangs: %v", err)
	}
}

// Every hold that was acquired is held, released or lost, also if nobody knows what became
// of its release. And a call that is told so is counted once.
func TestStats_ReleaseWithoutAnswer_KnowTheEndOfTheHold(t *testing.T) {
	t.Parallel()
	stopWaiting := func(t *testing.T, h *Hold) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := h.Unlock(ctx); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("Unlock: %v", err)
		}
	}
	for name, c := range map[string]struct {
		reentry bool // it is that of a re-entry
		end     func(*testing.T, *faultproxy.Proxy, fakeTime, *Hold)
		held    int
	}{
		"given up at the end of the lease": {end: func(t *testing.T, _ *faultproxy.Proxy, clk fakeTime, h *Hold) {
			f := h.UnlockAsync()
			clk.pass(3 * time.Hour)
			if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("Unlock: %v", err)
			}
		}},
		"given up at the end of the lease of a re-entry": {reentry: true, held: 1, end: func(t *testing.T, _ *faultproxy.Proxy, clk fakeTime, h *Hold) {
			f := h.UnlockAsync()
			clk.pass(90 * time.Minute)
			if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("Unlock: %v", err)
			}
		}},
		"given up after its caller": {end: func(t *testing.T, _ *faultproxy.Proxy, clk fakeTime, h *Hold) {
			stopWaiting(t, h)
			clk.pass(3 * time.Hour)
		}},
		"given up by Close": {end: func(t *testing.T, _ *faultproxy.Proxy, clk fakeTime, h *Hold) {
			f := h.UnlockAsync()
			if err := clk.eng.Close(); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("Close: %v", err)
			}
			if _, err := f.Result(); !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("Unlock: %v", err)
			}
		}},
		"answered after its caller has given up": {end: func(t *testing.T, p *faultproxy.Proxy, clk fakeTime, h *Hold) {
			stopWaiting(t, h)
			p.Resume()
			eventually(t, "it is answered", func() bool { return lookInto(clk.eng).Names == 0 })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, e, clk := behindOn(t, patient, func(cfg *Config) { cfg.CloseTimeout = 50 * time.Millisecond })
			h, acquired := mustLock(t, e.Mutex("x"), Lease(2*time.Hour)), uint64(1)
			if c.reentry {
				h, acquired = mustReenter(t, e.Mutex("x"), h, Lease(time.Hour)), 2
			}
			p.Pause(faultproxy.All)
			c.end(t, p, clk, h)
			if st := e.Stats(); st.Acquired != acquired || st.Released != 1 || st.Held != c.held || len(st.Lost) != 0 || st.UnknownOutcomes != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestStats_OldestHold_IsThatOfAllKinds(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	if age := e.Stats().OldestHold; age != 0 {
		t.Errorf("%v without a hold", age)
	}
	first := mustLock(t, e.RWMutex("rw").Reader())
	eventually(t, "it is held for a while", func() bool { return e.Stats().OldestHold >= 50*time.Millisecond })
	begun := time.Now()
	second := mustLock(t, e.Mutex("x"))
	mustUnlock(t, first)
	if age := e.Stats().OldestHold; age > time.Since(begun)+time.Millisecond {
		t.Errorf("%v, which is that of the hold that has ended", age)
	}
	eventually(t, "the second is held for a while", func() bool { return e.Stats().OldestHold >= 50*time.Millisecond })
	mustUnlock(t, second)
	if age := e.Stats().OldestHold; age != 0 {
		t.Errorf("%v after all holds", age)
	}
}
