package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// After Do one can tell whether the function has run, whatever the function returns.
func TestDoSaysWhetherTheFunctionHasRun(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	mustLock(t, other.Mutex("taken"))
	a, b, taken := e.Mutex("a"), e.Mutex("b"), e.Mutex("taken")
	never := func(context.Context, *Hold) error { t.Error("it ran without the lock"); return nil }
	var none context.Context
	brief := Wait(2 * time.Second) // long enough for an answer
	under := func(m Mutex, fn func(context.Context) error) func(context.Context, *Hold) error {
		return func(ctx context.Context, _ *Hold) error {
			return m.Do(ctx, func(ctx context.Context, _ *Hold) error { return fn(ctx) })
		}
	}
	for what, c := range map[string]struct {
		err    error
		notRun bool
		held   bool
	}{
		"not acquired":     {taken.Do(ctxT(t), never, brief), true, true},
		"invalid":          {e.Mutex("").Do(ctxT(t), never), true, false},
		"a zero Mutex":     {Mutex{}.Do(ctxT(t), never), true, false},
		"no context":       {a.Do(none, never), true, false},
		"ran well":         {a.Do(ctxT(t), func(context.Context, *Hold) error { return nil }), false, false},
		"ran with another": {a.Do(ctxT(t), func(ctx context.Context, _ *Hold) error { return taken.Do(ctx, never, brief) }), false, true},
		"ran with others": {a.Do(ctxT(t), under(b, func(ctx context.Context) error {
			return errors.Join(errors.New("half of it is done"), taken.Do(ctx, never, brief))
		})), false, true},
		"ran with a lock by hand": {a.Do(ctxT(t), func(ctx context.Context, _ *Hold) error { return errOf(taken.TryLock(ctx)) }), false, true},
		"ran, and was lost": {a.Do(ctxT(t), func(ctx context.Context, h *Hold) error {
			s.Do("DEL", "a")
			return taken.Do(ctx, never, brief)
		}), false, true},
	} {
		if errors.Is(c.err, ErrNotRun) != c.notRun || errors.Is(c.err, ErrHeld) != c.held {
			t.Errorf("%s: not run %t, held %t: %v", what, errors.Is(c.err, ErrNotRun), errors.Is(c.err, ErrHeld), c.err)
		}
		if c.err != nil && strings.Contains(c.err.Error(), "\n") && what != "ran with others" {
			t.Errorf("%s: several lines: %q", what, c.err)
		}
		var e *NotAcquiredError
		if errors.As(c.err, &e) != (c.notRun || c.held) || c.held && e.Name != "taken" {
			t.Errorf("%s: %+v", what, e)
		}
	}
}

func TestTryDoTellsAnOutageFromALockThatIsHeld(t *testing.T) {
	t.Parallel()
	tr, m := newReasons(t)
	never := func(context.Context, *Hold) error { t.Error("it ran without the lock"); return nil }
	h := mustLock(t, open(t, tr.s.URL()).Mutex("orders:42"))
	if ran, err := m.TryDo(ctxT(t), never); ran || err != nil {
		t.Errorf("held: %t, %v", ran, err)
	}
	if ran, err := m.TryDo(ended(), never); ran || !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNotRun) {
		t.Errorf("under a context that has ended: %t, %v", ran, err)
	}
	mustUnlock(t, h)
	tr.net.Down()
	defer tr.net.Up()
	if ran, err := m.TryDo(ctxT(t), never); ran || !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrNotRun) || errors.Is(err, ErrHeld) {
		t.Errorf("without a server: %t, %v", ran, err)
	}
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
