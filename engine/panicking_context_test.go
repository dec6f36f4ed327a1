package engine

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// brokenContext is a context of the user's whose Err panics once it has ended.
type brokenContext struct {
	context.Context
	ended chan struct{}
}

func (c brokenContext) Done() <-chan struct{} { return c.ended }

func (c brokenContext) Err() error {
	select {
	case <-c.ended:
		panic("a broken context")
	default:
		return nil
	}
}

// A caller that panics while it waits, and is recovered, as net/http does, must not be
// given the lock later: nobody would ever unlock it.
func TestLockWhoseContextPanicsTakesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	h := mustLock(t, other.Mutex("x"))
	ctx := brokenContext{context.Background(), make(chan struct{})}
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_, _ = e.Mutex("x").Lock(ctx, Lease(time.Hour))
	}()
	eventually(t, "it waits", func() bool { return e.Stats().Channels == 1 })
	close(ctx.ended)
	if v := receive(t, panicked); v != "a broken context" {
		t.Errorf("recovered %v", v)
	}
	if n := e.Stats().Waiting; n != 0 {
		t.Errorf("%d still wait", n)
	}
	mustUnlock(t, h)
	mustUnlock(t, mustLock(t, other.Mutex("x")))
	clean(t, s, e)
}

// brittleContext is a context of the user's that may be asked for the holds in it once.
type brittleContext struct {
	context.Context
	asked *int
}

func (c brittleContext) Value(key any) any {
	if _, ok := key.(holdsKey); ok {
		if *c.asked++; *c.asked > 1 {
			panic("a broken context")
		}
	}
	return c.Context.Value(key)
}

// The lock is held when Do makes the context of the function.
func TestDoWhoseContextPanicsReleasesTheLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	func() {
		defer func() {
			if v := recover(); v != "a broken context" {
				t.Errorf("recovered %v", v)
			}
		}()
		ctx := brittleContext{context.Background(), new(int)}
		_ = e.Mutex("x").Do(ctx, func(context.Context, *Hold) error { panic("it runs") })
	}()
	clean(t, s, e)
}

// undoneContext is a context of the user's whose Done panics.
type undoneContext struct{ context.Context }

func (undoneContext) Done() <-chan struct{} { panic("a broken context") }

// Lock needs the Done of its context before anything is asked of the server.
func TestLockWhoseContextHasABrokenDoneTakesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	if _, err := e.Semaphore("s").TrySetPermits(ctxT(t), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Latch("l").TrySetCount(ctxT(t), 1); err != nil {
		t.Fatal(err)
	}
	m, sem, latch := e.Mutex("x"), e.Semaphore("s"), e.Latch("l")
	for name, lock := range map[string]func(ctx context.Context){
		"Acquire":      func(ctx context.Context) { _, _ = sem.Acquire(ctx, 1) },
		"TryAcquire":   func(ctx context.Context) { _, _ = sem.TryAcquire(ctx, 1) },
		"AcquireAsync": func(ctx context.Context) { sem.AcquireAsync(ctx, 1) },
		"Await":        func(ctx context.Context) { _ = latch.Await(ctx) },
		"AwaitAsync":   func(ctx context.Context) { latch.AwaitAsync(ctx) },
		"Drain":        func(ctx context.Context) { _, _ = sem.Drain(ctx) },
		"ForceUnlock":  func(ctx context.Context) { _, _ = m.ForceUnlock(ctx) },
		"StateAsync":   func(ctx context.Context) { m.StateAsync(ctx) },
		"Lock":         func(ctx context.Context) { _, _ = m.Lock(ctx) },
		"TryLock":      func(ctx context.Context) { _, _ = m.TryLock(ctx) },
		"LockAsync":    func(ctx context.Context) { m.LockAsync(ctx) },
		"TryLockAsync": func(ctx context.Context) { m.TryLockAsync(ctx) },
	} {
		func() {
			defer func() {
				if v := recover(); v != "a broken context" {
					t.Errorf("%s: recovered %v", name, v)
				}
			}()
			lock(undoneContext{context.Background()})
		}()
	}
	if n, err := sem.Available(ctxT(t)); n != 2 || err != nil {
		t.Errorf("%d permits are to be had, %v", n, err)
	}
	if n := e.Stats(); n.Held+n.Waiting > 0 {
		t.Errorf("%d are held, %d wait", n.Held, n.Waiting)
	}
	for _, key := range []string{"s", "l"} {
		s.Do("DEL", key)
	}
	cleanButMarks(t, s, e)
	if n := inspect(e).Names; n > 0 {
		t.Errorf("%d names are in use", n)
	}
}

// leavingContext is a context of the user's whose Done ends its goroutine, once that is wanted.
type leavingContext struct {
	context.Context
	leave *atomic.Bool
}

func (c leavingContext) Done() <-chan struct{} {
	if c.leave.CompareAndSwap(true, false) {
		runtime.Goexit()
	}
	return c.Context.Done()
}

// A RedLock is lost, and a context of it ends the goroutine that tells it. What is left of the
// lock is given back anyway.
func TestLossOfARedLockWhoseContextDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, unlock := range map[string]bool{"lost": false, "lost by the clock, and unlocked": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := independent(t, 3)
			v := s.open()
			h := mustRedLock(t, v.lock("x"), Lease(time.Hour))
			eventually(t, "all three join", func() bool { return len(h.Servers()) == 3 })
			leave := new(atomic.Bool)
			ctx := h.Context(leavingContext{ctxT(t), leave})
			leave.Store(true)
			most := h.h.locks()[:2]
			for i := range most { // both, before one is asked for again
				if !unlock {
					s.servers[i].Do("DEL", "x")
				}
			}
			for _, l := range most {
				if unlock {
					l.endBy(l.Shard().Now())
				} else {
					l.LookNow()
				}
			}
			if unlock {
				_ = h.Unlock(ctxT(t))
			}
			receive(t, h.Done())
			if ctx.Err() == nil || leave.Load() {
				t.Error("the context was not told")
			}
			s.clean(v)
		})
	}
}

// tiredContext is a context of the user's whose Done panics after some calls.
type tiredContext struct {
	context.Context
	left *int
}

func (c tiredContext) Done() <-chan struct{} {
	if *c.left--; *c.left < 0 {
		panic("a broken context")
	}
	return nil
}

// The reader is granted before the writer is released, which waits under the context.
func TestDowngradeWhoseContextPanicsLeavesNoReader(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	rw := e.RWMutex("x")
	panics := 0
	for calls := range 6 {
		w := mustLock(t, rw.Writer())
		func() {
			defer func() {
				if recover() != nil {
					panics++
				}
			}()
			r, err := rw.Downgrade(tiredContext{context.Background(), &calls}, w)
			if err != nil {
				t.Error(err)
				return
			}
			mustUnlock(t, r)
		}()
		if err := w.Unlock(ctxT(t)); err != nil && !errors.Is(err, ErrNotHeld) {
			t.Error(err)
		}
		eventually(t, "nothing is held", func() bool { return e.Stats().Held == 0 })
	}
	if panics == 0 {
		t.Error("no context panicked")
	}
	clean(t, s, e)
}
