package resp

// failure is what became of a Request that got no answer: its class (ErrNotSent
// or ErrOutcomeUnknown) and the cause. Both are found with errors.Is and As.
type failure struct{ class, cause error }

func (f *failure) Error() string { return f.class.Error() + ": " + f.cause.Error() }

func (f *failure) Unwrap() []error { return []error{f.class, f.cause} }

// The refusals of a lane. They are made once: a lane that is down or full refuses
// at the rate at which its callers knock.
var (
	errRefusedDown   = &failure{class: ErrNotSent, cause: ErrDown}
	errRefusedClosed = &failure{class: ErrNotSent, cause: ErrClosed}
	errRefusedFull   = &failure{class: ErrNotSent, cause: ErrLaneFull}

	errRefusedUnwanted = &failure{class: ErrNotSent, cause: ErrUnwanted}
)
