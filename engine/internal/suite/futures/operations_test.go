package futures

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// started is a future of an operation, whatever its result is.
type started struct {
	await   func(context.Context) (any, error)
	abandon func()
}

// pending reports whether it has no result yet.
func (f started) pending() bool {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := f.await(over)
	return errors.Is(err, engine.ErrPending)
}

func begun[T any](f *engine.Future[T]) started {
	return started{func(ctx context.Context) (any, error) { v, err := f.Await(ctx); return v, err }, f.Abandon}
}

// called is a call on a goroutine of its own: most operations have no future.
func called[T any](call func() (T, error)) started {
	done := make(chan struct{})
	var v T
	var err error
	go func() {
		defer close(done)
		v, err = call()
	}()
	await := func(ctx context.Context) (any, error) {
		select {
		case <-done:
			return v, err
		default:
		}
		select {
		case <-done:
			return v, err
		case <-ctx.Done():
			return nil, engine.ErrPending
		}
	}
	return started{await, func() {}}
}

func failing(call func() error) started {
	return called(func() (struct{}, error) { return struct{}{}, call() })
}

const (
	somePermit = "0123456789abcdef0123456789abcdef"
	rawPermit  = "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"
)

// operations are all that acquire nothing. Each has a key of its own, which is
// what before says, or a lock or a permit of somebody else's.
var operations = map[string]struct {
	before, after string // the count
	does          func(e *engine.Engine, ctx context.Context, key string) started
	want          string
	looks         bool // it changes nothing
	patient       bool // only its context ends it
}{
	"Latch.TrySetCount": {"", "3", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (bool, error) { return e.Latch(key).TrySetCount(ctx, 3) })
	}, "true", false, false},
	"Latch.CountDown": {"5", "4", func(e *engine.Engine, ctx context.Context, key string) started {
		return begun(e.Latch(key).CountDownAsync(ctx))
	}, "{}", false, true},
	"Latch.Count": {"5", "5", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (int, error) { return e.Latch(key).Count(ctx) })
	}, "5", true, false},
	"Semaphore.TrySetPermits": {"", "3", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (bool, error) { return e.Semaphore(key).TrySetPermits(ctx, 3) })
	}, "true", false, false},
	"Semaphore.AddPermits": {"5", "3", func(e *engine.Engine, ctx context.Context, key string) started {
		return failing(func() error { return e.Semaphore(key).AddPermits(ctx, -2) })
	}, "{}", false, false},
	"Semaphore.Available": {"5", "5", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (int, error) { return e.Semaphore(key).Available(ctx) })
	}, "5", true, false},
	"Semaphore.Drain": {"5", "0", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (int, error) { return e.Semaphore(key).Drain(ctx) })
	}, "5", false, false},
	"PermitSemaphore.TrySetPermits": {"", "3", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (bool, error) { return e.PermitSemaphore(key).TrySetPermits(ctx, 3) })
	}, "true", false, false},
	"PermitSemaphore.SetPermits": {"5", "7", func(e *engine.Engine, ctx context.Context, key string) started {
		return failing(func() error { return e.PermitSemaphore(key).SetPermits(ctx, 8) }) // one is held
	}, "{}", false, false},
	"PermitSemaphore.AddPermits": {"5", "3", func(e *engine.Engine, ctx context.Context, key string) started {
		return failing(func() error { return e.PermitSemaphore(key).AddPermits(ctx, -2) })
	}, "{}", false, false},
	"PermitSemaphore.Available": {"5", "5", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (int, error) { return e.PermitSemaphore(key).Available(ctx) })
	}, "5", true, false},
	"PermitSemaphore.Acquired": {"5", "5", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (int, error) { return e.PermitSemaphore(key).Acquired(ctx) })
	}, "1", true, false},
	"PermitSemaphore.Capacity": {"5", "5", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (int, error) { return e.PermitSemaphore(key).Capacity(ctx) })
	}, "6", true, false},
	"PermitSemaphore.ForceRelease": {"5", "6", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (bool, error) { return e.PermitSemaphore(key).ForceRelease(ctx, somePermit) })
	}, "true", false, false},
	"Mutex.State": {"lock", "1", func(e *engine.Engine, ctx context.Context, key string) started {
		return begun(e.Mutex(key).StateAsync(ctx))
	}, "{true false exclusive [{other:1 1}] -1ms}", true, false},
	"RWMutex.State": {"lock", "1", func(e *engine.Engine, ctx context.Context, key string) started {
		return called(func() (engine.State, error) { return e.RWMutex(key).State(ctx) })
	}, "{true false exclusive [{other:1 1}] -1ms}", true, false},
	"Mutex.ForceUnlock": {"lock", "<nil>", func(e *engine.Engine, ctx context.Context, key string) started {
		return begun(e.Mutex(key).ForceUnlockAsync(ctx, engine.IfHolder("other:1")))
	}, "true", false, false},
}

// prepared is a server with what the operations find, and an engine.
func prepared(t testing.TB, change ...func(*engine.Config)) (*redistest.Server, *engine.Engine) {
	t.Helper()
	s := testkit.Server(t)
	for key, op := range operations {
		switch op.before {
		case "":
		case "lock":
			s.Do("HSET", key, "other:1", "1")
		default:
			s.Do("SET", key, op.before)
			s.Do("ZADD", "{"+key+"}:timeout", "99999999999999", rawPermit)
		}
	}
	return s, testkit.Open(t, s.URL(), append(change, func(c *engine.Config) { c.CloseTimeout = 200 * time.Millisecond })...)
}

// startAll starts all of them.
func startAll(ctx context.Context, e *engine.Engine) map[string]started {
	all := make(map[string]started)
	for key, op := range operations {
		all[key] = op.does(e, ctx, key)
	}
	return all
}

// startAllSent starts all of them, on a server that hangs, and waits until they were sent.
func startAllSent(t testing.TB, ctx context.Context, e *engine.Engine) map[string]started {
	t.Helper()
	all := startAll(ctx, e)
	testkit.Eventually(t, "all were sent", func() bool { return e.Stats().InFlight >= len(all) })
	return all
}

// wantResults fails the test unless each has had its result, and has been executed once.
func wantResults(t testing.TB, s *redistest.Server, all map[string]started) {
	t.Helper()
	for key, f := range all {
		op := operations[key]
		if v, err := f.await(testkit.Ctx(t)); err != nil || fmt.Sprint(v) != op.want {
			t.Errorf("%s: %v, %v; want %s", key, v, err, op.want)
		}
		wantCount(t, s, key, op.after)
	}
}

func wantCount(t testing.TB, s *redistest.Server, key, want string) {
	t.Helper()
	get := s.Do("GET", key)
	if operations[key].before == "lock" {
		get = s.Do("HGET", key, "other:1")
	}
	if fmt.Sprint(get) != want {
		t.Errorf("%s: the server has %v, want %s", key, get, want)
	}
}

// patience is longer than a test takes.
func patience(c *engine.Config) { c.CommandTimeout = 5 * time.Minute }

func TestFuture_Operations_HaveTheirResults(t *testing.T) {
	t.Parallel()
	s, e := prepared(t)
	wantResults(t, s, startAll(testkit.Ctx(t), e))
}

func TestFuture_OperationsUnderAnEndedContext_ChangeNothing(t *testing.T) {
	t.Parallel()
	s, e := prepared(t)
	why := errors.New("no more patience")
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	var none context.Context
	for want, ctx := range map[error]context.Context{why: ended, engine.ErrInvalid: none} {
		for key, f := range startAll(ctx, e) {
			if _, err := f.await(testkit.Ctx(t)); !errors.Is(err, want) || errors.Is(err, engine.ErrOutcomeUnknown) {
				t.Errorf("%s: %v, want %v", key, err, want)
			}
		}
	}
	for key, op := range operations {
		if want := map[string]string{"": "<nil>", "lock": "1"}[op.before]; want != "" {
			wantCount(t, s, key, want)
		} else {
			wantCount(t, s, key, op.before)
		}
	}
}

// The server hangs: each call returns nevertheless, and its future ends with its context or with its
// time. What may have been executed is said to be so.
func TestFuture_OperationsOnAServerThatHangs_DoNotBlockTheCaller(t *testing.T) {
	t.Parallel()
	for what, timeout := range map[string]time.Duration{"its context ends": 5 * time.Minute, "its time is over": 2 * time.Second} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, e := prepared(t, func(c *engine.Config) { c.CommandTimeout = timeout })
			s.Stop()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			all := startAllSent(t, ctx, e)
			for key, f := range all {
				if timeout > testkit.Limit && !f.pending() {
					t.Errorf("%s is not pending", key)
				}
			}
			ends := error(engine.ErrUnavailable)
			if timeout > testkit.Limit {
				cancel()
				ends = context.Canceled
			}
			for key, f := range all {
				op := operations[key]
				if op.patient && timeout < testkit.Limit {
					if !f.pending() {
						t.Errorf("%s has ended", key)
					}
					continue
				}
				_, err := f.await(testkit.Ctx(t))
				if unknown := errors.Is(err, engine.ErrOutcomeUnknown); unknown == op.looks || !unknown && !errors.Is(err, ends) {
					t.Errorf("%s: %v", key, err)
				}
			}
			if n := testkit.Inside(e).Many; n > 0 {
				t.Errorf("%d are listed still", n)
			}
			s.Cont()
		})
	}
}

// What is abandoned goes on: nothing is taken back, and nothing is given back that was not taken.
func TestFuture_AbandonedOperation_IsExecuted(t *testing.T) {
	t.Parallel()
	s, e := prepared(t, patience)
	s.Stop()
	all := startAllSent(t, context.Background(), e)
	for key, f := range all {
		f.abandon()
		if !f.pending() {
			t.Errorf("%s is not pending", key)
		}
	}
	s.Cont()
	wantResults(t, s, all)
	for _, f := range all {
		f.abandon() // what has its result
	}
	wantResults(t, s, all)
	if n := e.Stats(); n.Held+n.Waiting > 0 || n.Released > 0 {
		t.Errorf("%+v", n)
	}
}

// Close ends what is pending: in a server that hangs, and while no server is to be had.
func TestClose_PendingOperations_EndTheirFutures(t *testing.T) {
	t.Parallel()
	for what, away := range map[string]func(*redistest.Server){"hangs": (*redistest.Server).Stop, "is away": (*redistest.Server).Kill} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, e := prepared(t, patience)
			away(s)
			if what == "is away" {
				testkit.Eventually(t, "the connections are lost", func() bool { return !testkit.Client(e).Up(resp.RoleLane, 0) })
			}
			var all map[string]started
			if what == "hangs" {
				all = startAllSent(t, context.Background(), e)
			} else {
				all = startAll(context.Background(), e)
			}
			for key, f := range all {
				if !f.pending() {
					t.Errorf("%s is not pending", key)
				}
			}
			_ = e.Close() // its error is another's subject
			for key, f := range all {
				_, err := f.await(testkit.Ctx(t))
				unknown := what == "hangs" && !operations[key].looks
				if !errors.Is(err, engine.ErrClosed) && !unknown || errors.Is(err, engine.ErrOutcomeUnknown) != unknown {
					t.Errorf("%s: %v", key, err)
				}
			}
			for key, f := range startAll(context.Background(), e) {
				if _, err := f.await(testkit.Ctx(t)); !errors.Is(err, engine.ErrClosed) {
					t.Errorf("%s of a closed engine: %v", key, err)
				}
			}
			if what == "hangs" {
				s.Cont()
			}
		})
	}
}

// A value that is not of an engine has futures that call back, too.
func TestFuture_OfAZeroValue_IsInvalid(t *testing.T) {
	t.Parallel()
	errs := make(chan error, 3)
	ctx := testkit.Ctx(t)
	engine.Latch{}.CountDownAsync(ctx).OnComplete(func(_ struct{}, err error) { errs <- err })
	engine.Semaphore{}.AcquireAsync(ctx, 1).OnComplete(func(_ *engine.Permits, err error) { errs <- err })
	engine.Mutex{}.StateAsync(ctx).OnComplete(func(_ engine.State, err error) { errs <- err })
	for range cap(errs) {
		if err := testkit.Receive(t, errs); !errors.Is(err, engine.ErrInvalid) {
			t.Error(err)
		}
	}
}

// Not parallel: it counts the goroutines of the whole process.
//
// However many operations are pending, and while their common context ends, they cost no goroutine
// each.
func TestFuture_PendingOperations_CostNoGoroutines(t *testing.T) {
	const n = 100
	// Each timer that fires is a goroutine, some 200 a second: on a busy machine not the first time.
	for left := 2; ; left-- {
		operations, created := pendingGoroutines(t, n)
		if created <= uint64(operations/2) { // the runtime has some of its own
			return
		}
		if left == 0 {
			t.Fatalf("%d goroutines were started for %d operations", created, operations)
		}
	}
}

// pendingGoroutines has n of each operation that has a future pending until their context ends, and returns how many
// operations that are, and how many goroutines were created.
func pendingGoroutines(t *testing.T, n int) (pending int, created uint64) {
	const few = 20
	s, e := prepared(t, patience)
	s.Stop()
	patient := testkit.Ctx(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	idle, before := runtime.NumGoroutine(), testkit.GoroutinesCreated()
	var all []started
	for i := range n {
		for _, kind := range []string{"Latch.CountDown", "Mutex.State", "Mutex.ForceUnlock"} { // these have a future
			all = append(all, operations[kind].does(e, ctx, fmt.Sprint(kind, i)))
		}
	}
	if more := runtime.NumGoroutine() - idle; more > few {
		t.Errorf("%d goroutines more while %d are pending", more, len(all))
	}
	cancel()
	for _, f := range all {
		if _, err := f.await(patient); !errors.Is(err, context.Canceled) {
			t.Errorf("it did not end with its context: %v", err)
		}
	}
	created = testkit.GoroutinesCreated() - before
	s.Cont()
	return len(all), created
}
