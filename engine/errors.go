package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/resp"
)

// Every error of this package is, or wraps, one of these; test with errors.Is.
// doc.go has the table of which operation returns which.
var (
	// ErrNotAcquired: the lock is not held by the caller, and will not be by this
	// call. Joined with the cause: a cancelled context, ErrUnavailable, ErrClosed.
	ErrNotAcquired = errors.New("engine: lock not acquired")
	// ErrPending: the future has no result yet.
	ErrPending = errors.New("engine: future is still pending")
	// ErrReleased: the hold ended because it was unlocked. Not a failure.
	ErrReleased = errors.New("engine: lock was released")
	// ErrLost: the hold ended before it was unlocked; see LostError.
	ErrLost = errors.New("engine: lock was lost")
	// ErrNotHeld: this hold was unlocked already; nothing was sent.
	ErrNotHeld = errors.New("engine: lock is not held: it was unlocked already")
	// ErrOutcomeUnknown: the command was sent and nobody knows whether the server
	// executed it. An Unlock goes on in the background until the lease is over.
	ErrOutcomeUnknown = errors.New("engine: outcome unknown")
	// ErrUnavailable: the server could not be asked within Config.CommandTimeout,
	// or it refuses for now (loading, busy, read-only, out of memory).
	ErrUnavailable = errors.New("engine: server is unavailable")
	// ErrReentry: the context holds this lock already and NonReentrant was given.
	ErrReentry = errors.New("engine: lock is held by this context already")
	// ErrOverloaded: more than Config.MaxInFlight commands wait for an answer, or more
	// than 4 MiB of them have not left this process; try again later, or call the
	// synchronous form, which waits.
	ErrOverloaded = errors.New("engine: too many operations in flight")
	// ErrClosed: the engine is closed or shutting down.
	ErrClosed = errors.New("engine: engine is closed")
	// ErrInvalid: an argument, option or Config field is wrong; the text says
	// which, and what it must be.
	ErrInvalid = errors.New("engine: invalid argument")
	// ErrWrongType: the key holds something that is not a lock, such as a string
	// that another lock library left. Delete it or use another name.
	ErrWrongType = errors.New("engine: key is not a lock")
	// ErrLate: the grant came after its lease was over, several times in a row:
	// the lease is too short for this network. It was given back.
	ErrLate = errors.New("engine: granted later than the lease lasts; use a longer lease")
	// ErrNotAcked: too few replicas acknowledged; see AckError. A lock was given back.
	ErrNotAcked = errors.New("engine: too few replicas acknowledged")
)

// NotAcquiredError says that somebody else holds the lock. It Is ErrNotAcquired.
type NotAcquiredError struct {
	// Name is the lock's name as the caller gave it, before Config.NameMapper.
	Name string
	// TTL is what the holder's lease had left when the server, or this process,
	// refused; negative if unknown or if the key has no expiry. The holder may
	// renew it.
	TTL time.Duration
}

func (e *NotAcquiredError) Error() string {
	if e.TTL < 0 {
		return fmt.Sprintf("engine: lock %q not acquired: held by another", shorten(e.Name))
	}
	return fmt.Sprintf("engine: lock %q not acquired: held by another, whose lease ends in %v unless renewed", shorten(e.Name), e.TTL)
}

// Is makes the error match ErrNotAcquired.
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// LostReason is why a hold was lost.
type LostReason uint8

// The reasons.
const (
	// LeaseEnded: a fixed lease ran out.
	LeaseEnded LostReason = iota + 1
	// NotRenewed: no renewal was acknowledged in time: the server or the network
	// was away, or this process was not scheduled.
	NotRenewed
	// MaxHoldReached: the watchdog stopped at MaxHold.
	MaxHoldReached
	// GoneOnServer: the server does not have the hold any more: force-unlocked,
	// deleted, evicted, flushed, or lost in a failover.
	GoneOnServer
	// TakenOnServer: the key holds something that is not a lock.
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

func (r LostReason) String() string {
	if int(r) < len(reasonTexts) && reasonTexts[r] != "" {
		return reasonTexts[r]
	}
	return fmt.Sprintf("LostReason(%d)", uint8(r))
}

// LostError says that a hold ended before it was unlocked. It Is ErrLost.
type LostError struct {
	Name   string
	Reason LostReason
}

func (e *LostError) Error() string {
	return fmt.Sprintf("engine: lock %q was lost: %v", shorten(e.Name), e.Reason)
}

// Is makes the error match ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// shorten keeps a huge name out of a log line.
func shorten(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return name[:most] + "..."
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// failure is an error made of several conditions, all found with errors.Is, and
// one sentence. (errors.Join prints a line per error, which breaks logs.)
type failure struct {
	text string
	is   []error
}

func (e *failure) Error() string   { return e.text }
func (e *failure) Unwrap() []error { return e.is }

func fail(is ...error) error {
	text := ""
	for i, err := range is {
		if i > 0 {
			text += ": "
		}
		text += err.Error()
	}
	return &failure{text: text, is: is}
}

// verdict classes what came back for a command.
type verdict uint8

const (
	answered  verdict = iota // a value
	notSent                  // no server can have seen it
	unknown                  // it may have been executed
	busy                     // the server refuses for now; not executed
	wrongType                // the key is of another type; not executed
	denied                   // the server refuses for good
)

// refusals are the error codes that mean: not executed, try again later.
var refusals = map[string]bool{
	"BUSY": true, "LOADING": true, "READONLY": true, "MASTERDOWN": true, "OOM": true,
	"MISCONF": true, "NOREPLICAS": true, "CLUSTERDOWN": true, "TRYAGAIN": true,
	"MOVED": true, "ASK": true, // sent on as often as is reasonable
}

func classify(err error) verdict {
	if err == nil {
		return answered
	}
	if errors.Is(err, resp.ErrNotSent) {
		return notSent
	}
	if errors.Is(err, errReply) {
		return denied // asking again at once would not help
	}
	if errors.Is(err, resp.ErrOutcomeUnknown) {
		return unknown // whatever cost the connection, a refusal of another command too
	}
	var refused *resp.ServerError
	if !errors.As(err, &refused) {
		return unknown
	}
	switch {
	case refusals[refused.Code]:
		return busy
	case refused.Code == "WRONGTYPE":
		return wrongType
	}
	return denied
}
