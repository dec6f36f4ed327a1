package callbacks

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A callback that blocks holds up neither another future's callback nor the event
// loop that everything hangs on.
func TestFuture_BlockingCallback_DelaysNothingElse(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	gate, entered := make(chan struct{}), make(chan struct{})
	a := e.Mutex("a").LockAsync(testkit.Ctx(t))
	a.OnComplete(func(h *engine.Hold, _ error) {
		close(entered)
		<-gate
		h.UnlockAsync()
	})
	testkit.Receive(t, entered)
	notified := make(chan struct{})
	e.Mutex("b").LockAsync(testkit.Ctx(t)).OnComplete(func(h *engine.Hold, err error) {
		if err == nil {
			err = h.Unlock(testkit.Ctx(t)) // needs the loop
		}
		if err != nil {
			t.Error(err)
		}
		close(notified)
	})
	testkit.Receive(t, notified)
	close(gate)
	testkit.Eventually(t, "a is released", func() bool { return len(testkit.Fields(t, s, "a")) == 0 })
}

func TestFuture_Callbacks_RunNeitherOnAnEventLoopNorOnTheCaller(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	look := func(stack chan<- string) func(*engine.Hold, error) {
		return func(h *engine.Hold, _ error) {
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
	f := e.Mutex("x").LockAsync(testkit.Ctx(t))
	f.OnComplete(look(stack)) // pending, or just complete
	check("a callback", testkit.Receive(t, stack))
	h, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	f.OnComplete(look(stack))
	check("a callback registered after the end", testkit.Receive(t, stack))
	testkit.MustUnlock(t, h)
}

// A pool with one worker and no queue: handing a task over blocks while the worker
// is busy, and the worker's task needs the event loop.
func TestFuture_ExecutorThatBlocks_StopsNothingButCallbacks(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	tasks := make(chan func())
	var pool sync.WaitGroup
	pool.Go(func() {
		for task := range tasks {
			task()
		}
	})
	e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.Executor = func(task func()) { tasks <- task } })
	var called sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "a", "b"} {
		called.Add(1)
		e.Mutex(name).LockAsync(testkit.Ctx(t)).OnComplete(func(h *engine.Hold, err error) {
			defer called.Done()
			if err == nil {
				err = h.Unlock(testkit.Ctx(t))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	done := make(chan struct{})
	go func() { called.Wait(); close(done) }()
	testkit.Receive(t, done)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	close(tasks)
	pool.Wait()
	testkit.Clean(t, s)
}

// An executor that runs the task where it stands is slow, not wrong.
func TestFuture_ExecutorThatRunsTheTaskItself_Works(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.Executor = func(task func()) { task() } })
	notified := make(chan error, 1)
	e.Mutex("x").LockAsync(testkit.Ctx(t)).OnComplete(func(h *engine.Hold, err error) {
		if err == nil {
			err = h.Unlock(testkit.Ctx(t))
		}
		notified <- err
	})
	if err := testkit.Receive(t, notified); err != nil {
		t.Error(err)
	}
}

func TestFuture_TenThousandCallbacksThatLock_AllRun(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.Mutex("x")
	const n = 10_000
	var called sync.WaitGroup
	inside := 0 // guarded by the lock under test
	ctx := testkit.Within(t, 10*time.Minute)
	for range n {
		called.Add(1)
		m.LockAsync(ctx).OnComplete(func(h *engine.Hold, err error) {
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
	testkit.Eventually(t, "all released", func() bool { return e.Stats().Held == 0 })
	testkit.Clean(t, s)
}

func TestClose_RunningCallback_IsWaitedFor(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	gate, entered := make(chan struct{}), make(chan struct{})
	e.Mutex("x").LockAsync(testkit.Ctx(t)).OnComplete(func(*engine.Hold, error) { close(entered); <-gate })
	testkit.Receive(t, entered)
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	testkit.Eventually(t, "Close released the lock", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v while a callback runs", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(gate)
	if err := testkit.Receive(t, closed); err != nil {
		t.Error(err)
	}
}

func TestClose_CallbackThatNeverEnds_GivesUp(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.CloseTimeout = 2 * time.Second })
	gate := make(chan struct{})
	defer close(gate)
	entered := make(chan struct{})
	e.Mutex("x").LockAsync(testkit.Ctx(t)).OnComplete(func(*engine.Hold, error) { close(entered); <-gate })
	testkit.Receive(t, entered)
	if err := e.Close(); !errors.Is(err, engine.ErrPending) || errors.Is(err, engine.ErrOutcomeUnknown) {
		t.Errorf("Close: %v, want ErrPending: every lock was released", err)
	}
	if n := s.Do("DBSIZE"); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

// That is not allowed, for Close waits for the goroutine that calls it. What it says then is true.
func TestClose_InACallbackOrObserver_SaysThatNoLockIsLeft(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	for _, where := range []string{"callback", "observer"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			var e *engine.Engine
			ready, closed := make(chan struct{}), make(chan error, 1)
			closeIt := func() {
				<-ready
				closed <- e.Close()
			}
			e = testkit.Open(t, s.URL(), func(c *engine.Config) {
				c.CloseTimeout = 2 * time.Second
				if where == "observer" {
					c.Observer = engine.ObserverFuncs{OnAcquireEnd: func(_ context.Context, a engine.Acquisition, _ engine.AcquireEnd) {
						if a.Name == "another" {
							closeIt()
						}
					}}
				}
			})
			testkit.MustLock(t, e.Mutex(where))
			if where == "observer" {
				e.Mutex("another").LockAsync(testkit.Ctx(t))
			} else {
				e.Mutex("another").LockAsync(testkit.Ctx(t)).OnComplete(func(*engine.Hold, error) { closeIt() })
			}
			close(ready)
			if err := testkit.Receive(t, closed); !errors.Is(err, engine.ErrPending) || errors.Is(err, engine.ErrOutcomeUnknown) {
				t.Errorf("Close: %v, want ErrPending: every lock was released", err)
			}
			if n := len(testkit.Fields(t, s, where)); n > 0 {
				t.Error("a lock is held still")
			}
		})
	}
}

func TestFuture_CallbackAfterClose_IsCalled(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*engine.Config){
		"default executor": func(*engine.Config) {},
		"custom executor":  func(c *engine.Config) { c.Executor = func(task func()) { go task() } },
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.Server(t)
			e := testkit.Open(t, s.URL(), change)
			before := e.Mutex("x").LockAsync(testkit.Ctx(t))
			if _, err := before.Await(testkit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			for _, f := range []*engine.Future[*engine.Hold]{before, e.Mutex("x").LockAsync(context.Background()), engine.Mutex{}.LockAsync(context.Background())} {
				notified := make(chan error, 1)
				f.OnComplete(func(_ *engine.Hold, err error) { notified <- err })
				testkit.Receive(t, notified)
			}
		})
	}
}

// A function of the user's may end its goroutine: t.Fatal does. Or it panics, and the
// user's executor survives that. Those that are to be called after it are called.

// recovering is an executor whose workers survive a task.
func recovering(c *engine.Config) {
	c.Executor = func(task func()) {
		go func() {
			defer func() { _ = recover() }()
			task()
		}()
	}
}

// inline is an executor that runs the task where it stands.
func inline(c *engine.Config) { c.Executor = func(task func()) { task() } }

func TestFuture_CallbackThatDoesNotReturn_NextOnesAreCalled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		executor func(*engine.Config)
		end      func()
	}{
		"Goexit":                      {func(*engine.Config) {}, runtime.Goexit},
		"Goexit on the user's worker": {recovering, runtime.Goexit},
		"Goexit in a task run inline": {inline, runtime.Goexit},
		"a panic that is recovered":   {recovering, func() { panic("a fault of a callback") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := testkit.Open(t, testkit.Server(t).URL(), test.executor)
			entered, gate := make(chan struct{}), make(chan struct{})
			f := e.Mutex("x").LockAsync(testkit.Ctx(t))
			f.OnComplete(func(*engine.Hold, error) {
				close(entered)
				<-gate
				test.end()
			})
			notified := make(chan string, 3)
			testkit.Receive(t, entered)
			f.OnComplete(func(*engine.Hold, error) { notified <- "the second"; test.end() })
			f.OnComplete(func(*engine.Hold, error) { notified <- "the third"; test.end() })
			close(gate)
			for _, want := range []string{"the second", "the third"} {
				if got := testkit.Receive(t, notified); got != want {
					t.Errorf("called: %s, want %s", got, want)
				}
			}
			f.OnComplete(func(h *engine.Hold, _ error) { h.UnlockAsync(); notified <- "later" })
			testkit.Receive(t, notified)
			// Those of other futures, too.
			other := e.Mutex("y").LockAsync(testkit.Ctx(t))
			other.OnComplete(func(h *engine.Hold, _ error) { h.UnlockAsync(); notified <- "another's" })
			testkit.Receive(t, notified)
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func TestObserver_EndsItsGoroutine_IsCalledAgain(t *testing.T) {
	t.Parallel()
	names := make(chan string, 8)
	e := testkit.Open(t, testkit.Server(t).URL(), func(c *engine.Config) {
		c.Observer = engine.ObserverFuncs{OnAcquireEnd: func(_ context.Context, a engine.Acquisition, _ engine.AcquireEnd) {
			names <- a.Name
			runtime.Goexit()
		}}
	})
	for _, name := range []string{"a", "b", "c"} {
		h, err := e.Mutex(name).LockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
	}
	for _, want := range []string{"a", "b", "c"} {
		if got := testkit.Receive(t, names); got != want {
			t.Errorf("the Observer was told of %q, want %q", got, want)
		}
	}
	if err := e.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
