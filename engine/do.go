package engine

import (
	"context"
	"errors"
	"time"
)

// Do acquires the lock, runs fn and releases the lock, also if fn panics or calls
// runtime.Goexit, which then goes on. fn's context is the hold's: it ends with ctx
// or with the hold, and calls of Lock with it re-enter.
//
// The error joins what went wrong: fn's error, a hold that was lost while fn ran
// (even if fn returned nil), and Unlock's. If the lock was not acquired, fn did not
// run and the error is Lock's. The release is not bound to ctx: it is waited for
// up to Config.CommandTimeout.
func (m Mutex) Do(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) error {
	h, err := m.Lock(ctx, opts...)
	if err != nil {
		return err
	}
	return m.run(ctx, h, fn)
}

// TryDo is Do with TryLock: if somebody else holds the lock, fn does not run and
// the result is (false, nil). It is for jobs that every replica of a service
// starts and one shall do; see MinHold for clocks that differ.
func (m Mutex) TryDo(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) (ran bool, err error) {
	h, err := m.TryLock(ctx, opts...)
	var taken *NotAcquiredError
	if errors.As(err, &taken) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, m.run(ctx, h, fn)
}

func (m Mutex) run(ctx context.Context, h *Hold, fn func(context.Context, *Hold) error) (err error) {
	hctx := h.Context(ctx)
	defer func() {
		lost := h.Err()
		uctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.patience())
		defer cancel()
		released := h.Unlock(uctx)
		switch {
		case errors.Is(lost, ErrReleased):
			// fn unlocked it itself.
			if errors.Is(released, ErrNotHeld) {
				released = nil
			}
		case lost != nil:
			released = lost // Unlock says the same
		}
		if released != nil {
			err = errors.Join(err, released)
		}
	}()
	return fn(hctx, h)
}

// patience is how long a release is waited for that has no context of its own.
func (m Mutex) patience() time.Duration { return m.eng.cfg.CommandTimeout }
