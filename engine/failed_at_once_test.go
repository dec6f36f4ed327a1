package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// A dashboard must not be blind to acquisitions that fail before anything is asked.
func TestAcquisitionsThatFailAtOnceAreCountedAndTold(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	var told atomic.Int64
	var v voters
	for _, one := range s.servers {
		v = append(v, open(t, one.URL(), func(c *Config) {
			c.Hooks.Acquired = func(e AcquiredEvent) {
				if errors.Is(e.Err, ErrNotAcquired) {
					told.Add(1)
				}
			}
		}))
	}
	e := v[0]
	ended, end := context.WithCancel(context.Background())
	end()
	var none context.Context
	ctx, many, quorum, sem := ctxT(t), e.Many("a", "b"), v.lock("q"), e.Semaphore("s")
	for _, err := range []error{
		errOf(e.Mutex("a").Lock(ended)), errOf(e.Mutex("").Lock(ctx)), errOf(e.Mutex("a").TryLockAsync(none).Await(ctx)),
		errOf(many.Lock(ended)), errOf(many.TryLock(none)), errOf(many.LockAsync(ctx, Lease(0)).Await(ctx)),
		errOf(many.Lock(ctx, MinHold(1e9))), errOf(Multi(e.Mutex("a"), e.Mutex("a")).Lock(ctx)),
		errOf(quorum.Lock(ended)), errOf(quorum.TryLock(none)), errOf(quorum.LockAsync(ctx, Lease(0)).Await(ctx)),
		errOf(RedLock(e.Mutex("q"), e.Mutex("q")).Lock(ctx)),
		errOf(sem.Acquire(ended, 1)), errOf(sem.TryAcquire(none, 1)), errOf(sem.AcquireAsync(ctx, -1).Await(ctx)), errOf(sem.Acquire(ctx, 1<<40)),
	} {
		if !errors.Is(err, ErrNotAcquired) {
			t.Errorf("%v", err)
		}
	}
	const all = 16
	if n := e.Stats().NotAcquired + v[1].Stats().NotAcquired + v[2].Stats().NotAcquired; n != all {
		t.Errorf("%d are counted, want %d", n, all)
	}
	eventually(t, "all are told", func() bool { return told.Load() == all })
	for _, zero := range []error{errOf(Multi().Lock(ctx)), errOf(MultiLock{}.Lock(ctx)), errOf(QuorumLock{}.Lock(ctx)), errOf(Multi(Mutex{}).Lock(ctx)), errOf(Semaphore{}.Acquire(ctx, 1))} {
		if !errors.Is(zero, ErrInvalid) {
			t.Errorf("%v", zero)
		}
	}
}
