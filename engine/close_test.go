package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestCloseTellsEverybodyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	var holds []*Hold
	for i := range 50 {
		holds = append(holds, mustLock(t, e.Mutex(fmt.Sprint("held", i))))
	}
	fixed := mustLock(t, e.Mutex("fixed"), Lease(time.Minute))
	rested := mustLock(t, e.Mutex("rested"), MinHold(10*time.Second))
	child := mustReenter(t, e.Mutex("fixed"), fixed)
	ctx := holds[0].Context(context.Background())
	holds = append(holds, fixed, rested, child)
	taken := mustLock(t, other.Mutex("taken"))

	var waiters []*Future[*Hold]
	told := make(chan error, 100)
	for range 20 {
		waiters = append(waiters, e.Mutex("taken").LockAsync(context.Background()), // behind another process
			e.Mutex("held0").LockAsync(context.Background()),                // behind this one
			e.Mutex("fixed").LockAsync(child.Context(context.Background())), // a re-entry that may come
			e.Mutex("fixed").LockAsync(fixed.Context(context.Background()))) // and one behind another
	}
	_, _ = waiters[2].Await(ctxT(t)) // granted: the innermost hold
	for _, f := range waiters {
		f.OnComplete(func(_ *Hold, err error) { told <- err })
	}
	synchronous := make(chan error, 1)
	go func() {
		_, err := e.Mutex("taken").Lock(context.Background())
		synchronous <- err
	}()
	eventually(t, "all wait", func() bool { return e.Stats().Waiting == 80 })

	if err := e.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for _, h := range holds {
		wantLost(t, h.Name(), h.Err(), EngineClosed)
		receive(t, h.Done())
	}
	receive(t, ctx.Done())
	wantLost(t, "context", context.Cause(ctx), EngineClosed)
	for i, f := range waiters {
		h, err := f.Result()
		switch {
		case i == 2 && err == nil:
			wantLost(t, "the innermost", h.Err(), EngineClosed)
		case !errors.Is(err, ErrNotAcquired) || !errors.Is(err, ErrClosed) && !errors.Is(err, ErrLost):
			t.Errorf("waiter %d: %v", i, err)
		}
	}
	if err := receive(t, synchronous); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, ErrClosed) {
		t.Errorf("Lock: %v", err)
	}
	if n := len(told); n != len(waiters) {
		t.Errorf("%d of %d callbacks ran before Close returned", n, len(waiters))
	}
	mustUnlock(t, taken)
	if left := fields(t, s, "rested"); len(left) != 1 || left[rested.Owner()] != "" {
		t.Errorf("of a lock with a MinHold there is left: %v", left)
	}
	s.Do("DEL", "rested")
	clean(t, s)
	if n := e.Stats(); n.Held != 0 || n.Waiting != 0 || n.InFlight != 0 {
		t.Errorf("after Close: %+v", n)
	}
}

// A subscription lingers for a second after the last waiter; Close does not.
func TestCloseDoesNotWaitForLingeringSubscriptions(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	// It does mostly: not if an alarm that was set for something else rings at that moment.
	eventually(t, "a channel lingers", func() bool {
		mustUnlock(t, mustLockBehind(t, other.Mutex("x"), e.Mutex("x")))
		return e.Stats().Channels == 1
	})
	start := cputime.Now()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if d := start.Elapsed(); d > machine.LingerFor*3/4 {
		t.Errorf("Close took %v", d)
	}
	clean(t, s)
}

func TestShutdownLetsHoldersFinish(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e, other := open(t, s.URL(), shortLease(time.Second)), open(t, s.URL())
		taken := mustLock(t, other.Mutex("taken"))
		waits := e.Mutex("taken").LockAsync(context.Background())
		h, fixed := mustLock(t, e.Mutex("x")), mustLock(t, e.Mutex("y"), Lease(time.Minute))
		shut := make(chan error, 1)
		go func() { shut <- e.Shutdown(context.Background()) }()
		if _, err := waits.Await(ctxT(t)); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("the waiter: %v", err)
		}
		for what, err := range everyLock(ctxT(t), e.Mutex("new")) {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s during Shutdown: %v", what, err)
			}
		}
		<-time.After(2 * time.Second) // two leases
		if err := h.Err(); err != nil {
			t.Errorf("not renewed during Shutdown: %v", err)
		}
		if err := fixed.Extend(ctxT(t), 2*time.Minute); err != nil {
			t.Errorf("Extend during Shutdown: %v", err)
		}
		mustUnlock(t, h)
		select {
		case err := <-shut:
			t.Fatalf("Shutdown returned %v while a lock is held", err)
		case <-time.After(50 * time.Millisecond):
		}
		mustUnlock(t, fixed)
		if err := receive(t, shut); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		mustUnlock(t, taken)
		clean(t, s)
	})
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	why := errors.New("no more patience")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if err := e.Shutdown(ctx); !errors.Is(err, why) {
		t.Errorf("Shutdown: %v", err)
	}
	wantLost(t, "the hold", h.Err(), EngineClosed)
	clean(t, s)
}

func TestShutdownAndCloseTogether(t *testing.T) {
	t.Parallel()
	s := server(t)
	for range 20 {
		e := open(t, s.URL())
		for i := range 8 {
			mustLock(t, e.Mutex(fmt.Sprint(i)))
		}
		done := make(chan error, 6)
		for range 3 {
			go func() { done <- e.Shutdown(context.Background()) }()
			go func() { done <- e.Close() }()
		}
		for range 6 {
			if err := receive(t, done); err != nil {
				t.Error(err)
			}
		}
	}
	clean(t, s)
}

func TestCloseOfAFrozenServerGivesUpInTime(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e := open(t, s.URL(), func(c *Config) { c.CloseTimeout = 300 * time.Millisecond })
		h, fixed := mustLock(t, e.Mutex("x")), mustLock(t, e.Mutex("y"), Lease(700*time.Millisecond))
		s.Stop()
		waits := e.Mutex("z").LockAsync(context.Background())
		releasing := h.UnlockAsync()
		start, used := time.Now(), cputime.Now()
		err := e.Close()
		if d := time.Since(start); d < 250*time.Millisecond || used.Elapsed() > 5*time.Second {
			t.Errorf("Close took %v", d)
		}
		if !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("Close: %v, want ErrOutcomeUnknown", err)
		}
		wantLost(t, "the hold", fixed.Err(), EngineClosed)
		if _, err := releasing.Result(); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("the release: %v", err)
		}
		if _, err := waits.Result(); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, ErrClosed) {
			t.Errorf("the acquisition: %v", err)
		}
		if again := e.Close(); !errors.Is(again, ErrOutcomeUnknown) {
			t.Errorf("Close again: %v", again)
		}
		s.Cont()
		// What was in the server's socket buffer is executed; the rest ends by its lease.
		eventually(t, "the fixed lease ends", func() bool { return len(fields(t, s, "y")) == 0 })
	})
}

func TestCloseAmidTheTraffic(t *testing.T) {
	t.Parallel()
	s := server(t)
	for range 5 {
		e := open(t, s.URL())
		var wg sync.WaitGroup
		for i := range 40 {
			m := e.Mutex(fmt.Sprint(i % 7))
			wg.Go(func() {
				for n := 0; ; n++ {
					h, err := m.Lock(context.Background())
					if errors.Is(err, ErrClosed) {
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
					if err := h.Unlock(context.Background()); err != nil && !errors.Is(err, ErrLost) {
						t.Errorf("Unlock: %v", err)
					}
				}
			})
		}
		eventually(t, "there is traffic", func() bool { return e.Stats().Released > 200 })
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		wg.Wait()
		clean(t, s)
	}
}
