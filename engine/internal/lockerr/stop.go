package lockerr

import "slices"

// Stop is why an acquisition that waits is given up.
type Stop struct {
	Cause error // nil: it waited as long as it may for a connection
	Late  bool  // its time was over, as opposed to: nobody wants it any more
	Away  error // its server was away for too long: that is all there is to say
}

// Because is the reason of one that is given up: what ended it, and what stood in its way. One
// that has had all its time knows one of two things, whatever else: somebody has the lock, or no
// server said so in that time.
func (s Stop) Because(obstacle ...error) error {
	if s.Away != nil {
		return Because(ErrUnavailable, s.Away)
	}
	var is []error
	if s.Cause != nil {
		is = append(is, s.Cause)
	}
	if s.Late && !slices.ContainsFunc(obstacle, saysWhy) {
		is = append(is, ErrUnavailable)
	}
	if is = append(is, obstacle...); len(is) == 1 {
		return is[0]
	}
	return Because(is...)
}

// saysWhy reports whether an obstacle is ErrHeld or ErrUnavailable.
func saysWhy(is error) bool { return is != ErrLate && IsObstacle(is) }

// Unasked is the reason of one that is given up before anybody was asked.
func (s Stop) Unasked() error {
	if s.Late || s.Away != nil {
		return s.Because(NotAsked)
	}
	return s.Cause
}
