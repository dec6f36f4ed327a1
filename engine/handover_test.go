package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// handsOver is an engine that hands locks over for a minute, so that a test is not in a hurry.
func handsOver(t *testing.T, url string, change ...func(*Config)) *Engine {
	t.Helper()
	return open(t, url, append([]func(*Config){func(c *Config) { c.HandOver = time.Minute }}, change...)...)
}

func TestUnlockWithSomebodyWaitingInTheProcessSendsNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	var local atomic.Int32
	e := handsOver(t, s.URL(), func(c *Config) {
		c.Hooks.Acquired = func(ev AcquiredEvent) {
			if ev.Local {
				local.Add(1)
			}
		}
	})
	m := e.Mutex("x")
	h := mustLock(t, m)
	owner := h.Owner()
	ctx := h.Context(ctxT(t))
	const n = 100
	var waiting []*Future[*Hold]
	for range n {
		waiting = append(waiting, m.LockAsync(ctxT(t)))
	}
	// The confirmation has the hold looked at, once, within a quantum of the renewals.
	eventually(t, "the channel is confirmed", func() bool { return viewOf(e, "x").Confirmed && e.Stats().Renewed > 0 })
	before := e.Stats().Commands
	for i, f := range waiting {
		mustUnlock(t, h)
		if i == 0 && !errors.Is(context.Cause(ctx), ErrReleased) {
			t.Errorf("the context of the first: %v", context.Cause(ctx))
		}
		next, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if next.Owner() != owner || next.Err() != nil || time.Until(next.ValidUntil()) < 20*time.Second {
			t.Fatalf("owner %s, was %s; %v, until %v", next.Owner(), owner, next.Err(), next.ValidUntil())
		}
		if err := h.Err(); err != ErrReleased || time.Until(h.ValidUntil()) > 0 {
			t.Fatalf("the one before: %v, until %v", err, h.ValidUntil())
		}
		if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
			t.Fatalf("unlocked again: %v", err)
		}
		h = next
	}
	if after := e.Stats(); after.Commands != before || after.HandedOver != n {
		t.Errorf("%d commands for %d hand-overs", after.Commands-before, after.HandedOver)
	}
	if st, err := m.State(ctxT(t)); err != nil || !st.Mine || len(st.Holders) != 1 || st.Holders[0].Count != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	again := mustReenter(t, m, h)
	mustUnlock(t, again)
	mustUnlock(t, h)
	if left := fields(t, s, "x"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	eventually(t, "the hook hears of all", func() bool { return local.Load() == n })
}

// A turn of a nanosecond, as a URL may ask for, does not last until the clock shows the next millisecond.
func TestHandOverCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-1, time.Nanosecond, time.Millisecond - 1} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			e := handsOver(t, server(t).URL(), func(c *Config) { c.HandOver = off })
			m, ctx := e.Mutex("x"), ctxT(t)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 25 {
						h, err := m.Lock(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						if err := h.Unlock(ctx); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if n := e.Stats(); n.HandedOver != 0 || n.Acquired != 8*25 {
				t.Errorf("%d of %d were handed over", n.HandedOver, n.Acquired)
			}
		})
	}
}

// A lock that goes from hand to hand is renewed all the while, and its loss is told to whoever
// has it by then.
func TestALockThatGoesFromHandToHandOutlivesItsLease(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := handsOver(t, s.URL(), func(c *Config) { c.Lease = 3 * time.Second })
	m := e.Mutex("x")
	h := mustLock(t, m)
	owner := h.Owner()
	start := time.Now()
	for range 6 { // two leases
		renewed := e.Stats().Renewed
		eventually(t, "it is renewed", func() bool { return e.Stats().Renewed > renewed })
		f := m.LockAsync(ctxT(t))
		mustUnlock(t, h)
		next, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if h = next; h.Owner() != owner {
			// Held up for half a lease: then it is released, and taken anew.
			t.Logf("taken anew after %v", time.Since(start))
			owner = h.Owner()
		}
	}
	f := m.LockAsync(ctxT(t))
	mustUnlock(t, h)
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if was, err := open(t, s.URL()).Mutex("x").ForceUnlock(ctxT(t)); err != nil || !was {
		t.Fatal(was, err)
	}
	<-h.Done()
	var lost *LostError
	if !errors.As(h.Err(), &lost) || lost.Reason != GoneOnServer {
		t.Errorf("%v", h.Err())
	}
}

// A lock whose name is in demand in two processes goes to and fro between them.
func TestTwoProcessesShareAHotLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	patient := ctxT(t) // one for all: half a million would burden the tests beside this one
	ctx, stop := context.WithCancel(patient)
	defer stop()
	var pairs [2]atomic.Int64
	var engines [2]*Engine
	var users sync.WaitGroup
	for i := range engines {
		engines[i] = open(t, s.URL())
		m := engines[i].Mutex("x")
		for range 8 {
			users.Go(func() {
				for ctx.Err() == nil {
					h, err := m.Lock(ctx)
					if err != nil {
						return
					}
					pairs[i].Add(1)
					if err := h.Unlock(patient); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	turns := func(e *Engine) uint64 {
		n := e.Stats()
		return n.Acquired - n.HandedOver
	}
	eventually(t, "each has had a hundred turns", func() bool { return min(turns(engines[0]), turns(engines[1])) >= 100 })
	stop()
	users.Wait()
	a, b := turns(engines[0]), turns(engines[1])
	t.Logf("%d and %d turns, %d and %d pairs", a, b, pairs[0].Load(), pairs[1].Load())
	if max(a, b) > 3*min(a, b) {
		t.Errorf("%d and %d turns", a, b)
	}
	for _, e := range engines {
		if n := e.Stats(); n.HandedOver == 0 {
			t.Errorf("nothing was handed over: %+v", n)
		}
	}
}

// What cannot be handed over is released, and a new tenure begins.
func TestWhoAsksForMoreIsNotHandedALock(t *testing.T) {
	t.Parallel()
	e := handsOver(t, server(t).URL())
	m := e.Mutex("x")
	for what, opts := range map[string][]Option{
		"a lease": {Lease(time.Minute)}, "a MaxHold": {MaxHold(time.Minute)}, "a MinHold": {MinHold(time.Millisecond)},
	} {
		for _, order := range [][2][]Option{{opts, nil}, {nil, opts}} {
			h := mustLock(t, m, order[0]...)
			owner := h.Owner()
			f := m.LockAsync(ctxT(t), order[1]...)
			mustUnlock(t, h)
			next, err := f.Await(ctxT(t))
			if err != nil {
				t.Fatal(err)
			}
			if next.Owner() == owner {
				t.Errorf("%s: %v was handed to %v", what, order[0], order[1])
			}
			mustUnlock(t, next)
		}
	}
}

// A MultiLock that gets one lock, and not the other, gives it back, perhaps on an event loop. If
// the next one, which fares the same, got it in that call, and so on, the stack would grow with
// the number of those who wait.
func TestWhatAMultiLockGivesBackIsNotHandedOver(t *testing.T) {
	t.Parallel()
	e := handsOver(t, server(t).URL())
	a, b := mustLock(t, e.Mutex("a")), mustLock(t, e.Mutex("b"))
	const n = 200
	var waiting []*Future[*Hold]
	for range n {
		waiting = append(waiting, Multi(e.Mutex("a"), e.Mutex("b")).LockAsync(ctxT(t)))
	}
	eventually(t, "all wait for the first lock", func() bool { return viewOf(e, "a").Waiters == n })
	mustUnlock(t, a)
	eventually(t, "all wait for the second lock", func() bool { return viewOf(e, "b").Waiters == n })
	if handed := e.Stats().HandedOver; handed != 1 {
		t.Errorf("%d hand-overs, want that of the user's Unlock", handed)
	}
	for _, f := range waiting {
		f.Abandon()
	}
	mustUnlock(t, b)
}

// If this process died, nobody else would get the lock for an hour.
func TestTheLeaseOfAReentryIsNotHandedOver(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := handsOver(t, s.URL())
	m := e.Mutex("x")
	h := mustLock(t, m)
	inner, err := m.Lock(h.Context(ctxT(t)), Lease(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, inner)
	f := m.LockAsync(ctxT(t))
	mustUnlock(t, h)
	next, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := m.State(ctxT(t)); err != nil || !st.Mine || st.TTL > time.Minute {
		t.Errorf("%+v, %v", st, err)
	}
	mustUnlock(t, next)
}
