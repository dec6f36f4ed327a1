package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// A re-entry is given back when its contexts have ended, so the next one under the same
// hold finds none of them alive. And Done of the hold, which may end meanwhile for
// another reason, waits for them.
func TestContextsOfAReentryEndBeforeTheNextReentryAndTheirParent(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *scene){
		"the parent stays":       nil,
		"the parent is unlocked": func(c *scene) { c.h.UnlockAsync() },
		"the parent is lost": func(c *scene) {
			c.s.Do("DEL", "x")
			renewAll(c.e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &scene{t: t}
			c.s, c.p, c.e = behind(t)
			c.m = c.e.Mutex("x")
			c.h = mustLock(t, c.m)
			child := reenterAlone(t, c.m, c.h)
			g := newGated(t)
			of := child.Context(g)
			var sibling *Future[*Hold]
			if end == nil {
				sibling = c.m.LockAsync(c.h.Context(ctxT(t)))
			}
			stranger := c.m.LockAsync(ctxT(t))
			sent := c.p.Watch(func(cmd faultproxy.Command) bool {
				return acquireOf("x")(cmd) || releaseOf("x")(cmd) || scriptOn(script.Leave, "x")(cmd) || scriptOn(script.Reenter, "x")(cmd)
			})
			g.shut.Store(true)
			given := background(func() error { return child.Unlock(ctxT(t)) })
			receive(t, g.called)
			if end != nil {
				end(c)
				eventually(t, "the parent has ended", func() bool { return c.h.Err() != nil })
			}
			mustUnlock(t, mustLock(t, c.e.Mutex("y")))
			if n := sent.Done(); n > 0 {
				t.Errorf("%d commands for the name were sent while contexts of its re-entry are being ended", n)
			}
			for what, done := range map[string]<-chan struct{}{"re-entry": child.Done(), "hold": c.h.Done()} {
				select {
				case <-done:
					t.Errorf("Done of the %s is closed while contexts of the re-entry are being ended", what)
				default:
				}
			}
			if end == nil && c.h.Err() != nil {
				t.Errorf("the hold ended with its re-entry: %v", c.h.Err())
			}

			g.open()
			receive(t, child.Done())
			if of.Err() == nil {
				t.Error("Done of the re-entry is closed, and a context of it is alive")
			}
			if err := receive(t, given); err != nil && !errors.Is(err, ErrLost) {
				t.Errorf("Unlock of the re-entry: %v", err)
			}
			if end == nil {
				h, err := sibling.Await(ctxT(t))
				if err != nil {
					t.Fatalf("the next re-entry: %v", err)
				}
				mustUnlock(t, h)
				mustUnlock(t, c.h)
			}
			receive(t, c.h.Done())
			h, err := stranger.Await(ctxT(t))
			if err != nil {
				t.Fatalf("the next one: %v", err)
			}
			mustUnlock(t, h)
		})
	}
}

// A context that ends by itself is forgotten by its hold, but not before those that were
// made from it have ended: the release does not wait for it any more.
func TestContextThatEndedIsForgottenWhenItsTreeHasEnded(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	for range 2 {
		parent, cancel := context.WithCancel(context.Background())
		ctx := h.Context(parent)
		var tree []context.Context
		for range 10_000 {
			leaf, drop := context.WithCancel(ctx)
			defer drop()
			tree = append(tree, leaf)
		}
		go cancel()
		for contextsOf(h) > 0 {
			runtime.Gosched()
		}
		if n := alive(tree); n > 0 {
			t.Fatalf("the hold has forgotten a context, and %d of the %d made from it are alive", n, len(tree))
		}
	}
	mustUnlock(t, h)
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
func TestContextThatPanicsKeepsNeitherTheOthersAliveNorTheLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	g := newGated(t)
	var contexts []context.Context
	for i := range drive.FewContexts {
		parent := context.Background()
		if i%8 == 0 {
			parent = explosive{g}
		}
		contexts = append(contexts, h.Context(parent))
	}
	waiting := e.Mutex("x").LockAsync(ctxT(t))
	g.shut.Store(true)
	if v := recovered(func() { _ = h.Unlock(ctxT(t)) }); v == nil {
		t.Error("the panic was swallowed")
	}
	if n := alive(contexts); n > 0 {
		t.Errorf("%d of %d contexts are alive", n, len(contexts))
	}
	receive(t, h.Done())
	next, err := waiting.Await(ctxT(t))
	if err != nil {
		t.Fatalf("the next one: %v", err)
	}
	mustUnlock(t, next)
}

func recovered(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// Close waits for contexts that take long, but not for ever.
func TestCloseGivesUpOnAContextThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL(), func(c *Config) { c.CloseTimeout = 200 * time.Millisecond })
	h := mustLock(t, e.Mutex("x"))
	g := newGated(t)
	ctx := h.Context(g)
	g.shut.Store(true)
	err := e.Close()
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Close: %v, want ErrOutcomeUnknown: the lock was not released", err)
	}
	if n := len(fields(t, s, "x")); n != 1 {
		t.Errorf("%d owners on the server, want the one whose context is being ended", n)
	}
	g.open()
	receive(t, h.Done())
	if ctx.Err() == nil {
		t.Error("Done is closed and the context is alive")
	}
}

// A name whose hold is being told is in use, also if nobody waits for it: Close does not
// leave it behind.
func TestCloseWaitsForTheContextsOfAHoldThatWasLostBefore(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	g := newGated(t)
	ctx := h.Context(g)
	g.shut.Store(true)
	s.Do("DEL", "x")
	renewAll(e)
	receive(t, g.called)
	if n := inspect(e).Names; n != 1 {
		t.Errorf("%d names are in use, want the one whose hold is being told", n)
	}
	closed := background(e.Close)
	eventually(t, "it closes", Closing(e))
	g.open()
	if err := receive(t, closed); err != nil {
		t.Errorf("Close: %v", err)
	}
	select {
	case <-h.Done():
	default:
		t.Error("Close has returned before everybody was told")
	}
	if ctx.Err() == nil {
		t.Error("Close has returned and a context is alive")
	}
}

// What an event loop or a timer has to do at the end of a hold does not grow with the
// number of its contexts.
func BenchmarkEndOfAHoldOnAnEventLoop(b *testing.B) {
	s := server(b)
	e := open(b, s.URL())
	for _, n := range []int{0, 1, 64, 10_000} {
		b.Run(fmt.Sprint(n, " contexts"), func(b *testing.B) {
			b.StopTimer()
			for range b.N {
				h := mustLock(b, e.Mutex("x"))
				for range n {
					h.Context(context.Background())
				}
				s.Do("DEL", "x")
				b.StartTimer()
				oneOf(h).Subject().Gone(script.Gone)
				b.StopTimer()
				<-h.Done()
			}
		})
	}
}
