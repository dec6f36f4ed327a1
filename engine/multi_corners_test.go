package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/gathering"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// slowContext is a context of the user's whose Done does not return while slow is set.
// Package context asks for it when it ends what was made from it.
type slowContext struct {
	context.Context
	done  chan struct{}
	slow  chan chan struct{}
	asked *atomic.Int64 // how often for Done
}

func newSlowContext() slowContext {
	return slowContext{context.Background(), make(chan struct{}), make(chan chan struct{}, 1), new(atomic.Int64)}
}

// listenedTo waits until a context has been made from it: package context asks for Done twice,
// and once more on a goroutine of its own, which must not find it slow.
func (c slowContext) listenedTo(t *testing.T) {
	t.Helper()
	eventually(t, "package context listens", func() bool { return c.asked.Load() >= 3 })
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

// A lock has ended, but the goroutine that ends the Hold has not come to that:
//
//	Unlock of the outer hold ends its own contexts first, which takes long
//	Hold.Err: must not say that all is well
func TestErrOfAMultiHoldIsRightBeforeItsContextsHaveEnded(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	outer := mustLock(t, e.Mutex("y"))
	slow, gate := newSlowContext(), make(chan struct{})
	_ = outer.Context(slow)
	slow.listenedTo(t)
	m, err := e.LockMany(outer.Context(context.Background()), []string{"x", "y", "z"})
	if err != nil {
		t.Fatal(err)
	}
	slow.slow <- gate
	f := make(chan error, 1)
	go func() { f <- outer.Unlock(ctxT(t)) }()
	eventually(t, "the outer hold has ended", func() bool { return outer.Err() != nil })
	if m.Err() != ErrReleased || m.ValidUntil().After(time.Now()) {
		t.Errorf("Err %v, valid until %v from now", m.Err(), time.Until(m.ValidUntil()))
	}
	if cause := context.Cause(m.Context(context.Background())); cause != ErrReleased {
		t.Errorf("a context of it: %v", cause)
	}
	close(gate)
	if err := receive(t, f); err != nil {
		t.Error(err)
	}
	receive(t, m.Done())
	_ = m.Unlock(ctxT(t))
	clean(t, s, e)
}

// UnlockAsync leaves many contexts to a goroutine.
func TestErrOfAMultiHoldAfterUnlockAsync(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	for range 50 {
		m := mustLockMany(t, e, []string{"x", "y"})
		for range drive.FewContexts + 1 {
			_ = m.Context(context.Background())
		}
		f := m.UnlockAsync()
		if err := m.Err(); err != ErrReleased {
			t.Fatalf("Err after UnlockAsync: %v", err)
		}
		if _, err := f.Await(ctxT(t)); err != nil {
			t.Fatal(err)
		}
	}
	clean(t, s, e)
}

// It waits for a lock of the one engine when the other closes. It cannot succeed any more,
// and its Wait was on the first engine's wheel.
func TestCloseOfOneEngineEndsAMultiLockThatWaitsOnAnother(t *testing.T) {
	t.Parallel()
	for _, home := range []bool{true, false} {
		s1, s2 := server(t), server(t)
		closes, waits, holder := open(t, s1.URL()), open(t, s2.URL()), open(t, s2.URL())
		h := mustLock(t, holder.Mutex("y"))
		l := Multi(waits.Mutex("y"), closes.Mutex("x"))
		if home {
			l = Multi(closes.Mutex("x"), waits.Mutex("y"))
		}
		f := l.LockAsync(context.Background(), Wait(time.Hour))
		eventually(t, "it waits for y", func() bool { return waits.Stats().Waiting == 1 && closes.Stats().Held == 0 })
		if err := closes.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrClosed) {
			t.Errorf("home %v: %v", home, err)
		}
		for _, e := range []*Engine{closes, waits} {
			if n := inspect(e).Many; n != 0 {
				t.Errorf("home %v: %d are listed", home, n)
			}
		}
		mustUnlock(t, h)
		clean(t, s1, closes)
		clean(t, s2, waits, holder)
	}
}

// One was refused, another has no answer yet when the context ends: the error has both.
func TestMultiLockErrorHasWhatEndedTheWaiting(t *testing.T) {
	t.Parallel()
	s2, p, away := behind(t, func(c *Config) { c.CommandTimeout = limit }) // nobody gives that up first
	s1 := server(t)
	e, holder := open(t, s1.URL()), open(t, s1.URL())
	h := mustLock(t, holder.Mutex("x"))
	p.Pause(faultproxy.All)
	defer p.Resume()
	const patience = 1500 * time.Millisecond // the answer for x comes within it
	for what, c := range map[string]struct {
		opts []Option
		is   error
	}{
		"deadline":  {nil, context.DeadlineExceeded},
		"cancelled": {nil, context.Canceled},
		"Wait":      {[]Option{Wait(patience)}, reason.ErrWaited},
	} {
		ctx, cancel := context.WithCancel(ctxT(t))
		defer cancel()
		switch c.is {
		case context.DeadlineExceeded:
			ctx, cancel = context.WithTimeout(ctx, patience)
			defer cancel()
		case context.Canceled:
			time.AfterFunc(patience, cancel)
		}
		_, err := Multi(e.Mutex("x"), away.Mutex("y")).Lock(ctx, c.opts...)
		if !errors.Is(err, c.is) || !errors.Is(err, ErrHeld) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.Resume()
	mustUnlock(t, h)
	clean(t, s1, e, holder)
	clean(t, s2, away)
}

// A grant that comes after its lease, once: Lock goes on, as that of one lock does.
func TestMultiLockSurvivesOneLateGrant(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	p.Delay(faultproxy.Carried("EVALSHA"), 150*time.Millisecond, 150*time.Millisecond)
	f := e.Many("x", "y").LockAsync(ctxT(t), Lease(200*time.Millisecond))
	g := f.source.(*gatherer)
	eventually(t, "the first grants are late", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.all.View().Late > 0 || g.all.View().Stage == gathering.Over
	})
	p.Delay(faultproxy.All, 0, 0)
	h, err := f.Await(ctxT(t))
	if err != nil && !errors.Is(err, ErrLate) || g.all.View().Rounds == 0 {
		t.Errorf("%d rounds: %v", g.all.View().Rounds, err)
	}
	if err == nil {
		_ = h.Unlock(ctxT(t))
	}
	clean(t, s, e)
}

// What Do returns has every lock's failure.
func TestDoWithSeveralLocksHidesNoFailure(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	var lost *LostError
	err := e.Many("x", "y", "z").Do(ctxT(t), func(_ context.Context, h *Hold) error {
		s.Do("DEL", "y")
		_ = h.Unlock(ctxT(t))
		return nil
	})
	if !errors.As(err, &lost) || lost.Name != "y" || errors.Is(err, ErrNotHeld) {
		t.Errorf("lost, and unlocked by the function: %v", err)
	}
	other := server(t)
	p := faultproxy.New(t, "tcp", other.Addr())
	away := open(t, "redis://"+p.Addr(), func(c *Config) { c.CommandTimeout = 300 * time.Millisecond })
	err = Multi(e.Mutex("x"), away.Mutex("y")).Do(ctxT(t), func(_ context.Context, h *Hold) error {
		s.Do("DEL", "x")
		if err := h.h.locks()[0].extend(ctxT(t), time.Minute); err == nil {
			t.Error("extended")
		}
		receive(t, h.Done())
		p.Blackhole(faultproxy.All)
		return nil
	}, Lease(time.Minute))
	if !errors.Is(err, ErrLost) || !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("one lost, one without an answer: %v", err)
	}
	clean(t, s, e)
	p.Heal()
}

// The context of a re-entry ends with the outer Hold, whatever it was made from.
func TestUnlockOfAMultiHoldWithTheContextOfAReentry(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	outer := mustLockMany(t, e, []string{"x", "y"})
	inner := mustReenterWith(t, outer.Context(ctxT(t)), e.Mutex("y"))
	if err := outer.Unlock(inner.Context(ctxT(t))); err != nil {
		t.Error(err)
	}
	_ = inner.Unlock(ctxT(t))
	clean(t, s, e)
}
