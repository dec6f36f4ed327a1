package engine

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

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/pace"
)

// nosyError is an error of the user's. Each of its methods is user code: it asks the
// engine, which takes every lock of a shard, and looks where it was called from.
type nosyError struct {
	t      testing.TB
	e      atomic.Pointer[Engine] // nil: it does not look
	called atomic.Int32
	told   atomic.Bool // once is enough
}

func (n *nosyError) Error() string { n.look("Error"); return "a nosy error" }
func (n *nosyError) Is(error) bool { n.look("Is"); return false }
func (n *nosyError) As(any) bool   { n.look("As"); return false }
func (n *nosyError) Unwrap() error { n.look("Unwrap"); return nil }

func (n *nosyError) look(method string) {
	e := n.e.Load()
	if e == nil || n.told.Load() {
		return
	}
	n.called.Add(1)
	asked := make(chan struct{})
	go func() { e.Stats(); close(asked) }()
	patience, cancel := pace.WithTimeout(context.Background(), limit/4)
	defer cancel()
	select {
	case <-asked:
	case <-patience.Done():
		n.told.Store(true)
		n.t.Errorf("%s of a user's error is called under a lock:\n%s", method, stack())
	}
	if s := stack(); onLoop(s) {
		n.told.Store(true)
		n.t.Errorf("%s of a user's error is called on an event loop or a timer:\n%s", method, s)
	}
}

func stack() string {
	b := make([]byte, 64<<10)
	return string(b[:runtime.Stack(b, false)])
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
func TestCausesOfTheUserAreAskedNothingUnderALock(t *testing.T) {
	t.Parallel()
	busy := []byte("-BUSY Redis is busy\r\n")
	for _, c := range []struct {
		name string
		wait func(t *testing.T, p *faultproxy.Proxy, e *Engine, ctx context.Context) <-chan error
	}{
		{"Unlock", func(t *testing.T, p *faultproxy.Proxy, e *Engine, ctx context.Context) <-chan error {
			h := mustLock(t, e.Mutex("x"))
			p.Pause(faultproxy.All)
			out := e.Stats().Commands
			done := background(func() error { return h.Unlock(ctx) })
			eventually(t, "the release is out", func() bool { return e.Stats().Commands > out })
			return done
		}},
		{"Extend", func(t *testing.T, p *faultproxy.Proxy, e *Engine, ctx context.Context) <-chan error {
			h := mustLock(t, e.Mutex("x"), Lease(time.Minute))
			p.Pause(faultproxy.All)
			out := e.Stats().Commands
			done := background(func() error { return h.Extend(ctx, 2*time.Minute) })
			eventually(t, "the Extend is out", func() bool { return e.Stats().Commands > out })
			return done
		}},
		{"Lock that was refused for now", func(t *testing.T, p *faultproxy.Proxy, e *Engine, ctx context.Context) <-chan error {
			refused := p.ReplaceReply(acquireOf("x"), busy, 1000)
			done := background(func() error { _, err := e.Mutex("x").Lock(ctx); return err })
			refused.Wait(1)
			return done
		}},
		{"LockAsync that was refused for now", func(t *testing.T, p *faultproxy.Proxy, e *Engine, ctx context.Context) <-chan error {
			refused := p.ReplaceReply(acquireOf("x"), busy, 1000)
			f := e.Mutex("x").LockAsync(ctx)
			refused.Wait(1)
			return background(func() error { _, err := f.Await(ctxT(t)); return err })
		}},
		{"Lock behind another", func(t *testing.T, p *faultproxy.Proxy, e *Engine, ctx context.Context) <-chan error {
			mustLock(t, e.Mutex("x"))
			done := background(func() error { _, err := e.Mutex("x").Lock(ctx); return err })
			eventually(t, "it waits", func() bool { return e.Stats().Waiting == 1 })
			return done
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, p, e := behind(t)
			defer p.Resume()
			cause := &nosyError{t: t}
			ctx, cancel := context.WithCancelCause(context.Background())
			done := c.wait(t, p, e, ctx)
			cause.e.Store(e)
			cancel(cause)
			err := receive(t, done)
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
func TestCauseThatPanicsLeavesNoLockHeld(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"Unlock", "Extend"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, p, e := behind(t)
			h := mustLock(t, e.Mutex("x"), Lease(time.Minute))
			p.Pause(faultproxy.All)
			ctx, cancel := context.WithCancelCause(context.Background())
			out := e.Stats().Commands
			done := background(func() error {
				defer func() { _ = recover() }() // as net/http does
				if what == "Unlock" {
					return h.Unlock(ctx)
				}
				return h.Extend(ctx, 2*time.Minute)
			})
			eventually(t, "the command is out", func() bool { return e.Stats().Commands > out })
			cancel((*nilCause)(nil))
			if err := receive(t, done); !errors.Is(err, ErrOutcomeUnknown) {
				t.Error("no error that says ErrOutcomeUnknown was returned")
			}
			asked := background(func() error { _ = h.Err(); return nil })
			if receive(t, asked); !t.Failed() {
				p.Resume()
				_ = h.Unlock(ctxT(t))
				mustUnlock(t, mustLock(t, e.Mutex("x")))
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
func TestErrorsOfADialerAreAskedNothingUnderALock(t *testing.T) {
	t.Parallel()
	steady(t, dialerErrorsAreAskedNothing)
}

func dialerErrorsAreAskedNothing(t testing.TB) {
	s := server(t)
	p := faultproxy.New(t, "tcp", s.Addr())
	nosy := &nosyError{t: t}
	e := open(t, "redis://"+p.Addr(), func(c *Config) {
		c.CommandTimeout = time.Second
		c.Hooks.Renewed = func(RenewedEvent) {}
		c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, nosy
			}
			return nosyConn{conn, nosy}, nil
		}
	})
	released, extended := mustLock(t, e.Mutex("released")), mustLock(t, e.Mutex("extended"), Lease(time.Minute))
	parent := mustLock(t, e.Mutex("parent"))
	nosy.e.Store(e)
	p.Pause(faultproxy.All)
	out := e.Stats().InFlight
	e.Mutex("waits").LockAsync(ctxT(t))
	try := e.Mutex("tried").TryLockAsync(ctxT(t))
	again := e.Mutex("parent").TryLockAsync(parent.Context(context.Background()))
	renewAll(e)
	unlocked := released.UnlockAsync()
	more := background(func() error { return extended.Extend(ctxT(t), 2*time.Minute) })
	eventually(t, "all are out", func() bool { return e.Stats().InFlight >= out+6 })
	p.Down()
	p.Resume()
	for what, f := range map[string]*Future[*Hold]{"TryLock": try, "re-entry": again} {
		if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", what, err)
		}
	}
	// Refused before it is sent, for the error that the lane ended with.
	if _, err := e.Mutex("later").TryLock(ctxT(t)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("TryLock without a connection: %v, want ErrUnavailable", err)
	}
	p.Up()
	if _, err := unlocked.Await(ctxT(t)); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	if err := receive(t, more); err != nil && !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Extend: %v", err)
	}
}

// background runs f on a goroutine of its own.
func background(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// A handler that hangs, because nobody reads the log for instance, keeps no connection from
// being made again, and no Close from ending.
func TestLoggerThatHangsDelaysNoConnection(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(calls(script.Acquire), fakenode.Int(script.Granted))
	n.On(calls(script.Release), fakenode.Int(script.Done))
	hanging, gate := make(chan struct{}, 1000), make(chan struct{})
	e := open(t, "redis://"+n.Addr(), func(c *Config) {
		c.CloseTimeout = 100 * time.Millisecond
		c.Logger = slog.New(handler{use: func() { hanging <- struct{}{}; <-gate }})
	})
	n.ResetAll()
	receive(t, hanging)
	mustUnlock(t, mustLock(t, e.Mutex("x")))
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	if err := receive(t, closed); !errors.Is(err, ErrPending) {
		t.Errorf("Close: %v", err)
	}
	close(gate)
}

// As with the hooks: one that ends its goroutine is called again, and costs no connection.
func TestLoggerThatEndsItsGoroutineCostsNoConnection(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(calls(script.Acquire), fakenode.Int(script.Granted))
	n.On(calls(script.Release), fakenode.Int(script.Done))
	e := open(t, "redis://"+n.Addr(), func(c *Config) { c.Logger = slog.New(handler{use: runtime.Goexit}) })
	eventually(t, "every connection is there", func() bool { return connected(e).Stats().Connections == 3 })
	n.ResetAll()
	eventually(t, "every connection is back", func() bool { return e.Stats().Reconnects >= 3 })
	mustUnlock(t, mustLock(t, e.Mutex("x")))
}
