package faults

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// elsewhere is a refusal from the middle of a script: what it did before that is done.
const elsewhere = "-ERR Attempted to access a non local key in a cluster node script: on @user_script:17.\r\n"

// begunOnce has the next script on key executed, and refused nevertheless.
func begunOnce(s *redistest.Server, p *faultproxy.Proxy, key string) {
	var done atomic.Bool
	p.ReplaceReply(func(c faultproxy.Command) bool {
		if c.Name() != "EVALSHA" || len(c.Words) < 4 || c.Words[3] != key || done.Swap(true) {
			return false
		}
		s.Do(c.Words...)
		return true
	}, []byte(elsewhere), 1)
}

// What a refused script may have taken is given back, or found by the next try.
func TestAcquire_RefusedWhenItHadBegun_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	type release = func(context.Context) error
	held := func(h *engine.Hold, err error) (release, error) {
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	}
	for name, acquire := range map[string]func(ctx context.Context, e *engine.Engine) (release, error){
		"Mutex":     func(ctx context.Context, e *engine.Engine) (release, error) { return held(e.Mutex("x").Lock(ctx)) },
		"try":       func(ctx context.Context, e *engine.Engine) (release, error) { return held(e.Mutex("x").TryLock(ctx)) },
		"FairMutex": func(ctx context.Context, e *engine.Engine) (release, error) { return held(e.FairMutex("x").Lock(ctx)) },
		"fair try": func(ctx context.Context, e *engine.Engine) (release, error) {
			return held(e.FairMutex("x").TryLock(ctx))
		},
		"FencedMutex": func(ctx context.Context, e *engine.Engine) (release, error) {
			h, err := e.FencedMutex("x").Lock(ctx)
			if err != nil {
				return nil, err
			}
			return h.Unlock, nil
		},
		"reader": func(ctx context.Context, e *engine.Engine) (release, error) {
			return held(e.RWMutex("x").Reader().Lock(ctx))
		},
		"writer": func(ctx context.Context, e *engine.Engine) (release, error) {
			return held(e.RWMutex("x").Writer().Lock(ctx))
		},
		"PermitSemaphore": func(ctx context.Context, e *engine.Engine) (release, error) {
			h, err := e.PermitSemaphore("x").Acquire(ctx, 2)
			if err != nil {
				return nil, err
			}
			return h.Unlock, nil
		},
		"Semaphore": func(ctx context.Context, e *engine.Engine) (release, error) {
			h, err := e.Semaphore("x").Acquire(ctx, 2)
			if err != nil {
				return nil, err
			}
			return h.Release, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := testkit.Behind(t)
			ctx := testkit.Within(t, 8*time.Second) // less than a lease
			switch name {
			case "PermitSemaphore":
				if ok, err := e.PermitSemaphore("x").TrySetPermits(ctx, 3); !ok || err != nil {
					t.Fatal(ok, err)
				}
			case "Semaphore":
				if ok, err := e.Semaphore("x").TrySetPermits(ctx, 3); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			begunOnce(s, p, "x")
			giveBack, err := acquire(ctx, e)
			if err != nil {
				t.Fatal(err)
			}
			if err := giveBack(ctx); err != nil {
				t.Fatal(err)
			}
			switch name {
			case "PermitSemaphore":
				if n, err := e.PermitSemaphore("x").Available(ctx); n != 3 || err != nil {
					t.Errorf("%d permits are left, %v", n, err)
				}
			case "Semaphore":
				if n, err := e.Semaphore("x").Available(ctx); n != 3 || err != nil {
					t.Errorf("%d permits are left, %v", n, err)
				}
			default:
				testkit.Eventually(t, "nobody has the lock", func() bool { return s.Do("EXISTS", "x") == int64(0) })
			}
		})
	}
}

// One that gives up after such a refusal leaves nothing behind, either.
func TestAcquire_GivesUpAfterItHadBegun_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Mutex", "FairMutex"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, p, e := testkit.Behind(t)
			m := e.Mutex("x")
			lock := m.Lock
			if kind == "FairMutex" {
				lock = e.FairMutex("x").Lock
			}
			ctx, cancel := context.WithCancel(testkit.Ctx(t))
			var begun atomic.Bool
			p.ReplaceReply(func(c faultproxy.Command) bool {
				if c.Name() != "EVALSHA" || len(c.Words) < 4 || c.Words[3] != "x" || ctx.Err() != nil {
					return false
				}
				if !begun.Swap(true) {
					s.Do(c.Words...)
				}
				return true
			}, []byte(elsewhere), -1)
			f := make(chan error, 1)
			go func() { f <- testkit.ErrOf(lock(ctx)) }()
			testkit.Eventually(t, "it has begun", begun.Load)
			cancel()
			if err := <-f; err == nil {
				t.Fatal("it has the lock")
			}
			testkit.Eventually(t, "nobody has the lock", func() bool { return s.Do("EXISTS", "x") == int64(0) })
		})
	}
}

// Numbers that were added are not added twice.
func TestAddPermits_RefusedWhenItHadBegun_AddsOnce(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	ctx := testkit.Ctx(t)
	m := e.PermitSemaphore("x")
	if ok, err := m.TrySetPermits(ctx, 3); !ok || err != nil {
		t.Fatal(ok, err)
	}
	begunOnce(s, p, "x")
	err := m.AddPermits(ctx, 2)
	if n, look := m.Available(ctx); n != 5 || look != nil {
		t.Errorf("%d permits, %v; it is told %v", n, look, err)
	}
	if !errors.Is(err, engine.ErrOutcomeUnknown) {
		t.Errorf("it is told %v", err)
	}
}
