package engine

import (
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// NotAcquiredError is the error of every acquisition that fails: which lock, and why.
// It Is ErrNotAcquired, and everything that Err is.
type NotAcquiredError struct {
	// Name is the lock's name as the caller gave it, before Config.NameMapper.
	Name string
	// TTL is what was left of the holder's lease when the acquisition failed, if the
	// error Is ErrHeld. It is negative if that is unknown or the key has no expiry. The
	// holder may renew the lease.
	TTL time.Duration
	// Err is the reason: ErrHeld, ErrUnavailable, ErrClosed, ErrInvalid and so on, with
	// their causes. If a context or Wait ended the waiting, Err has the context's cause
	// and also what had kept the lock from being granted.
	Err error

	notRun bool // of Do
}

// Error returns one line: the name, that the lock was not acquired, and why.
func (e *NotAcquiredError) Error() string {
	text := "engine: lock not acquired"
	if e.Name != "" {
		text = fmt.Sprintf("engine: lock %q not acquired", reason.Shorten(e.Name))
	}
	if e.Err != nil {
		text += ": " + partText(e.Err)
	}
	return text
}

// Is makes the error match ErrNotAcquired, and ErrNotRun if it comes from a Do.
func (e *NotAcquiredError) Is(target error) bool {
	return target == ErrNotAcquired || target == ErrNotRun && e.notRun
}

// Unwrap returns Err.
func (e *NotAcquiredError) Unwrap() error { return e.Err }

// notAcquired makes the error of a lock.
func notAcquired(name string, why error) *NotAcquiredError {
	e := &NotAcquiredError{Name: name, Err: why}
	if h := reason.HeldIn(why); h != nil {
		e.TTL = h.TTL
	}
	return e
}

// endedBefore is the error of one lock of several whose grant had ended before the whole was held.
// That is not ErrLost: nobody had the whole.
func endedBefore(name string, why error) *NotAcquiredError {
	if lost, ok := why.(*LostError); ok {
		if lost.Reason == EngineClosed {
			return notAcquired(name, ErrClosed)
		}
		why = lossAt(lost.Reason)
	}
	return notAcquired(name, reason.Because(ErrLate, why))
}

// refused reports that the lock was held by another, and nothing else went wrong.
func (e *NotAcquiredError) refused() bool {
	switch why := e.Err.(type) {
	case *reason.Held:
		return true
	case *noMajority:
		return why.is == ErrHeld
	}
	return false
}

// about is err with the lock's name in its text. A LostError and an AckError have it.
func about(name string, err error) error {
	switch err.(type) {
	case nil, *LostError, *AckError:
		return err
	}
	return reason.About(name, err)
}

// passes reports whether waiting may help after a refusal.
func passes(err error) bool { return reason.Passes(err.(*NotAcquiredError).Err) }

// unavailable is ErrUnavailable, with what keeps the connection from being made, else
// with why, which may be nil.
func (e *Engine) unavailable(route uint64, why error) error {
	if err := e.table.Client.LaneError(route); err != nil {
		why = err
	}
	if why == nil {
		return ErrUnavailable
	}
	return reason.Because(ErrUnavailable, why)
}

// partText is the text of an error as a part of a longer one, which has the lock's name.
func partText(err error) string {
	if ack, ok := err.(*AckError); ok {
		return reason.Trimmed(ack.said())
	}
	return reason.Said(err)
}
