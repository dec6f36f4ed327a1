package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// A context that ends before the locks is forgotten, and one that is made after the end has
// ended.
func TestMultiHold_ContextEnded_IsNotKept(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	h := mustLockMany(t, e, []string{"x", "y"})
	for range 100 {
		parent, cancel := context.WithCancel(context.Background())
		ctx := h.Context(parent)
		cancel()
		receive(t, ctx.Done())
	}
	eventually(t, "they are forgotten", func() bool {
		g := h.h.(*multiHold).group
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.contexts.Len() == 0
	})
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	if cause := context.Cause(h.Context(context.Background())); cause != ErrReleased {
		t.Errorf("a context after the end: %v", cause)
	}
	clean(t, s, e)
}

// What Do returns has every lock's failure.
func TestMultiLock_DoWithSeveralFailures_HidesNone(t *testing.T) {
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

// A server that refuses must not look like one that is slow.
func TestMultiHold_UnlockRefused_SaysWhatTheServerRefuses(t *testing.T) {
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

// Its time is over just when it has been granted the lock that it waited for, and asks for the
// others. So it was busy, like a single lock that is tried again at that moment, and must not
// look like an outage.
func TestMultiLock_StoppedWhileItTriesTheOthers_SaysHeld(t *testing.T) {
	t.Parallel()
	s2, p, slow := behind(t)
	s1 := server(t)
	e, holder := open(t, s1.URL()), open(t, s1.URL())
	for what, stop := range map[string]lockerr.Cancel{
		"cancelled": {Cause: context.Canceled},
		"Wait":      {Cause: lockerr.ErrWaited, TimedOut: true},
	} {
		h := mustLock(t, holder.Mutex("y"))
		f := Multi(slow.Mutex("x"), e.Mutex("y")).LockAsync(ctxT(t))
		eventually(t, "it waits for y, and has not x", func() bool {
			return e.Stats().Waiting == 1 && slow.Stats().Held == 0 && slow.Stats().InFlight == 0
		})
		p.Pause(faultproxy.All)
		mustUnlock(t, h)
		eventually(t, "it has y, and tries x", func() bool { return e.Stats().Held == 1 && slow.Stats().InFlight == 1 })
		f.source.(*multiLockAcquisition).cancel(stop)
		_, err := f.Await(ctxT(t))
		if !errors.Is(err, stop.Cause) || !errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
		p.Resume()
		clean(t, s1, e, holder)
		clean(t, s2, slow)
	}
}
