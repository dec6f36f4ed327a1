package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Every error of this package is one of these, or wraps one; test with errors.Is.
// docs/errors.md has a table of which operation returns which.
var (
	// ErrNotAcquired: this call did not acquire the lock, and will not, for whatever
	// reason. See NotAcquiredError.
	ErrNotAcquired = errors.New("engine: lock not acquired")
	// ErrHeld: somebody else holds the lock. Either the server said so to the latest
	// try of this name, or this process holds it. It comes with ErrNotAcquired and
	// never with ErrUnavailable.
	ErrHeld = lockerr.ErrHeld
	// ErrNotRun: the function of a Do or TryDo was not run, because the lock was not
	// acquired. It is always about this Do: if the function itself returns the
	// ErrNotRun of another Do, it is hidden.
	ErrNotRun = errors.New("engine: function was not run")
	// ErrPending: the future has no result yet. From Close: every lock was released,
	// but a callback or the Observer has not returned yet.
	ErrPending = lockerr.ErrPending
	// ErrReleased: the hold ended because it was unlocked. This is not a failure.
	ErrReleased = lockerr.ErrReleased
	// ErrLost: the hold ended before it was unlocked. See LostError.
	ErrLost = errors.New("engine: lock was lost")
	// ErrNotHeld: this hold was already unlocked. Nothing was sent.
	ErrNotHeld = lockerr.ErrNotHeld
	// ErrOutcomeUnknown: the command was sent, and nobody knows whether the server executed it. The
	// engine repeats an Unlock in the background until the lease ends.
	ErrOutcomeUnknown = lockerr.ErrOutcomeUnknown
	// ErrUnavailable: the server could not be reached, did not answer in time, or
	// refuses everything for now (loading, busy, read-only, out of memory).
	ErrUnavailable = lockerr.ErrUnavailable
	// ErrReentry: the context already holds this lock, and NonReentrant was given; or it holds the
	// reader of an RWMutex, and the writer would wait for it.
	ErrReentry = errors.New("engine: held by this context already")
	// ErrOverloaded: more than Config.MaxInFlight commands wait for an answer, or more
	// than 4 MiB of them have not left this process. Try again later, or call the
	// synchronous form, which waits its turn.
	ErrOverloaded = lockerr.ErrOverloaded
	// ErrClosed: the engine is closed or shutting down.
	ErrClosed = lockerr.ErrClosed
	// ErrInvalid: an argument, option or field of Config is wrong. The text says which
	// one, and what it must be.
	ErrInvalid = lockerr.ErrInvalid
	// ErrWrongType: the key holds something else than this kind of synchronizer would have
	// there, such as a string of another lock library. Delete it or use another name.
	ErrWrongType = lockerr.ErrWrongType
	// ErrKindConflict: this engine uses the name for a synchronizer of another kind, with which
	// this one cannot share it: both would be the same key on the server. The text says which.
	ErrKindConflict = errors.New("engine: in use as another kind of synchronizer")
	// ErrNoPermits: nobody has said how many permits the semaphore has, so a TryAcquire cannot
	// succeed: call SetPermits first, or TrySetPermits of a PermitSemaphore. Acquire waits until
	// somebody does, as Redisson's does.
	ErrNoPermits = lockerr.ErrNoPermits
	// ErrGrantTooLate: the grant arrived after its lease had ended, three times in a row (once for
	// TryLock): the lease is too short for this network. The lock was given back.
	ErrGrantTooLate = lockerr.ErrGrantTooLate
	// ErrNotAcked: too few replicas acknowledged; see AckError. A lock that was granted
	// was given back.
	ErrNotAcked = errors.New("engine: too few replicas acknowledged")
)

// errKindConflict is ErrKindConflict, and what the name is in use as. The caller holds the shard's lock.
func errKindConflict(sh *driver.Shard, name string) error {
	return lockerr.Wrap(ErrKindConflict, fmt.Errorf("this engine uses the name for %s", sh.UsedAs(name)))
}

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
	// RemovedOnServer: the server no longer has the hold: it was force-unlocked, deleted,
	// evicted, flushed, or lost in a failover.
	RemovedOnServer
	// KeyOverwritten: the key now holds something that is not a lock.
	KeyOverwritten
	// EngineClosed: Close ended it.
	EngineClosed
)

// reasons are what a LostReason says to people, and to machines.
var reasons = [...]struct{ text, code string }{
	LeaseEnded:      {"its lease ended", "lease_ended"},
	NotRenewed:      {"no renewal was acknowledged in time", "not_renewed"},
	MaxHoldReached:  {"it reached its maximal hold time", "max_hold_reached"},
	RemovedOnServer: {"the server does not have it any more", "removed"},
	KeyOverwritten:  {"its key was overwritten with something else", "overwritten"},
	EngineClosed:    {"the engine was closed", "engine_closed"},
}

// String says why, in words.
func (r LostReason) String() string {
	if int(r) < len(reasons) && r != 0 {
		return reasons[r].text
	}
	return fmt.Sprintf("LostReason(%d)", uint8(r))
}

// Code is the reason as a label of a metric, or for a program in another language: lease_ended,
// not_renewed, max_hold_reached, removed, overwritten or engine_closed. These stay the same from
// version to version, while texts may change. It is empty without a reason, and unknown for any
// other number.
func (r LostReason) Code() string {
	if int(r) < len(reasons) {
		return reasons[r].code
	}
	return "unknown"
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
	// Err says more. With NotRenewed it is what kept renewals from being acknowledged: the latest
	// error of the connection, if there was one. For a RedLock: on which servers it was lost, and why. Reason is that of
	// the server without which no majority was left. Err is for people: what one server
	// said is in its text, and errors.Is and errors.As do not find it.
	Err error

	what string // "": a lock
}

func (e *LostError) Error() string {
	what := cmp.Or(e.what, "lock")
	if e.Err != nil {
		return fmt.Sprintf("engine: %s %q was lost: %s", what, lockerr.Shorten(e.Name), partText(e.Err))
	}
	return fmt.Sprintf("engine: %s %q was lost: %v", what, lockerr.Shorten(e.Name), e.Reason)
}

// Unwrap returns Err.
func (e *LostError) Unwrap() error { return e.Err }

// Is makes the error match ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// NotAcquiredError is the error of every acquisition that fails: which lock, and why.
// It Is ErrNotAcquired, and everything that Err is.
type NotAcquiredError struct {
	// Name is the lock's name as the caller gave it, before Config.NameMapper.
	Name string
	// TTL is what was left of the holder's lease when the acquisition failed, if the
	// error Is ErrHeld. It is negative if that is unknown or the key has no expiry. The
	// holder may renew the lease.
	TTL time.Duration
	// Holder is the owner that held the lock then, as State and its own Hold.Owner show it, if the error Is
	// ErrHeld. It is empty if the holder is one of many (readers, permits, a RedLock), for a FairMutex
	// or an RWMutex that another process holds, and while the lock passes to another waiter: call State.
	Holder string
	// Err is the reason: ErrHeld, ErrUnavailable, ErrClosed, ErrInvalid and so on, with
	// their causes. If a context or Wait ended the waiting, Err has the context's cause
	// and also what had kept the lock from being granted.
	Err error

	notRun bool   // of Do
	what   string // "": a lock
}

// Error returns one line: the name, that the lock was not acquired, and why.
func (e *NotAcquiredError) Error() string {
	what := cmp.Or(e.what, "lock")
	text := "engine: " + what + " not acquired"
	if e.Name != "" {
		text = fmt.Sprintf("engine: %s %q not acquired", what, lockerr.Shorten(e.Name))
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
func notAcquired(name string, why error) *NotAcquiredError { return notAcquiredA("", name, why) }

// notAcquiredA is notAcquired for what may be something else than a lock.
func notAcquiredA(what, name string, why error) *NotAcquiredError {
	e := &NotAcquiredError{Name: name, Err: ofName(name, why), what: what}
	if h := lockerr.HeldIn(why); h != nil {
		e.TTL, e.Holder = h.TTL, h.Owner
	}
	return e
}

// refused reports that the lock was held by another, and nothing else went wrong.
func (e *NotAcquiredError) refused() bool {
	switch why := e.Err.(type) {
	case *lockerr.Held:
		return true
	case *noMajority:
		return why.is == ErrHeld
	}
	return false
}

// withName is err with the lock's name in its text. A LostError and an AckError have it.
func withName(name string, err error) error { return withKind("", name, err) }

// withKind is about for what may be something else than a lock.
func withKind(what, name string, err error) error {
	switch err.(type) {
	case nil, *LostError, *AckError:
		return ofName(name, err)
	}
	return lockerr.WithName(what, name, err)
}

// unavailable is ErrUnavailable, with what keeps the connection from being made, else
// with why, which may be nil.
func (e *Engine) unavailable(route uint64, why error) error {
	if err := e.table.Client.LaneError(route); err != nil {
		why = err
	}
	if why == nil {
		return ErrUnavailable
	}
	return lockerr.Wrap(ErrUnavailable, why)
}

// unasked is the error of a look at the server that failed.
func unasked(err error) error {
	if err == ErrClosed {
		return err
	}
	return lockerr.Wrap(ErrUnavailable, err)
}

// partText is the text of an error as a part of a longer one, which has the lock's name.
func partText(err error) string {
	if ack, ok := err.(*AckError); ok {
		return lockerr.Trimmed(ack.said())
	}
	return lockerr.Text(err)
}

// joined joins the errors of several locks: nil if there is none.
func joined(errs []error) error {
	switch all := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil }); len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		return &failures{all}
	}
}

// failures are the errors of several locks; the text has the first few.
type failures struct{ is []error }

func (e *failures) Unwrap() []error { return e.is }

func (e *failures) Error() string {
	return e.is[0].Error() + "; " + strings.Join(few(e.is[1:], 2, partText), "; ")
}

// few are the texts of the first ones, and how many more there are.
func few[T any](all []T, most int, text func(T) string) (texts []string) {
	for _, one := range all[:min(len(all), most)] {
		texts = append(texts, text(one))
	}
	if more := len(all) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return texts
}
