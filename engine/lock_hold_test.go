package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func short(c *Config) { c.Lease = 600 * time.Millisecond }

// The server counts the lease from when it executes a renewal, which may be right
// after it was sent: the time that the answer takes is not ours.
func TestHold_Renewed_IsValidFromWhenItWasSent(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		_, p, e := behind(t, leaseOf(2*time.Second))
		h := mustLock(t, e.Mutex("x"))
		const late = 300 * time.Millisecond
		p.Delay(faultproxy.All, 0, late)
		for range 3 {
			n := e.Stats().Renewed
			eventually(t, "a renewal with a late answer", func() bool { return e.Stats().Renewed > n || h.Err() != nil })
			most := e.cfg.Lease - e.margin(e.cfg.Lease) - late
			if left := time.Until(h.ValidUntil()); left > most {
				t.Errorf("valid for another %v, of at most %v", left, most)
			}
		}
		if err := h.Err(); err != nil {
			t.Error(err)
		}
		mustUnlock(t, h)
	})
}

// A re-entry is given back when its contexts have ended, so the next one under the same
// hold finds none of them alive. And Done of the hold, which may end meanwhile for
// another reason, waits for them.
func TestHold_ContextsOfAReentry_EndBeforeTheNextReentryAndTheirParent(t *testing.T) {
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
func TestHold_ContextThatEnded_IsForgottenWithItsTree(t *testing.T) {
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

// A name whose hold is being told is in use, also if nobody waits for it: Close does not
// leave it behind.
func TestClose_ContextsOfALostHold_AreWaitedFor(t *testing.T) {
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
	if n := lookInto(e).Names; n != 1 {
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
func BenchmarkHold_EndOnAnEventLoop(b *testing.B) {
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
				oneOf(h).Renewable().Gone(script.Gone)
				b.StopTimer()
				<-h.Done()
			}
		})
	}
}

// scene is a hold that is about to end.
type scene struct {
	t *testing.T
	s *redistest.Server
	p *faultproxy.Proxy // between the engine and the server
	e *Engine
	m Mutex
	h *Hold
}

// ending is a way in which a hold ends. The contexts in question are made from it, or
// from a re-entry of it.
type ending struct {
	name    string
	opts    []Option
	change  func(*Config)
	reentry bool
	end     func(*scene) // nil: it ends by itself
	closed  bool         // the engine works no more
	removed bool         // others have taken the lock away
}

// startCounterOp takes a lock and has prepare make contexts of the hold; once more if it ended
// before they were made. The server does not forget it: a machine that is busy with tests
// may take longer than the margin, and here it is our order that counts.
func (w ending) begin(t *testing.T, s *redistest.Server, prepare func(c *scene, of *Hold)) *scene {
	c := &scene{t: t, s: s, p: faultproxy.New(t, "tcp", s.Addr())}
	c.e = open(t, "redis://"+c.p.Addr(), func(cfg *Config) {
		cfg.CommandConns, cfg.EventLoops = 1, 1
		if w.change != nil {
			w.change(cfg)
		}
	})
	for i := range 20 {
		c.m = c.e.Mutex(fmt.Sprint(t.Name(), i))
		var err error
		if c.h, err = c.m.Lock(ctxT(t), w.opts...); errors.Is(err, ErrGrantTooLate) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Do("PEXPIRE", c.m.Name(), fmt.Sprint(2*limit.Milliseconds()))
		of := c.h
		if w.reentry {
			of = reenterAlone(t, c.m, c.h)
		}
		if of == nil {
			continue
		}
		prepare(c, of)
		if of.Err() == nil {
			return c
		}
	}
	t.Fatal("every hold ended before its contexts were made")
	return nil
}

var endings = []ending{
	{name: "Unlock", end: func(c *scene) { go c.h.Unlock(context.Background()) }},
	{name: "UnlockAsync", end: func(c *scene) { go c.h.UnlockAsync() }},
	{name: "Unlock of the parent", reentry: true, end: func(c *scene) { go c.h.Unlock(context.Background()) }},
	{name: "Unlock while an Extend is out", opts: []Option{Lease(time.Minute)}, end: func(c *scene) {
		// The reply of the Extend finds a hold that is to be released.
		c.p.Pause(faultproxy.All)
		out := c.e.Stats().Commands
		go c.h.Extend(context.Background(), 2*time.Minute)
		eventually(c.t, "the Extend is out", func() bool { return c.e.Stats().Commands > out })
		go c.h.Unlock(context.Background())
		eventually(c.t, "it has ended", func() bool { return c.h.Err() == ErrReleased })
		c.p.Resume()
	}},
	{name: "MaxHold", opts: []Option{MaxHold(500 * time.Millisecond)}, change: short},
	{name: "MaxHold of the parent", reentry: true, opts: []Option{MaxHold(500 * time.Millisecond)}, change: short},
	{name: "LeaseEnded", opts: []Option{Lease(500 * time.Millisecond)}},
	{name: "NotRenewed", change: short, end: func(c *scene) {
		c.p.ReplaceReply(renewals, []byte("-BUSY Redis is busy\r\n"), -1)
	}},
	{name: "RemovedOnServer", removed: true, end: func(c *scene) {
		c.s.Do("DEL", c.m.Name())
		c.e.table.Renewer.All()
	}},
	{name: "KeyOverwritten", removed: true, end: func(c *scene) {
		c.s.Do("SET", c.m.Name(), "of another library")
		c.e.table.Renewer.All()
	}},
	{name: "Close", closed: true, end: func(c *scene) { go c.e.Close() }},
	{name: "Shutdown", closed: true, reentry: true, end: func(c *scene) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		go c.e.Shutdown(ctx)
	}},
}

// reenterAlone re-enters h, and leaves no context of it; nil if h ended before.
func reenterAlone(t *testing.T, m Mutex, h *Hold) *Hold {
	t.Helper()
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	child, err := m.Lock(h.Context(ctx))
	if errors.Is(err, ErrLost) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	for contextsOf(h) > 0 {
		runtime.Gosched()
	}
	return child
}

func contextsOf(h *Hold) int {
	oneOf(h).Shard().Lock()
	defer oneOf(h).Shard().Unlock()
	return len(oneOf(h).Contexts())
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
	case g.called <- stack():
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

// However a hold ends, and however long its contexts take to end: until they have,
// nothing is sent that lets anybody else have the lock. Other names go on meanwhile.
func TestHold_Ends_NothingIsSentBeforeItsContextsHaveEnded(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, n := range []int{3, driver.FewContexts + 1} {
		for _, w := range endings {
			t.Run(fmt.Sprintf("%s, %d contexts", w.name, n), func(t *testing.T) {
				t.Parallel()
				var g *gated
				var contexts []context.Context
				var sent *faultproxy.Trap
				c := w.begin(t, s, func(c *scene, h *Hold) {
					name := c.m.Name()
					sent = c.p.Watch(func(cmd faultproxy.Command) bool {
						return acquireOf(name)(cmd) || releaseOf(name)(cmd)
					})
					g, contexts = newGated(t), nil
					for range n {
						contexts = append(contexts, h.Context(g))
					}
					g.shut.Store(true)
				})
				next := c.m.LockAsync(ctxT(t), Lease(time.Minute)) // of the same process
				if w.end != nil {
					w.end(c)
				}
				at := receive(t, g.called)

				if onLoop(at) {
					t.Errorf("contexts are ended on an event loop or a timer:\n%s", at)
				}
				if n > driver.FewContexts && strings.Contains(at, "engine.(*Hold)") {
					t.Errorf("many contexts are ended by the caller:\n%s", at)
				}
				select {
				case <-c.h.Done():
					t.Error("Done is closed while contexts are being ended")
				default:
				}
				if c.h.Err() == nil {
					t.Error("Err is nil while contexts are being ended")
				}
				if !w.closed {
					// On the same connection, so behind whatever was sent before.
					mustUnlock(t, mustLock(t, c.e.Mutex(c.m.Name()+", another"), Lease(time.Minute)))
				}
				if k := sent.Done(); k > 0 {
					t.Errorf("%d commands for the name were sent while its contexts are being ended", k)
				}

				g.open()
				receive(t, c.h.Done())
				if k := alive(contexts); k > 0 {
					t.Errorf("Done is closed and %d of %d contexts are alive", k, n)
				}
				h, err := next.Await(ctxT(t))
				switch {
				case err == nil:
					mustUnlock(t, h)
				case w.closed && errors.Is(err, ErrClosed), w.removed && errors.Is(err, ErrWrongType):
				default:
					t.Errorf("the next one: %v", err)
				}
				if w.closed {
					if err := c.e.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				}
			})
		}
	}
}

// However a hold ends, no context of it is alive, nor any made from one, when another
// process gets the lock or when Done is closed.
func TestLock_NextHolder_FindsNoContextOfTheLastAlive(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, w := range endings {
		if w.removed {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			var contexts []context.Context
			c := w.begin(t, s, func(_ *scene, h *Hold) { contexts = forest(t, h) })
			other := open(t, s.URL())
			found := make(chan int, 2)
			go func() {
				<-c.h.Done()
				found <- alive(contexts)
			}()
			go func() {
				h, err := other.Mutex(c.m.Name()).Lock(ctxT(t))
				found <- alive(contexts)
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				h.UnlockAsync()
			}()
			eventually(t, "it waits", func() bool { return other.Stats().Channels == 1 || alive(contexts) == 0 })
			if w.end != nil {
				w.end(c)
			}
			for range 2 {
				if n := receive(t, found); n > 0 {
					t.Errorf("%d of %d contexts are alive", n, len(contexts))
				}
			}
		})
	}
}

// forest makes 64 contexts of the hold and a tree below each.
func forest(t *testing.T, h *Hold) (all []context.Context) {
	for range 64 {
		root := h.Context(context.Background())
		all = append(all, root)
		for range 10 {
			branch, cancel := context.WithCancel(root)
			t.Cleanup(cancel)
			all = append(all, branch)
			for range 10 {
				leaf, cancel := context.WithCancel(branch)
				t.Cleanup(cancel)
				all = append(all, leaf)
			}
		}
	}
	return all
}

// background runs f on a goroutine of its own.
func background(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// silentContext has ended, and says not why.
type silentContext struct{ context.Context }

func (silentContext) Done() <-chan struct{} {
	over := make(chan struct{})
	close(over)
	return over
}

func (silentContext) Err() error { return nil }

// The verdict of a release that nobody waits for any more must not go to another Unlock.
func TestUnlock_ContextDoesNotSayWhyItHasEnded_IsUnknown(t *testing.T) {
	t.Parallel()
	_, p, e := behind(t, patient)
	h := mustLock(t, e.Mutex("x"))
	p.Pause(faultproxy.All)
	err := h.Unlock(silentContext{context.Background()})
	p.Resume()
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Unlock: %v", err)
	}
}

func TestMultiLockUnlock_ContextDoesNotSayWhyItHasEnded_IsUnknown(t *testing.T) {
	t.Parallel()
	_, p, e := behind(t, patient)
	h := mustLockMany(t, e, []string{"x", "y"})
	p.Pause(faultproxy.All)
	err := h.Unlock(silentContext{context.Background()})
	p.Resume()
	if !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Unlock: %v", err)
	}
}
