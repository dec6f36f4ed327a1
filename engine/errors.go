package engine

import (
	"errors"
	"fmt"

	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// Every error of this package is one of these, or wraps one; test with errors.Is. The
// package documentation has a table of which operation returns which.
var (
	// ErrNotAcquired: this call did not acquire the lock, and will not, for whatever
	// reason. See NotAcquiredError.
	ErrNotAcquired = errors.New("engine: lock not acquired")
	// ErrHeld: somebody else holds the lock. Either the server said so to the latest
	// try of this name, or this process holds it. It comes with ErrNotAcquired and
	// never with ErrUnavailable.
	ErrHeld = reason.ErrHeld
	// ErrNotRun: the function of a Do or TryDo was not run, because the lock was not
	// acquired. It is always about this Do: if the function itself returns the
	// ErrNotRun of another Do, it is hidden.
	ErrNotRun = errors.New("engine: function was not run")
	// ErrPending: the future has no result yet. From Close: every lock was released,
	// but a callback or hook has not returned yet.
	ErrPending = errors.New("engine: still pending")
	// ErrReleased: the hold ended because it was unlocked. This is not a failure.
	ErrReleased = reason.ErrReleased
	// ErrLost: the hold ended before it was unlocked. See LostError.
	ErrLost = errors.New("engine: lock was lost")
	// ErrNotHeld: this hold was already unlocked. Nothing was sent.
	ErrNotHeld = reason.ErrNotHeld
	// ErrOutcomeUnknown: the command was sent, and nobody knows whether the server
	// executed it. An Unlock goes on in the background until the lease ends.
	ErrOutcomeUnknown = reason.ErrOutcomeUnknown
	// ErrUnavailable: the server could not be reached, did not answer in time, or
	// refuses everything for now (loading, busy, read-only, out of memory).
	ErrUnavailable = reason.ErrUnavailable
	// ErrReentry: the context already holds this lock, and NonReentrant was given.
	ErrReentry = errors.New("engine: held by this context already")
	// ErrOverloaded: more than Config.MaxInFlight commands wait for an answer, or more
	// than 4 MiB of them have not left this process. Try again later, or call the
	// synchronous form, which waits its turn.
	ErrOverloaded = reason.ErrOverloaded
	// ErrClosed: the engine is closed or shutting down.
	ErrClosed = reason.ErrClosed
	// ErrInvalid: an argument, option or field of Config is wrong. The text says which
	// one, and what it must be.
	ErrInvalid = reason.ErrInvalid
	// ErrWrongType: the key holds something that is not a lock, such as a string of
	// another lock library. Delete it or use another name.
	ErrWrongType = reason.ErrWrongType
	// ErrLate: the grant arrived after its lease had ended, three times in a row (once for
	// TryLock): the lease is too short for this network. The lock was given back.
	ErrLate = reason.ErrLate
	// ErrNotAcked: too few replicas acknowledged; see AckError. A lock that was granted
	// was given back.
	ErrNotAcked = errors.New("engine: too few replicas acknowledged")
)

// LostReason is why a hold was lost.
type LostReason uint8

// The reasons.
const (
	// LeaseEnded: a fixed lease ran out.
	LeaseEnded LostReason = iota + 1
	// NotRenewed: no renewal was acknowledged in time. The server or the network was
	// away, or this process did not get to run.
	NotRenewed
	// MaxHoldReached: the watchdog stopped at MaxHold.
	MaxHoldReached
	// GoneOnServer: the server no longer has the hold: it was force-unlocked, deleted,
	// evicted, flushed, or lost in a failover.
	GoneOnServer
	// TakenOnServer: the key now holds something that is not a lock.
	TakenOnServer
	// EngineClosed: Close ended it.
	EngineClosed
)

var reasonTexts = [...]string{
	LeaseEnded:     "its lease ended",
	NotRenewed:     "no renewal was acknowledged in time",
	MaxHoldReached: "it reached its maximal hold time",
	GoneOnServer:   "the server does not have it any more",
	TakenOnServer:  "its key was overwritten with something else",
	EngineClosed:   "the engine was closed",
}

// String says why, in words.
func (r LostReason) String() string {
	if int(r) < len(reasonTexts) && reasonTexts[r] != "" {
		return reasonTexts[r]
	}
	return fmt.Sprintf("LostReason(%d)", uint8(r))
}

// MarshalText implements encoding.TextMarshaler, for slog and JSON: String, and nothing for
// the zero value.
func (r LostReason) MarshalText() ([]byte, error) {
	if r == 0 {
		return nil, nil
	}
	return []byte(r.String()), nil
}

// LostError says that a hold ended before it was unlocked. It Is ErrLost.
type LostError struct {
	Name   string
	Reason LostReason
	// Err is set for a RedLock: on which servers it was lost, and why. Reason is that of
	// the server without which no majority was left. Err is for people: what one server
	// said is in its text, and errors.Is and errors.As do not find it.
	Err error
}

func (e *LostError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("engine: lock %q was lost: %s", reason.Shorten(e.Name), partText(e.Err))
	}
	return fmt.Sprintf("engine: lock %q was lost: %v", reason.Shorten(e.Name), e.Reason)
}

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// Is makes the error match ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }
