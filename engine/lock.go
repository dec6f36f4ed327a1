package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Lock is anything that is locked as one and held as one Hold: a Mutex, a MultiLock, a QuorumLock,
// or PermitSemaphore.Permits. Write code against it that does not care which: a job runner, an
// election, a plugin.
type Lock interface {
	// Name returns the name of the lock as you gave it; for a MultiLock, the name of the first lock
	// and how many more there are.
	Name() string
	// Lock waits for the lock as long as ctx lives, or as long as Wait allows.
	Lock(ctx context.Context, opts ...Option) (*Hold, error)
	// TryLock asks for the lock once, and never waits for it.
	TryLock(ctx context.Context, opts ...Option) (*Hold, error)
	// LockAsync is Lock without the waiting. It never blocks.
	LockAsync(ctx context.Context, opts ...Option) *Future[*Hold]
	// TryLockAsync is TryLock without waiting for the answer. It never blocks.
	TryLockAsync(ctx context.Context, opts ...Option) *Future[*Hold]
	// Do acquires the lock, runs fn and releases the lock; see Mutex.Do.
	Do(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) error
	// TryDo is Do with TryLock: if others hold the lock, fn does not run and the result is
	// (false, nil); see Mutex.TryDo.
	TryDo(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) (ran bool, err error)
}

var (
	_ Lock = Mutex{}
	_ Lock = MultiLock{}
	_ Lock = QuorumLock{}
)

// Do acquires the lock, runs fn and releases the lock. It also releases if fn panics or
// calls runtime.Goexit, which then continues. fn's context is the hold's: it ends with
// ctx or with the hold, and a Lock under it re-enters.
//
// If the lock was not acquired, fn did not run, and the error Is ErrNotRun in addition
// to what Lock's error would be. Without ErrNotRun fn has run. The error then joins
// what went wrong: fn's error, a hold that was lost while fn ran (even if fn returned
// nil), and Unlock's error. The release does not depend on ctx: Do waits for it up to
// Config.CommandTimeout.
func (m Mutex) Do(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) error {
	h, err := m.Lock(ctx, opts...)
	return lockedRun(ctx, h, err, fn)
}

// TryDo is Do with TryLock: if somebody else holds the lock, fn does not run and the
// result is (false, nil). Use it for a job that every replica of a service starts and
// only one should do. If their clocks differ, see MinHold. If nobody can tell whether
// the lock is held, because the server is away, TryDo returns an error.
func (m Mutex) TryDo(ctx context.Context, fn func(ctx context.Context, h *Hold) error, opts ...Option) (ran bool, err error) {
	h, err := m.TryLock(ctx, opts...)
	return triedRun(ctx, h, err, fn)
}

// lockedRun is the second half of a Do, after Lock.
func lockedRun(ctx context.Context, h *Hold, err error, fn func(context.Context, *Hold) error) error {
	if err != nil {
		return didNotRun(err)
	}
	return runUnder(ctx, h, fn)
}

// triedRun is the second half of a TryDo, after TryLock.
func triedRun(ctx context.Context, h *Hold, err error, fn func(context.Context, *Hold) error) (ran bool, _ error) {
	if e, ok := err.(*NotAcquiredError); ok && e.refused() {
		return false, nil
	}
	if err != nil {
		return false, didNotRun(err)
	}
	return true, runUnder(ctx, h, fn)
}

// releaseTimeout is how long the release of several locks is waited for that has no context of
// its own.
func releaseTimeout(locks []Mutex) (d time.Duration) {
	for _, m := range locks {
		d = max(d, m.home.cfg.CommandTimeout)
	}
	return d
}

// didNotRun marks the error of an acquisition as that of a Do. The error itself may
// have been given to an Observer, too.
func didNotRun(err error) error {
	marked := *err.(*NotAcquiredError)
	marked.notRun = true
	return &marked
}

// didRun is the error of a function that Do has run, and that Is ErrNotRun because of
// another Do: it is all that it was, except that.
type didRun struct{ err error }

func (e *didRun) Error() string { return e.err.Error() }

func (e *didRun) Is(target error) bool { return target != ErrNotRun && errors.Is(e.err, target) }

func (e *didRun) As(target any) bool { return errors.As(e.err, target) }

// runUnder runs fn under h, and releases h.
func runUnder(ctx context.Context, h *Hold, fn func(context.Context, *Hold) error) (err error) {
	if seen := h.h.observed().context(); seen != nil {
		ctx = seen
	}
	defer func() { // before anything of the user's: ctx may panic, too
		lost := h.Err()
		uctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.h.patience())
		defer cancel()
		released := h.Unlock(uctx)
		switch {
		case errors.Is(lost, ErrReleased):
			released = butNotHeld(released) // fn unlocked it itself
		case lost != nil && (released == nil || errors.Is(released, lost)):
			// Unlock says the same, and what else went wrong with several locks.
		case lost != nil:
			released = lockerr.Join(lost, released)
		}
		switch {
		case err == nil:
			err = released
		case released != nil && !errors.Is(err, released): // fn may return its context's cause
			err = lockerr.Join(err, released)
		}
	}()
	if err = fn(h.Context(ctx), h); errors.Is(err, ErrNotRun) {
		err = &didRun{err}
	}
	return err
}

// butNotHeld is the error of an Unlock after another: without the locks that were merely
// unlocked already.
func butNotHeld(err error) error {
	if all, several := err.(*failures); several {
		return joined(slices.DeleteFunc(slices.Clone(all.is), isNotHeld))
	}
	if isNotHeld(err) {
		return nil
	}
	return err
}

func isNotHeld(err error) bool { return errors.Is(err, ErrNotHeld) }
