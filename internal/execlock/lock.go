package execlock

import (
	"context"
	"slices"

	"github.com/pawl-lock/pawl/engine"
)

// attempt is an acquisition that is under way.
type attempt struct {
	done    <-chan struct{}
	abandon func()
	result  func() (*engine.Hold, error)
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
		return r.try(ctx, engine.RedLock(r.locks()...))
	case len(r.Names) > 1:
		return r.try(ctx, engine.Multi(r.locks()...))
	}
	return r.try(ctx, r.locks()[0])
}

func (r *runner) try(ctx context.Context, l engine.Lock) attempt {
	var f *engine.Future[*engine.Hold]
	switch {
	case r.Wait == 0:
		f = l.TryLockAsync(ctx, r.Options...)
	case r.Wait > 0:
		f = l.LockAsync(ctx, append(r.Options, engine.Wait(r.Wait))...)
	default:
		f = l.LockAsync(ctx, r.Options...)
	}
	return attempt{f.Done(), f.Abandon, f.Result}
}
