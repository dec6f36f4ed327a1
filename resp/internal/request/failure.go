package request

import (
	"errors"
	"strings"
)

// Failure is what became of a Request that got no answer: its class (ErrNotSent
// or ErrOutcomeUnknown) and the cause. Both are found with errors.Is and As.
type Failure struct{ Class, Cause error }

func (f *Failure) Error() string {
	return f.Class.Error() + ": " + strings.TrimPrefix(f.Cause.Error(), "resp: ")
}

func (f *Failure) Unwrap() []error { return []error{f.Class, f.Cause} }

// Outcome takes the Err of a Reply apart: its class, ErrNotSent or ErrOutcomeUnknown, and
// the cause. Both are nil for a refusal, and for errors of others. It calls no method of
// an error, as errors.Is does: a cause may be a Dialer's own, and replies come on event
// loops, where no code of a user may run.
func Outcome(err error) (class, cause error) {
	if f, ok := err.(*Failure); ok {
		return f.Class, f.Cause
	}
	return nil, nil
}

// ErrNotCounted is the cause of a durable request that came before the first look at
// the deployment.
var ErrNotCounted = errors.New("resp: it is not known yet how many replicas there are")

// The refusals of a lane. They are made once: a lane that is down or full refuses
// at the rate at which its callers knock.
var (
	RefusedDown   = &Failure{Class: ErrNotSent, Cause: ErrDown}
	RefusedClosed = &Failure{Class: ErrNotSent, Cause: ErrClosed}
	RefusedFull   = &Failure{Class: ErrNotSent, Cause: ErrLaneFull}

	RefusedUnwanted  = &Failure{Class: ErrNotSent, Cause: ErrUnwanted}
	RefusedUncounted = &Failure{Class: ErrNotSent, Cause: ErrNotCounted}
)
