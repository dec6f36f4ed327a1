package callbacks

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// handler is a slog.Handler that uses the engine whenever it is asked something.
type handler struct {
	slog.Handler
	use func()
}

func (h handler) Enabled(context.Context, slog.Level) bool { h.use(); return true }

func (h handler) Handle(context.Context, slog.Record) error { h.use(); return nil }

func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h handler) WithGroup(string) slog.Handler { return h }

func TestLogger_UsesTheEngine_IsAllowed(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		var e *engine.Engine
		ready, notified := make(chan struct{}), make(chan struct{}, 1000)
		use := func() {
			select {
			case <-ready:
			default:
				return // while the engine is opened
			}
			_ = e.Stats() // takes every shard's lock
			select {
			case notified <- struct{}{}:
			default:
			}
		}
		e = testkit.Open(t, s.URL(), func(c *engine.Config) { c.Logger = slog.New(handler{use: use}) })
		close(ready)
		h := testkit.MustLock(t, e.Mutex("x"), engine.Lease(100*time.Millisecond))
		testkit.Receive(t, h.Done()) // a loss is logged
		testkit.Receive(t, notified)
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	})
}

// nosyError is an error of the user's. Each of its methods is user code: it asks the
// engine, which takes every lock of a shard, and looks where it was called from.
type nosyError struct {
	t        testing.TB
	e        atomic.Pointer[engine.Engine] // nil: it does not look
	called   atomic.Int32
	notified atomic.Bool // once is enough
}

func (n *nosyError) Error() string { n.look("Error"); return "a nosy error" }

func (n *nosyError) Is(error) bool { n.look("Is"); return false }

func (n *nosyError) As(any) bool { n.look("As"); return false }

func (n *nosyError) Unwrap() error { n.look("Unwrap"); return nil }

func (n *nosyError) look(method string) {
	e := n.e.Load()
	if e == nil || n.notified.Load() {
		return
	}
	n.called.Add(1)
	asked := make(chan struct{})
	go func() { e.Stats(); close(asked) }()
	patience, cancel := cputime.WithTimeout(context.Background(), testkit.Limit/4)
	defer cancel()
	select {
	case <-asked:
	case <-patience.Done():
		n.notified.Store(true)
		n.t.Errorf("%s of a user's error is called under a lock:\n%s", method, testkit.Stack())
	}
	if s := testkit.Stack(); onLoop(s) {
		n.notified.Store(true)
		n.t.Errorf("%s of a user's error is called on an event loop or a timer:\n%s", method, s)
	}
}

// onLoop reports whether a stack is that of a goroutine that everything hangs on: an
// event loop, a reader or a worker of the wheel.
func onLoop(stack string) bool {
	for _, frame := range []string{"gnet.", ".Complete(", ".Fire(", ".ChannelEvent(", ".readLoop("} {
		if strings.Contains(stack, frame) {
			return true
		}
	}
	return false
}

// What waits is given up for a cause of the user's.
func TestLock_CauseOfTheUser_IsNotCalledUnderALock(t *testing.T) {
	t.Parallel()
	busy := []byte("-BUSY Redis is busy\r\n")
	for _, c := range []struct {
		name string
		wait func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, ctx context.Context) <-chan error
	}{
		{"Unlock", func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, ctx context.Context) <-chan error {
			h := testkit.MustLock(t, e.Mutex("x"))
			p.Pause(faultproxy.All)
			out := e.Stats().Commands
			done := testkit.Background(func() error { return h.Unlock(ctx) })
			testkit.Eventually(t, "the release is out", func() bool { return e.Stats().Commands > out })
			return done
		}},
		{"Extend", func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, ctx context.Context) <-chan error {
			h := testkit.MustLock(t, e.Mutex("x"), engine.Lease(time.Minute))
			p.Pause(faultproxy.All)
			out := e.Stats().Commands
			done := testkit.Background(func() error { return h.Extend(ctx, 2*time.Minute) })
			testkit.Eventually(t, "the Extend is out", func() bool { return e.Stats().Commands > out })
			return done
		}},
		{"Lock that was refused for now", func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, ctx context.Context) <-chan error {
			refused := p.ReplaceReply(testkit.AcquireOf("x"), busy, 1000)
			done := testkit.Background(func() error { _, err := e.Mutex("x").Lock(ctx); return err })
			refused.Wait(1)
			return done
		}},
		{"LockAsync that was refused for now", func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, ctx context.Context) <-chan error {
			refused := p.ReplaceReply(testkit.AcquireOf("x"), busy, 1000)
			f := e.Mutex("x").LockAsync(ctx)
			refused.Wait(1)
			return testkit.Background(func() error { _, err := f.Await(testkit.Ctx(t)); return err })
		}},
		{"Lock behind another", func(t *testing.T, p *faultproxy.Proxy, e *engine.Engine, ctx context.Context) <-chan error {
			testkit.MustLock(t, e.Mutex("x"))
			done := testkit.Background(func() error { _, err := e.Mutex("x").Lock(ctx); return err })
			testkit.Eventually(t, "it waits", func() bool { return e.Stats().Waiting == 1 })
			return done
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, p, e := testkit.Behind(t)
			defer p.Resume()
			cause := &nosyError{t: t}
			ctx, cancel := context.WithCancelCause(context.Background())
			done := c.wait(t, p, e, ctx)
			cause.e.Store(e)
			cancel(cause)
			err := testkit.Receive(t, done)
			if n := cause.called.Load(); n > 0 {
				t.Errorf("%d methods of the cause were called before anybody asked", n)
			}
			if !errors.Is(err, error(cause)) || !strings.Contains(err.Error(), "a nosy error") {
				t.Errorf("the error does not have the cause: %v", err)
			}
		})
	}
}

// nilCause panics when it is asked, as a nil pointer in an interface does.
type nilCause struct{ text string }

func (c *nilCause) Error() string { return c.text }

// A cause that panics is its maker's affair: no lock stays held, so the same names
// work on, and so do those that share their shard.
func TestLock_CauseThatPanics_LeavesNoLockHeld(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"Unlock", "Extend"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, p, e := testkit.Behind(t)
			h := testkit.MustLock(t, e.Mutex("x"), engine.Lease(time.Minute))
			p.Pause(faultproxy.All)
			ctx, cancel := context.WithCancelCause(context.Background())
			out := e.Stats().Commands
			done := testkit.Background(func() error {
				defer func() { _ = recover() }() // as net/http does
				if what == "Unlock" {
					return h.Unlock(ctx)
				}
				return h.Extend(ctx, 2*time.Minute)
			})
			testkit.Eventually(t, "the command is out", func() bool { return e.Stats().Commands > out })
			cancel((*nilCause)(nil))
			if err := testkit.Receive(t, done); !errors.Is(err, engine.ErrOutcomeUnknown) {
				t.Error("no error that says ErrOutcomeUnknown was returned")
			}
			asked := testkit.Background(func() error { _ = h.Err(); return nil })
			if testkit.Receive(t, asked); !t.Failed() {
				p.Resume()
				_ = h.Unlock(testkit.Ctx(t))
				testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
			}
		})
	}
}

// nosyConn is a connection of a user's Dialer, with errors of its own.
type nosyConn struct {
	net.Conn
	err *nosyError
}

func (c nosyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		err = c.err
	}
	return n, err
}

// The errors of a Dialer's connections are why commands failed. They are handed on and
// asked nothing where it matters.
func TestEngine_ErrorOfADialer_IsNotCalledUnderALock(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, dialerErrorsAreAskedNothing)
}

func dialerErrorsAreAskedNothing(t testing.TB) {
	s := testkit.Server(t)
	p := faultproxy.New(t, "tcp", s.Addr())
	nosy := &nosyError{t: t}
	e := testkit.Open(t, "redis://"+p.Addr(), func(c *engine.Config) {
		c.CommandTimeout = time.Second
		c.Observer = engine.ObserverFuncs{OnRenewEnd: func(engine.RenewEnd) {}}
		c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, nosy
			}
			return nosyConn{conn, nosy}, nil
		}
	})
	released, extended := testkit.MustLock(t, e.Mutex("released")), testkit.MustLock(t, e.Mutex("extended"), engine.Lease(time.Minute))
	parent := testkit.MustLock(t, e.Mutex("parent"))
	nosy.e.Store(e)
	p.Pause(faultproxy.All)
	out := e.Stats().InFlight
	e.Mutex("waits").LockAsync(testkit.Ctx(t))
	try := e.Mutex("tried").TryLockAsync(testkit.Ctx(t))
	again := e.Mutex("parent").TryLockAsync(parent.Context(context.Background()))
	testkit.RenewAll(e)
	unlocked := released.UnlockAsync()
	more := testkit.Background(func() error { return extended.Extend(testkit.Ctx(t), 2*time.Minute) })
	testkit.Eventually(t, "all are out", func() bool { return e.Stats().InFlight >= out+6 })
	p.Down()
	p.Resume()
	for what, f := range map[string]*engine.Future[*engine.Hold]{"TryLock": try, "re-entry": again} {
		if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", what, err)
		}
	}
	// Refused before it is sent, for the error that the lane ended with.
	if _, err := e.Mutex("later").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("TryLock without a connection: %v, want ErrUnavailable", err)
	}
	p.Up()
	if _, err := unlocked.Await(testkit.Ctx(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if err := testkit.Receive(t, more); err != nil && !errors.Is(err, engine.ErrOutcomeUnknown) {
		t.Errorf("Extend: %v", err)
	}
}

// A handler that hangs, because nobody reads the log for instance, keeps no connection from
// being made again, and no Close from ending.
func TestLogger_Hangs_DelaysNoConnection(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(testkit.Calls(script.Acquire), fakenode.Int(script.Granted))
	n.On(testkit.Calls(script.Release), fakenode.Int(script.Done))
	hanging, gate := make(chan struct{}, 1000), make(chan struct{})
	e := testkit.Open(t, "redis://"+n.Addr(), func(c *engine.Config) {
		c.CloseTimeout = 100 * time.Millisecond
		c.Logger = slog.New(handler{use: func() { hanging <- struct{}{}; <-gate }})
	})
	n.ResetAll()
	testkit.Receive(t, hanging)
	testkit.Eventually(t, "every connection is back", func() bool { return e.Stats().Reconnects >= 3 })
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	if err := testkit.Receive(t, closed); !errors.Is(err, engine.ErrPending) {
		t.Errorf("Close: %v", err)
	}
	close(gate)
}

// As with the hooks: one that ends its goroutine is called again, and costs no connection.
func TestLogger_EndsItsGoroutine_CostsNoConnection(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(testkit.Calls(script.Acquire), fakenode.Int(script.Granted))
	n.On(testkit.Calls(script.Release), fakenode.Int(script.Done))
	e := testkit.Open(t, "redis://"+n.Addr(), func(c *engine.Config) { c.Logger = slog.New(handler{use: runtime.Goexit}) })
	testkit.Eventually(t, "every connection is there", func() bool { return testkit.Client(e).Stats().Connections == 3 })
	n.ResetAll()
	testkit.Eventually(t, "every connection is back", func() bool { return e.Stats().Reconnects >= 3 })
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
}
