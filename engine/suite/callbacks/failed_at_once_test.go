package callbacks

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
)

// A dashboard must not be blind to acquisitions that fail before anything is asked.
func TestHooks_AcquisitionsThatFailAtOnce_AreCountedAndReported(t *testing.T) {
	t.Parallel()
	s := kit.Independent(t, 3)
	var notified atomic.Int64
	var v kit.Voters
	for _, one := range s.Servers {
		v = append(v, kit.Open(t, one.URL(), func(c *engine.Config) {
			c.Hooks.Acquired = func(e engine.AcquiredEvent) {
				if errors.Is(e.Err, engine.ErrNotAcquired) {
					notified.Add(1)
				}
			}
		}))
	}
	e := v[0]
	ended, end := context.WithCancel(context.Background())
	end()
	var none context.Context
	ctx, many, quorum, sem := kit.Ctx(t), e.Many("a", "b"), v.Lock("q"), e.Semaphore("s")
	for _, err := range []error{
		kit.ErrOf(e.Mutex("a").Lock(ended)), kit.ErrOf(e.Mutex("").Lock(ctx)), kit.ErrOf(e.Mutex("a").TryLockAsync(none).Await(ctx)),
		kit.ErrOf(many.Lock(ended)), kit.ErrOf(many.TryLock(none)), kit.ErrOf(many.LockAsync(ctx, engine.Lease(0)).Await(ctx)),
		kit.ErrOf(many.Lock(ctx, engine.MinHold(1e9))), kit.ErrOf(engine.Multi(e.Mutex("a"), e.Mutex("a")).Lock(ctx)),
		kit.ErrOf(quorum.Lock(ended)), kit.ErrOf(quorum.TryLock(none)), kit.ErrOf(quorum.LockAsync(ctx, engine.Lease(0)).Await(ctx)),
		kit.ErrOf(engine.RedLock(e.Mutex("q"), e.Mutex("q")).Lock(ctx)),
		kit.ErrOf(sem.Acquire(ended, 1)), kit.ErrOf(sem.TryAcquire(none, 1)), kit.ErrOf(sem.AcquireAsync(ctx, -1).Await(ctx)), kit.ErrOf(sem.Acquire(ctx, 1<<40)),
	} {
		if !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("%v", err)
		}
	}
	const all = 16
	if n := e.Stats().NotAcquired + v[1].Stats().NotAcquired + v[2].Stats().NotAcquired; n != all {
		t.Errorf("%d are counted, want %d", n, all)
	}
	kit.Eventually(t, "all are notified", func() bool { return notified.Load() == all })
	for _, zero := range []error{kit.ErrOf(engine.Multi().Lock(ctx)), kit.ErrOf(engine.MultiLock{}.Lock(ctx)), kit.ErrOf(engine.QuorumLock{}.Lock(ctx)), kit.ErrOf(engine.Multi(engine.Mutex{}).Lock(ctx)), kit.ErrOf(engine.Semaphore{}.Acquire(ctx, 1))} {
		if !errors.Is(zero, engine.ErrInvalid) {
			t.Errorf("%v", zero)
		}
	}
}
