package handover

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// A turn of a nanosecond, as a URL may ask for, does not last until the clock shows the next millisecond.
func TestMutex_HandOverOff_GoesThroughTheServer(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-1, time.Nanosecond, time.Millisecond - 1} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			e := testkit.HandingOver(t, testkit.Server(t).URL(), func(c *engine.Config) { c.HandOverTime = off })
			m, ctx := e.Mutex("x"), testkit.Ctx(t)
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
func TestMutex_HandedOverAgainAndAgain_OutlivesItsLease(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.HandingOver(t, s.URL(), func(c *engine.Config) { c.Lease = 3 * time.Second })
	m := e.Mutex("x")
	h := testkit.MustLock(t, m)
	owner := h.Owner()
	start := time.Now()
	for range 6 { // two leases
		renewed := e.Stats().Renewed
		testkit.Eventually(t, "it is renewed", func() bool { return e.Stats().Renewed > renewed })
		f := m.LockAsync(testkit.Ctx(t))
		testkit.MustUnlock(t, h)
		next, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if h = next; h.Owner() != owner {
			// Held up for half a lease: then it is released, and taken anew.
			t.Logf("taken anew after %v", time.Since(start))
			owner = h.Owner()
		}
	}
	f := m.LockAsync(testkit.Ctx(t))
	testkit.MustUnlock(t, h)
	h, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if was, err := testkit.Open(t, s.URL()).Mutex("x").ForceUnlock(testkit.Ctx(t)); err != nil || !was {
		t.Fatal(was, err)
	}
	<-h.Done()
	var lost *engine.LostError
	if !errors.As(h.Err(), &lost) || lost.Reason != engine.RemovedOnServer {
		t.Errorf("%v", h.Err())
	}
}

// A lock whose name is in demand in two processes goes to and fro between them.
func TestMutex_HotInTwoProcesses_IsShared(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	patient := testkit.Ctx(t) // one for all: half a million would burden the tests beside this one
	ctx, stop := context.WithCancel(patient)
	defer stop()
	var pairs [2]atomic.Int64
	var engines [2]*engine.Engine
	var users sync.WaitGroup
	for i := range engines {
		engines[i] = testkit.Open(t, s.URL())
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
	turns := func(e *engine.Engine) uint64 {
		n := e.Stats()
		return n.Acquired - n.HandedOver
	}
	testkit.Eventually(t, "each has had a hundred turns", func() bool { return min(turns(engines[0]), turns(engines[1])) >= 100 })
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

// What cannot be handed over is released, and a new grant begins.
func TestMutex_WaiterWithMoreOptions_IsNotHandedALock(t *testing.T) {
	t.Parallel()
	e := testkit.HandingOver(t, testkit.Server(t).URL())
	m := e.Mutex("x")
	for what, opts := range map[string][]engine.Option{
		"a lease": {engine.Lease(time.Minute)}, "a MaxHold": {engine.MaxHold(time.Minute)}, "a MinHold": {engine.MinHold(time.Millisecond)},
	} {
		for _, order := range [][2][]engine.Option{{opts, nil}, {nil, opts}} {
			h := testkit.MustLock(t, m, order[0]...)
			owner := h.Owner()
			f := m.LockAsync(testkit.Ctx(t), order[1]...)
			testkit.MustUnlock(t, h)
			next, err := f.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if next.Owner() == owner {
				t.Errorf("%s: %v was handed to %v", what, order[0], order[1])
			}
			testkit.MustUnlock(t, next)
		}
	}
}

// If this process died, nobody else would get the lock for an hour.
func TestMutex_LeaseOfAReentry_IsNotHandedOver(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.HandingOver(t, s.URL())
	m := e.Mutex("x")
	h := testkit.MustLock(t, m)
	inner, err := m.Lock(h.Context(testkit.Ctx(t)), engine.Lease(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, inner)
	f := m.LockAsync(testkit.Ctx(t))
	testkit.MustUnlock(t, h)
	next, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := m.State(testkit.Ctx(t)); err != nil || !st.Mine || st.TTL > time.Minute {
		t.Errorf("%+v, %v", st, err)
	}
	testkit.MustUnlock(t, next)
}

// A TryLock may overtake a waiter, but others that come again and again must not keep
// it waiting for ever: it has every other turn.
func TestTryLock_AgainAndAgain_DoesNotStarveAWaiter(t *testing.T) {
	t.Parallel()
	_, p, e := testkit.Behind(t)
	m := e.Mutex("x")
	h := testkit.MustLock(t, m)
	waiter := m.LockAsync(testkit.Ctx(t))
	for range 2 {
		p.Pause(faultproxy.Carried("EVALSHA"))
		released := h.UnlockAsync()
		try := m.TryLockAsync(testkit.Ctx(t)) // queues: the lock is being released
		p.Resume()
		if _, err := released.Await(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
		next, err := try.Await(testkit.Ctx(t))
		if err == nil {
			h = next
			continue
		}
		if !errors.Is(err, engine.ErrHeld) {
			t.Fatal(err)
		}
		h, err = waiter.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
		return
	}
	t.Error("a TryLock got the lock twice, and the waiter had no turn")
}
