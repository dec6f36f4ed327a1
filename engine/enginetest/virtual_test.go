package enginetest_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/enginetest"
)

func TestWatchdogInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		env := enginetest.NewVirtual(t)
		other := env.Open()
		h := lock(t, env.Engine, "x")
		time.Sleep(10 * time.Minute)
		if err := h.Err(); err != nil {
			t.Fatal(err)
		}
		if n := env.Engine.Stats().Renewed; n < 55 || n > 66 {
			t.Errorf("%d renewals of a 30 s lease in 10 minutes", n)
		}
		if n := env.Engine.Stats().WheelRebuilds; n > 0 {
			t.Errorf("the wheel was rebuilt %d times", n)
		}
		f := other.Mutex("x").LockAsync(t.Context())
		synctest.Wait()
		start := time.Now()
		unlock(t, h)
		h, err := f.Await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("handed over after %v", d)
		}
		unlock(t, h)
	})
}

func TestLossInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		env := enginetest.NewVirtual(t)
		// After the renewal that follows, 30 s less the margin of 3 s.
		h := lock(t, env.Engine, "x")
		env.Down()
		start := time.Now()
		lostAfter := func(h *engine.Hold, reason engine.LostReason, least, most time.Duration) {
			t.Helper()
			<-h.Done()
			var why *engine.LostError
			if !errors.As(h.Err(), &why) || why.Reason != reason {
				t.Errorf("lost by %v, want %v", h.Err(), reason)
			}
			if d := time.Since(start); d < least || d > most {
				t.Errorf("lost after %v, want %v to %v", d, least, most)
			}
		}
		lostAfter(h, engine.NotRenewed, 27*time.Second-time.Millisecond, 27*time.Second+5*time.Millisecond)
		env.Up()

		h = lock(t, env.Engine, "y", engine.Lease(time.Minute))
		start = time.Now()
		lostAfter(h, engine.LeaseEnded, 57*time.Second-time.Millisecond, 57*time.Second+5*time.Millisecond)

		h = lock(t, env.Engine, "z")
		start = time.Now()
		env.Steal("z")
		lostAfter(h, engine.RemovedOnServer, 0, 11*time.Second+10*time.Millisecond)
	})
}

// What a bubble made must stay in it: real engines and those of other bubbles run
// beside.
func TestBubblesAndRealEnginesSideBySide(t *testing.T) {
	t.Parallel()
	churn := func(t *testing.T, env *enginetest.Env) {
		var all sync.WaitGroup
		for _, e := range []*engine.Engine{env.Engine, env.Open()} {
			for range 4 {
				all.Go(func() {
					for range 20 {
						h, err := e.Mutex("x").Lock(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						if _, err := e.Mutex("x").TryLock(t.Context()); !errors.Is(err, engine.ErrNotAcquired) {
							t.Error(err)
						}
						if err := h.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
	}
	for range 3 {
		t.Run("real", func(t *testing.T) {
			t.Parallel()
			churn(t, enginetest.New(t))
		})
		t.Run("virtual", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { churn(t, enginetest.NewVirtual(t)) })
		})
	}
}
