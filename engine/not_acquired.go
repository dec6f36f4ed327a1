package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
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
		text = fmt.Sprintf("engine: lock %q not acquired", shorten(e.Name))
	}
	if e.Err != nil {
		text += ": " + said(e.Err)
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
	if h := heldIn(why); h != nil {
		e.TTL = h.ttl
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
	return notAcquired(name, fail(ErrLate, why))
}

// refused reports that the lock was held by another, and nothing else went wrong.
func (e *NotAcquiredError) refused() bool {
	switch why := e.Err.(type) {
	case *held:
		return true
	case *noMajority:
		return why.is == ErrHeld
	}
	return false
}

// held is ErrHeld with what is known of the holder.
type held struct {
	ttl  time.Duration // negative: unknown
	here bool          // by this process
}

func (h *held) Error() string {
	who := "another"
	if h.here {
		who = "this process"
	}
	switch {
	case h.ttl < 0:
		return "engine: held by " + who
	case h.ttl == 0:
		return "engine: held by " + who + ", whose lease ends now unless renewed"
	}
	return fmt.Sprintf("engine: held by %s, whose lease ends in %v unless renewed", who, roughly(h.ttl))
}

func (h *held) Is(target error) bool { return target == ErrHeld }

// heldIn finds what is known of the holder in the reasons of this package. It runs no
// code of the user, who may have made the cause of a context.
func heldIn(why error) *held {
	switch e := why.(type) {
	case *held:
		return e
	case *failure:
		for _, one := range e.is {
			if h, ok := one.(*held); ok {
				return h
			}
		}
	}
	return nil
}

// roughly rounds a duration for people.
func roughly(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return max(d.Round(time.Millisecond), time.Millisecond)
}

// failure is an error made of several conditions, all found with errors.Is, and
// one line, which is made when somebody reads it: the text of a cause is the user's
// code, and failures are made under locks. (errors.Join prints a line per error,
// which breaks logs.)
type failure struct {
	is   []error
	sep  string
	lock string // the name, or "" if the text does not begin with it
}

func (e *failure) Unwrap() []error { return e.is }

func (e *failure) Error() string {
	var s strings.Builder
	if e.lock != "" {
		fmt.Fprintf(&s, "engine: lock %q: ", shorten(e.lock))
	}
	for i, err := range e.is {
		if i == 0 && e.lock == "" {
			s.WriteString(oneLine(err.Error()))
			continue
		}
		if i > 0 {
			s.WriteString(e.sep)
		}
		s.WriteString(said(err))
	}
	return s.String()
}

// fail says what is true, and then why.
func fail(is ...error) error { return &failure{is: is, sep: ": "} }

// together joins errors of which none is the reason of the others.
func together(is ...error) error { return &failure{is: is, sep: "; "} }

// about is err with the lock's name in its text. A LostError and an AckError have it.
func about(name string, err error) error {
	switch err.(type) {
	case nil, *LostError, *AckError:
		return err
	}
	return &failure{is: parts(err), sep: ": ", lock: name}
}

// passes reports whether waiting may help after a refusal.
func passes(err error) bool {
	return slices.ContainsFunc(parts(err.(*NotAcquiredError).Err), isObstacle)
}

// isObstacle reports whether a reason may go away: somebody has the lock, nobody answers, or
// the answer came too late.
func isObstacle(why error) bool {
	switch why.(type) {
	case *held, impatient:
		return true
	}
	return why == ErrUnavailable || why == ErrLate
}

// cutOff reports whether the reasons of one that was given up say only that a command was out.
func cutOff(reasons []error) bool {
	return slices.Contains(reasons, errEarly) || slices.Contains(reasons, errSilent)
}

// impatient is ErrUnavailable for a caller whose context ended, perhaps too soon for any
// server.
type impatient string

const (
	notAsked impatient = "engine: the server was not asked"
	noAnswer impatient = "engine: no answer from the server"
)

func (e impatient) Error() string        { return string(e) }
func (e impatient) Is(target error) bool { return target == ErrUnavailable }

// unavailable is ErrUnavailable, with what keeps the connection from being made, else
// with why, which may be nil.
func (e *Engine) unavailable(route uint64, why error) error {
	if err := e.client.LaneError(route); err != nil {
		why = err
	}
	if why == nil {
		return ErrUnavailable
	}
	return fail(ErrUnavailable, why)
}

// said is the text of an error as a part of a longer one: on one line, and without
// the names of these packages, which the whole begins with.
func said(err error) string {
	text := err.Error()
	if part, ok := err.(interface{ said() string }); ok {
		text = part.said()
	}
	text = oneLine(text)
	for _, prefix := range []string{"engine: ", "resp: "} {
		text = strings.TrimPrefix(text, prefix)
		text = strings.ReplaceAll(text, ": "+prefix, ": ")
		text = strings.ReplaceAll(text, "; "+prefix, "; ")
	}
	return text
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// These say what ended an acquisition, or what it would have waited for.
var (
	errWaited    = errors.New("Wait is over")
	errAbandoned = errors.New("the future was abandoned")
	errEarly     = errors.New("the server had not answered yet")
)

// stop is why an acquisition that waits is given up.
type stop struct {
	cause error // nil: it waited as long as it may for a connection
	late  bool  // its time was over, as opposed to: nobody wants it any more
}

// stopOf is the end of a context. No lock may be held: its methods may be the user's.
func stopOf(ctx context.Context) stop {
	return stop{cause: context.Cause(ctx), late: errors.Is(ctx.Err(), context.DeadlineExceeded)}
}

// errNoContext is for a nil context.
var errNoContext = invalid("the context must not be nil: use context.Background() if nothing bounds the call")
