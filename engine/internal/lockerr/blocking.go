package lockerr

import "slices"

// MayPass reports whether waiting may help after a refusal.
func MayPass(why error) bool { return slices.ContainsFunc(Parts(why), IsBlocking) }

// IsBlocking reports whether one condition may go away: somebody has the lock, nobody
// answers, or the answer came too late.
func IsBlocking(is error) bool {
	switch is.(type) {
	case *Held, impatient:
		return true
	}
	return is == ErrUnavailable || is == ErrGrantTooLate
}

// CutOff reports whether the reason of one that was given up says only that a command was
// out, or none sent.
func CutOff(why error) bool {
	return slices.ContainsFunc(Parts(why), func(is error) bool { return is == ErrEarly || is == ErrSilent || is == NotAsked })
}

// impatient is ErrUnavailable for a caller whose context ended, perhaps too soon for any
// server.
type impatient string

// What such a caller is told.
const (
	NotAsked impatient = "engine: the server was not asked"
	NoAnswer impatient = "engine: no answer from the server"
)

func (e impatient) Error() string        { return string(e) }
func (e impatient) Is(target error) bool { return target == ErrUnavailable }
