package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// A context of the user's panics when it ends: that of the Hold, or of a re-entry of one
// of the locks. All locks are released anyway, and all contexts end.
func TestContextThatPanicsKeepsNoLockOfAMultiHold(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"its own", "of a re-entry", "both"} {
		s := server(t)
		e := open(t, s.URL())
		m := mustLockMany(t, e, []string{"x", "y", "z"})
		g := newGated(t)
		var contexts []context.Context
		if what != "of a re-entry" {
			contexts = append(contexts, m.Context(explosive{g}), m.Context(context.Background()))
		}
		if what != "its own" {
			inner := mustReenterWith(t, m.Context(context.Background()), e.Mutex("x"))
			contexts = append(contexts, inner.Context(explosive{g}), inner.Context(context.Background()))
		}
		g.shut.Store(true)
		if v := recovered(func() { _ = m.Unlock(ctxT(t)) }); v == nil {
			t.Errorf("%s: the panic was swallowed", what)
		}
		receive(t, m.Done())
		if n := alive(contexts); n > 0 {
			t.Errorf("%s: %d of %d contexts are alive", what, n, len(contexts))
		}
		clean(t, s, e)
	}
}

// One lock turns out to be lost and another has no answer when the waiting ends: the error
// has both, and the names.
func TestUnlockOfAMultiHoldThatStopsWaitingSaysWhatItKnows(t *testing.T) {
	t.Parallel()
	s2, p, slow := behind(t)
	s1 := server(t)
	e := open(t, s1.URL())
	m, err := Multi(e.Mutex("x"), slow.Mutex("y"), e.Mutex("z")).Lock(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	s1.Do("DEL", "x")
	p.Pause(faultproxy.All)
	defer p.Resume()
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	f := make(chan error, 1)
	go func() { f <- m.Unlock(ctx) }()
	eventually(t, "x and z have their answers", func() bool {
		st := e.Stats()
		return st.InFlight == 0 && st.Released == 1 && st.Lost[GoneOnServer] == 1
	})
	cancel()
	err = receive(t, f)
	var lost *LostError
	if !errors.As(err, &lost) || lost.Name != "x" || !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) ||
		!hasText(err, `lock "y"`) || hasText(err, `"z"`) {
		t.Errorf("Unlock: %v", err)
	}
	if n := slow.Stats().UnknownOutcomes; n != 1 {
		t.Errorf("%d unknown outcomes", n)
	}
	p.Resume()
	clean(t, s1, e)
	clean(t, s2, slow)
}

// A server that refuses must not look like one that is slow.
func TestUnlockOfAMultiHoldSaysWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := mustLockMany(t, e, []string{"x", "y"})
	s.Do("CONFIG", "SET", "min-replicas-to-write", "3")
	defer s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	ctx, cancel := context.WithCancel(ctxT(t))
	defer cancel()
	f := make(chan error, 1)
	go func() { f <- m.Unlock(ctx) }()
	h := m.h.locks()[0]
	eventually(t, "it was refused", func() bool {
		h.Shard().Lock()
		defer h.Shard().Unlock()
		return h.Refusal() != nil
	})
	cancel()
	if err := receive(t, f); !errors.Is(err, ErrOutcomeUnknown) || !hasText(err, "NOREPLICAS") {
		t.Errorf("Unlock: %v", err)
	}
	s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	clean(t, s, e)
}

// Somebody has one of the locks: no answer from another server changes that.
func TestTryLockOfSeveralSaysWhoIsHeldThoughAServerIsAway(t *testing.T) {
	t.Parallel()
	s2, p, away := behind(t, func(c *Config) { c.CommandTimeout = 200 * time.Millisecond })
	s1 := server(t)
	e, holder := open(t, s1.URL()), open(t, s1.URL())
	h := mustLock(t, holder.Mutex("y"))
	p.Down()
	l := Multi(away.Mutex("x"), e.Mutex("y"))
	var refused *NotAcquiredError
	if _, err := l.TryLock(ctxT(t)); !errors.Is(err, ErrHeld) || !errors.As(err, &refused) || refused.Name != "y" {
		t.Errorf("TryLock: %v", err)
	}
	if ran, err := l.TryDo(ctxT(t), func(context.Context, *Hold) error { return nil }); ran || err != nil {
		t.Errorf("TryDo: %v, %v", ran, err)
	}
	mustUnlock(t, h)
	p.Up()
	clean(t, s1, e, holder)
	clean(t, s2, away)
}

// Its time is over just when it has been granted the lock that it waited for, and asks for the
// others. So it was busy, like a single lock that is tried again at that moment, and must not
// look like an outage.
func TestMultiLockThatIsStoppedWhileItTriesTheOthersSaysHeld(t *testing.T) {
	t.Parallel()
	s2, p, slow := behind(t)
	s1 := server(t)
	e, holder := open(t, s1.URL()), open(t, s1.URL())
	for what, stop := range map[string]reason.Stop{
		"cancelled": {Cause: context.Canceled},
		"Wait":      {Cause: reason.ErrWaited, Late: true},
	} {
		h := mustLock(t, holder.Mutex("y"))
		f := Multi(slow.Mutex("x"), e.Mutex("y")).LockAsync(ctxT(t))
		eventually(t, "it waits for y, and has not x", func() bool {
			return e.Stats().Waiting == 1 && slow.Stats().Held == 0 && slow.Stats().InFlight == 0
		})
		p.Pause(faultproxy.All)
		mustUnlock(t, h)
		eventually(t, "it has y, and tries x", func() bool { return e.Stats().Held == 1 && slow.Stats().InFlight == 1 })
		f.source.(*gatherer).cancel(stop)
		_, err := f.Await(ctxT(t))
		if !errors.Is(err, stop.Cause) || !errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
		p.Resume()
		clean(t, s1, e, holder)
		clean(t, s2, slow)
	}
}
