package lockerr

import "slices"

// Cancel is why an acquisition that waits is given up.
type Cancel struct {
	Cause    error // nil: it waited as long as it may for a connection
	TimedOut bool  // its time was over, as opposed to: nobody wants it any more
	Away     error // its server was away for too long: that is all there is to say
}

// Err is the reason of one that is given up: what ended it, and what stood in its way. One
// that has had all its time knows one of two things, whatever else: somebody has the lock, or no
// server said so in that time.
func (s Cancel) Err(obstacle ...error) error {
	if s.Away != nil {
		return Wrap(ErrUnavailable, s.Away)
	}
	is := []error{s.Cause}
	if s.TimedOut && !slices.ContainsFunc(obstacle, blocksOrUnavailable) {
		is = append(is, ErrUnavailable)
	}
	return Wrap(append(is, obstacle...)...)
}

// blocksOrUnavailable reports whether an obstacle is ErrHeld or ErrUnavailable.
func blocksOrUnavailable(is error) bool { return is != ErrGrantTooLate && IsBlocking(is) }

// NotAskedErr is the reason of one that is given up before anybody was asked.
func (s Cancel) NotAskedErr() error {
	if s.TimedOut || s.Away != nil {
		return s.Err(NotAsked)
	}
	return s.Cause
}
