package enginetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/enginetest"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// everyEnv runs a test with each server that an Env may have.
func everyEnv(t *testing.T, test func(t *testing.T, env *enginetest.Env)) {
	t.Run("New", func(t *testing.T) {
		t.Parallel()
		test(t, enginetest.New(t))
	})
	t.Run("NewVirtual", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { test(t, enginetest.NewVirtual(t)) })
	})
	t.Run("NewOn", func(t *testing.T) {
		t.Parallel()
		test(t, enginetest.NewOn(t, redistest.Start(t).URL()))
	})
}

// Contexts have ended, and the reason is known, when Lose returns; others get the lock.
func TestLose_AHold_IsReportedAtOnceAndWhy(t *testing.T) {
	t.Parallel()
	everyEnv(t, func(t *testing.T, env *enginetest.Env) {
		other := env.Open()
		for _, reason := range []engine.LostReason{engine.RemovedOnServer, engine.NotRenewed, engine.LeaseEnded, engine.MaxHoldReached} {
			for name, kind := range map[string]func(e *engine.Engine) engine.Mutex{
				"a mutex":  func(e *engine.Engine) engine.Mutex { return e.Mutex("a mutex") },
				"a spin":   func(e *engine.Engine) engine.Mutex { return e.SpinMutex("a spin") },
				"fenced":   func(e *engine.Engine) engine.Mutex { return e.FencedMutex("fenced") },
				"fair":     func(e *engine.Engine) engine.Mutex { return e.FairMutex("fair") },
				"a reader": func(e *engine.Engine) engine.Mutex { return e.RWMutex("a reader").Reader() },
				"a writer": func(e *engine.Engine) engine.Mutex { return e.RWMutex("a writer").Writer() },
			} {
				h, err := kind(env.Engine).Lock(t.Context(), engine.Lease(time.Hour)) // nothing but Lose ends it
				if err != nil {
					t.Fatal(name, err)
				}
				ctx := h.Context(t.Context())
				env.Lose(name, reason)
				<-ctx.Done()
				lost(t, h, reason)
				next, err := kind(other).Lock(within(t))
				if err != nil {
					t.Fatal(name, reason, err)
				}
				unlock(t, next)
			}
		}
		h := lock(t, env.Engine, "y")
		env.Lose("y", engine.KeyOverwritten)
		lost(t, h, engine.KeyOverwritten)
		if _, err := other.Mutex("y").TryLock(within(t)); !errors.Is(err, engine.ErrWrongType) {
			t.Errorf("the key was overwritten: %v", err)
		}
	})
}

func TestLose_NobodyHoldsIt_IsAnErrorOfTheTest(t *testing.T) {
	t.Parallel()
	rec := &recorder{TB: t}
	env := enginetest.New(rec)
	env.Lose("x", engine.NotRenewed)
	env.Lose("x", engine.EngineClosed)
	rec.end()
	if n := len(rec.errors); n != 2 {
		t.Errorf("%d errors: %q", n, rec.errors)
	}
}

func TestDropReplies_WhatCannotBeRepeated_IsUnknown(t *testing.T) {
	t.Parallel()
	everyEnv(t, func(t *testing.T, env *enginetest.Env) {
		gone := lock(t, env.Engine, "x")
		env.DropReplies(1)
		if _, err := env.Engine.Mutex("x").ForceUnlock(within(t)); !errors.Is(err, engine.ErrOutcomeUnknown) {
			t.Errorf("ForceUnlock: %v", err)
		}
		if st, err := env.Open().Mutex("x").State(within(t)); st.Locked || err != nil {
			t.Errorf("it was executed: %+v, %v", st, err)
		}
		// What can be repeated is.
		h := lock(t, env.Engine, "y")
		env.DropReplies(2)
		if err := h.Unlock(within(t)); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if err := gone.Unlock(within(t)); !errors.Is(err, engine.ErrLost) {
			t.Errorf("Unlock of what was taken away: %v", err)
		}
	})
}

func TestDelay_EachAnswer_IsLater(t *testing.T) {
	t.Parallel()
	everyEnv(t, func(t *testing.T, env *enginetest.Env) {
		env.Delay(100 * time.Millisecond)
		start := time.Now()
		h := lock(t, env.Engine, "x")
		if d := time.Since(start); d < 100*time.Millisecond {
			t.Errorf("after %v", d)
		}
		env.Delay(0)
		unlock(t, h)
	})
}

func TestRefuse_AsRedisDoes_IsWaitedForOrFails(t *testing.T) {
	t.Parallel()
	everyEnv(t, func(t *testing.T, env *enginetest.Env) {
		env.Refuse("OOM command not allowed when used memory > 'maxmemory'.")
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		if _, err := env.Engine.Mutex("x").Lock(ctx); !errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("without memory: %v", err)
		}
		f := env.Engine.Mutex("x").LockAsync(within(t))
		env.Refuse("")
		h, err := f.Await(within(t))
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, h)
		env.Refuse("NOPERM this user has no permissions")
		if _, err := env.Engine.Mutex("x").Lock(within(t)); !errors.Is(err, engine.ErrNotAcquired) || errors.Is(err, engine.ErrUnavailable) {
			t.Errorf("without rights: %v", err)
		}
		env.Refuse("")
		unlock(t, lock(t, env.Engine, "x")) // what may have been granted is given back
	})
}
