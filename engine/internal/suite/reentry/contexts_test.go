package reentry

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func TestReentry_Granted_CountsOnTheServer(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	ctx, holds := testkit.Ctx(t), []*engine.Hold{}
	for depth := 1; depth <= 4; depth++ {
		h, err := m.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
		if h.Owner() != holds[0].Owner() {
			t.Errorf("depth %d: another owner", depth)
		}
		if got, want := testkit.Count(t, h, testkit.Fields(t, s, "x")), string(rune('0'+depth)); got != want {
			t.Errorf("depth %d: the server counts %q", depth, got)
		}
		ctx = h.Context(ctx)
	}
	for depth := 4; depth >= 1; depth-- {
		testkit.MustUnlock(t, holds[depth-1])
		want := ""
		if depth > 1 {
			want = string(rune('0' + depth - 1))
		}
		if got := testkit.Count(t, holds[0], testkit.Fields(t, s, "x")); got != want {
			t.Errorf("after unlock at depth %d: the server counts %q, want %q", depth, got, want)
		}
		if depth > 1 && holds[0].Err() != nil {
			t.Errorf("the end of a re-entry ended the hold: %v", holds[0].Err())
		}
	}
	testkit.Clean(t, s)
}

func TestReentry_ParentUnlocked_Ends(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	parent := testkit.MustLock(t, m)
	child, err := m.Lock(parent.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	cctx := child.Context(context.Background())
	grandchild, err := m.Lock(cctx)
	if err != nil {
		t.Fatal(err)
	}
	waiting := m.LockAsync(parent.Context(testkit.Ctx(t)))
	testkit.MustUnlock(t, parent)
	for _, h := range []*engine.Hold{child, grandchild} {
		testkit.Receive(t, h.Done())
		if err := h.Err(); err != engine.ErrReleased {
			t.Errorf("Err: %v, want ErrReleased", err)
		}
		if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotHeld) {
			t.Errorf("Unlock: %v, want ErrNotHeld", err)
		}
	}
	testkit.Receive(t, cctx.Done())
	if err := context.Cause(cctx); err != engine.ErrReleased {
		t.Errorf("cause of the child's context: %v", err)
	}
	if _, err := waiting.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrReleased) {
		t.Errorf("a re-entry that waited: %v", err)
	}
	testkit.Clean(t, s)
}

func TestReentry_ParentLost_Ends(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		m := testkit.Open(t, s.URL()).Mutex("x")
		parent := testkit.MustLock(t, m, engine.Lease(1500*time.Millisecond))
		child, err := m.Lock(parent.Context(testkit.Ctx(t)))
		if err != nil {
			t.Fatal(err)
		}
		waiting := m.LockAsync(parent.Context(context.Background()))
		testkit.Receive(t, child.Done())
		var lost *engine.LostError
		for what, err := range map[string]error{"child's Err": child.Err(), "parent's Err": parent.Err(), "child's Unlock": child.Unlock(testkit.Ctx(t)), "parent's Unlock": parent.Unlock(testkit.Ctx(t))} {
			if !errors.As(err, &lost) || lost.Reason != engine.LeaseEnded {
				t.Errorf("%s: %v, want LeaseEnded", what, err)
			}
		}
		if _, err := waiting.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrLost) {
			t.Errorf("a re-entry that waited: %v", err)
		}
		testkit.MustUnlock(t, testkit.MustLock(t, m))
		testkit.Clean(t, s)
	})
}

func TestReentry_Siblings_AreServedOneByOneInOrder(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	parent := testkit.MustLock(t, m)
	ctx := parent.Context(testkit.Ctx(t))
	var futures []*engine.Future[*engine.Hold]
	for range 10 {
		futures = append(futures, m.LockAsync(ctx))
	}
	for i, f := range futures {
		h, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := testkit.Count(t, h, testkit.Fields(t, s, "x")); got != "2" {
			t.Errorf("sibling %d: the server counts %q", i, got)
		}
		for _, later := range futures[i+1:] {
			if _, err := later.Result(); err != engine.ErrPending {
				t.Fatalf("a later sibling came in: %v", err)
			}
		}
		testkit.MustUnlock(t, h)
	}
	if err := parent.Err(); err != nil {
		t.Errorf("parent: %v", err)
	}
	testkit.MustUnlock(t, parent)
	testkit.Clean(t, s)
}

func TestReentry_GoroutinesUnderOneDo_ExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	var inside, total atomic.Int32
	err := m.Do(testkit.Ctx(t), func(ctx context.Context, _ *engine.Hold) error {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 25 {
					err := m.Do(ctx, func(context.Context, *engine.Hold) error {
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
	testkit.Clean(t, s)
}

func TestDetach_UnderAHold_DoesNotReenter(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	h := testkit.MustLock(t, m)
	ctx := h.Context(testkit.Ctx(t))
	if _, err := m.TryLock(engine.Detach(ctx)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("TryLock under Detach: %v", err)
	}
	f := m.LockAsync(engine.Detach(ctx))
	reentered, err := m.Lock(ctx) // not behind the stranger
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Result(); err != engine.ErrPending {
		t.Errorf("the stranger: %v", err)
	}
	// The stranger's context still ends with the hold; with that ends its waiting.
	testkit.MustUnlock(t, reentered)
	testkit.MustUnlock(t, h)
	if h, err := f.Await(testkit.Ctx(t)); err == nil {
		testkit.MustUnlock(t, h)
	} else if !errors.Is(err, engine.ErrReleased) {
		t.Errorf("the stranger: %v", err)
	}
	// A hold taken under a detached context is one of its own, and re-entered.
	outer := testkit.MustLock(t, m)
	other := testkit.Open(t, s.URL()).Mutex("y")
	inner, err := other.Lock(engine.Detach(outer.Context(testkit.Ctx(t))))
	if err != nil {
		t.Fatal(err)
	}
	again, err := other.Lock(inner.Context(engine.Detach(outer.Context(testkit.Ctx(t)))))
	if err != nil || again.Owner() != inner.Owner() {
		t.Fatalf("re-entry under a detached context: %v", err)
	}
	testkit.MustUnlock(t, again)
	testkit.MustUnlock(t, inner)
	testkit.MustUnlock(t, outer)
	testkit.Clean(t, s)
}

func TestNonReentrant_UnderAHold_IsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	h := testkit.MustLock(t, m, engine.NonReentrant())
	ctx := h.Context(testkit.Ctx(t))
	for what, err := range map[string]error{
		"Lock":         testkit.ErrOf(m.Lock(ctx, engine.NonReentrant())),
		"TryLock":      testkit.ErrOf(m.TryLock(ctx, engine.NonReentrant())),
		"LockAsync":    testkit.ErrOf(m.LockAsync(ctx, engine.NonReentrant()).Result()),
		"TryLockAsync": testkit.ErrOf(m.TryLockAsync(ctx, engine.NonReentrant()).Result()),
		"Do":           m.Do(ctx, func(context.Context, *engine.Hold) error { return nil }, engine.NonReentrant()),
	} {
		if !errors.Is(err, engine.ErrReentry) || !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("%s: %v, want ErrReentry", what, err)
		}
	}
	testkit.MustUnlock(t, h)
	testkit.MustUnlock(t, testkit.MustLock(t, m, engine.NonReentrant())) // the context of an ended hold is nobody's
	testkit.Clean(t, s)
}

func TestReentry_OtherEngineOrName_DoesNotReenter(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	a, b := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	h := testkit.MustLock(t, a.Mutex("x"))
	ctx := h.Context(testkit.Ctx(t))
	if _, err := b.Mutex("x").TryLock(ctx); !errors.Is(err, engine.ErrHeld) {
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
		if got := testkit.Count(t, again, testkit.Fields(t, s, name)); got != "2" {
			t.Errorf("%s is counted %q", name, got)
		}
		testkit.MustUnlock(t, again)
	}
	testkit.MustUnlock(t, y)
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s)
}

// The mapped name is what counts: two names that are one key are one lock.
func TestReentry_MappedNames_GoesByTheMappedName(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.NameMapper = func(name string) string { return "app:" + name[:1] } })
	h := testkit.MustLock(t, e.Mutex("x1"))
	again, err := e.Mutex("x2").TryLock(h.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	if got := testkit.Count(t, again, testkit.Fields(t, s, "app:x")); got != "2" || again.Name() != "x2" {
		t.Errorf("%s is counted %q", again.Name(), got)
	}
	testkit.MustUnlock(t, again)
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s)
}

func TestTryLock_UnderAHoldWithALiveReentry_IsRefused(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	h := testkit.MustLock(t, m)
	ctx := h.Context(testkit.Ctx(t))
	child, err := m.TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var refused *engine.NotAcquiredError
	if _, err := m.TryLock(ctx); !errors.As(err, &refused) || refused.TTL <= 0 {
		t.Errorf("TryLock beside a live re-entry: %v", err)
	}
	if ran, err := m.TryDo(ctx, func(context.Context, *engine.Hold) error { return nil }); ran || err != nil {
		t.Errorf("TryDo beside a live re-entry: %v, %v", ran, err)
	}
	testkit.MustUnlock(t, child)
	if child, err = m.TryLock(ctx); err != nil {
		t.Fatalf("TryLock after the re-entry ended: %v", err)
	}
	testkit.MustUnlock(t, child)
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s)
}

// WithoutCancel keeps the values of a context and with them its hold; but the hold
// has ended.
func TestLock_ContextOfAnEndedHold_DoesNotReenter(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	h := testkit.MustLock(t, m)
	ctx := context.WithoutCancel(h.Context(testkit.Ctx(t)))
	testkit.MustUnlock(t, h)
	fresh, err := m.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if fresh.Owner() == h.Owner() {
		t.Error("the owner of an ended hold was used again")
	}
	if got := testkit.Count(t, fresh, testkit.Fields(t, s, "x")); got != "1" {
		t.Errorf("the server counts %q", got)
	}
	if _, err := m.TryLock(ctx); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("re-entered the hold of a stranger: %v", err)
	}
	testkit.MustUnlock(t, fresh)
	// The context of an ended re-entry belongs to its parent, which lives.
	parent := testkit.MustLock(t, m)
	child, err := m.Lock(parent.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	cctx := context.WithoutCancel(child.Context(context.Background()))
	testkit.MustUnlock(t, child)
	again, err := m.TryLock(cctx)
	if err != nil || again.Owner() != parent.Owner() {
		t.Fatalf("under the context of an ended re-entry: %v", err)
	}
	testkit.MustUnlock(t, again)
	testkit.MustUnlock(t, parent)
	testkit.Clean(t, s)
}
