package execlock

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/engine"
)

// permit begins to acquire a permit of the semaphore, after it was said how many there are.
func (r *runner) permit(ctx context.Context) attempt {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var h *engine.PermitHold
	var err error
	go func() { // ends with the context
		defer close(done)
		began := time.Now()
		s := r.engines[0].PermitSemaphore(r.Names[0])
		if err = r.setPermits(ctx, s); err == nil {
			h, err = r.takePermit(ctx, s, r.Wait-time.Since(began))
		}
	}()
	abandon := func() {
		cancel()
		<-done // nothing is said after that
	}
	return attempt{done, abandon, func() (hold, error) {
		if err != nil {
			return nil, err // and not a nil PermitHold, which is no nil hold
		}
		return h, nil
	}}
}

// setPermits says how many permits there are, unless somebody has said so before. Of a semaphore
// that has none one could wait for ever: the user is told.
func (r *runner) setPermits(ctx context.Context, s engine.PermitSemaphore) error {
	if r.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Wait)
		defer cancel()
	}
	if r.Permits > 0 {
		_, err := s.TrySetPermits(ctx, r.Permits)
		return err
	}
	if capacity, err := s.Capacity(ctx); err == nil && capacity <= 0 {
		r.Say("semaphore %q has no permits: --permits says how many it has", s.Name())
	}
	return nil
}

func (r *runner) takePermit(ctx context.Context, s engine.PermitSemaphore, left time.Duration) (*engine.PermitHold, error) {
	switch {
	case r.Wait == 0:
		return s.TryAcquire(ctx, 1, r.Options...)
	case r.Wait > 0:
		return s.Acquire(ctx, 1, append(r.Options, engine.Wait(max(left, time.Millisecond)))...)
	}
	return s.Acquire(ctx, 1, r.Options...)
}
