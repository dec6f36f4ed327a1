package engine

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
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
		g := h.h.(*severalHold)
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
		q := f.source.(*severalHold)
		eventually(t, "it waits for y, and has not x", func() bool {
			q.mu.Lock()
			waits := q.Stage == quorum.Waiting && q.Members[1].Asked != nil // not the try that all begin with
			q.mu.Unlock()
			return waits && e.Stats().InFlight == 0 && slow.Stats().Held == 0 && slow.Stats().InFlight == 0
		})
		p.Pause(faultproxy.All)
		mustUnlock(t, h)
		eventually(t, "it has y, and tries x", func() bool { return e.Stats().Held == 1 && slow.Stats().InFlight == 1 })
		q.Cancel(stop)
		_, err := f.Await(ctxT(t))
		if !errors.Is(err, stop.Cause) || !errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
		p.Resume()
		clean(t, s1, e, holder)
		clean(t, s2, slow)
	}
}

// leavingContext is a context of the user's whose Done ends its goroutine, once that is wanted.
type leavingContext struct {
	context.Context
	leave *atomic.Bool
}

func (c leavingContext) Done() <-chan struct{} {
	if c.leave.CompareAndSwap(true, false) {
		runtime.Goexit()
	}
	return c.Context.Done()
}

// A RedLock is lost, and a context of it ends the goroutine that tells it. What is left of the
// lock is given back anyway.
func TestQuorumHold_LostWithAContextThatDoesNotReturn_EndsTheOthers(t *testing.T) {
	t.Parallel()
	for name, unlock := range map[string]bool{"lost": false, "lost by the clock, and unlocked": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := independent(t, 3)
			v := s.open()
			h := mustRedLock(t, v.lock("x"), Lease(time.Hour))
			eventually(t, "all three join", func() bool { return len(h.Servers()) == 3 })
			leave := new(atomic.Bool)
			ctx := h.Context(leavingContext{ctxT(t), leave})
			leave.Store(true)
			most := h.h.locks()[:2]
			for i := range most { // both, before one is asked for again
				if !unlock {
					s.servers[i].Do("DEL", "x")
				}
			}
			for _, l := range most {
				if unlock {
					l.endBy(l.Shard().Now())
				} else {
					l.VerifyNow()
				}
			}
			if unlock {
				_ = h.Unlock(ctxT(t))
			}
			receive(t, h.Done())
			if ctx.Err() == nil || leave.Load() {
				t.Error("the context was not told")
			}
			s.clean(v)
		})
	}
}

// A server joins, and soon after another loses its data: two of three have had it all the time.
func TestQuorumHold_ServerJoins_CountsSoon(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open(leaseOf(5 * time.Minute)) // no renewal comes by itself
	h := mustRedLock(t, v.lock("x"))
	for i := range 2 {
		eventually(t, "all three have it", func() bool { return len(h.Servers()) == 3 })
		if i == 1 { // the others were looked at
			eventually(t, "it counts", func() bool {
				q := h.h.(*severalHold)
				q.mu.Lock()
				defer q.mu.Unlock()
				last := q.Members[1].Vote.Port.(*vote).hold
				last.Shard().Lock()
				defer last.Shard().Unlock()
				return last.LastConfirmed() > q.Members[0].Vote.Joined
			})
		}
		s.servers[i].Do("DEL", "x")
		eventually(t, "that is noticed", func() bool {
			renewAll(v[i]) // again, if one was out that the server had answered before
			return v[i].Stats().Lost[RemovedOnServer] == 1
		})
	}
	eventually(t, "all three have it again", func() bool { return len(h.Servers()) == 3 })
	if err := h.Err(); err != nil {
		t.Error(err)
	}
	mustUnlock(t, h)
	s.clean(v)
}

func TestRedLock_UnderItsContext_Reenters(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	outer := mustRedLock(t, v.lock("x"))
	eventually(t, "all three join", func() bool { return len(outer.Servers()) == 3 })
	ctx := outer.Context(ctxT(t))
	inner, err := v.lock("x").TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is entered twice", func() bool {
		for i, l := range outer.h.locks() {
			if fields(t, s.servers[i], "x")[l.owner()] != "2" {
				return false
			}
		}
		return true
	})
	if _, err := v.lock("x").TryLock(Detach(ctx)); !errors.Is(err, ErrHeld) {
		t.Errorf("after Detach: %v", err)
	}
	if _, err := v.lock("x").Lock(ctx, NonReentrant()); !errors.Is(err, ErrReentry) {
		t.Errorf("NonReentrant: %v", err)
	}
	ictx := inner.Context(ctx)
	if err := inner.Unlock(ictx); err != nil {
		t.Error(err)
	}
	if err := outer.Err(); err != nil {
		t.Error(err)
	}
	inner = errlessRedLock(t, v.lock("x"), ctx)
	if err := outer.Unlock(inner.Context(ctx)); err != nil {
		t.Error(err)
	}
	receive(t, inner.Done())
	if err := inner.Err(); err != ErrReleased {
		t.Errorf("the inner one, after the outer: %v", err)
	}
	if err := inner.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("Unlock of the inner one: %v", err)
	}
	s.clean(v)
}

func errlessRedLock(t testing.TB, l QuorumLock, ctx context.Context) *Hold {
	t.Helper()
	h, err := l.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Unlock may take the votes after Extend has looked whether it is held.
func TestQuorumHold_ExtendThatUnlockOvertakes_IsNotHeld(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	h := mustRedLock(t, v.lock("x"), Lease(time.Minute))
	mustUnlock(t, h)
	if err := h.h.(*severalHold).extendAt(ctxT(t), nil, time.Hour); !errors.Is(err, ErrNotHeld) || errors.Is(err, ErrReleased) {
		t.Errorf("Extend: %v", err)
	}
	s.clean(v)
}

// The drift of the published algorithm is subtracted where the margin is less.
func TestRedLock_Validity_SubtractsTheDrift(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open(func(c *Config) { c.Margin = time.Millisecond })
	lease := 100 * time.Second
	start := time.Now()
	h := mustRedLock(t, v.lock("x"), Lease(lease))
	if left, d := time.Until(h.ValidUntil()), h.ValidUntil().Sub(start); left > lease-drift(lease) || d < lease-drift(lease)-100*time.Millisecond {
		t.Errorf("valid for %v of %v, %v after it was asked for", left, lease, d)
	}
	mustUnlock(t, h)
	watched := mustRedLock(t, v.lock("x"))
	if left := time.Until(watched.ValidUntil()); left > 30*time.Second-drift(30*time.Second) {
		t.Errorf("under the watchdog: valid for %v", left)
	}
	mustUnlock(t, watched)
	start = time.Now()
	alone := mustLock(t, v[0].Mutex("x"), Lease(lease))
	if d := alone.ValidUntil().Sub(start); d < lease-100*time.Millisecond {
		t.Errorf("a lock alone: valid for %v", d)
	}
	mustUnlock(t, alone)
	if _, err := v.lock("x").Lock(ctxT(t), Lease(2*time.Millisecond)); !errors.Is(err, ErrInvalid) {
		t.Errorf("a lease shorter than the drift: %v", err)
	}
	s.clean(v)
}
