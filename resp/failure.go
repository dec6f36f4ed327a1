package resp

import "strings"

// failure is what became of a Request that got no answer: its class (ErrNotSent
// or ErrOutcomeUnknown) and the cause. Both are found with errors.Is and As.
type failure struct{ class, cause error }

func (f *failure) Error() string {
	return f.class.Error() + ": " + strings.TrimPrefix(f.cause.Error(), "resp: ")
}

func (f *failure) Unwrap() []error { return []error{f.class, f.cause} }

// Outcome takes the Err of a Reply apart: its class, ErrNotSent or ErrOutcomeUnknown, and
// the cause. Both are nil for a refusal, and for errors of others. It calls no method of
// an error, as errors.Is does: a cause may be a Dialer's own, and replies come on event
// loops, where no code of a user may run.
func Outcome(err error) (class, cause error) {
	if f, ok := err.(*failure); ok {
		return f.class, f.cause
	}
	return nil, nil
}

// The refusals of a lane. They are made once: a lane that is down or full refuses
// at the rate at which its callers knock.
var (
	errRefusedDown   = &failure{class: ErrNotSent, cause: ErrDown}
	errRefusedClosed = &failure{class: ErrNotSent, cause: ErrClosed}
	errRefusedFull   = &failure{class: ErrNotSent, cause: ErrLaneFull}

	errRefusedUnwanted  = &failure{class: ErrNotSent, cause: ErrUnwanted}
	errRefusedUncounted = &failure{class: ErrNotSent, cause: errNotCounted}
)
