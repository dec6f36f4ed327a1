package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func TestFuture_Completed_ShowsOneResultToEverybody(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.Mutex("x")
	first := testkit.MustLock(t, m)
	f := m.LockAsync(testkit.Ctx(t))
	if _, err := f.Result(); err != engine.ErrPending {
		t.Fatalf("Result before: %v, want ErrPending", err)
	}
	var results [16]*engine.Hold
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			if i%2 == 0 {
				<-f.Done()
			}
			h, err := f.Await(testkit.Ctx(t))
			if err != nil {
				t.Error(err)
			}
			results[i] = h
		})
	}
	testkit.MustUnlock(t, first)
	wg.Wait()
	h, err := f.Result()
	if err != nil || h == nil {
		t.Fatalf("Result after: %v, %v", h, err)
	}
	for i, got := range results {
		if got != h {
			t.Errorf("observer %d got %p, want %p", i, got, h)
		}
	}
	<-f.Done() // made before or after: it is closed
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s)
}

func TestFuture_AwaitEndsWithItsContext_FutureIsCompletedLater(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	first := testkit.MustLock(t, m)
	f := m.LockAsync(testkit.Ctx(t))
	impatient, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no more patience")
	cancel(why)
	if _, err := f.Await(impatient); !errors.Is(err, engine.ErrPending) || !errors.Is(err, why) {
		t.Fatalf("Await: %v, want ErrPending and the cause", err)
	}
	testkit.MustUnlock(t, first)
	h, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := f.Await(impatient); again != h || err != nil {
		t.Errorf("Await of a complete future under an ended context: %v, %v", again, err)
	}
	testkit.MustUnlock(t, h)
}

func TestFuture_OnCompleteOfNoFunction_DoesNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	f := e.Mutex("x").LockAsync(testkit.Ctx(t))
	f.OnComplete(nil)
	called := make(chan struct{})
	f.OnComplete(func(*engine.Hold, error) { close(called) })
	h, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Receive(t, called)
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s, e)
}

func TestFuture_Callbacks_RunInOrderOfRegistration(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	first := testkit.MustLock(t, m)
	f := m.LockAsync(testkit.Ctx(t))
	var order []int // written by one callback after another
	all := make(chan struct{})
	for i := range 100 {
		f.OnComplete(func(h *engine.Hold, err error) {
			if h == nil || err != nil {
				t.Errorf("callback %d: %v, %v", i, h, err)
			}
			order = append(order, i)
			if i == 50 { // from inside: it comes last
				f.OnComplete(func(*engine.Hold, error) { order = append(order, 100); close(all) })
			}
		})
	}
	testkit.MustUnlock(t, first)
	testkit.Receive(t, all)
	if !slices.IsSorted(order) || len(order) != 101 {
		t.Errorf("order is %v", order)
	}
	late := make(chan struct{})
	f.OnComplete(func(h *engine.Hold, _ error) { close(late); h.UnlockAsync() })
	testkit.Receive(t, late)
	testkit.Eventually(t, "the lock is free", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
}

func TestFuture_AbandonPending_Cancels(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.Mutex("x")
	first := testkit.MustLock(t, m)
	f, next := m.LockAsync(testkit.Ctx(t)), m.LockAsync(testkit.Ctx(t))
	f.Abandon()
	if _, err := f.Result(); !errors.Is(err, engine.ErrNotAcquired) || !testkit.HasText(err, "abandoned") {
		t.Errorf("abandoned: %v", err)
	}
	f.Abandon() // harmless
	testkit.MustUnlock(t, first)
	h, err := next.Await(testkit.Ctx(t)) // the one behind comes in
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s)
}

func TestFuture_AbandonAfterTheGrant_ReleasesIt(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	f := m.LockAsync(testkit.Ctx(t))
	h, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	f.Abandon()
	f.Abandon()
	testkit.Receive(t, h.Done())
	if err := h.Err(); err != engine.ErrReleased {
		t.Errorf("Err: %v, want ErrReleased", err)
	}
	testkit.MustUnlock(t, testkit.MustLock(t, m))
	testkit.Clean(t, s)
}

// The grant is on its way when the future is abandoned. Whichever comes first, the lock
// does not stay held.
func TestFuture_AbandonBeforeTheGrant_ReleasesIt(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.Mutex("x")
	for i := range 500 {
		f := m.LockAsync(testkit.Ctx(t))
		for range i % 50 {
			_, _ = f.Result()
		}
		f.Abandon()
		if _, err := f.Await(testkit.Ctx(t)); errors.Is(err, engine.ErrPending) {
			t.Fatal("an abandoned future stays pending")
		}
	}
	testkit.MustUnlock(t, testkit.MustLock(t, m))
	if n := e.Stats().Held; n != 0 {
		t.Errorf("%d held", n)
	}
	testkit.Clean(t, s)
}

func TestAwaitAll_AllGranted_ReturnsTheValuesInOrder(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	var futures []*engine.Future[*engine.Hold]
	for _, name := range []string{"a", "b", "c", "d"} {
		futures = append(futures, e.Mutex(name).LockAsync(testkit.Ctx(t)))
	}
	holds, err := engine.AwaitAll(testkit.Ctx(t), futures...)
	if err != nil {
		t.Fatal(err)
	}
	var releases []*engine.Future[struct{}]
	for i, h := range holds {
		if want := string(rune('a' + i)); h.Name() != want {
			t.Errorf("value %d is %s", i, h.Name())
		}
		releases = append(releases, h.UnlockAsync())
	}
	if _, err := engine.AwaitAll(testkit.Ctx(t), releases...); err != nil {
		t.Fatal(err)
	}
	if none, err := engine.AwaitAll[*engine.Hold](testkit.Ctx(t)); len(none) != 0 || err != nil {
		t.Errorf("of nothing: %v, %v", none, err)
	}
	testkit.Clean(t, s)
}

// The error counts at once, although the future before it waits for ever.
func TestAwaitAll_FirstError_AbandonsTheRest(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	other := testkit.MustLock(t, testkit.Open(t, s.URL()).Mutex("taken"))
	waits := e.Mutex("taken").LockAsync(context.Background())
	granted := e.Mutex("free").LockAsync(context.Background())
	_, err := granted.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	fails := e.Mutex("taken").TryLockAsync(context.Background())
	if _, err := engine.AwaitAll(testkit.Ctx(t), waits, granted, fails); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("AwaitAll: %v, want the TryLock's error", err)
	}
	if _, err := waits.Result(); !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("the one that waited was not abandoned: %v", err)
	}
	testkit.Eventually(t, "the granted one is released", func() bool { return len(testkit.Fields(t, s, "free")) == 0 })

	waits = e.Mutex("taken").LockAsync(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := engine.AwaitAll(ctx, waits); !errors.Is(err, context.Canceled) {
		t.Errorf("AwaitAll under an ended context: %v", err)
	}
	if _, err := waits.Result(); !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("not abandoned: %v", err)
	}
	testkit.MustUnlock(t, other)
	testkit.Clean(t, s)
}

func TestAwaitAny_OneWins_ReleasesTheOthers(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	other := testkit.MustLock(t, testkit.Open(t, s.URL()).Mutex("taken"))
	fails := e.Mutex("taken").TryLockAsync(context.Background())
	waits := e.Mutex("taken").LockAsync(context.Background())
	free := e.Mutex("free").LockAsync(context.Background())
	if _, err := fails.Await(testkit.Ctx(t)); err == nil {
		t.Fatal("TryLock got a lock that is taken")
	}
	i, h, err := engine.AwaitAny(testkit.Ctx(t), fails, waits, free, free)
	if err != nil || h.Name() != "free" {
		t.Fatalf("AwaitAny: %d, %v, %v", i, h, err)
	}
	if err := h.Err(); err != nil {
		t.Errorf("the winner was released: %v", err)
	}
	if _, err := waits.Result(); !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("the one that waited was not abandoned: %v", err)
	}
	testkit.MustUnlock(t, h)

	// Two that are granted: one is given back.
	a, b := e.Mutex("a").LockAsync(context.Background()), e.Mutex("b").LockAsync(context.Background())
	if _, err := engine.AwaitAll(testkit.Ctx(t), a, b); err != nil {
		t.Fatal(err)
	}
	_, h, err = engine.AwaitAny(testkit.Ctx(t), a, b)
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h)
	testkit.MustUnlock(t, other)
	testkit.Clean(t, s)
}

func TestAwaitAny_NobodyWins_ReturnsTheErrors(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	other := testkit.MustLock(t, testkit.Open(t, s.URL()).Mutex("taken"))
	m := e.Mutex("taken")
	if i, h, err := engine.AwaitAny(testkit.Ctx(t), m.TryLockAsync(testkit.Ctx(t)), m.TryLockAsync(testkit.Ctx(t))); i != -1 || h != nil || !errors.Is(err, engine.ErrHeld) {
		t.Errorf("all fail: %d, %v, %v", i, h, err)
	}
	if _, _, err := engine.AwaitAny[*engine.Hold](testkit.Ctx(t)); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("of nothing: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f := m.LockAsync(context.Background())
	if _, _, err := engine.AwaitAny(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("under an ended context: %v", err)
	}
	if _, err := f.Result(); !errors.Is(err, engine.ErrNotAcquired) {
		t.Errorf("not abandoned: %v", err)
	}
	testkit.MustUnlock(t, other)
	testkit.Clean(t, s)
}

// A release is never taken back.
func TestFuture_AbandonOfAnUnlock_ChangesNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	h := testkit.MustLock(t, testkit.Open(t, s.URL()).Mutex("x"))
	f := h.UnlockAsync()
	f.Abandon()
	if _, err := f.Await(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	testkit.Clean(t, s)
}
