package engine

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/resp"
)

var sentinels = map[string]error{
	"ErrInvalid": ErrInvalid, "ErrNotAcquired": ErrNotAcquired, "ErrReentry": ErrReentry,
	"ErrHeld": ErrHeld, "ErrNotRun": ErrNotRun,
	"ErrWrongType": ErrWrongType, "ErrLate": ErrLate, "ErrOverloaded": ErrOverloaded,
	"ErrUnavailable": ErrUnavailable, "ErrClosed": ErrClosed, "ErrOutcomeUnknown": ErrOutcomeUnknown,
	"ErrLost": ErrLost, "ErrReleased": ErrReleased, "ErrNotHeld": ErrNotHeld, "ErrPending": ErrPending, "ErrNotAcked": ErrNotAcked,
}

// The table of doc.go is true: every error in it can be had from that operation, in
// the company that the table says.
func TestTheTableOfErrorsIsTrue(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var operations []string
	rows := 0
	for line := range strings.Lines(string(doc)) {
		words := strings.Fields(strings.TrimPrefix(line, "//\t"))
		switch {
		case len(words) > 1 && words[0] == "Open" && words[1] == "Lock":
			operations = words
			continue
		case operations == nil || len(words) != len(operations)+1 || sentinels[words[0]] == nil:
			continue
		}
		rows++
		for i, mark := range words[1:] {
			if mark != "." {
				t.Run(words[0]+"/"+operations[i], func(t *testing.T) {
					t.Parallel()
					provoked(t, words[0], operations[i], mark)
				})
			}
		}
	}
	if rows != len(sentinels) {
		t.Errorf("the table has %d rows, there are %d sentinels", rows, len(sentinels))
	}
}

// provoked checks one cell.
func provoked(t *testing.T, sentinel, operation, mark string) {
	steady(t, func(t testing.TB) {
		err := newTrouble(t).provoke(sentinel, operation)
		if !errors.Is(err, sentinels[sentinel]) {
			t.Fatalf("got: %v", err)
		}
		joined := map[string]error{"n": ErrNotAcquired, "u": ErrOutcomeUnknown}
		for with, other := range joined {
			if want := with == mark || sentinels[sentinel] == other; errors.Is(err, other) != want {
				t.Errorf("joined with %q: %t, want %t: %v", other, !want, want, err)
			}
		}
		if errors.Is(err, ErrHeld) && errors.Is(err, ErrUnavailable) {
			t.Errorf("held, and nobody could be asked: %v", err)
		}
		if notRun := operation == "Do" && errors.Is(err, ErrNotAcquired); errors.Is(err, ErrNotRun) != notRun {
			t.Errorf("the function was not run: %t, want %t: %v", !notRun, notRun, err)
		}
		if text := err.Error(); strings.Contains(text, "\n") && operation != "Err" {
			t.Errorf("several lines: %q", text)
		}
		var e *NotAcquiredError
		if errors.As(err, &e) != errors.Is(err, ErrNotAcquired) {
			t.Errorf("not a NotAcquiredError: %v", err)
		}
	})
}

// trouble is an engine on a server, and a network between that does what we want.
type trouble struct {
	testing.TB
	s   *embedded.Server
	net *faultproxy.Proxy
	e   *Engine
	m   Mutex
	ctx context.Context

	none context.Context // nil
}

func newTrouble(t testing.TB) *trouble {
	t.Helper()
	s, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	net := faultproxy.New(t, "tcp", s.Addr())
	e := open(t, "redis://"+net.Addr()+"?command_timeout=2s&close_timeout=2s")
	return &trouble{TB: t, s: s, net: net, e: e, m: e.Mutex("x"), ctx: ctxT(t)}
}

// down takes the network away and waits until the engine has noticed. The proxy goes
// on to listen: its port must not become another test's meanwhile.
func (t *trouble) down() {
	t.Helper()
	t.net.Blackhole(faultproxy.All)
	t.net.Cut(faultproxy.All)
	t.Cleanup(t.net.Heal) // before the engine's Close, which would wait for it
	eventually(t, "the engine knows that the network is down", func() bool { return !t.e.client.Up(resp.RoleLane, 0) })
}

// soon is a context that ends in a moment.
func (t *trouble) soon() context.Context {
	ctx, cancel := context.WithTimeout(t.ctx, 30*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func (t *trouble) lock(opts ...Option) *Hold {
	t.Helper()
	return mustLock(t, t.m, opts...)
}

// inCallback is an engine with a callback that runs until the test is over.
func (t *trouble) inCallback() *Engine {
	e := open(t, "redis://"+t.net.Addr()+"?close_timeout=100ms")
	running, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(over) })
	t.lock() // by the other engine: Shutdown would wait for a hold of this one
	e.Mutex("x").TryLockAsync(t.ctx).OnComplete(func(*Hold, error) { close(running); <-over })
	receive(t, running)
	return e
}

// fleeting is a lease that ends within the test.
func fleeting() Option { return Lease(300 * time.Millisecond) }

func (t *trouble) provoke(sentinel, operation string) error {
	t.Helper()
	switch operation {
	case "Lock", "Try", "Async", "Do":
		if err := t.provokeAcquiring(sentinel, operation); err != nil {
			return err
		}
	case "State", "Force", "Ping":
		return t.provokeQuestion(sentinel, operation)
	}
	switch sentinel + " " + operation {
	case "ErrInvalid Open":
		_, err := Open(t.ctx, "http://127.0.0.1")
		return err
	case "ErrUnavailable Open":
		t.net.Blackhole(faultproxy.All)
		defer t.net.Heal()
		_, err := Open(t.soon(), "redis://"+t.net.Addr())
		return err
	case "ErrInvalid Unlock":
		return t.lock().Unlock(t.none)
	case "ErrInvalid Extend":
		return t.lock().Extend(t.ctx, time.Minute)
	case "ErrInvalid Err":
		return context.Cause(t.lock().Context(t.none))
	case "ErrInvalid Shutdown":
		return t.e.Shutdown(t.none)
	case "ErrInvalid Await":
		_, _, err := AwaitAny[int](t.ctx)
		return err
	case "ErrPending Await":
		t.lock()
		_, err := t.m.LockAsync(t.ctx).Await(t.soon())
		return err

	case "ErrUnavailable Do":
		return t.m.Do(t.ctx, func(context.Context, *Hold) error { t.down(); return nil }, Lease(time.Second))
	case "ErrOutcomeUnknown Do":
		return t.m.Do(t.ctx, func(context.Context, *Hold) error { t.down(); return nil })
	case "ErrLost Do":
		return t.m.Do(t.ctx, func(_ context.Context, h *Hold) error { <-h.Done(); return nil }, fleeting())

	case "ErrUnavailable Unlock":
		h := t.lock(Lease(time.Second))
		t.down()
		return h.Unlock(t.ctx)
	case "ErrClosed Unlock":
		h := t.lock()
		t.down()
		released := h.UnlockAsync()
		_ = t.e.Close()
		_, err := released.Await(t.ctx)
		return err
	case "ErrOutcomeUnknown Unlock":
		h := t.lock()
		t.down()
		return h.Unlock(t.soon())
	case "ErrLost Unlock":
		h := t.lock(fleeting())
		<-h.Done()
		return h.Unlock(t.ctx)
	case "ErrNotHeld Unlock":
		h := t.lock()
		mustUnlock(t, h)
		return h.Unlock(t.ctx)

	case "ErrUnavailable Extend", "ErrOutcomeUnknown Extend":
		h := t.lock(Lease(time.Minute))
		t.down()
		if sentinel == "ErrOutcomeUnknown" {
			return h.Extend(t.soon(), time.Hour)
		}
		return h.Extend(t.ctx, time.Hour)
	case "ErrLost Extend":
		h := t.lock(fleeting())
		<-h.Done()
		return h.Extend(t.ctx, time.Hour)
	case "ErrNotAcked Extend":
		t.s.SetReplicas(1)
		h := t.lock(Lease(time.Minute), Acked(1))
		t.s.SetReplicas(0)
		return h.Extend(t.ctx, time.Hour)
	case "ErrNotHeld Extend":
		h := t.lock(Lease(time.Minute))
		mustUnlock(t, h)
		return h.Extend(t.ctx, time.Hour)

	case "ErrLost Err":
		h := t.lock(fleeting())
		<-h.Done()
		return errors.Join(h.Err(), context.Cause(h.Context(t.ctx)))
	case "ErrReleased Err":
		h := t.lock()
		mustUnlock(t, h)
		return errors.Join(h.Err(), context.Cause(h.Context(t.ctx)))

	case "ErrOutcomeUnknown Close":
		t.lock()
		t.down()
		return t.e.Close()
	case "ErrPending Close":
		return t.inCallback().Close()
	case "ErrPending Shutdown":
		return t.inCallback().Shutdown(t.ctx)
	case "ErrClosed Shutdown":
		t.lock()
		return t.e.Shutdown(t.soon())
	case "ErrOutcomeUnknown Shutdown":
		t.lock()
		t.down()
		return t.e.Shutdown(t.soon())
	}
	t.Fatalf("doc.go says that %s returns %s: provoke it here", operation, sentinel)
	return nil
}

// provokeAcquiring has one of the acquiring operations fail before it has the lock.
func (t *trouble) provokeAcquiring(sentinel, operation string) error {
	t.Helper()
	acquire := func(ctx context.Context, m Mutex, opts ...Option) error {
		var err error
		switch operation {
		case "Lock":
			_, err = m.Lock(ctx, opts...)
		case "Try":
			_, err = m.TryLock(ctx, opts...)
		case "Async":
			_, err = m.LockAsync(ctx, opts...).Await(t.ctx)
		case "Do":
			err = m.Do(ctx, func(context.Context, *Hold) error { return nil }, opts...)
		}
		return err
	}
	switch sentinel {
	case "ErrInvalid":
		return acquire(t.ctx, t.e.Mutex(""))
	case "ErrNotAcquired", "ErrHeld":
		mustLock(t, open(t, t.s.URL()).Mutex("x"))
		ahead := t.m.LockAsync(t.ctx)
		defer ahead.Abandon()
		told(t, t.m, elsewhere)
		if operation == "Try" { // which goes by its own try
			return acquire(t.ctx, t.m)
		}
		return acquire(t.soon(), t.m)
	case "ErrNotRun":
		return acquire(t.soon(), t.e.Mutex(""))
	case "ErrReentry":
		return acquire(t.lock().Context(t.ctx), t.m, NonReentrant())
	case "ErrWrongType":
		if err := t.s.Redis().Set("x", "of another library"); err != nil {
			t.Fatal(err)
		}
		return acquire(t.ctx, t.m)
	case "ErrNotAcked":
		return acquire(t.ctx, t.m, Acked(AllReplicas))
	case "ErrLate":
		t.net.Delay(faultproxy.All, 40*time.Millisecond, 40*time.Millisecond)
		return acquire(t.ctx, t.m, Lease(50*time.Millisecond))
	case "ErrClosed":
		_ = t.e.Close()
		return acquire(t.ctx, t.m)
	case "ErrReleased":
		h := t.lock()
		under := h.Context(t.ctx)
		mustUnlock(t, h)
		return acquire(under, t.m)
	case "ErrLost":
		if operation == "Do" {
			return nil // what it returns after its function has run is in provoke
		}
		h := t.lock(fleeting())
		under := h.Context(t.ctx)
		<-under.Done()
		return acquire(under, t.m)
	case "ErrUnavailable":
		switch operation {
		case "Lock":
			t.down()
			return acquire(t.ctx, t.m, Wait(50*time.Millisecond))
		case "Try":
			t.down()
			return acquire(t.ctx, t.m)
		case "Async":
			t.down()
			_, err := t.m.TryLockAsync(t.ctx).Await(t.ctx)
			return err
		}
	case "ErrOverloaded":
		e := open(t, "redis://"+t.net.Addr(), func(c *Config) { c.MaxInFlight = 1 })
		t.net.Pause(faultproxy.All)
		defer t.net.Resume()
		e.Mutex("a").LockAsync(t.ctx)
		_, err := e.Mutex("b").LockAsync(t.ctx).Result()
		return err
	}
	return nil
}

// provokeQuestion has one of the operations fail that stand outside of holds.
func (t *trouble) provokeQuestion(sentinel, operation string) error {
	t.Helper()
	ask := func(m Mutex) error {
		var err error
		switch operation {
		case "State":
			_, err = m.State(t.ctx)
		case "Force":
			_, err = m.ForceUnlock(t.ctx)
		case "Ping":
			err = t.e.Ping(t.ctx)
		}
		return err
	}
	switch sentinel {
	case "ErrInvalid":
		if operation == "Ping" {
			return t.e.Ping(t.none)
		}
		return ask(Mutex{})
	case "ErrWrongType":
		if err := t.s.Redis().Set("x", "of another library"); err != nil {
			t.Fatal(err)
		}
	case "ErrUnavailable":
		t.down()
	case "ErrClosed":
		_ = t.e.Close()
	case "ErrOutcomeUnknown":
		t.net.Pause(faultproxy.All)
		defer t.net.Resume()
	}
	return ask(t.m)
}
