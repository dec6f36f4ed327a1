package engine

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A callback that blocks holds up neither another future's callback nor the event
// loop that everything hangs on.
func TestBlockingCallbackDelaysNothingElse(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	gate, entered := make(chan struct{}), make(chan struct{})
	a := e.Mutex("a").LockAsync(ctxT(t))
	a.OnComplete(func(h *Hold, _ error) {
		close(entered)
		<-gate
		h.UnlockAsync()
	})
	receive(t, entered)
	told := make(chan struct{})
	e.Mutex("b").LockAsync(ctxT(t)).OnComplete(func(h *Hold, err error) {
		if err == nil {
			err = h.Unlock(ctxT(t)) // needs the loop
		}
		if err != nil {
			t.Error(err)
		}
		close(told)
	})
	receive(t, told)
	close(gate)
	eventually(t, "a is released", func() bool { return len(fields(t, s, "a")) == 0 })
}

func TestCallbacksNeverRunOnAnEventLoopNorOnTheCaller(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	look := func(stack chan<- string) func(*Hold, error) {
		return func(h *Hold, _ error) {
			b := make([]byte, 64<<10)
			stack <- string(b[:runtime.Stack(b, false)])
		}
	}
	check := func(what string, stack string) {
		for _, bad := range []string{"gnet", "Complete(", "tRunner"} {
			if strings.Contains(stack, bad) {
				t.Errorf("%s runs under %s:\n%s", what, bad, stack)
			}
		}
	}
	stack := make(chan string, 1)
	f := e.Mutex("x").LockAsync(ctxT(t))
	f.OnComplete(look(stack)) // pending, or just complete
	check("a callback", receive(t, stack))
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	f.OnComplete(look(stack))
	check("a callback registered after the end", receive(t, stack))
	mustUnlock(t, h)
}

// A pool with one worker and no queue: handing a task over blocks while the worker
// is busy, and the worker's task needs the event loop.
func TestExecutorThatBlocksStopsNothingButCallbacks(t *testing.T) {
	t.Parallel()
	s := server(t)
	tasks := make(chan func())
	var pool sync.WaitGroup
	pool.Go(func() {
		for task := range tasks {
			task()
		}
	})
	e := open(t, s.URL(), func(c *Config) { c.Executor = func(task func()) { tasks <- task } })
	var called sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "a", "b"} {
		called.Add(1)
		e.Mutex(name).LockAsync(ctxT(t)).OnComplete(func(h *Hold, err error) {
			defer called.Done()
			if err == nil {
				err = h.Unlock(ctxT(t))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	done := make(chan struct{})
	go func() { called.Wait(); close(done) }()
	receive(t, done)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	close(tasks)
	pool.Wait()
	clean(t, s)
}

// An executor that runs the task where it stands is slow, not wrong.
func TestExecutorThatRunsTheTaskItself(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL(), func(c *Config) { c.Executor = func(task func()) { task() } })
	told := make(chan error, 1)
	e.Mutex("x").LockAsync(ctxT(t)).OnComplete(func(h *Hold, err error) {
		if err == nil {
			err = h.Unlock(ctxT(t))
		}
		told <- err
	})
	if err := receive(t, told); err != nil {
		t.Error(err)
	}
}

func TestTenThousandCallbacksThatLockAndUnlockOneName(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("x")
	const n = 10_000
	var called sync.WaitGroup
	inside := 0 // guarded by the lock under test
	ctx := within(t, 10*time.Minute)
	for range n {
		called.Add(1)
		m.LockAsync(ctx).OnComplete(func(h *Hold, err error) {
			defer called.Done()
			for range 2 {
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				inside++
				if inside != 1 {
					t.Errorf("%d inside", inside)
				}
				inside--
				if err := h.Unlock(ctx); err != nil {
					t.Errorf("Unlock: %v", err)
					return
				}
				h, err = m.Lock(ctx)
			}
			if err == nil {
				h.UnlockAsync()
			}
		})
	}
	done := make(chan struct{})
	go func() { called.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatalf("stuck: %+v", e.Stats())
	}
	eventually(t, "all released", func() bool { return e.Stats().Held == 0 })
	clean(t, s)
}

func TestCloseWaitsForCallbacks(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	gate, entered := make(chan struct{}), make(chan struct{})
	e.Mutex("x").LockAsync(ctxT(t)).OnComplete(func(*Hold, error) { close(entered); <-gate })
	receive(t, entered)
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	eventually(t, "Close released the lock", func() bool { return len(fields(t, s, "x")) == 0 })
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v while a callback runs", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(gate)
	if err := receive(t, closed); err != nil {
		t.Error(err)
	}
}

func TestCloseGivesUpOnACallbackThatNeverEnds(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL(), func(c *Config) { c.CloseTimeout = 2 * time.Second })
	gate := make(chan struct{})
	defer close(gate)
	entered := make(chan struct{})
	e.Mutex("x").LockAsync(ctxT(t)).OnComplete(func(*Hold, error) { close(entered); <-gate })
	receive(t, entered)
	if err := e.Close(); !errors.Is(err, ErrPending) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Close: %v, want ErrPending: every lock was released", err)
	}
	if n := s.Do("DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

// That is not allowed, for Close waits for the goroutine that calls it. What it says then is true.
func TestCloseInACallbackOrHookSaysThatNoLockIsLeft(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, where := range []string{"callback", "hook"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			var e *Engine
			ready, closed := make(chan struct{}), make(chan error, 1)
			closeIt := func() {
				<-ready
				closed <- e.Close()
			}
			e = open(t, s.URL(), func(c *Config) {
				c.CloseTimeout = 2 * time.Second
				if where == "hook" {
					c.Hooks.Acquired = func(AcquiredEvent) { closeIt() }
				}
			})
			mustLock(t, e.Mutex(where))
			if where == "callback" {
				e.Mutex("another").LockAsync(ctxT(t)).OnComplete(func(*Hold, error) { closeIt() })
			}
			close(ready)
			if err := receive(t, closed); !errors.Is(err, ErrPending) || errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("Close: %v, want ErrPending: every lock was released", err)
			}
			if n := len(fields(t, s, where)); n > 0 {
				t.Error("a lock is held still")
			}
		})
	}
}

func TestCallbackRegisteredAfterCloseIsCalled(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"default executor": func(*Config) {},
		"custom executor":  func(c *Config) { c.Executor = func(task func()) { go task() } },
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			e := open(t, s.URL(), change)
			before := e.Mutex("x").LockAsync(ctxT(t))
			if _, err := before.Await(ctxT(t)); err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			for _, f := range []*Future[*Hold]{before, e.Mutex("x").LockAsync(context.Background()), Mutex{}.LockAsync(context.Background())} {
				told := make(chan error, 1)
				f.OnComplete(func(_ *Hold, err error) { told <- err })
				receive(t, told)
			}
		})
	}
}
