package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// A worker holds a lock, and its last act is to count down: nobody may be left to wait for that.
func TestLatch_Shutdown_CountDownIsAllowed(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	worker, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	latch := other.Latch("l")
	if _, err := latch.TrySetCount(testkit.Ctx(t), 1); err != nil {
		t.Fatal(err)
	}
	waits := latch.AwaitAsync(testkit.Ctx(t))
	h := testkit.MustLock(t, worker.Mutex("x"))
	shut := make(chan error, 1)
	go func() { shut <- worker.Shutdown(testkit.Ctx(t)) }()
	testkit.Eventually(t, "it shuts down", engine.Closing(worker))
	if err := worker.Latch("l").CountDown(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	if _, err := worker.Latch("l").Count(testkit.Ctx(t)); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a look: %v", err)
	}
	testkit.MustUnlock(t, h)
	if err := testkit.Receive(t, shut); err != nil {
		t.Error(err)
	}
	if _, err := waits.Await(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	if err := worker.Latch("l").CountDown(testkit.Ctx(t)); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func wantAvailable(t testing.TB, s engine.Semaphore, want int) {
	t.Helper()
	if n, err := s.Available(testkit.Ctx(t)); err != nil || n != want {
		t.Errorf("%d are available, %v; want %d", n, err, want)
	}
}

func TestSemaphore_Permits_AreCounted(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	e := testkit.Open(t, srv.URL())
	ctx := testkit.Ctx(t)
	s := e.Semaphore("s")
	wantAvailable(t, s, 0)
	if p, err := s.TryAcquire(ctx, 1); p != nil || !errors.Is(err, engine.ErrNoPermits) || !errors.Is(err, engine.ErrNotAcquired) {
		t.Fatal(p, err)
	}
	testkit.MustSetPermits(t, s, 5)
	if set, err := s.TrySetPermits(ctx, 7); set || err != nil {
		t.Error(set, err)
	}
	p := testkit.MustAcquire(t, s, 3)
	if p.Count() != 3 || p.Err() != nil {
		t.Error(p.Count(), p.Err())
	}
	wantAvailable(t, s, 2)
	if p, err := s.TryAcquire(ctx, 3); p != nil || !errors.Is(err, engine.ErrHeld) {
		t.Fatal(p, err)
	}
	if err := p.Release(ctx); err != nil || p.Err() != engine.ErrReleased {
		t.Fatal(err, p.Err())
	}
	<-p.Done()
	if err := p.Release(ctx); !errors.Is(err, engine.ErrNotHeld) {
		t.Error(err)
	}
	wantAvailable(t, s, 5)
	if err := s.AddPermits(ctx, -7); err != nil {
		t.Error(err)
	}
	wantAvailable(t, s, -2)
	if err := s.AddPermits(ctx, 6); err != nil {
		t.Error(err)
	}
	if n, err := s.Drain(ctx); n != 4 || err != nil {
		t.Error(n, err)
	}
	wantAvailable(t, s, 0)
	if v := srv.Do("GET", "s"); v != "0" {
		t.Errorf("the key is %v", v)
	}
	if n := e.Stats(); n.Held != 0 || n.Waiting != 0 || n.Acquired != 1 || n.Released != 1 {
		t.Errorf("%+v", n)
	}
}

func TestSemaphore_AcquireOfNone_AsksNoServer(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	e := testkit.Open(t, srv.URL())
	ctx := testkit.Ctx(t)
	before := srv.CommandStats()["evalsha"]
	p := testkit.MustAcquire(t, e.Semaphore("s"), 0)
	if err := p.Release(ctx); err != nil || p.Err() != engine.ErrReleased {
		t.Error(err, p.Err())
	}
	<-p.Done()
	if err := p.Release(ctx); !errors.Is(err, engine.ErrNotHeld) {
		t.Error(err)
	}
	if n := srv.CommandStats()["evalsha"] - before; n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

func TestSemaphore_BadArguments_AreInvalid(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	e := testkit.Open(t, srv.URL())
	ctx := testkit.Ctx(t)
	s := e.Semaphore("s")
	var none context.Context
	for _, err := range []error{
		testkit.ErrOf(s.Acquire(ctx, -1)), testkit.ErrOf(s.TryAcquire(ctx, 1<<31)), testkit.ErrOf(s.TrySetPermits(ctx, -1)), s.AddPermits(ctx, -1<<31), s.AddPermits(ctx, math.MinInt),
		testkit.ErrOf(s.Acquire(ctx, 1, engine.Lease(time.Second))), testkit.ErrOf(s.Acquire(ctx, 1, engine.Wait(-1))), testkit.ErrOf(s.Acquire(none, 1)),
		testkit.ErrOf(engine.Semaphore{}.Acquire(ctx, 1)), testkit.ErrOf(engine.Semaphore{}.Available(ctx)), engine.Latch{}.CountDown(ctx), testkit.ErrOf(e.Semaphore("").Available(ctx)),
		testkit.ErrOf(engine.Semaphore{}.AcquireAsync(ctx, 1).Await(ctx)), e.Latch("l").Await(ctx, engine.MinHold(time.Second)), testkit.ErrOf(e.Latch("l").TrySetCount(ctx, -1)),
	} {
		if !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
	for _, err := range []error{testkit.ErrOf(s.Acquire(ctx, 1, engine.Wait(0))), testkit.ErrOf(e.PermitSemaphore("p").Acquire(ctx, 1, engine.Wait(0))), testkit.ErrOf(e.PermitSemaphore("p").TryAcquire(ctx, 1, engine.Wait(1)))} {
		if !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, "TryAcquire") { // the call that there is
			t.Errorf("%v does not say what to call instead", err)
		}
	}
	srv.Do("HSET", "s", "a", "1")
	for i, err := range []error{testkit.ErrOf(s.Acquire(ctx, 1)), testkit.ErrOf(s.TryAcquire(ctx, 1)), testkit.ErrOf(s.TrySetPermits(ctx, 1)), s.AddPermits(ctx, 1), testkit.ErrOf(s.Available(ctx)), testkit.ErrOf(s.Drain(ctx)), e.Latch("s").CountDown(ctx), e.Latch("s").Await(ctx)} {
		if !errors.Is(err, engine.ErrWrongType) || strings.Contains(err.Error(), "lock") { // it is one
			t.Errorf("%d: %v, want ErrWrongType", i, err)
		}
	}
}

// Redisson's rule for braces gives x and {x} companion keys of one name. Not so the mark: the commands
// of each name have numbers of their own, and are executed each once.
func TestSemaphore_NamesThatDifferInBraces_HaveACountEach(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	for _, name := range []string{"x", "{x}"} {
		s.Do("SET", name, "5")
	}
	a, b := e.Semaphore("x"), e.Semaphore("{x}")
	p, err := a.Acquire(testkit.Ctx(t), 5)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := b.AddPermits(testkit.Ctx(t), 1); err != nil {
			t.Error(err)
		}
	}
	if err := p.Release(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	if v, w := s.Do("GET", "x"), s.Do("GET", "{x}"); v != "5" || w != "8" {
		t.Errorf("x has %v of 5, {x} has %v of 8", v, w)
	}
	for _, name := range []string{"j", "{j}"} {
		s.Do("SET", name, "2")
		if err := e.Latch(name).CountDown(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
		if v := s.Do("GET", name); v != "1" {
			t.Errorf("%s has %v of 1", name, v)
		}
	}
}

func TestSemaphore_Release_WakesAWaiterOfAnotherProcess(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	a, b := testkit.Open(t, srv.URL()), testkit.Open(t, srv.URL())
	testkit.MustSetPermits(t, a.Semaphore("s"), 1)
	for range 20 {
		p := testkit.MustAcquire(t, a.Semaphore("s"), 1)
		f := b.Semaphore("s").AcquireAsync(testkit.Ctx(t), 1)
		testkit.Eventually(t, "it listens", func() bool { return b.Stats().Channels == 1 })
		if err := p.Release(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
		q, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Release(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
	}
	wantAvailable(t, a.Semaphore("s"), 1)
}

// One who wants many is not overtaken by those who want few.
func TestSemaphore_Waiters_AreServedInOrder(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	e := testkit.Open(t, srv.URL())
	s := e.Semaphore("s")
	testkit.MustSetPermits(t, s, 3)
	p := testkit.MustAcquire(t, s, 2)
	big := s.AcquireAsync(testkit.Ctx(t), 3)
	testkit.Eventually(t, "it waits", func() bool { return e.Stats().Channels == 1 })
	small := s.AcquireAsync(testkit.Ctx(t), 1)
	if _, err := s.TryAcquire(testkit.Ctx(t), 1); !errors.Is(err, engine.ErrHeld) {
		t.Error(err)
	}
	if _, err := small.Result(); err != engine.ErrPending {
		t.Error(err)
	}
	if err := p.Release(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	b, err := big.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := small.Result(); err != engine.ErrPending {
		t.Error(err)
	}
	if err := b.Release(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := small.Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
}

// When one who wants many gives up, those behind it have what is there.
func TestSemaphore_HeadGivesUp_NextGetsWhatIsThere(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	e := testkit.Open(t, srv.URL())
	s := e.Semaphore("s")
	testkit.MustSetPermits(t, s, 2)
	big := s.AcquireAsync(testkit.Ctx(t), 3)
	testkit.Eventually(t, "it waits", func() bool { return e.Stats().Channels == 1 })
	small := s.AcquireAsync(testkit.Ctx(t), 2)
	big.Abandon()
	if _, err := small.Await(testkit.Within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := big.Result(); !errors.Is(err, engine.ErrNotAcquired) {
		t.Error(err)
	}
}

func TestSemaphore_AcquireWithABound_GivesUp(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // the server must have answered before the time is over
		srv := testkit.Server(t)
		e := testkit.Open(t, srv.URL())
		s := e.Semaphore("s")
		_, err := s.Acquire(testkit.Ctx(t), 1, engine.Wait(2*time.Second))
		var not *engine.NotAcquiredError
		if !errors.Is(err, engine.ErrHeld) || !errors.As(err, &not) || not.Name != "s" || err.Error() != `engine: semaphore "s" not acquired: Wait is over: held by another` {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Second, errors.New("no patience"))
		defer cancel()
		if _, err := s.Acquire(ctx, 1); !errors.Is(err, engine.ErrHeld) || !testkit.HasText(err, "no patience") {
			t.Error(err)
		}
		ctx, cancel = context.WithCancel(context.Background())
		f := s.AcquireAsync(ctx, 1)
		testkit.Eventually(t, "it waits", func() bool { return e.Stats().Channels == 1 })
		cancel()
		if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		testkit.CleanButMarks(t, srv, e)
	})
}

// Many goroutines of several processes share one permit, and then a few.
func TestSemaphore_Contended_Excludes(t *testing.T) {
	t.Parallel()
	for _, permits := range []int{1, 3} {
		t.Run(fmt.Sprint(permits), func(t *testing.T) {
			t.Parallel()
			srv := testkit.Server(t)
			engines := []*engine.Engine{testkit.Open(t, srv.URL()), testkit.Open(t, srv.URL()), testkit.Open(t, srv.URL(), func(c *engine.Config) { c.HandOverTime = -1 })}
			testkit.MustSetPermits(t, engines[0].Semaphore("s"), permits)
			var inside atomic.Int64
			var wg sync.WaitGroup
			for _, e := range engines {
				for i := range 32 {
					wg.Go(func() {
						for range 10 {
							n := 1 + i%permits
							p, err := e.Semaphore("s").Acquire(testkit.Ctx(t), n)
							if err != nil {
								t.Error(err)
								return
							}
							if now := inside.Add(int64(n)); now > int64(permits) {
								t.Errorf("%d are inside", now)
							}
							testkit.Stay(srv)
							inside.Add(int64(-n))
							if err := p.Release(testkit.Ctx(t)); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
			wantAvailable(t, engines[0].Semaphore("s"), permits)
		})
	}
}

// Permits go round in one process for a turn only.
func TestSemaphore_BusyProcess_OthersGetTheirTurn(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	a, b := testkit.Open(t, srv.URL()), testkit.Open(t, srv.URL())
	testkit.MustSetPermits(t, a.Semaphore("s"), 1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if p, err := a.Semaphore("s").Acquire(context.Background(), 1); err == nil {
					_ = p.Release(context.Background())
				}
			}
		})
	}
	start := cputime.Now()
	for range 20 {
		p := testkit.MustAcquire(t, b.Semaphore("s"), 1)
		if err := p.Release(testkit.Ctx(t)); err != nil {
			t.Fatal(err)
		}
	}
	took := start.Elapsed()
	close(stop)
	wg.Wait()
	t.Logf("20 turns took %v", took)
	if took > 5*time.Second {
		t.Errorf("20 turns took %v", took)
	}
}

func TestSemaphore_Close_GivesPermitsBack(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	e, other := testkit.Open(t, srv.URL()), testkit.Open(t, srv.URL())
	testkit.MustSetPermits(t, e.Semaphore("s"), 3)
	p := testkit.MustAcquire(t, e.Semaphore("s"), 2)
	released := testkit.MustAcquire(t, e.Semaphore("s"), 1)
	if err := released.Release(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	waits := e.Semaphore("s").AcquireAsync(testkit.Ctx(t), 3)
	awaits := e.Latch("l").AwaitAsync(testkit.Ctx(t))
	if err := testkit.ErrOf(awaits.Await(testkit.Ctx(t))); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "it waits", func() bool { return e.Stats().Channels == 1 })
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	var lost *engine.LostError
	if err := p.Err(); !errors.As(err, &lost) || lost.Reason != engine.EngineClosed || err.Error() != `engine: semaphore "s" was lost: the engine was closed` {
		t.Error(err)
	}
	if err := p.Release(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Error(err)
	}
	if _, err := waits.Result(); !errors.Is(err, engine.ErrClosed) || !errors.Is(err, engine.ErrNotAcquired) {
		t.Error(err)
	}
	for _, err := range []error{testkit.ErrOf(e.Semaphore("s").Acquire(testkit.Ctx(t), 1)), e.Latch("l").CountDown(testkit.Ctx(t)), testkit.ErrOf(e.Semaphore("s").Acquire(testkit.Ctx(t), 0))} {
		if !errors.Is(err, engine.ErrClosed) {
			t.Error(err)
		}
	}
	wantAvailable(t, other.Semaphore("s"), 3)
}

func TestSemaphore_Shutdown_WaitsForPermits(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	e := testkit.Open(t, srv.URL())
	testkit.MustSetPermits(t, e.Semaphore("s"), 1)
	p := testkit.MustAcquire(t, e.Semaphore("s"), 1)
	done := make(chan error)
	go func() { done <- e.Shutdown(context.Background()) }()
	testkit.Eventually(t, "it has begun", engine.Closing(e))
	if err := p.Release(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if v := srv.Do("GET", "s"); v != "1" {
		t.Errorf("the key is %v", v)
	}
}

// Many operations share a command.
func TestSemaphore_ManyAcquires_ShareACommand(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	e := testkit.Open(t, srv.URL())
	s := e.Semaphore("s")
	testkit.MustSetPermits(t, s, 1000)
	before := srv.CommandStats()["evalsha"]
	var futures []*engine.Future[*engine.Permits]
	for range 1000 {
		futures = append(futures, s.AcquireAsync(testkit.Ctx(t), 1))
	}
	all, err := engine.AwaitAll(testkit.Ctx(t), futures...)
	if err != nil {
		t.Fatal(err)
	}
	var releases []*engine.Future[struct{}]
	for _, p := range all {
		releases = append(releases, p.ReleaseAsync())
	}
	if _, err := engine.AwaitAll(testkit.Ctx(t), releases...); err != nil {
		t.Fatal(err)
	}
	wantAvailable(t, s, 1000)
	t.Logf("%d commands", srv.CommandStats()["evalsha"]-before)
	if n := srv.CommandStats()["evalsha"] - before; n > 400 {
		t.Errorf("%d commands", n)
	}
}

func TestObserver_Permits_AreReported(t *testing.T) {
	t.Parallel()
	srv := testkit.Server(t)
	leakCheck := make(chan string, 10)
	e := testkit.Open(t, srv.URL(), func(c *engine.Config) {
		c.Observer = engine.ObserverFuncs{
			OnAcquireEnd: func(_ context.Context, a engine.Acquisition, end engine.AcquireEnd) {
				leakCheck <- fmt.Sprint(end.Outcome, " ", a.Kind, " ", a.Name, " ", a.Permits, " ", end.Err, " ", end.Wait < testkit.Limit, " ", time.Since(end.Time) < testkit.Limit)
			},
			OnHoldEnd: func(_ context.Context, a engine.Acquisition, end engine.HoldEnd) {
				leakCheck <- fmt.Sprint(a.Name, " ended ", end.Owner(), end.Reason.Code())
			},
		}
	})
	s := e.Semaphore("s")
	testkit.MustSetPermits(t, s, 2)
	p := testkit.MustAcquire(t, s, 1)
	testkit.MustAcquire(t, s, 1)
	_, refused := s.TryAcquire(testkit.Ctx(t), 1)
	if err := p.Release(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"granted semaphore s 1 <nil> true true", "granted semaphore s 1 <nil> true true",
		fmt.Sprint("refused semaphore s 1 ", refused, " true true"), "s ended ", "s ended engine_closed",
	} {
		if got := <-leakCheck; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
