package shutdown

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestClose_HoldsAndWaiters_EndAndLeaveNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	var holds []*engine.Hold
	for i := range 50 {
		holds = append(holds, testkit.MustLock(t, e.Mutex(fmt.Sprint("held", i))))
	}
	fixed := testkit.MustLock(t, e.Mutex("fixed"), engine.Lease(time.Minute))
	rested := testkit.MustLock(t, e.Mutex("rested"), engine.MinHold(10*time.Second))
	child := testkit.MustReenter(t, e.Mutex("fixed"), fixed)
	ctx := holds[0].Context(context.Background())
	holds = append(holds, fixed, rested, child)
	taken := testkit.MustLock(t, other.Mutex("taken"))

	var waiters []*engine.Future[*engine.Hold]
	notified := make(chan error, 100)
	for range 20 {
		waiters = append(waiters, e.Mutex("taken").LockAsync(context.Background()), // behind another process
			e.Mutex("held0").LockAsync(context.Background()),                // behind this one
			e.Mutex("fixed").LockAsync(child.Context(context.Background())), // a re-entry that may come
			e.Mutex("fixed").LockAsync(fixed.Context(context.Background()))) // and one behind another
	}
	_, _ = waiters[2].Await(testkit.Ctx(t)) // granted: the innermost hold
	for _, f := range waiters {
		f.OnComplete(func(_ *engine.Hold, err error) { notified <- err })
	}
	synchronous := make(chan error, 1)
	go func() {
		_, err := e.Mutex("taken").Lock(context.Background())
		synchronous <- err
	}()
	testkit.Eventually(t, "all wait", func() bool { return e.Stats().Waiting == 80 })

	if err := e.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for _, h := range holds {
		testkit.WantLost(t, h.Name(), h.Err(), engine.EngineClosed)
		testkit.Receive(t, h.Done())
	}
	testkit.Receive(t, ctx.Done())
	testkit.WantLost(t, "context", context.Cause(ctx), engine.EngineClosed)
	for i, f := range waiters {
		h, err := f.Result()
		switch {
		case i == 2 && err == nil:
			testkit.WantLost(t, "the innermost", h.Err(), engine.EngineClosed)
		case !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrClosed) && !errors.Is(err, engine.ErrLost):
			t.Errorf("waiter %d: %v", i, err)
		}
	}
	if err := testkit.Receive(t, synchronous); !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrClosed) {
		t.Errorf("Lock: %v", err)
	}
	if n := len(notified); n != len(waiters) {
		t.Errorf("%d of %d callbacks ran before Close returned", n, len(waiters))
	}
	testkit.MustUnlock(t, taken)
	if left := testkit.Fields(t, s, "rested"); len(left) != 1 || left[rested.Owner()] != "" {
		t.Errorf("of a lock with a MinHold there is left: %v", left)
	}
	s.Do("DEL", "rested")
	testkit.Clean(t, s)
	if n := e.Stats(); n.Held != 0 || n.Waiting != 0 || n.InFlight != 0 {
		t.Errorf("after Close: %+v", n)
	}
}

func TestShutdown_Holders_MayFinish(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e, other := testkit.Open(t, s.URL(), testkit.ShortLease(time.Second)), testkit.Open(t, s.URL())
		taken := testkit.MustLock(t, other.Mutex("taken"))
		waits := e.Mutex("taken").LockAsync(context.Background())
		h, fixed := testkit.MustLock(t, e.Mutex("x")), testkit.MustLock(t, e.Mutex("y"), engine.Lease(time.Minute))
		shut := make(chan error, 1)
		go func() { shut <- e.Shutdown(context.Background()) }()
		if _, err := waits.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrClosed) || !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("the waiter: %v", err)
		}
		for what, err := range testkit.EveryLock(testkit.Ctx(t), e.Mutex("new")) {
			if !errors.Is(err, engine.ErrClosed) {
				t.Errorf("%s during Shutdown: %v", what, err)
			}
		}
		<-time.After(2 * time.Second) // two leases
		if err := h.Err(); err != nil {
			t.Errorf("not renewed during Shutdown: %v", err)
		}
		if err := fixed.Extend(testkit.Ctx(t), 2*time.Minute); err != nil {
			t.Errorf("Extend during Shutdown: %v", err)
		}
		testkit.MustUnlock(t, h)
		select {
		case err := <-shut:
			t.Fatalf("Shutdown returned %v while a lock is held", err)
		case <-time.After(50 * time.Millisecond):
		}
		testkit.MustUnlock(t, fixed)
		if err := testkit.Receive(t, shut); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		testkit.MustUnlock(t, taken)
		testkit.Clean(t, s)
	})
}

func TestShutdown_ContextEnds_Returns(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	h := testkit.MustLock(t, e.Mutex("x"))
	why := errors.New("no more patience")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if err := e.Shutdown(ctx); !errors.Is(err, why) {
		t.Errorf("Shutdown: %v", err)
	}
	testkit.WantLost(t, "the hold", h.Err(), engine.EngineClosed)
	testkit.Clean(t, s)
}

func TestShutdown_WithClose_BothReturn(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	for range 20 {
		e := testkit.Open(t, s.URL())
		for i := range 8 {
			testkit.MustLock(t, e.Mutex(fmt.Sprint(i)))
		}
		done := make(chan error, 6)
		for range 3 {
			go func() { done <- e.Shutdown(context.Background()) }()
			go func() { done <- e.Close() }()
		}
		for range 6 {
			if err := testkit.Receive(t, done); err != nil {
				t.Error(err)
			}
		}
	}
	testkit.Clean(t, s)
}

func TestClose_FrozenServer_GivesUpInTime(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.CloseTimeout = 300 * time.Millisecond })
		h, fixed := testkit.MustLock(t, e.Mutex("x")), testkit.MustLock(t, e.Mutex("y"), engine.Lease(700*time.Millisecond))
		s.Stop()
		waits := e.Mutex("z").LockAsync(context.Background())
		releasing := h.UnlockAsync()
		start, used := time.Now(), cputime.Now()
		err := e.Close()
		if d := time.Since(start); d < 250*time.Millisecond || used.Elapsed() > 5*time.Second {
			t.Errorf("Close took %v", d)
		}
		if !errors.Is(err, engine.ErrOutcomeUnknown) {
			t.Errorf("Close: %v, want ErrOutcomeUnknown", err)
		}
		testkit.WantLost(t, "the hold", fixed.Err(), engine.EngineClosed)
		if _, err := releasing.Result(); !errors.Is(err, engine.ErrOutcomeUnknown) {
			t.Errorf("the release: %v", err)
		}
		if _, err := waits.Result(); !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrClosed) {
			t.Errorf("the acquisition: %v", err)
		}
		if again := e.Close(); !errors.Is(again, engine.ErrOutcomeUnknown) {
			t.Errorf("Close again: %v", again)
		}
		s.Cont()
		// What was in the server's socket buffer is executed; the rest ends by its lease.
		testkit.Eventually(t, "the fixed lease ends", func() bool { return len(testkit.Fields(t, s, "y")) == 0 })
	})
}

func TestClose_AmidTraffic_LeavesNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	for range 5 {
		e := testkit.Open(t, s.URL())
		var wg sync.WaitGroup
		for i := range 40 {
			m := e.Mutex(fmt.Sprint(i % 7))
			wg.Go(func() {
				for n := 0; ; n++ {
					h, err := m.Lock(context.Background())
					if errors.Is(err, engine.ErrClosed) {
						return
					}
					if err != nil {
						t.Errorf("Lock: %v", err)
						return
					}
					if n%3 == 0 {
						h.UnlockAsync()
						continue
					}
					if err := h.Unlock(context.Background()); err != nil && !errors.Is(err, engine.ErrLost) {
						t.Errorf("Unlock: %v", err)
					}
				}
			})
		}
		testkit.Eventually(t, "there is traffic", func() bool { return e.Stats().Released > 200 })
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		wg.Wait()
		testkit.Clean(t, s)
	}
}
