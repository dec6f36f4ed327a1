package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

func TestFutureShowsOneResultToEverybody(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("x")
	first := mustLock(t, m)
	f := m.LockAsync(ctxT(t))
	if _, err := f.Result(); err != ErrPending {
		t.Fatalf("Result before: %v, want ErrPending", err)
	}
	var results [16]*Hold
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			if i%2 == 0 {
				<-f.Done()
			}
			h, err := f.Await(ctxT(t))
			if err != nil {
				t.Error(err)
			}
			results[i] = h
		})
	}
	mustUnlock(t, first)
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
	mustUnlock(t, h)
	clean(t, s)
}

func TestAwaitEndsWithItsContextAndTheFutureGoesOn(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	first := mustLock(t, m)
	f := m.LockAsync(ctxT(t))
	impatient, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no more patience")
	cancel(why)
	if _, err := f.Await(impatient); !errors.Is(err, ErrPending) || !errors.Is(err, why) {
		t.Fatalf("Await: %v, want ErrPending and the cause", err)
	}
	mustUnlock(t, first)
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := f.Await(impatient); again != h || err != nil {
		t.Errorf("Await of a complete future under an ended context: %v, %v", again, err)
	}
	mustUnlock(t, h)
}

func TestOnCompleteOfNoFunctionDoesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	f := e.Mutex("x").LockAsync(ctxT(t))
	f.OnComplete(nil)
	called := make(chan struct{})
	f.OnComplete(func(*Hold, error) { close(called) })
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	receive(t, called)
	mustUnlock(t, h)
	clean(t, s, e)
}

func TestCallbacksRunInOrderOfRegistration(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	first := mustLock(t, m)
	f := m.LockAsync(ctxT(t))
	var order []int // written by one callback after another
	all := make(chan struct{})
	for i := range 100 {
		f.OnComplete(func(h *Hold, err error) {
			if h == nil || err != nil {
				t.Errorf("callback %d: %v, %v", i, h, err)
			}
			order = append(order, i)
			if i == 50 { // from inside: it comes last
				f.OnComplete(func(*Hold, error) { order = append(order, 100); close(all) })
			}
		})
	}
	mustUnlock(t, first)
	receive(t, all)
	if !slices.IsSorted(order) || len(order) != 101 {
		t.Errorf("order is %v", order)
	}
	late := make(chan struct{})
	f.OnComplete(func(h *Hold, _ error) { close(late); h.UnlockAsync() })
	receive(t, late)
	eventually(t, "the lock is free", func() bool { return len(fields(t, s, "x")) == 0 })
}

func TestAbandonCancelsWhatIsPending(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("x")
	first := mustLock(t, m)
	f, next := m.LockAsync(ctxT(t)), m.LockAsync(ctxT(t))
	f.Abandon()
	if _, err := f.Result(); !errors.Is(err, ErrNotAcquired) || !hasText(err, "abandoned") {
		t.Errorf("abandoned: %v", err)
	}
	f.Abandon() // harmless
	mustUnlock(t, first)
	h, err := next.Await(ctxT(t)) // the one behind comes in
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
	clean(t, s)
}

func TestAbandonReleasesWhatWasGranted(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	f := m.LockAsync(ctxT(t))
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	f.Abandon()
	f.Abandon()
	receive(t, h.Done())
	if err := h.Err(); err != ErrReleased {
		t.Errorf("Err: %v, want ErrReleased", err)
	}
	mustUnlock(t, mustLock(t, m))
	clean(t, s)
}

// The grant is on its way when the future is abandoned. Whichever comes first, the lock
// does not stay held.
func TestAbandonReleasesWhatIsGrantedLater(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("x")
	for i := range 500 {
		f := m.LockAsync(ctxT(t))
		for range i % 50 {
			_, _ = f.Result()
		}
		f.Abandon()
		if _, err := f.Await(ctxT(t)); errors.Is(err, ErrPending) {
			t.Fatal("an abandoned future stays pending")
		}
	}
	mustUnlock(t, mustLock(t, m))
	if n := e.Stats().Held; n != 0 {
		t.Errorf("%d held", n)
	}
	clean(t, s)
}

func TestAwaitAllReturnsTheValuesInOrder(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	var futures []*Future[*Hold]
	for _, name := range []string{"a", "b", "c", "d"} {
		futures = append(futures, e.Mutex(name).LockAsync(ctxT(t)))
	}
	holds, err := AwaitAll(ctxT(t), futures...)
	if err != nil {
		t.Fatal(err)
	}
	var releases []*Future[struct{}]
	for i, h := range holds {
		if want := string(rune('a' + i)); h.Name() != want {
			t.Errorf("value %d is %s", i, h.Name())
		}
		releases = append(releases, h.UnlockAsync())
	}
	if _, err := AwaitAll(ctxT(t), releases...); err != nil {
		t.Fatal(err)
	}
	if none, err := AwaitAll[*Hold](ctxT(t)); len(none) != 0 || err != nil {
		t.Errorf("of nothing: %v, %v", none, err)
	}
	clean(t, s)
}

// The error counts at once, although the future before it waits for ever.
func TestAwaitAllAbandonsTheRestOnTheFirstError(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	other := mustLock(t, open(t, s.URL()).Mutex("taken"))
	waits := e.Mutex("taken").LockAsync(context.Background())
	granted := e.Mutex("free").LockAsync(context.Background())
	_, err := granted.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	fails := e.Mutex("taken").TryLockAsync(context.Background())
	if _, err := AwaitAll(ctxT(t), waits, granted, fails); !errors.Is(err, ErrHeld) {
		t.Errorf("AwaitAll: %v, want the TryLock's error", err)
	}
	if _, err := waits.Result(); !errors.Is(err, ErrNotAcquired) {
		t.Errorf("the one that waited was not abandoned: %v", err)
	}
	eventually(t, "the granted one is released", func() bool { return len(fields(t, s, "free")) == 0 })

	waits = e.Mutex("taken").LockAsync(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := AwaitAll(ctx, waits); !errors.Is(err, context.Canceled) {
		t.Errorf("AwaitAll under an ended context: %v", err)
	}
	if _, err := waits.Result(); !errors.Is(err, ErrNotAcquired) {
		t.Errorf("not abandoned: %v", err)
	}
	mustUnlock(t, other)
	clean(t, s)
}

func TestAwaitAnyReleasesTheLosers(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	other := mustLock(t, open(t, s.URL()).Mutex("taken"))
	fails := e.Mutex("taken").TryLockAsync(context.Background())
	waits := e.Mutex("taken").LockAsync(context.Background())
	free := e.Mutex("free").LockAsync(context.Background())
	if _, err := fails.Await(ctxT(t)); err == nil {
		t.Fatal("TryLock got a lock that is taken")
	}
	i, h, err := AwaitAny(ctxT(t), fails, waits, free, free)
	if err != nil || h.Name() != "free" {
		t.Fatalf("AwaitAny: %d, %v, %v", i, h, err)
	}
	if err := h.Err(); err != nil {
		t.Errorf("the winner was released: %v", err)
	}
	if _, err := waits.Result(); !errors.Is(err, ErrNotAcquired) {
		t.Errorf("the one that waited was not abandoned: %v", err)
	}
	mustUnlock(t, h)

	// Two that are granted: one is given back.
	a, b := e.Mutex("a").LockAsync(context.Background()), e.Mutex("b").LockAsync(context.Background())
	if _, err := AwaitAll(ctxT(t), a, b); err != nil {
		t.Fatal(err)
	}
	_, h, err = AwaitAny(ctxT(t), a, b)
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
	mustUnlock(t, other)
	clean(t, s)
}

func TestAwaitAnyWithoutAWinner(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	other := mustLock(t, open(t, s.URL()).Mutex("taken"))
	m := e.Mutex("taken")
	if i, h, err := AwaitAny(ctxT(t), m.TryLockAsync(ctxT(t)), m.TryLockAsync(ctxT(t))); i != -1 || h != nil || !errors.Is(err, ErrHeld) {
		t.Errorf("all fail: %d, %v, %v", i, h, err)
	}
	if _, _, err := AwaitAny[*Hold](ctxT(t)); !errors.Is(err, ErrInvalid) {
		t.Errorf("of nothing: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f := m.LockAsync(context.Background())
	if _, _, err := AwaitAny(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("under an ended context: %v", err)
	}
	if _, err := f.Result(); !errors.Is(err, ErrNotAcquired) {
		t.Errorf("not abandoned: %v", err)
	}
	mustUnlock(t, other)
	clean(t, s)
}

// A release is never taken back.
func TestAbandonOfAnUnlockChangesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	h := mustLock(t, open(t, s.URL()).Mutex("x"))
	f := h.UnlockAsync()
	f.Abandon()
	if _, err := f.Await(ctxT(t)); err != nil {
		t.Error(err)
	}
	clean(t, s)
}

func TestCancellingASharedContextEndsAllItsFutures(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	other := mustLock(t, open(t, s.URL()).Mutex("taken"))
	why := errors.New("shut down")
	ctx, cancel := context.WithCancelCause(context.Background())
	var told atomic.Int32
	const n = 2000
	futures := make([]*Future[*Hold], n)
	for i := range futures {
		// The same Done channel under many contexts, as middlewares make them.
		futures[i] = e.Mutex("taken").LockAsync(context.WithValue(ctx, holdsKey{}, nil))
		futures[i].OnComplete(func(*Hold, error) { told.Add(1) })
	}
	if w := e.Stats().Waiting; w != n {
		t.Errorf("%d are waiting, want %d", w, n)
	}
	cancel(why)
	for _, f := range futures {
		if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, why) {
			t.Fatalf("error is %v, want ErrNotAcquired and the cause", err)
		}
	}
	eventually(t, "every callback ran", func() bool { return told.Load() == n })
	if w := e.Stats().Waiting; w != 0 {
		t.Errorf("%d are still waiting", w)
	}
	mustUnlock(t, other)
	clean(t, s)
}

// receive waits for a channel, but not for ever.
func receive[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-ctxT(t).Done():
		t.Fatalf("nothing within %v", limit)
	}
	return v
}
