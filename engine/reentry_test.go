package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// count is the owner's field on the server, "" if it is not there.
func count(t testing.TB, h *Hold, all map[string]string) string {
	t.Helper()
	if len(all) > 1 {
		t.Errorf("%d owners: %v", len(all), all)
	}
	return all[h.Owner()]
}

func TestReentryCountsOnTheServer(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	ctx, holds := ctxT(t), []*Hold{}
	for depth := 1; depth <= 4; depth++ {
		h, err := m.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
		if h.Owner() != holds[0].Owner() {
			t.Errorf("depth %d: another owner", depth)
		}
		if got, want := count(t, h, fields(t, s, "x")), string(rune('0'+depth)); got != want {
			t.Errorf("depth %d: the server counts %q", depth, got)
		}
		ctx = h.Context(ctx)
	}
	for depth := 4; depth >= 1; depth-- {
		mustUnlock(t, holds[depth-1])
		want := ""
		if depth > 1 {
			want = string(rune('0' + depth - 1))
		}
		if got := count(t, holds[0], fields(t, s, "x")); got != want {
			t.Errorf("after unlock at depth %d: the server counts %q, want %q", depth, got, want)
		}
		if depth > 1 && holds[0].Err() != nil {
			t.Errorf("the end of a re-entry ended the hold: %v", holds[0].Err())
		}
	}
	clean(t, s)
}

func TestUnlockOfTheParentEndsItsReentries(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	parent := mustLock(t, m)
	child, err := m.Lock(parent.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	cctx := child.Context(context.Background())
	grandchild, err := m.Lock(cctx)
	if err != nil {
		t.Fatal(err)
	}
	waiting := m.LockAsync(parent.Context(ctxT(t)))
	mustUnlock(t, parent)
	for _, h := range []*Hold{child, grandchild} {
		receive(t, h.Done())
		if err := h.Err(); err != ErrReleased {
			t.Errorf("Err: %v, want ErrReleased", err)
		}
		if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
			t.Errorf("Unlock: %v, want ErrNotHeld", err)
		}
	}
	receive(t, cctx.Done())
	if err := context.Cause(cctx); err != ErrReleased {
		t.Errorf("cause of the child's context: %v", err)
	}
	if _, err := waiting.Await(ctxT(t)); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, ErrReleased) {
		t.Errorf("a re-entry that waited: %v", err)
	}
	clean(t, s)
}

func TestLossOfTheParentEndsItsReentries(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		m := open(t, s.URL()).Mutex("x")
		parent := mustLock(t, m, Lease(1500*time.Millisecond))
		child, err := m.Lock(parent.Context(ctxT(t)))
		if err != nil {
			t.Fatal(err)
		}
		waiting := m.LockAsync(parent.Context(context.Background()))
		receive(t, child.Done())
		var lost *LostError
		for what, err := range map[string]error{"child's Err": child.Err(), "parent's Err": parent.Err(), "child's Unlock": child.Unlock(ctxT(t)), "parent's Unlock": parent.Unlock(ctxT(t))} {
			if !errors.As(err, &lost) || lost.Reason != LeaseEnded {
				t.Errorf("%s: %v, want LeaseEnded", what, err)
			}
		}
		if _, err := waiting.Await(ctxT(t)); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, ErrLost) {
			t.Errorf("a re-entry that waited: %v", err)
		}
		mustUnlock(t, mustLock(t, m))
		clean(t, s)
	})
}

func TestSiblingsComeInOneByOneInTheirOrder(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	parent := mustLock(t, m)
	ctx := parent.Context(ctxT(t))
	var futures []*Future[*Hold]
	for range 10 {
		futures = append(futures, m.LockAsync(ctx))
	}
	for i, f := range futures {
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := count(t, h, fields(t, s, "x")); got != "2" {
			t.Errorf("sibling %d: the server counts %q", i, got)
		}
		for _, later := range futures[i+1:] {
			if _, err := later.Result(); err != ErrPending {
				t.Fatalf("a later sibling came in: %v", err)
			}
		}
		mustUnlock(t, h)
	}
	if err := parent.Err(); err != nil {
		t.Errorf("parent: %v", err)
	}
	mustUnlock(t, parent)
	clean(t, s)
}

func TestGoroutinesUnderOneDoExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	var inside, total atomic.Int32
	err := m.Do(ctxT(t), func(ctx context.Context, _ *Hold) error {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 25 {
					err := m.Do(ctx, func(context.Context, *Hold) error {
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d inside", n)
						}
						total.Add(1)
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return nil
	})
	if err != nil || total.Load() != 200 {
		t.Errorf("%d runs, error %v", total.Load(), err)
	}
	clean(t, s)
}

func TestDetachMakesAStranger(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	h := mustLock(t, m)
	ctx := h.Context(ctxT(t))
	if _, err := m.TryLock(Detach(ctx)); !errors.Is(err, ErrHeld) {
		t.Errorf("TryLock under Detach: %v", err)
	}
	f := m.LockAsync(Detach(ctx))
	reentered, err := m.Lock(ctx) // not behind the stranger
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Result(); err != ErrPending {
		t.Errorf("the stranger: %v", err)
	}
	// The stranger's context still ends with the hold; with that ends its waiting.
	mustUnlock(t, reentered)
	mustUnlock(t, h)
	if h, err := f.Await(ctxT(t)); err == nil {
		mustUnlock(t, h)
	} else if !errors.Is(err, ErrReleased) {
		t.Errorf("the stranger: %v", err)
	}
	// A hold taken under a detached context is one of its own, and re-entered.
	outer := mustLock(t, m)
	other := open(t, s.URL()).Mutex("y")
	inner, err := other.Lock(Detach(outer.Context(ctxT(t))))
	if err != nil {
		t.Fatal(err)
	}
	again, err := other.Lock(inner.Context(Detach(outer.Context(ctxT(t)))))
	if err != nil || again.Owner() != inner.Owner() {
		t.Fatalf("re-entry under a detached context: %v", err)
	}
	mustUnlock(t, again)
	mustUnlock(t, inner)
	mustUnlock(t, outer)
	clean(t, s)
}

func TestNonReentrantRefusesAtOnce(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	h := mustLock(t, m, NonReentrant())
	ctx := h.Context(ctxT(t))
	for what, err := range map[string]error{
		"Lock":         errOf(m.Lock(ctx, NonReentrant())),
		"TryLock":      errOf(m.TryLock(ctx, NonReentrant())),
		"LockAsync":    errOf(m.LockAsync(ctx, NonReentrant()).Result()),
		"TryLockAsync": errOf(m.TryLockAsync(ctx, NonReentrant()).Result()),
		"Do":           m.Do(ctx, func(context.Context, *Hold) error { return nil }, NonReentrant()),
	} {
		if !errors.Is(err, ErrReentry) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("%s: %v, want ErrReentry", what, err)
		}
	}
	mustUnlock(t, h)
	mustUnlock(t, mustLock(t, m, NonReentrant())) // the context of an ended hold is nobody's
	clean(t, s)
}

func errOf[T any](_ T, err error) error { return err }

func TestOtherEngineOrNameIsAStranger(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := open(t, s.URL()), open(t, s.URL())
	h := mustLock(t, a.Mutex("x"))
	ctx := h.Context(ctxT(t))
	if _, err := b.Mutex("x").TryLock(ctx); !errors.Is(err, ErrHeld) {
		t.Errorf("another engine: %v", err)
	}
	y, err := a.Mutex("y").Lock(ctx)
	if err != nil || y.Owner() == h.Owner() {
		t.Fatalf("another name: %v", err)
	}
	// Two holds in one context: each is re-entered by its own name.
	both := y.Context(ctx)
	for _, name := range []string{"x", "y"} {
		again, err := a.Mutex(name).TryLock(both)
		if err != nil {
			t.Fatalf("re-entry of %s: %v", name, err)
		}
		if got := count(t, again, fields(t, s, name)); got != "2" {
			t.Errorf("%s is counted %q", name, got)
		}
		mustUnlock(t, again)
	}
	mustUnlock(t, y)
	mustUnlock(t, h)
	clean(t, s)
}

// The mapped name is what counts: two names that are one key are one lock.
func TestReentryGoesByTheMappedName(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL(), func(c *Config) { c.NameMapper = func(name string) string { return "app:" + name[:1] } })
	h := mustLock(t, e.Mutex("x1"))
	again, err := e.Mutex("x2").TryLock(h.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	if got := count(t, again, fields(t, s, "app:x")); got != "2" || again.Name() != "x2" {
		t.Errorf("%s is counted %q", again.Name(), got)
	}
	mustUnlock(t, again)
	mustUnlock(t, h)
	clean(t, s)
}

func TestTryLockUnderAHoldWithALiveReentryIsRefused(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	h := mustLock(t, m)
	ctx := h.Context(ctxT(t))
	child, err := m.TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var refused *NotAcquiredError
	if _, err := m.TryLock(ctx); !errors.As(err, &refused) || refused.TTL <= 0 {
		t.Errorf("TryLock beside a live re-entry: %v", err)
	}
	if ran, err := m.TryDo(ctx, func(context.Context, *Hold) error { return nil }); ran || err != nil {
		t.Errorf("TryDo beside a live re-entry: %v, %v", ran, err)
	}
	mustUnlock(t, child)
	if child, err = m.TryLock(ctx); err != nil {
		t.Fatalf("TryLock after the re-entry ended: %v", err)
	}
	mustUnlock(t, child)
	mustUnlock(t, h)
	clean(t, s)
}

// WithoutCancel keeps the values of a context and with them its hold; but the hold
// has ended.
func TestContextOfAnEndedHoldDoesNotReenter(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	h := mustLock(t, m)
	ctx := context.WithoutCancel(h.Context(ctxT(t)))
	mustUnlock(t, h)
	fresh, err := m.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if fresh.Owner() == h.Owner() {
		t.Error("the owner of an ended hold was used again")
	}
	if got := count(t, fresh, fields(t, s, "x")); got != "1" {
		t.Errorf("the server counts %q", got)
	}
	if _, err := m.TryLock(ctx); !errors.Is(err, ErrHeld) {
		t.Errorf("re-entered the hold of a stranger: %v", err)
	}
	mustUnlock(t, fresh)
	// The context of an ended re-entry belongs to its parent, which lives.
	parent := mustLock(t, m)
	child, err := m.Lock(parent.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	cctx := context.WithoutCancel(child.Context(context.Background()))
	mustUnlock(t, child)
	again, err := m.TryLock(cctx)
	if err != nil || again.Owner() != parent.Owner() {
		t.Fatalf("under the context of an ended re-entry: %v", err)
	}
	mustUnlock(t, again)
	mustUnlock(t, parent)
	clean(t, s)
}

func TestContextEndsWithParentOrHold(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	h := mustLock(t, m)
	outer, cancel := context.WithCancelCause(context.Background())
	a, b := h.Context(outer), h.Context(context.Background())
	why := errors.New("the request is over")
	cancel(why)
	receive(t, a.Done())
	if context.Cause(a) != why || b.Err() != nil || h.Err() != nil {
		t.Errorf("after the parent ended: %v, %v, %v", context.Cause(a), b.Err(), h.Err())
	}
	eventually(t, "an ended context is forgotten", func() bool {
		oneOf(h).Shard().Lock()
		defer oneOf(h).Shard().Unlock()
		return len(oneOf(h).Contexts()) == 1
	})
	mustUnlock(t, h)
	receive(t, b.Done())
	if context.Cause(b) != ErrReleased {
		t.Errorf("after Unlock: %v", context.Cause(b))
	}
	if late := h.Context(context.Background()); context.Cause(late) != ErrReleased {
		t.Errorf("made after the end: %v", context.Cause(late))
	}
}
