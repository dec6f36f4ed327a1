package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// patient is an engine that gives no connection up for want of an answer.
func patient(c *Config) { c.CommandTimeout = 24 * time.Hour }

func TestValidUntilIsPastHoweverTheHoldEnded(t *testing.T) {
	t.Parallel()
	type scene struct {
		s    *redistest.Server
		e    *Engine
		time fakeTime
	}
	for name, end := range map[string]func(t *testing.T, c scene, h *Hold){
		"Unlock": func(t *testing.T, _ scene, h *Hold) { mustUnlock(t, h) },
		"Unlock of what the server has lost": func(t *testing.T, c scene, h *Hold) {
			c.s.Do("DEL", "x")
			wantLost(t, "Unlock", h.Unlock(ctxT(t)), GoneOnServer)
		},
		"removal": func(t *testing.T, c scene, h *Hold) {
			c.s.Do("DEL", "x")
			c.time.pass(10 * time.Second)
			receive(t, h.Done())
		},
		"time": func(t *testing.T, c scene, h *Hold) {
			c.time.clock.Advance(time.Hour)
			if !errors.Is(h.Err(), ErrLost) {
				t.Errorf("an hour later: %v", h.Err())
			}
		},
		"Close": func(_ *testing.T, c scene, _ *Hold) { _ = c.e.Close() },
	} {
		for kind, opts := range map[string][]Option{"watched": nil, "fixed": {Lease(time.Minute)}, "bounded": {MaxHold(time.Minute)}} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s, _, e, clk := behindOn(t, patient)
				m := e.Mutex("x")
				h := mustLock(t, m, opts...)
				following := mustReenter(t, m, h)
				inner := mustReenter(t, m, following, Lease(50*time.Second))
				if kind == "fixed" && name == "removal" {
					return // nobody looks at it before its end
				}
				end(t, scene{s, e, clk}, h)
				for what, h := range map[string]*Hold{"hold": h, "re-entry": following, "re-entry with a lease": inner} {
					if left := h.ValidUntil().Sub(e.clock.Wall()); left > 0 || h.Err() == nil {
						t.Errorf("%s: %v, and valid for another %v", what, h.Err(), left)
					}
				}
			})
		}
	}
}

// A re-entry follows the renewals of its hold, but no further than its own MaxHold.
func TestValidUntilOfAReentryFollowsItsHoldToItsOwnBound(t *testing.T) {
	t.Parallel()
	_, _, e, clk := behindOn(t)
	h := mustLock(t, e.Mutex("x"))
	following := mustReenter(t, e.Mutex("x"), h)
	bounded := mustReenter(t, e.Mutex("x"), following, MaxHold(20*time.Second))
	clk.pass(10 * time.Second) // the first renewal is due
	eventually(t, "a renewal", func() bool { return h.ValidUntil().Sub(e.clock.Wall()) > 20*time.Second })
	if until := following.ValidUntil(); !until.Equal(h.ValidUntil()) {
		t.Errorf("the hold is valid until %v, its re-entry until %v", h.ValidUntil(), until)
	}
	if left := bounded.ValidUntil().Sub(e.clock.Wall()); left != 10*time.Second {
		t.Errorf("with 10s left of its MaxHold it is valid for another %v", left)
	}
}

func TestValidUntilIsPastWhileTheReleaseIsOut(t *testing.T) {
	t.Parallel()
	_, p, e, _ := behindOn(t)
	h := mustLock(t, e.Mutex("x"))
	child := mustReenter(t, e.Mutex("x"), h)
	p.Pause(faultproxy.All)
	child.UnlockAsync()
	if left := child.ValidUntil().Sub(e.clock.Wall()); left > 0 {
		t.Errorf("a re-entry that is being unlocked is valid for another %v", left)
	}
	if left := h.ValidUntil().Sub(e.clock.Wall()); left <= 0 {
		t.Errorf("the hold below it ended %v ago", -left)
	}
	h.UnlockAsync()
	if left := h.ValidUntil().Sub(e.clock.Wall()); left > 0 {
		t.Errorf("valid for another %v", left)
	}
	p.Resume()
}

// An Unlock that nobody answers is told so when the lease is over, however patient the
// engine is with its connection, and whichever command is stuck.
func TestUnlockWithoutAnAnswerEndsWithTheLease(t *testing.T) {
	t.Parallel()
	for kind, opts := range map[string][]Option{"watched": nil, "fixed": {Lease(30 * time.Second)}, "bounded": {MaxHold(time.Minute)}} {
		for stuck, before := range map[string]func(t *testing.T, e *Engine, m Mutex, h *Hold){
			"its release": func(*testing.T, *Engine, Mutex, *Hold) {},
			"a re-entry": func(t *testing.T, e *Engine, m Mutex, h *Hold) {
				m.LockAsync(h.Context(ctxT(t)))
				eventually(t, "it is out", func() bool { return e.Stats().InFlight == 1 })
			},
			"an Extend": func(t *testing.T, e *Engine, _ Mutex, h *Hold) {
				go func() { _ = h.Extend(ctxT(t), 30*time.Second) }()
				eventually(t, "it is out", func() bool { return e.Stats().InFlight == 1 })
			},
		} {
			if stuck == "an Extend" && kind != "fixed" {
				continue
			}
			t.Run(stuck+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s, p, e, clk := behindOn(t, patient)
				m := e.Mutex("x")
				h := mustLock(t, m, opts...)
				p.Pause(faultproxy.All)
				before(t, e, m, h)
				f := h.UnlockAsync()
				clk.pass(25 * time.Second)
				if _, err := f.Result(); !errors.Is(err, ErrPending) {
					t.Errorf("before the lease is over: %v", err)
				}
				clk.pass(15 * time.Second)
				if _, err := f.Result(); !errors.Is(err, ErrOutcomeUnknown) {
					t.Errorf("after the lease is over: %v", err)
				}
				p.Resume() // the answers come, to nobody
				mustUnlock(t, mustLock(t, e.Mutex("x")))
				if left := fields(t, s, "x"); len(left) != 0 {
					t.Errorf("left on the server: %v", left)
				}
			})
		}
	}
}

// The same of a re-entry, whose hold is renewed all the while.
func TestUnlockOfAReentryWithoutAnAnswerEndsWithItsLease(t *testing.T) {
	t.Parallel()
	_, p, e, clk := behindOn(t, patient)
	m := e.Mutex("x")
	h := mustLock(t, m)
	child := mustReenter(t, m, h)
	lane := 0
	for _, c := range p.Conns() {
		if c.Commands["EVALSHA"] > 0 { // nothing has been renewed yet
			lane = c.ID
		}
	}
	renewed := p.Watch(renewals)
	p.Pause(func(c faultproxy.Info) bool { return c.ID == lane })
	f := child.UnlockAsync()
	for range 40 {
		clk.pass(time.Second)
		// What has been answered is not in flight any more, and perhaps not dealt with yet.
		eventually(t, "no renewal is out", func() bool {
			return e.Stats().InFlight == 1 && e.Stats().Renewed == uint64(renewed.Done())
		})
	}
	if _, err := f.Result(); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Unlock of the re-entry: %v", err)
	}
	if err := h.Err(); err != nil {
		t.Errorf("the hold: %v", err)
	}
	p.Resume()
	mustUnlock(t, mustReenter(t, m, h))
	mustUnlock(t, h)
}

// A timer that waited for the lock looks at the clock like everybody else:
//
//	timer of the lease         user
//	fires, waits for the lock
//	                           Extend is answered; Unlock
//	has the lock
func TestTimerThatComesLateGivesNoReleaseUp(t *testing.T) {
	t.Parallel()
	_, p, e, clk := behindOn(t, patient)
	h := mustLock(t, e.Mutex("x"), Lease(time.Minute))
	p.Pause(faultproxy.All)
	f := h.UnlockAsync()
	oneOf(h).Wake(clk.clock.Now())
	if _, err := f.Result(); !errors.Is(err, ErrPending) {
		t.Errorf("Unlock was given up a minute early: %v", err)
	}
	p.Resume()
	if _, err := f.Await(ctxT(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// Loss is irrevocable, and it is the clock that says so: an answer that is read before
// any timer has run must not undo it.
func TestExtendThatIsAnsweredTooLateDoesNotBringTheHoldBack(t *testing.T) {
	t.Parallel()
	s := server(t)
	p, clk := faultproxy.New(t, "tcp", s.Addr()), &moodyClock{Clock: clock.System()}
	e := openAt(t, p, clk, patient)
	h := mustLock(t, e.Mutex("x"), Lease(time.Minute))
	p.Pause(faultproxy.All)
	extended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { extended <- h.Extend(ctx, 4*time.Hour) }()
	eventually(t, "it is out", func() bool { return e.Stats().InFlight == 1 })
	clk.asleep.Add(int64(time.Hour))
	if left := h.ValidUntil().Sub(clk.Wall()); left > 0 {
		t.Fatalf("valid for another %v", left)
	}
	p.Resume()
	wantLost(t, "Extend", receive(t, extended), LeaseEnded)
	wantLost(t, "Err", h.Err(), LeaseEnded)
	if left := h.ValidUntil().Sub(clk.Wall()); left > 0 {
		t.Errorf("valid for another %v", left)
	}
	eventually(t, "the lock is free", func() bool { return len(fields(t, s, "x")) == 0 })
}
