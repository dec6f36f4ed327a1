package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// permitSemaphore is one of a fresh engine, with so many permits.
func permitSemaphore(t testing.TB, s *redistest.Server, n int, change ...func(*engine.Config)) (*engine.Engine, engine.PermitSemaphore) {
	t.Helper()
	e := testkit.Open(t, s.URL(), change...)
	sem := e.PermitSemaphore("x")
	if err := sem.SetPermits(testkit.Ctx(t), n); err != nil {
		t.Fatal(err)
	}
	return e, sem
}

// permitsAre fails the test unless so many permits are to be had, and so many held, on the server.
func permitsAre(t testing.TB, s *redistest.Server, available, held int) {
	t.Helper()
	n, _ := s.Do("GET", "x").(string)
	if ids := s.Do("ZCARD", "{x}:timeout"); n != strconv.Itoa(available) || ids != int64(held) {
		t.Errorf("%s permits are to be had and %v held, want %d and %d", n, ids, available, held)
	}
}

// What Redisson would find on the server, and what counts it.
func TestPermitSemaphore_Server_HasItsPermits(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, sem := permitSemaphore(t, s, 3)
	if set, err := sem.TrySetPermits(testkit.Ctx(t), 9); set || err != nil {
		t.Errorf("TrySetPermits of a semaphore that exists: %v, %v", set, err)
	}
	h := testkit.MustTake(t, sem, 2, engine.Lease(time.Minute))
	permitsAre(t, s, 1, 2)
	ids := h.PermitIDs()
	if len(ids) != 2 || len(ids[0]) != 32 || ids[0] == ids[1] {
		t.Errorf("ids %q", ids)
	}
	for _, id := range ids {
		raw := make([]byte, 0, 16)
		for i := 0; i < len(id); i += 2 {
			b, _ := strconv.ParseUint(id[i:i+2], 16, 8)
			raw = append(raw, byte(b))
		}
		score, _ := s.Do("ZSCORE", "{x}:timeout", string(raw)).(string)
		ms, _ := strconv.ParseInt(score, 10, 64)
		if left := time.Until(time.UnixMilli(ms)); left < 50*time.Second || left > time.Minute {
			t.Errorf("id %s ends in %v (%q)", id, left, score)
		}
	}
	for what, x := range map[string]struct {
		ask  func(context.Context) (int, error)
		want int
	}{"available": {sem.Available, 1}, "acquired": {sem.Acquired, 2}, "capacity": {sem.Capacity, 3}} {
		if n, err := x.ask(testkit.Ctx(t)); n != x.want || err != nil {
			t.Errorf("%s: %d, %v, want %d", what, n, err, x.want)
		}
	}
	if _, err := sem.TryAcquire(testkit.Ctx(t), 2); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("TryAcquire of more than there are: %v", err)
	}
	testkit.MustUnlock(t, h)
	permitsAre(t, s, 3, 0)
	if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotHeld) {
		t.Errorf("Unlock once more: %v", err)
	}
	permitsAre(t, s, 3, 0)
	if err := sem.AddPermits(testkit.Ctx(t), -5); err != nil {
		t.Error(err)
	}
	permitsAre(t, s, -2, 0)
	if err := sem.SetPermits(testkit.Ctx(t), 4); err != nil {
		t.Error(err)
	}
	permitsAre(t, s, 4, 0)
	testkit.Eventually(t, "nothing is left here", func() bool { return testkit.Inside(e).Names == 0 })
}

// Those who wait in one process are served in order, at the cost of few tries; one who wants many
// is not overtaken by those who want few.
func TestPermitSemaphore_Waiters_AreServedInOrderWithoutAHerd(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, sem := permitSemaphore(t, s, 2)
	first, second := testkit.MustTake(t, sem, 1), testkit.MustTake(t, sem, 1)
	const n = 60
	var futures []*engine.Future[*engine.Hold]
	for i := range n {
		futures = append(futures, sem.AcquireAsync(testkit.Ctx(t), 1+i%2))
	}
	testkit.Eventually(t, "they wait", func() bool { return e.Stats().Waiting == n && e.Stats().Channels == 1 })
	before := s.CommandStats()["evalsha"]
	testkit.MustUnlock(t, first)
	testkit.MustUnlock(t, second)
	for i, f := range futures {
		h, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, later := range futures[min(i+2, n):] { // the next one may have the other permit
			if _, err := later.Result(); err != engine.ErrPending {
				t.Fatalf("one that came after %d has been served before it was: %v", i, err)
			}
		}
		testkit.MustUnlock(t, h)
	}
	// Each costs a release, a try that is granted, and mostly one that is refused.
	if sent := s.CommandStats()["evalsha"] - before; sent > 4*n {
		t.Errorf("%d commands for %d waiters", sent, n)
	}
	permitsAre(t, s, 2, 0)
}

// A waiter is told of permits that others add or give back, and finds by itself those that end.
func TestPermitSemaphore_Release_WakesWaiters(t *testing.T) {
	t.Parallel()
	for what, x := range map[string]struct {
		free   func(t testing.TB, s *redistest.Server, other engine.PermitSemaphore)
		within time.Duration
	}{
		"given back elsewhere": {func(t testing.TB, s *redistest.Server, other engine.PermitSemaphore) {
			if ok, err := other.ForceRelease(testkit.Ctx(t), "0123456789abcdef0123456789abcdef"); !ok || err != nil {
				t.Errorf("ForceRelease: %v, %v", ok, err)
			}
		}, 3 * time.Second},
		"added": {func(t testing.TB, s *redistest.Server, other engine.PermitSemaphore) {
			if err := other.AddPermits(testkit.Ctx(t), 1); err != nil {
				t.Error(err)
			}
		}, 3 * time.Second},
		"by Redisson": {func(t testing.TB, s *redistest.Server, _ engine.PermitSemaphore) {
			s.Do("INCRBY", "x", "1")
			s.Do("PUBLISH", "redisson_sc:{x}", "1")
		}, 3 * time.Second},
		"expired": {func(t testing.TB, s *redistest.Server, _ engine.PermitSemaphore) {
			s.Do("ZADD", "{x}:timeout", strconv.FormatInt(time.Now().UnixMilli(), 10), "foreign foreign!")
			s.Do("PUBLISH", "redisson_sc:{x}", "1")
		}, 3 * time.Second},
		"set by hand, without a message": {func(t testing.TB, s *redistest.Server, _ engine.PermitSemaphore) {
			s.Do("INCRBY", "x", "1")
		}, unasked},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			e, sem := permitSemaphore(t, s, 0)
			s.Do("ZADD", "{x}:timeout", strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10), "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef")
			fut := sem.AcquireAsync(testkit.Ctx(t), 1)
			testkit.Eventually(t, "it listens", func() bool { return testkit.Client(e).Stats().ChannelsConfirmed == 1 })
			start := cputime.Now()
			x.free(t, s, testkit.Open(t, s.URL()).PermitSemaphore("x"))
			h, err := fut.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := start.Elapsed(); d > x.within {
				t.Errorf("after %v", d)
			}
			testkit.MustUnlock(t, h)
		})
	}
}

// One who wants more than there are gives up, and those behind it, who want few, need not be told.
func TestPermitSemaphore_HeadGivesUp_NextIsGranted(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, sem := permitSemaphore(t, s, 4)
	defer testkit.MustUnlock(t, testkit.MustTake(t, sem, 1, engine.Lease(time.Minute)))
	ctx, cancel := context.WithCancel(testkit.Ctx(t))
	many := sem.AcquireAsync(ctx, 5)
	testkit.Eventually(t, "it listens", func() bool { return testkit.Client(e).Stats().ChannelsConfirmed == 1 })
	few := []*engine.Future[*engine.Hold]{sem.AcquireAsync(testkit.Ctx(t), 1), sem.AcquireAsync(testkit.Ctx(t), 2)}
	start := cputime.Now()
	cancel()
	if _, err := many.Await(testkit.Ctx(t)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, f := range few {
		h, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		defer testkit.MustUnlock(t, h)
	}
	if d := start.Elapsed(); d > 2*time.Second {
		t.Errorf("after %v", d)
	}
}

// unasked is how long a waiter sleeps at most that nobody tells anything, and some more.
const unasked = 12 * time.Second

// A permit whose lease ends comes to who waits, without a message.
func TestPermitSemaphore_LeaseEnds_WaiterIsGranted(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		_, sem := permitSemaphore(t, s, 0)
		ends := time.Now().Add(4 * time.Second)
		s.Do("ZADD", "{x}:timeout", strconv.FormatInt(ends.UnixMilli(), 10), "foreign foreign!")
		if _, err := sem.Acquire(testkit.Ctx(t), 1, engine.Wait(1500*time.Millisecond)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("too soon: %v", err)
		}
		h := testkit.MustTake(t, sem, 1)
		if late := time.Since(ends); late < 0 || late > 3*time.Second {
			t.Errorf("granted %v after the end", late)
		}
		testkit.MustUnlock(t, h)
		permitsAre(t, s, 1, 0)
	})
}

// The watchdog renews; a fixed lease ends, and is extended.
func TestPermitSemaphore_Watchdog_KeepsPermits(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		_, sem := permitSemaphore(t, s, 9, testkit.ShortLease(900*time.Millisecond))
		watched := testkit.MustTake(t, sem, 3)
		extended := testkit.MustTake(t, sem, 2, engine.Lease(800*time.Millisecond))
		fixed := testkit.MustTake(t, sem, 1, engine.Lease(800*time.Millisecond))
		if err := extended.Extend(testkit.Ctx(t), time.Minute); err != nil {
			t.Fatal(err)
		}
		<-fixed.Done()
		if err := fixed.Err(); !errors.Is(err, engine.ErrLost) {
			t.Errorf("the fixed lease: %v", err)
		}
		start := cputime.Now()
		testkit.Eventually(t, "three leases are over", func() bool { return start.Elapsed() > 3*time.Second })
		if watched.Err() != nil || extended.Err() != nil {
			t.Errorf("watched: %v, extended: %v", watched.Err(), extended.Err())
		}
		permitsAre(t, s, 4, 5)
		testkit.MustUnlock(t, watched)
		testkit.MustUnlock(t, extended)
		permitsAre(t, s, 9, 0)
	})
}

// One of several permits is taken away: the hold is lost, and the others come back. Each comes
// back once.
func TestPermitSemaphore_OnePermitTakenAway_EndsTheHold(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	_, sem := permitSemaphore(t, s, 5, testkit.ShortLease(3*time.Second))
	h, other := testkit.MustTake(t, sem, 3), testkit.MustTake(t, sem, 1)
	for i, want := range []bool{true, false} {
		if got, err := sem.ForceRelease(testkit.Ctx(t), h.PermitIDs()[1]); got != want || err != nil {
			t.Errorf("ForceRelease %d: %v, %v", i, got, err)
		}
	}
	<-h.Done()
	var lost *engine.LostError
	if err := h.Err(); !errors.As(err, &lost) || lost.Reason != engine.RemovedOnServer {
		t.Errorf("the hold: %v", err)
	}
	testkit.Eventually(t, "the others are back", func() bool { return s.Do("ZCARD", "{x}:timeout") == int64(1) })
	permitsAre(t, s, 4, 1)

	// At the release, nobody knew yet.
	if ok, err := sem.ForceRelease(testkit.Ctx(t), other.PermitIDs()[0]); !ok || err != nil {
		t.Errorf("ForceRelease: %v, %v", ok, err)
	}
	if err := other.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("Unlock of what was taken away: %v", err)
	}
	permitsAre(t, s, 5, 0)
}

// A grant that nobody wants any more, an abandoned future, a closed engine: all comes back.
func TestPermitSemaphore_UnwantedPermits_ComeBack(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, sem := permitSemaphore(t, s, 4)
	granted := sem.AcquireAsync(testkit.Ctx(t), 2)
	if _, err := granted.Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	granted.Abandon()
	sem.AcquireAsync(testkit.Ctx(t), 1).Abandon()
	held := testkit.MustTake(t, sem, 4)
	waits := sem.AcquireAsync(testkit.Ctx(t), 1)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if _, err := waits.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("one that waited: %v", err)
	}
	var lost *engine.LostError
	if err := held.Err(); !errors.As(err, &lost) || lost.Reason != engine.EngineClosed {
		t.Errorf("what was held: %v", err)
	}
	permitsAre(t, s, 4, 0)
}

// Whatever becomes of connections: never more are held than there are, and none is lost or made.
func TestPermitSemaphore_ConnectionsLost_KeepsPermits(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	const capacity = 5
	var held, most atomic.Int64
	var wg sync.WaitGroup
	var engines []*engine.Engine
	var granted atomic.Int64
	ctx, stop := context.WithCancel(context.Background()) // each round has a patience of its own
	defer stop()
	for range 2 {
		e, sem := permitSemaphore(t, s, capacity)
		engines = append(engines, e)
		for w := range 12 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for ctx.Err() == nil {
					n := 1 + w%3
					h, err := sem.Acquire(ctx, n)
					if err != nil {
						continue
					}
					now := held.Add(int64(n))
					for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
					}
					granted.Add(1)
					testkit.Stay(s)
					held.Add(int64(-n))
					h.UnlockAsync()
				}
			}()
		}
	}
	for range 40 {
		before := granted.Load()
		testkit.Eventually(t, "some are granted", func() bool { return granted.Load() > before+10 })
		s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		s.Do("CLIENT", "KILL", "TYPE", "pubsub")
	}
	stop()
	wg.Wait()
	if n := most.Load(); n > capacity {
		t.Errorf("%d were held at a time", n)
	}
	for _, e := range engines {
		if err := e.Close(); err != nil {
			t.Log(err) // what is in doubt ends with its lease
		}
	}
	after := testkit.Open(t, s.URL()).PermitSemaphore("x")
	if n, err := after.Capacity(testkit.Ctx(t)); n != capacity || err != nil {
		t.Errorf("%d permits in the end, %v", n, err)
	}
}

// A semaphore is no lock: neither shares the other's name, nor is it re-entered.
func TestPermitSemaphore_UnderAHold_IsNotReentered(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, sem := permitSemaphore(t, s, 2)
	h := testkit.MustTake(t, sem, 1)
	inner, err := sem.TryAcquire(h.Context(testkit.Ctx(t)), 1)
	if err != nil {
		t.Fatal(err)
	}
	if inner.PermitIDs()[0] == h.PermitIDs()[0] {
		t.Error("the same permit")
	}
	permitsAre(t, s, 0, 2)
	if _, err := e.Mutex("x").TryLock(h.Context(testkit.Ctx(t))); !errors.Is(err, engine.ErrKindConflict) {
		t.Errorf("a Mutex: %v", err)
	}
	testkit.MustUnlock(t, h)
	if inner.Err() != nil {
		t.Errorf("the other hold: %v", inner.Err())
	}
	testkit.MustUnlock(t, inner)
	testkit.Eventually(t, "nothing is left here", func() bool { return testkit.Inside(e).Names == 0 })
	if _, err := e.Mutex("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrWrongType) {
		t.Errorf("a Mutex of a key that is none: %v", err)
	}
	lock := testkit.MustLock(t, e.Mutex("y"))
	if _, err := e.PermitSemaphore("y").TryAcquire(lock.Context(testkit.Ctx(t)), 1); !errors.Is(err, engine.ErrKindConflict) {
		t.Errorf("permits of a lock: %v", err)
	}
	ran := false
	if err := sem.Permits(2).Do(testkit.Ctx(t), func(ctx context.Context, h *engine.Hold) error { ran = len(h.PermitIDs()) == 2; return nil }); err != nil || !ran {
		t.Errorf("Do: %v, %v", ran, err)
	}
	other := testkit.MustTake(t, sem, 2)
	if ran, err := sem.Permits(1).TryDo(testkit.Ctx(t), func(context.Context, *engine.Hold) error { return nil }); ran || err != nil {
		t.Errorf("TryDo: %v, %v", ran, err)
	}
	testkit.MustUnlock(t, other)
}

func TestPermitSemaphore_BadArguments_AreInvalid(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	_, sem := permitSemaphore(t, s, 2)
	try := func(s engine.PermitSemaphore, n int, opts ...engine.Option) error {
		_, err := s.TryAcquire(testkit.Ctx(t), n, opts...)
		return err
	}
	for what, err := range map[string]error{
		"none":         try(sem, 0),
		"too many":     try(sem, script.MaxPermits+1),
		"MinHold":      try(sem, 1, engine.MinHold(time.Second)),
		"NonReentrant": try(sem, 1, engine.NonReentrant()),
		"Backoff":      try(sem, 1, engine.Backoff(time.Millisecond, time.Second)),
		"zero":         try(engine.PermitSemaphore{}, 1),
		"set to -1":    sem.SetPermits(testkit.Ctx(t), -1),
		"added 2^40":   sem.AddPermits(testkit.Ctx(t), 1<<40),
		"the zero one": engine.PermitSemaphore{}.AddPermits(testkit.Ctx(t), 1),
	} {
		if !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, id := range []string{"", "x", "0123", "0123456789abcdef0123456789abcdeg", "0123456789abcdef0123456789abcdef00"} {
		if _, err := sem.ForceRelease(testkit.Ctx(t), id); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("id %q: %v", id, err)
		}
	}
	_, err := sem.AcquireAsync(testkit.Ctx(t), 0).Await(testkit.Ctx(t))
	if !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("AcquireAsync of none: %v", err)
	}
	all := testkit.MustTake(t, sem, 2)
	if got := fmt.Sprint(all, new(engine.Hold)); got != `Hold(2 of "x") Hold(none)` {
		t.Error(got)
	}
	if !slices.Equal(all.PermitIDs(), all.PermitIDs()) || script.MaxPermits != 256 {
		t.Error("the ids of a hold change")
	}
	testkit.MustUnlock(t, all)
}

// A semaphore that nobody set is not one whose permits others have: no waiting helps, and the error
// says what does.
func TestTryAcquire_NobodySetPermits_SaysWhatToCall(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	permits, count := e.PermitSemaphore("p"), e.Semaphore("c")
	tries := map[string]func() error{
		"PermitSemaphore":        func() error { return testkit.ErrOf(permits.TryAcquire(testkit.Ctx(t), 2)) },
		"PermitSemaphore, async": func() error { return testkit.ErrOf(permits.TryAcquireAsync(testkit.Ctx(t), 1).Await(testkit.Ctx(t))) },
		"PermitSemaphore, TryDo": func() error { return testkit.ErrOf(permits.Permits(1).TryDo(testkit.Ctx(t), nil)) },
		"Semaphore":              func() error { return testkit.ErrOf(count.TryAcquire(testkit.Ctx(t), 2)) },
		"Semaphore, async":       func() error { return testkit.ErrOf(count.TryAcquireAsync(testkit.Ctx(t), 1).Await(testkit.Ctx(t))) },
	}
	are := func(state string, want error) {
		t.Helper()
		for way, try := range tries {
			err := try()
			if way == "PermitSemaphore, TryDo" && want == engine.ErrHeld {
				if err != nil {
					t.Errorf("%s, %s: %v", way, state, err)
				}
				continue
			}
			if !errors.Is(err, engine.ErrNotAcquired) || errors.Is(err, engine.ErrNoPermits) != (want == engine.ErrNoPermits) || errors.Is(err, engine.ErrHeld) != (want == engine.ErrHeld) {
				t.Errorf("%s, %s: %v, want %v", way, state, err, want)
			}
			if want == engine.ErrNoPermits && !testkit.HasText(err, "SetPermits") {
				t.Errorf("%s, %s: %v does not say what to call", way, state, err)
			}
		}
	}
	are("nobody set it", engine.ErrNoPermits)
	if err := permits.SetPermits(testkit.Ctx(t), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := count.TrySetPermits(testkit.Ctx(t), 0); err != nil {
		t.Fatal(err)
	}
	are("it has none", engine.ErrHeld)
	s.Do("DEL", "p", "c")
	are("it was deleted", engine.ErrNoPermits)
	// Acquire waits until somebody sets it.
	waiting := permits.AcquireAsync(testkit.Ctx(t), 1)
	counting := count.AcquireAsync(testkit.Ctx(t), 1)
	testkit.Eventually(t, "both wait", func() bool { return e.Stats().Waiting == 2 && e.Stats().InFlight == 0 })
	other := testkit.Open(t, s.URL())
	if err := other.PermitSemaphore("p").SetPermits(testkit.Ctx(t), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Semaphore("c").TrySetPermits(testkit.Ctx(t), 1); err != nil {
		t.Fatal(err)
	}
	h, err := waiting.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	p, err := counting.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
}
