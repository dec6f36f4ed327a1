package callbacks

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A dashboard must not be blind to acquisitions that fail before anything is asked.
func TestObserver_AcquisitionsThatFailAtOnce_AreCountedAndReported(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	var notified atomic.Int64
	var v testkit.Voters
	for _, one := range s.Servers {
		v = append(v, testkit.Open(t, one.URL(), func(c *engine.Config) {
			c.Observer = engine.ObserverFuncs{OnAcquireEnd: func(_ context.Context, _ engine.Acquisition, end engine.AcquireEnd) {
				if errors.Is(end.Err, engine.ErrNotAcquired) && (end.Outcome == engine.Invalid || end.Outcome == engine.Canceled) {
					notified.Add(1)
				}
			}}
		}))
	}
	e := v[0]
	ended, end := context.WithCancel(context.Background())
	end()
	var none context.Context
	ctx, many, quorum, sem := testkit.Ctx(t), e.Many("a", "b"), v.Lock("q"), e.Semaphore("s")
	for _, err := range []error{
		testkit.ErrOf(e.Mutex("a").Lock(ended)), testkit.ErrOf(e.Mutex("").Lock(ctx)), testkit.ErrOf(e.Mutex("a").TryLockAsync(none).Await(ctx)),
		testkit.ErrOf(many.Lock(ended)), testkit.ErrOf(many.TryLock(none)), testkit.ErrOf(many.LockAsync(ctx, engine.Lease(0)).Await(ctx)),
		testkit.ErrOf(many.Lock(ctx, engine.MinHold(1e9))), testkit.ErrOf(engine.Multi(e.Mutex("a"), e.Mutex("a")).Lock(ctx)),
		testkit.ErrOf(quorum.Lock(ended)), testkit.ErrOf(quorum.TryLock(none)), testkit.ErrOf(quorum.LockAsync(ctx, engine.Lease(0)).Await(ctx)),
		testkit.ErrOf(engine.RedLock(e.Mutex("q"), e.Mutex("q")).Lock(ctx)),
		testkit.ErrOf(sem.Acquire(ended, 1)), testkit.ErrOf(sem.TryAcquire(none, 1)), testkit.ErrOf(sem.AcquireAsync(ctx, -1).Await(ctx)), testkit.ErrOf(sem.Acquire(ctx, 1<<40)),
	} {
		if !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("%v", err)
		}
	}
	const all = 16
	if n := e.Stats().NotAcquired + v[1].Stats().NotAcquired + v[2].Stats().NotAcquired; n != all {
		t.Errorf("%d are counted, want %d", n, all)
	}
	testkit.Eventually(t, "all are notified", func() bool { return notified.Load() == all })
	for _, zero := range []error{testkit.ErrOf(engine.Multi().Lock(ctx)), testkit.ErrOf(engine.MultiLock{}.Lock(ctx)), testkit.ErrOf(engine.QuorumLock{}.Lock(ctx)), testkit.ErrOf(engine.Multi(engine.Mutex{}).Lock(ctx)), testkit.ErrOf(engine.Semaphore{}.Acquire(ctx, 1))} {
		if !errors.Is(zero, engine.ErrInvalid) {
			t.Errorf("%v", zero)
		}
	}
}
