package engine

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

	"github.com/pawl-lock/pawl/internal/redistest"
)

func mustAcquire(t testing.TB, s Semaphore, n int) *Permits {
	t.Helper()
	p, err := s.Acquire(ctxT(t), n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustSet(t testing.TB, s Semaphore, n int) {
	t.Helper()
	if set, err := s.TrySetPermits(ctxT(t), n); err != nil || !set {
		t.Fatal(set, err)
	}
}

func wantAvailable(t testing.TB, s Semaphore, want int) {
	t.Helper()
	if n, err := s.Available(ctxT(t)); err != nil || n != want {
		t.Errorf("%d are available, %v; want %d", n, err, want)
	}
}

// cleanButMarks is clean for counts: the marks expire within a minute, and are deleted here. What was
// given up may be under way still, and leave a mark.
func cleanButMarks(t testing.TB, srv *redistest.Server, engines ...*Engine) {
	t.Helper()
	for _, e := range engines {
		eventually(t, "no command is under way", func() bool { return e.Stats().InFlight == 0 })
	}
	keys, _ := srv.Do("KEYS", "*:pawl:*").([]any)
	for _, key := range keys {
		if ttl := srv.Do("PTTL", key.(string)).(int64); ttl <= 0 || ttl > 60_000 {
			t.Errorf("the mark %v has %d ms left", key, ttl)
		}
		srv.Do("DEL", key.(string))
	}
	clean(t, srv, engines...)
}

func TestSemaphoreCountsItsPermits(t *testing.T) {
	t.Parallel()
	srv := server(t)
	e := open(t, srv.URL())
	ctx := ctxT(t)
	s := e.Semaphore("s")
	wantAvailable(t, s, 0)
	if p, err := s.TryAcquire(ctx, 1); p != nil || !errors.Is(err, ErrNoPermits) || !errors.Is(err, ErrNotAcquired) {
		t.Fatal(p, err)
	}
	mustSet(t, s, 5)
	if set, err := s.TrySetPermits(ctx, 7); set || err != nil {
		t.Error(set, err)
	}
	p := mustAcquire(t, s, 3)
	if p.Count() != 3 || p.Err() != nil {
		t.Error(p.Count(), p.Err())
	}
	wantAvailable(t, s, 2)
	if p, err := s.TryAcquire(ctx, 3); p != nil || !errors.Is(err, ErrHeld) {
		t.Fatal(p, err)
	}
	if err := p.Release(ctx); err != nil || p.Err() != ErrReleased {
		t.Fatal(err, p.Err())
	}
	<-p.Done()
	if err := p.Release(ctx); !errors.Is(err, ErrNotHeld) {
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

func TestNoPermitsAreGrantedLocally(t *testing.T) {
	t.Parallel()
	srv := server(t)
	e := open(t, srv.URL())
	ctx := ctxT(t)
	before := srv.CommandStats()["evalsha"]
	p := mustAcquire(t, e.Semaphore("s"), 0)
	if err := p.Release(ctx); err != nil || p.Err() != ErrReleased {
		t.Error(err, p.Err())
	}
	<-p.Done()
	if err := p.Release(ctx); !errors.Is(err, ErrNotHeld) {
		t.Error(err)
	}
	if n := srv.CommandStats()["evalsha"] - before; n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

func TestSemaphoreRefusesWhatIsNoCount(t *testing.T) {
	t.Parallel()
	srv := server(t)
	e := open(t, srv.URL())
	ctx := ctxT(t)
	s := e.Semaphore("s")
	var none context.Context
	for _, err := range []error{
		errOf(s.Acquire(ctx, -1)), errOf(s.TryAcquire(ctx, 1<<31)), errOf(s.TrySetPermits(ctx, -1)), s.AddPermits(ctx, -1<<31), s.AddPermits(ctx, math.MinInt),
		errOf(s.Acquire(ctx, 1, Lease(time.Second))), errOf(s.Acquire(ctx, 1, Wait(-1))), errOf(s.Acquire(none, 1)),
		errOf(Semaphore{}.Acquire(ctx, 1)), errOf(Semaphore{}.Available(ctx)), Latch{}.CountDown(ctx), errOf(e.Semaphore("").Available(ctx)),
		errOf(Semaphore{}.AcquireAsync(ctx, 1).Await(ctx)), e.Latch("l").Await(ctx, MinHold(time.Second)), errOf(e.Latch("l").TrySetCount(ctx, -1)),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
	for _, err := range []error{errOf(s.Acquire(ctx, 1, Wait(0))), errOf(e.PermitSemaphore("p").Acquire(ctx, 1, Wait(0))), errOf(e.PermitSemaphore("p").TryAcquire(ctx, 1, Wait(1)))} {
		if !errors.Is(err, ErrInvalid) || !hasText(err, "TryAcquire") { // the call that there is
			t.Errorf("%v does not say what to call instead", err)
		}
	}
	srv.Do("HSET", "s", "a", "1")
	for i, err := range []error{errOf(s.Acquire(ctx, 1)), errOf(s.TryAcquire(ctx, 1)), errOf(s.TrySetPermits(ctx, 1)), s.AddPermits(ctx, 1), errOf(s.Available(ctx)), errOf(s.Drain(ctx)), e.Latch("s").CountDown(ctx), e.Latch("s").Await(ctx)} {
		if !errors.Is(err, ErrWrongType) || strings.Contains(err.Error(), "lock") { // it is one
			t.Errorf("%d: %v, want ErrWrongType", i, err)
		}
	}
}

// Redisson's rule for braces gives x and {x} companion keys of one name. Not so the mark: the commands
// of each name have numbers of their own, and are executed each once.
func TestNamesThatDifferInBracesHaveACountEach(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	for _, name := range []string{"x", "{x}"} {
		s.Do("SET", name, "5")
	}
	a, b := e.Semaphore("x"), e.Semaphore("{x}")
	p, err := a.Acquire(ctxT(t), 5)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := b.AddPermits(ctxT(t), 1); err != nil {
			t.Error(err)
		}
	}
	if err := p.Release(ctxT(t)); err != nil {
		t.Error(err)
	}
	if v, w := s.Do("GET", "x"), s.Do("GET", "{x}"); v != "5" || w != "8" {
		t.Errorf("x has %v of 5, {x} has %v of 8", v, w)
	}
	for _, name := range []string{"j", "{j}"} {
		s.Do("SET", name, "2")
		if err := e.Latch(name).CountDown(ctxT(t)); err != nil {
			t.Error(err)
		}
		if v := s.Do("GET", name); v != "1" {
			t.Errorf("%s has %v of 1", name, v)
		}
	}
}

func TestReleaseWakesAWaiterOfAnotherProcess(t *testing.T) {
	t.Parallel()
	srv := server(t)
	a, b := open(t, srv.URL()), open(t, srv.URL())
	mustSet(t, a.Semaphore("s"), 1)
	for range 20 {
		p := mustAcquire(t, a.Semaphore("s"), 1)
		f := b.Semaphore("s").AcquireAsync(ctxT(t), 1)
		eventually(t, "it listens", func() bool { return b.Stats().Channels == 1 })
		if err := p.Release(ctxT(t)); err != nil {
			t.Fatal(err)
		}
		q, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Release(ctxT(t)); err != nil {
			t.Fatal(err)
		}
	}
	wantAvailable(t, a.Semaphore("s"), 1)
}

// One who wants many is not overtaken by those who want few.
func TestWaitersAreServedInOrder(t *testing.T) {
	t.Parallel()
	srv := server(t)
	e := open(t, srv.URL())
	s := e.Semaphore("s")
	mustSet(t, s, 3)
	p := mustAcquire(t, s, 2)
	big := s.AcquireAsync(ctxT(t), 3)
	eventually(t, "it waits", func() bool { return e.Stats().Channels == 1 })
	small := s.AcquireAsync(ctxT(t), 1)
	if _, err := s.TryAcquire(ctxT(t), 1); !errors.Is(err, ErrHeld) {
		t.Error(err)
	}
	if _, err := small.Result(); err != ErrPending {
		t.Error(err)
	}
	if err := p.Release(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	b, err := big.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := small.Result(); err != ErrPending {
		t.Error(err)
	}
	if err := b.Release(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := small.Await(ctxT(t)); err != nil {
		t.Fatal(err)
	}
}

// When one who wants many gives up, those behind it have what is there.
func TestTheNextMayWantLess(t *testing.T) {
	t.Parallel()
	srv := server(t)
	e := open(t, srv.URL())
	s := e.Semaphore("s")
	mustSet(t, s, 2)
	big := s.AcquireAsync(ctxT(t), 3)
	eventually(t, "it waits", func() bool { return e.Stats().Channels == 1 })
	small := s.AcquireAsync(ctxT(t), 2)
	big.Abandon()
	if _, err := small.Await(within(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := big.Result(); !errors.Is(err, ErrNotAcquired) {
		t.Error(err)
	}
}

func TestAcquireGivesUp(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) { // the server must have answered before the time is over
		srv := server(t)
		e := open(t, srv.URL())
		s := e.Semaphore("s")
		_, err := s.Acquire(ctxT(t), 1, Wait(2*time.Second))
		var not *NotAcquiredError
		if !errors.Is(err, ErrHeld) || !errors.As(err, &not) || not.Name != "s" || err.Error() != `engine: semaphore "s" not acquired: Wait is over: held by another` {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Second, errors.New("no patience"))
		defer cancel()
		if _, err := s.Acquire(ctx, 1); !errors.Is(err, ErrHeld) || !hasText(err, "no patience") {
			t.Error(err)
		}
		ctx, cancel = context.WithCancel(context.Background())
		f := s.AcquireAsync(ctx, 1)
		eventually(t, "it waits", func() bool { return e.Stats().Channels == 1 })
		cancel()
		if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cleanButMarks(t, srv, e)
	})
}

// Many goroutines of several processes share one permit, and then a few.
func TestSemaphoreExcludes(t *testing.T) {
	t.Parallel()
	for _, permits := range []int{1, 3} {
		t.Run(fmt.Sprint(permits), func(t *testing.T) {
			t.Parallel()
			srv := server(t)
			engines := []*Engine{open(t, srv.URL()), open(t, srv.URL()), open(t, srv.URL(), func(c *Config) { c.HandOver = -1 })}
			mustSet(t, engines[0].Semaphore("s"), permits)
			var inside atomic.Int64
			var wg sync.WaitGroup
			for _, e := range engines {
				for i := range 32 {
					wg.Go(func() {
						for range 10 {
							n := 1 + i%permits
							p, err := e.Semaphore("s").Acquire(ctxT(t), n)
							if err != nil {
								t.Error(err)
								return
							}
							if now := inside.Add(int64(n)); now > int64(permits) {
								t.Errorf("%d are inside", now)
							}
							stay(srv)
							inside.Add(int64(-n))
							if err := p.Release(ctxT(t)); err != nil {
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
func TestOthersGetTheirTurnAtASemaphore(t *testing.T) {
	t.Parallel()
	srv := server(t)
	a, b := open(t, srv.URL()), open(t, srv.URL())
	mustSet(t, a.Semaphore("s"), 1)
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
	start := time.Now()
	for range 20 {
		p := mustAcquire(t, b.Semaphore("s"), 1)
		if err := p.Release(ctxT(t)); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(start)
	close(stop)
	wg.Wait()
	t.Logf("20 turns took %v", took)
	if took > 5*time.Second {
		t.Errorf("20 turns took %v", took)
	}
}

func TestCloseGivesPermitsBack(t *testing.T) {
	t.Parallel()
	srv := server(t)
	e, other := open(t, srv.URL()), open(t, srv.URL())
	mustSet(t, e.Semaphore("s"), 3)
	p := mustAcquire(t, e.Semaphore("s"), 2)
	released := mustAcquire(t, e.Semaphore("s"), 1)
	if err := released.Release(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	waits := e.Semaphore("s").AcquireAsync(ctxT(t), 3)
	awaits := e.Latch("l").AwaitAsync(ctxT(t))
	if err := errOf(awaits.Await(ctxT(t))); err != nil {
		t.Error(err)
	}
	eventually(t, "it waits", func() bool { return e.Stats().Channels == 1 })
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	var lost *LostError
	if err := p.Err(); !errors.As(err, &lost) || lost.Reason != EngineClosed || err.Error() != `engine: semaphore "s" was lost: the engine was closed` {
		t.Error(err)
	}
	if err := p.Release(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	if _, err := waits.Result(); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotAcquired) {
		t.Error(err)
	}
	for _, err := range []error{errOf(e.Semaphore("s").Acquire(ctxT(t), 1)), e.Latch("l").CountDown(ctxT(t)), errOf(e.Semaphore("s").Acquire(ctxT(t), 0))} {
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	wantAvailable(t, other.Semaphore("s"), 3)
}

func TestShutdownWaitsForPermits(t *testing.T) {
	t.Parallel()
	srv := server(t)
	e := open(t, srv.URL())
	mustSet(t, e.Semaphore("s"), 1)
	p := mustAcquire(t, e.Semaphore("s"), 1)
	done := make(chan error)
	go func() { done <- e.Shutdown(context.Background()) }()
	eventually(t, "it has begun", Closing(e))
	if err := p.Release(ctxT(t)); err != nil {
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
func TestManyAcquiresShareACommand(t *testing.T) {
	t.Parallel()
	srv := server(t)
	e := open(t, srv.URL())
	s := e.Semaphore("s")
	mustSet(t, s, 1000)
	before := srv.CommandStats()["evalsha"]
	var futures []*Future[*Permits]
	for range 1000 {
		futures = append(futures, s.AcquireAsync(ctxT(t), 1))
	}
	all, err := AwaitAll(ctxT(t), futures...)
	if err != nil {
		t.Fatal(err)
	}
	var releases []*Future[struct{}]
	for _, p := range all {
		releases = append(releases, p.ReleaseAsync())
	}
	if _, err := AwaitAll(ctxT(t), releases...); err != nil {
		t.Fatal(err)
	}
	wantAvailable(t, s, 1000)
	t.Logf("%d commands", srv.CommandStats()["evalsha"]-before)
	if n := srv.CommandStats()["evalsha"] - before; n > 400 {
		t.Errorf("%d commands", n)
	}
}

func TestHooksHearOfPermits(t *testing.T) {
	t.Parallel()
	srv := server(t)
	told := make(chan string, 10)
	e := open(t, srv.URL(), func(c *Config) {
		c.Hooks = Hooks{
			Acquired: func(ev AcquiredEvent) {
				told <- fmt.Sprint("acquired ", ev.Kind, " ", ev.Name, " ", ev.Err, " ", ev.Wait < limit, " ", time.Since(ev.Start) < limit)
			},
			Released: func(ev HoldEvent) { told <- "released " + ev.Name + ev.Owner },
			Lost:     func(ev HoldEvent) { told <- fmt.Sprint("lost ", ev.Name, " ", ev.Reason) },
		}
	})
	s := e.Semaphore("s")
	mustSet(t, s, 2)
	p := mustAcquire(t, s, 1)
	mustAcquire(t, s, 1)
	_, refused := s.TryAcquire(ctxT(t), 1)
	if err := p.Release(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"acquired semaphore s <nil> true true", "acquired semaphore s <nil> true true",
		fmt.Sprint("acquired semaphore s ", refused, " true true"), "released s", "lost s the engine was closed",
	} {
		if got := <-told; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
