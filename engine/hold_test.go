package engine

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Nor is a release that was under way asked for until CloseTimeout: Unlock comes before Close.
func TestClose_ReleaseUnderWayRefused_SaysSo(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	s.Do("ACL", "SETUSER", "default", "-hdel")
	released := h.UnlockAsync()
	eventually(t, "it is refused", func() bool { return releaseRefused(h) })
	err := e.Close()
	if !errors.Is(err, ErrOutcomeUnknown) || !hasText(err, "NOPERM") || hasText(err, "CloseTimeout") {
		t.Errorf("Close: %v", err)
	}
	if _, err := released.Await(ctxT(t)); err == nil || !hasText(err, "NOPERM") {
		t.Errorf("Unlock: %v", err)
	}
}

// releaseRefused reports whether the server has refused to release the hold.
func releaseRefused(h *Hold) bool {
	oneOf(h).Shard().Lock()
	defer oneOf(h).Shard().Unlock()
	return oneOf(h).IsOver() || oneOf(h).Refusal() != nil
}

// A Shutdown waits for the holders, and a release of one goes on meanwhile as it always does:
// what the server refuses it may allow again.
func TestShutdown_ReleaseRefused_IsNotGivenUp(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h, other := mustLock(t, e.Mutex("x")), mustLock(t, e.Mutex("y"))
	shut := make(chan error, 1)
	go func() { shut <- e.Shutdown(ctxT(t)) }()
	eventually(t, "it has begun", Closing(e))
	s.Do("ACL", "SETUSER", "default", "-hdel")
	released := h.UnlockAsync()
	eventually(t, "it is refused", func() bool { return releaseRefused(h) })
	s.Do("ACL", "SETUSER", "default", "+hdel")
	if _, err := released.Await(ctxT(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	mustUnlock(t, other)
	if err := receive(t, shut); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	clean(t, s)
}

// A right that is missing for a moment makes no lock stay for good: neither one that is taken
// just then, nor one whose MinHold has something left when it is unlocked.
func TestHold_RightMissing_NoLockStaysForGood(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("cron"), MinHold(time.Minute))
	s.Do("ACL", "SETUSER", "default", "-pexpire")
	if _, err := e.Mutex("x").TryLock(ctxT(t)); !hasText(err, "NOPERM") {
		t.Errorf("TryLock: %v", err)
	}
	released := h.UnlockAsync()
	eventually(t, "it is refused", func() bool { return releaseRefused(h) })
	s.Do("ACL", "SETUSER", "default", "+pexpire")
	if _, err := released.Await(ctxT(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if left := s.Do("PTTL", "cron").(int64); left <= 0 || left > 60_000 {
		t.Errorf("the lock stays for %d ms", left)
	}
	if left := fields(t, s, "x"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// endless are what people write for "no bound".
var endless = map[string]time.Duration{"the longest duration": math.MaxInt64, "200 years": 200 * 365 * 24 * time.Hour}

func TestLock_BoundOfCenturies_IsNone(t *testing.T) {
	t.Parallel()
	for name, d := range endless {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, e, clk := behindOn(t)
			h := mustLock(t, e.Mutex("x"), Wait(d), MaxHold(d))
			if left := pttl(t, s, "x"); left < 20*time.Second {
				t.Errorf("the key has %v left, want the watchdog's lease", left)
			}
			waiter := e.Mutex("x").LockAsync(ctxT(t), Wait(d))
			inner := mustReenter(t, e.Mutex("x"), h, MaxHold(d))
			clk.pass(time.Minute / 20)
			if _, err := waiter.Result(); !errors.Is(err, ErrPending) || h.Err() != nil || inner.Err() != nil {
				t.Errorf("a waiter: %v, the hold: %v, its re-entry: %v", err, h.Err(), inner.Err())
			}
			mustUnlock(t, inner)
			mustUnlock(t, h)
			if h, err := waiter.Await(ctxT(t)); err != nil {
				t.Errorf("the waiter: %v", err)
			} else {
				mustUnlock(t, h)
			}
		})
	}
}

// The answer to an Extend that was given up must not be taken for that of the next
// one, which asked for more.
func TestExtend_AfterAnother_GetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	h := mustLock(t, e.Mutex("x"), Lease(20*time.Second))
	p.Pause(faultproxy.All)
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- h.Extend(ctx, 30*time.Second) }()
	eventually(t, "it is in flight", func() bool { return e.Stats().InFlight > 0 })
	cancel()
	if err := receive(t, gaveUp); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	second := make(chan error, 1)
	go func() { second <- h.Extend(ctxT(t), time.Hour) }()
	eventually(t, "the second waits", func() bool {
		oneOf(h).Shard().Lock()
		defer oneOf(h).Shard().Unlock()
		return oneOf(h).Extends()
	})
	p.Resume()
	if err := receive(t, second); err != nil {
		t.Fatal(err)
	}
	if left := pttl(t, s, "x"); left < 50*time.Minute {
		t.Errorf("Extend by an hour succeeded, and the key has %v left", left)
	}
	mustUnlock(t, h)
	clean(t, s)
}

// One that waits for its turn behind another may give up at the same moment, because its
// context is that of the hold.
func TestExtend_GivesUpWithItsHold_SaysNotHeld(t *testing.T) {
	t.Parallel()
	_, p, e := behind(t)
	h := mustLock(t, e.Mutex("x"), Lease(20*time.Second))
	p.Pause(faultproxy.All)
	oneOf(h).StartExtend(30 * time.Second)
	x := oneOf(h).StartExtend(30 * time.Second)
	released := h.UnlockAsync()
	oneOf(h).Shard().Lock()
	if err := oneOf(h).StopExtending(&x.Extend, ErrReleased); err != ErrNotHeld {
		t.Errorf("Extend: %v", err)
	}
	oneOf(h).Shard().Unlock()
	p.Resume()
	if _, err := released.Await(ctxT(t)); err != nil {
		t.Error(err)
	}
}

// slowEnd is what ends with a hold, when the test says so.
type slowEnd chan struct{}

func (c slowEnd) End(error) { <-c }

// When its time is over, the hold may have ended, and its name be used for another one.
func TestExtend_GivesUp_ReadsItsConnectionUnderTheLock(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL(), func(c *Config) { c.CommandTimeout = 200 * time.Millisecond })
	h := mustLock(t, e.Mutex("x"), Lease(time.Minute))
	sh, r := oneOf(h).Shard(), oneOf(h).Entry
	again, err := e.Mutex("x").Lock(h.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is sent while contexts end, so only a call that gives up reads the route.
	slow := make(slowEnd)
	if err := oneOf(again).bind(slow); err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() { left <- again.Unlock(ctxT(t)) }()
	eventually(t, "the re-entry ends", func() bool { return again.Err() != nil })
	extended := make(chan error, 1)
	go func() { extended <- h.Extend(ctxT(t), 2*time.Minute) }()
	is := func(what string) func() bool {
		return func() bool {
			b := make([]byte, 1<<20)
			for stack := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
				if strings.Contains(stack, what) && strings.Contains(stack, "ExtendBy") && strings.Contains(stack, t.Name()) {
					return true
				}
			}
			return len(extended) > 0 // before anybody looked
		}
	}
	eventually(t, "it waits", is("[select"))
	sh.Lock()
	eventually(t, "it gives up", is("giveUp"))
	route := r.Route
	r.Route = 0 // as for a name that nobody uses; the race detector looks
	r.Route = route
	sh.Unlock()
	if err := receive(t, extended); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, ErrUnavailable) {
		t.Errorf("Extend: %v", err)
	}
	close(slow)
	if err := receive(t, left); err != nil {
		t.Errorf("Unlock of the re-entry: %v", err)
	}
	mustUnlock(t, h)
}

func TestHold_Ended_ValidUntilIsPast(t *testing.T) {
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
			wantLost(t, "Unlock", h.Unlock(ctxT(t)), RemovedOnServer)
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
func TestHold_ValidUntilOfAReentry_FollowsItsHoldToItsOwnBound(t *testing.T) {
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

func TestHold_ReleaseOut_ValidUntilIsPast(t *testing.T) {
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
func TestUnlock_WithoutAnAnswer_EndsWithTheLease(t *testing.T) {
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
func TestUnlock_ReentryWithoutAnAnswer_EndsWithItsLease(t *testing.T) {
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
func TestUnlock_TimerComesLate_GivesNoReleaseUp(t *testing.T) {
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
func TestExtend_AnsweredTooLate_DoesNotReviveTheHold(t *testing.T) {
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

// A call that finds that the time of a hold is over goes on with its name, even if the call
// is about a re-entry that was given back long before.
func TestUnlock_FormerReentryOfAHoldWhoseTimeIsOver_UnblocksTheName(t *testing.T) {
	t.Parallel()
	s, _, e, clk := behindOn(t, patient)
	m := e.Mutex("x")
	h := mustLock(t, m, Lease(time.Hour))
	ctx, cancel := context.WithCancel(context.Background())
	child, err := m.Lock(h.Context(ctx))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, child)
	cancel()
	eventually(t, "the context is forgotten", func() bool { // else its end goes on with the name
		oneOf(h).Shard().Lock()
		defer oneOf(h).Shard().Unlock()
		return len(oneOf(h).Contexts()) == 0
	})
	waiter := m.LockAsync(ctxT(t))
	wake := clk.asleep(61 * time.Minute)
	if err := child.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("second Unlock of the re-entry: %v", err)
	}
	wake()
	next, err := waiter.Await(ctxT(t))
	if err != nil {
		t.Fatalf("%v; the hold: %v; on the server: %v", err, h.Err(), fields(t, s, "x"))
	}
	wantLost(t, "the hold", h.Err(), LeaseEnded)
	mustUnlock(t, next)
}

// A TryLock is refused because of a hold of this process only if that has time left.
func TestTryLock_HoldWhoseTimeIsOver_DoesNotRefuseIt(t *testing.T) {
	t.Parallel()
	for name, reentry := range map[string]bool{"a hold": false, "a re-entry": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, e, clk := behindOn(t, patient)
			m := e.Mutex("x")
			h, ctx := mustLock(t, m, Lease(2*time.Hour)), ctxT(t)
			old, d := h, 121*time.Minute
			if reentry {
				ctx = h.Context(ctx)
				old, d = mustReenter(t, m, h, Lease(time.Hour)), 61*time.Minute
			}
			wake := clk.asleep(d)
			next, err := m.TryLock(ctx)
			wake()
			if err != nil {
				t.Fatalf("%v; the hold: %v", err, old.Err())
			}
			wantLost(t, "the hold", old.Err(), LeaseEnded)
			mustUnlock(t, next)
		})
	}
}

// A Lock under the context of a hold whose time is over does not ask the server for a
// re-entry, whose answer would give the wrong reason for the loss.
func TestLock_UnderAHoldWhoseTimeIsOver_IsNoReentry(t *testing.T) {
	t.Parallel()
	s, _, e, clk := behindOn(t, patient)
	m := e.Mutex("x")
	h := mustLock(t, m, Lease(time.Hour))
	ctx := h.Context(ctxT(t))
	s.Do("DEL", "x") // the server has slept as long
	wake := clk.asleep(61 * time.Minute)
	defer wake()
	if next, err := m.Lock(ctx); err == nil { // else its context ended first
		mustUnlock(t, next)
	} else if !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	wantLost(t, "the hold", h.Err(), LeaseEnded)
}

func TestHold_Context_EndsWithParentOrHold(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	h := mustLock(t, m)
	outer, cancel := context.WithCancelCause(context.Background())
	a, b := h.Context(outer), h.Context(context.Background())
	why := errors.New("the request is over")
	cancel(why)
	receive(t, a.Done())
	if context.Cause(a) != why || b.Err() != nil || h.Err() != nil {
		t.Errorf("after the parent ended: %v, %v, %v", context.Cause(a), b.Err(), h.Err())
	}
	eventually(t, "an ended context is forgotten", func() bool {
		oneOf(h).Shard().Lock()
		defer oneOf(h).Shard().Unlock()
		return len(oneOf(h).Contexts()) == 1
	})
	mustUnlock(t, h)
	receive(t, b.Done())
	if context.Cause(b) != ErrReleased {
		t.Errorf("after Unlock: %v", context.Cause(b))
	}
	if late := h.Context(context.Background()); context.Cause(late) != ErrReleased {
		t.Errorf("made after the end: %v", context.Cause(late))
	}
}

// A release that may have been executed before is done when the owner is not there any
// more, whatever has the key by then: the hold was valid when Unlock was called. Found by
// the simulation.
func TestUnlock_ReleaseInDoubtAndKeyOfAnother_IsNoLoss(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(s interface{ Do(...string) any }){
		"gone":     func(s interface{ Do(...string) any }) { s.Do("DEL", "x") },
		"a string": func(s interface{ Do(...string) any }) { s.Do("SET", "x", "y") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			e := open(t, s.URL())
			h := mustLock(t, e.Mutex("x"))
			s.Do("ACL", "SETUSER", "default", "-hdel")
			released := h.UnlockAsync()
			eventually(t, "it is refused", func() bool { return releaseRefused(h) })
			then(s)
			s.Do("ACL", "SETUSER", "default", "+hdel")
			if _, err := released.Await(ctxT(t)); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
}
