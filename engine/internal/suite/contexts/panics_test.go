package contexts

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
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
func TestLock_ContextPanics_TakesNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	h := testkit.MustLock(t, other.Mutex("x"))
	ctx := brokenContext{context.Background(), make(chan struct{})}
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_, _ = e.Mutex("x").Lock(ctx, engine.Lease(time.Hour))
	}()
	testkit.Eventually(t, "it waits", func() bool { return e.Stats().Channels == 1 })
	close(ctx.ended)
	if v := testkit.Receive(t, panicked); v != "a broken context" {
		t.Errorf("recovered %v", v)
	}
	if n := e.Stats().Waiting; n != 0 {
		t.Errorf("%d still wait", n)
	}
	testkit.MustUnlock(t, h)
	testkit.MustUnlock(t, testkit.MustLock(t, other.Mutex("x")))
	testkit.Clean(t, s, e)
}

// undoneContext is a context of the user's whose Done panics.
type undoneContext struct{ context.Context }

func (undoneContext) Done() <-chan struct{} { panic("a broken context") }

// Lock needs the Done of its context before anything is asked of the server.
func TestLock_ContextWithABrokenDone_TakesNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	if _, err := e.Semaphore("s").TrySetPermits(testkit.Ctx(t), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Latch("l").TrySetCount(testkit.Ctx(t), 1); err != nil {
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
	if n, err := sem.Available(testkit.Ctx(t)); n != 2 || err != nil {
		t.Errorf("%d permits are to be had, %v", n, err)
	}
	if n := e.Stats(); n.Held+n.Waiting > 0 {
		t.Errorf("%d are held, %d wait", n.Held, n.Waiting)
	}
	for _, key := range []string{"s", "l"} {
		s.Do("DEL", key)
	}
	testkit.CleanButMarks(t, s, e)
	if n := testkit.Inside(e).Names; n > 0 {
		t.Errorf("%d names are in use", n)
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
func TestRWMutex_DowngradeWhoseContextPanics_LeavesNoReader(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	rw := e.RWMutex("x")
	panics := 0
	for calls := range 6 {
		w := testkit.MustLock(t, rw.Writer())
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
			testkit.MustUnlock(t, r)
		}()
		if err := w.Unlock(testkit.Ctx(t)); err != nil && !errors.Is(err, engine.ErrNotHeld) {
			t.Error(err)
		}
		testkit.Eventually(t, "nothing is held", func() bool { return e.Stats().Held == 0 })
	}
	if panics == 0 {
		t.Error("no context panicked")
	}
	testkit.Clean(t, s, e)
}
