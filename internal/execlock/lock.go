package execlock

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// hold is what a run needs of an engine.Hold, of what has one in it, of an engine.Hold or of an
// engine.Hold.
type hold interface {
	Done() <-chan struct{}
	Err() error
	Unlock(ctx context.Context) error
}

// lock is one lock, or several as one.
type lock[H hold] interface {
	LockAsync(ctx context.Context, opts ...engine.Option) *engine.Future[H]
	TryLockAsync(ctx context.Context, opts ...engine.Option) *engine.Future[H]
}

// attempt is an acquisition that is under way.
type attempt struct {
	done    <-chan struct{}
	abandon func()
	result  func() (hold, error)
}

// locks are all the locks that make up the one. A name that is there twice counts once.
func (r *runner) locks() (locks []engine.Mutex) {
	names := slices.Compact(slices.Sorted(slices.Values(r.Names)))
	for _, e := range r.engines {
		for _, name := range names {
			locks = append(locks, r.Kind.lock(e, name))
		}
	}
	return locks
}

// attempt begins to acquire the lock.
func (r *runner) attempt(ctx context.Context) attempt {
	switch {
	case r.Kind == Semaphore:
		return r.permit(ctx)
	case len(r.engines) > 1:
		return try(ctx, engine.RedLock(r.locks()...), r.Wait, r.Options)
	case len(r.Names) > 1:
		return try(ctx, engine.Multi(r.locks()...), r.Wait, r.Options)
	case r.Kind == Fenced:
		return try(ctx, r.engines[0].FencedMutex(r.Names[0]), r.Wait, r.Options)
	}
	return try(ctx, r.locks()[0], r.Wait, r.Options)
}

func try[H hold](ctx context.Context, l lock[H], wait time.Duration, opts []engine.Option) attempt {
	var f *engine.Future[H]
	switch {
	case wait == 0:
		f = l.TryLockAsync(ctx, opts...)
	case wait > 0:
		f = l.LockAsync(ctx, append(opts, engine.Wait(wait))...)
	default:
		f = l.LockAsync(ctx, opts...)
	}
	return attempt{f.Done(), f.Abandon, func() (hold, error) {
		h, err := f.Result()
		if err != nil {
			return nil, err // and not a nil H, which is no nil hold
		}
		return h, nil
	}}
}
