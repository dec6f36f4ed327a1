package enginetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/enginetest"
)

func TestSemaphoreAndLatchInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		env := enginetest.NewVirtual(t)
		other := env.Open()
		ctx := t.Context()
		s, l := env.Engine.Semaphore("s"), env.Engine.Latch("l")
		if set, err := s.TrySetPermits(ctx, 2); !set || err != nil {
			t.Fatal(set, err)
		}
		if set, err := l.TrySetCount(ctx, 1); !set || err != nil {
			t.Fatal(set, err)
		}
		p, err := s.Acquire(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		waits, awaits := other.Semaphore("s").AcquireAsync(ctx, 1), other.Latch("l").AwaitAsync(ctx)
		synctest.Wait()
		time.Sleep(time.Minute)
		start := time.Now()
		if err := errors.Join(p.Release(ctx), l.CountDown(ctx)); err != nil {
			t.Fatal(err)
		}
		q, err := waits.Await(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := awaits.Await(ctx); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Errorf("woken after %v", d)
		}
		// A release that was not sent goes on for as long as it takes.
		env.Down()
		synctest.Wait() // else it may be sent, and be in doubt
		released := q.ReleaseAsync()
		time.Sleep(10 * time.Minute)
		if _, err := released.Result(); err != engine.ErrPending {
			t.Errorf("Release: %v", err)
		}
		env.Up()
		if _, err := released.Await(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
		if n, err := s.Available(ctx); n != 2 || err != nil {
			t.Error(n, err)
		}
	})
}

// What was sent and has no answer is given up after 50 seconds, and not before.
func TestADoubtIsGivenUpInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		env := enginetest.NewVirtual(t, func(c *engine.Config) { c.HandOverTime = time.Hour })
		s := env.Engine.Semaphore("s")
		if _, err := s.TrySetPermits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		var unknown, granted int
		for range 200 { // one of them is cut while it is out
			f := s.AcquireAsync(context.Background(), 1)
			env.Down()
			start := time.Now()
			time.Sleep(49 * time.Second)
			if _, err := f.Result(); err != engine.ErrPending && err != nil {
				t.Fatalf("told after %v: %v", time.Since(start), err)
			}
			time.Sleep(2 * time.Second)
			env.Up()
			p, err := f.Await(t.Context())
			if errors.Is(err, engine.ErrOutcomeUnknown) {
				unknown++
				if !errors.Is(err, engine.ErrNotAcquired) {
					t.Error(err)
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			granted++
			if err := p.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if unknown == 0 {
			t.Errorf("no command was in doubt, %d were granted", granted)
		}
	})
}
