// Package lockerr has what errors of the engine are made of: the conditions that a caller
// can test for, who holds a lock, what ended a wait, and one line of text for several of
// them. It knows neither locks nor servers.
package lockerr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The conditions that the core finds. Package engine has them under the same names, and
// says what they mean.
var (
	ErrHeld           = errors.New("engine: lock is held by another")
	ErrReleased       = errors.New("engine: lock was released")
	ErrNotHeld        = errors.New("engine: not held: it was unlocked already")
	ErrOutcomeUnknown = errors.New("engine: outcome unknown")
	ErrUnavailable    = errors.New("engine: server is unavailable")
	ErrOverloaded     = errors.New("engine: too many operations in flight")
	ErrPending        = errors.New("engine: still pending")
	ErrClosed         = errors.New("engine: engine is closed")
	ErrInvalid        = errors.New("engine: invalid argument")
	ErrWrongType      = errors.New("engine: key is of another type")
	ErrNoPermits      = errors.New("engine: nobody has said how many permits there are: call SetPermits first, or TrySetPermits")
	ErrGrantTooLate   = errors.New("engine: granted later than the lease lasts; use a longer lease")
)

// These say what ended an acquisition, or what it would have waited for.
var (
	//lint:ignore ST1005 Wait is the name of the option
	ErrWaited    = errors.New("Wait is over")
	ErrAbandoned = errors.New("the future was abandoned")
	ErrEarly     = errors.New("the server had not answered yet")
	ErrSilent    = errors.New("no answer yet")
	ErrPatience  = errors.New("no answer within Config.CommandTimeout")
)

// What is true of one of several locks that has given no reason itself.
var (
	ErrGivenBack    = errors.New("it was granted, and given back")
	ErrNotGranted   = errors.New("it was not granted there")
	ErrGrantedAgain = errors.New("it was granted there again, perhaps too late")
)

// ErrNoContext is for a nil context.
var ErrNoContext = Invalid("the context must not be nil: use context.Background() if nothing bounds the call")

// Held is ErrHeld with what is known of the holder.
type Held struct {
	TTL  time.Duration // negative: unknown
	Here bool          // by this process
	// Owner is who that is, as the server has it; empty if that is unknown. Of a holder in this process the
	// machine knows ID and Kind instead, and the engine makes Owner of them.
	Owner string
	ID    int64
	Kind  uint8
}

func (h *Held) Error() string {
	who := "another"
	if h.Here {
		who = "this process"
	}
	switch {
	case h.TTL < 0:
		return "engine: held by " + who
	case h.TTL == 0:
		return "engine: held by " + who + ", whose lease ends now unless renewed"
	}
	return fmt.Sprintf("engine: held by %s, whose lease ends in %v unless renewed", who, roughly(h.TTL))
}

func (h *Held) Is(target error) bool { return target == ErrHeld }

// HeldIn finds what is known of the holder in the reasons of this package. It runs no
// code of the user, who may have made the cause of a context.
func HeldIn(why error) *Held {
	switch e := why.(type) {
	case *Held:
		return e
	case *failure:
		for _, one := range e.is {
			if h, ok := one.(*Held); ok {
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
	what string // "": a lock
	lock string // the name, or "" if the text does not begin with it
}

func (e *failure) Unwrap() []error { return e.is }

func (e *failure) Error() string {
	var s strings.Builder
	if e.lock != "" {
		fmt.Fprintf(&s, "engine: %s %q: ", cmp.Or(e.what, "lock"), Shorten(e.lock))
	}
	for i, err := range e.is {
		if i == 0 && e.lock == "" {
			s.WriteString(oneLine(err.Error()))
			continue
		}
		if i > 0 {
			s.WriteString(e.sep)
		}
		s.WriteString(Text(err))
	}
	return s.String()
}

// Parts are the conditions that a reason of this package is made of.
func Parts(err error) []error {
	if f, ok := err.(*failure); ok {
		return f.is
	}
	return []error{err}
}

// WithName is err with a name in its text, and what has it; "": a lock.
func WithName(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return &failure{is: Parts(err), sep: ": ", what: what, lock: name}
}

// Wrap says what is true, and then why; what is nil is not known.
func Wrap(is ...error) error {
	is = slices.DeleteFunc(is, func(err error) bool { return err == nil })
	if len(is) == 1 {
		return is[0]
	}
	return &failure{is: is, sep: ": "}
}

// Join joins errors of which none is the reason of the others.
func Join(is ...error) error { return &failure{is: is, sep: "; "} }

// Text is the text of an error as a part of a longer one: see Trimmed.
func Text(err error) string { return Trimmed(err.Error()) }

// Trimmed makes a text a part of a longer one: on one line, and without the names of these
// packages, which the whole begins with.
func Trimmed(text string) string {
	text = oneLine(text)
	for _, prefix := range []string{"engine: ", "resp: "} {
		text = strings.TrimPrefix(text, prefix)
		text = strings.ReplaceAll(text, ": "+prefix, ": ")
		text = strings.ReplaceAll(text, "; "+prefix, "; ")
	}
	return text
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }

// Shorten keeps a huge name out of a log line.
func Shorten(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return name[:most] + "..."
}

// Invalid is ErrInvalid with a text.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
