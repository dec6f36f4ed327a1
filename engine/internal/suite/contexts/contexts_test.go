package contexts

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// slowContext is a context of the user's whose Done does not return while slow is set.
// Package context asks for it when it ends what was made from it.
type slowContext struct {
	context.Context
	done  chan struct{}
	slow  chan chan struct{}
	asked *atomic.Int64 // how often for Done
}

// listenedTo waits until a context has been made from it: package context asks for Done twice,
// and once more on a goroutine of its own, which must not find it slow.
func (c slowContext) listenedTo(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, "package context listens", func() bool { return c.asked.Load() >= 3 })
}

func (c slowContext) Done() <-chan struct{} {
	c.asked.Add(1)
	select {
	case gate := <-c.slow:
		<-gate
	default:
	}
	return c.done
}

func newSlowContext() slowContext {
	return slowContext{context.Background(), make(chan struct{}), make(chan chan struct{}, 1), new(atomic.Int64)}
}

// A lock has ended, but the goroutine that ends the Hold has not come to that:
//
//	Unlock of the outer hold ends its own contexts first, which takes long
//	Hold.Err: must not say that all is well
func TestMultiHold_ErrBeforeItsContextsHaveEnded_IsRight(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	outer := testkit.MustLock(t, e.Mutex("y"))
	slow, gate := newSlowContext(), make(chan struct{})
	_ = outer.Context(slow)
	slow.listenedTo(t)
	m, err := e.LockMany(outer.Context(context.Background()), []string{"x", "y", "z"})
	if err != nil {
		t.Fatal(err)
	}
	slow.slow <- gate
	f := make(chan error, 1)
	go func() { f <- outer.Unlock(testkit.Ctx(t)) }()
	testkit.Eventually(t, "the outer hold has ended", func() bool { return outer.Err() != nil })
	if m.Err() != engine.ErrReleased || m.ValidUntil().After(time.Now()) {
		t.Errorf("Err %v, valid until %v from now", m.Err(), time.Until(m.ValidUntil()))
	}
	if cause := context.Cause(m.Context(context.Background())); cause != engine.ErrReleased {
		t.Errorf("a context of it: %v", cause)
	}
	close(gate)
	if err := testkit.Receive(t, f); err != nil {
		t.Error(err)
	}
	testkit.Receive(t, m.Done())
	_ = m.Unlock(testkit.Ctx(t))
	testkit.Clean(t, s, e)
}

// A context of the user's panics when it ends: that of the Hold, or of a re-entry of one
// of the locks. All locks are released anyway, and all contexts end.
func TestMultiHold_ContextThatPanics_KeepsNoLock(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"its own", "of a re-entry", "both"} {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL())
		m := testkit.MustLockMany(t, e, []string{"x", "y", "z"})
		g := newGated(t)
		var contexts []context.Context
		if what != "of a re-entry" {
			contexts = append(contexts, m.Context(explosive{g}), m.Context(context.Background()))
		}
		if what != "its own" {
			inner := testkit.MustReenterWith(t, m.Context(context.Background()), e.Mutex("x"))
			contexts = append(contexts, inner.Context(explosive{g}), inner.Context(context.Background()))
		}
		g.shut.Store(true)
		if v := recovered(func() { _ = m.Unlock(testkit.Ctx(t)) }); v == nil {
			t.Errorf("%s: the panic was swallowed", what)
		}
		testkit.Receive(t, m.Done())
		if n := alive(contexts); n > 0 {
			t.Errorf("%s: %d of %d contexts are alive", what, n, len(contexts))
		}
		testkit.Clean(t, s, e)
	}
}

// A context that takes long to end keeps the majority taken.
func TestRedLock_Lost_WaitsForItsContexts(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open()
	h := testkit.MustRedLock(t, v.Lock("x"))
	testkit.Eventually(t, "all three join", func() bool { return len(h.Servers()) == 3 })
	slow, gate := newSlowContext(), make(chan struct{})
	_ = h.Context(slow)
	slow.listenedTo(t)
	closed := make(chan error, 2)
	go func() { closed <- v[0].Close() }()
	testkit.Eventually(t, "the first server is left", func() bool { return len(testkit.Fields(t, s.Servers[0], "x")) == 0 })
	slow.slow <- gate
	go func() { closed <- v[1].Close() }()
	testkit.Eventually(t, "the loss is known", func() bool { return errors.Is(h.Err(), engine.ErrLost) })
	for range 50 {
		if len(testkit.Fields(t, s.Servers[1], "x")) == 0 || len(testkit.Fields(t, s.Servers[2], "x")) == 0 {
			t.Fatal("another may have a majority while a context is alive")
		}
		select {
		case <-h.Done():
			t.Fatal("Done is closed while a context is alive")
		case <-time.After(2 * time.Millisecond):
		}
	}
	close(gate)
	testkit.Receive(t, h.Done())
	for range 2 {
		if err := testkit.Receive(t, closed); err != nil {
			t.Error(err)
		}
	}
	s.Clean(v)
}

// While contexts of a hold that was lost are being ended, this process is in the way,
// whatever it knows of the server.
func TestLock_ContextsOfTheHolderStillEnd_SaysHeldHere(t *testing.T) {
	t.Parallel()
	e := testkit.Open(t, testkit.Server(t).URL(), func(c *engine.Config) { c.CommandTimeout = 200 * time.Millisecond })
	m := e.Mutex("x")
	h := testkit.MustLock(t, m, engine.Lease(2*time.Second)) // long enough for what follows
	g := newGated(t)
	h.Context(g)
	g.shut.Store(true)
	testkit.Receive(t, g.called)
	testkit.WantLost(t, "the hold", h.Err(), engine.LeaseEnded)
	for what, err := range map[string]error{
		"TryLock":        testkit.ErrOf(m.TryLock(testkit.Ctx(t))),
		"Lock with Wait": testkit.ErrOf(m.Lock(testkit.Ctx(t), engine.Wait(10*time.Millisecond))),
	} {
		if !errors.Is(err, engine.ErrHeld) || errors.Is(err, engine.ErrUnavailable) || !testkit.HasText(err, "this process") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if ran, err := m.TryDo(testkit.Ctx(t), nil); ran || err != nil {
		t.Errorf("TryDo: %v, %v", ran, err)
	}
	g.open()
	testkit.MustUnlock(t, testkit.MustLock(t, m))
}

// explosive is a context of a user's with a fault.
type explosive struct{ *gated }

func (e explosive) Done() <-chan struct{} {
	if e.shut.Load() {
		panic("a fault of a user's context")
	}
	return e.gated.Done()
}

// Its panic is the user's affair, also when it comes out of Unlock: the other contexts
// end, and the lock is released.
func TestHold_ContextThatPanics_KeepsNeitherTheOthersNorTheLock(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	h := testkit.MustLock(t, e.Mutex("x"))
	g := newGated(t)
	var contexts []context.Context
	for i := range driver.FewContexts {
		parent := context.Background()
		if i%8 == 0 {
			parent = explosive{g}
		}
		contexts = append(contexts, h.Context(parent))
	}
	waiting := e.Mutex("x").LockAsync(testkit.Ctx(t))
	g.shut.Store(true)
	if v := recovered(func() { _ = h.Unlock(testkit.Ctx(t)) }); v == nil {
		t.Error("the panic was swallowed")
	}
	if n := alive(contexts); n > 0 {
		t.Errorf("%d of %d contexts are alive", n, len(contexts))
	}
	testkit.Receive(t, h.Done())
	next, err := waiting.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatalf("the next one: %v", err)
	}
	testkit.MustUnlock(t, next)
}

func recovered(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// Close waits for contexts that take long, but not for ever.
func TestClose_ContextThatDoesNotEnd_GivesUp(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), func(c *engine.Config) { c.CloseTimeout = 200 * time.Millisecond })
	h := testkit.MustLock(t, e.Mutex("x"))
	g := newGated(t)
	ctx := h.Context(g)
	g.shut.Store(true)
	err := e.Close()
	if !errors.Is(err, engine.ErrOutcomeUnknown) {
		t.Errorf("Close: %v, want ErrOutcomeUnknown: the lock was not released", err)
	}
	if n := len(testkit.Fields(t, s, "x")); n != 1 {
		t.Errorf("%d owners on the server, want the one whose context is being ended", n)
	}
	g.open()
	testkit.Receive(t, h.Done())
	if ctx.Err() == nil {
		t.Error("Done is closed and the context is alive")
	}
}

// gated is a context of a user's. Once it is shut, its methods wait until it is opened:
// they take a lock of his, say.
type gated struct {
	context.Context
	shut   atomic.Bool
	opened chan struct{}
	called chan string // the stack of the first call that waits
}

func (g *gated) open() {
	if g.shut.CompareAndSwap(true, false) {
		close(g.opened)
	}
}

func (g *gated) pass() {
	if !g.shut.Load() {
		return
	}
	select {
	case g.called <- testkit.Stack():
	default:
	}
	<-g.opened
}

func (g *gated) Done() <-chan struct{} { g.pass(); return g.Context.Done() }

func (g *gated) Err() error { g.pass(); return g.Context.Err() }

func (g *gated) Value(key any) any { g.pass(); return g.Context.Value(key) }

func newGated(t *testing.T) *gated {
	ctx, cancel := context.WithCancel(context.Background())
	g := &gated{Context: ctx, opened: make(chan struct{}), called: make(chan string, 1)}
	t.Cleanup(func() { g.open(); cancel() })
	return g
}

func alive(contexts []context.Context) (n int) {
	for _, ctx := range contexts {
		if ctx.Err() == nil {
			n++
		}
	}
	return n
}
