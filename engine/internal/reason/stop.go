package reason

import "slices"

// Stop is why an acquisition that waits is given up.
type Stop struct {
	Cause error // nil: it waited as long as it may for a connection
	Late  bool  // its time was over, as opposed to: nobody wants it any more
}

// Because is the reason of one that is given up: what ended it, and what stood in its way. One
// that has had all its time knows one of two things, whatever else: somebody has the lock, or no
// server said so in that time.
func (s Stop) Because(obstacle ...error) error {
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
	if s.Late {
		return s.Because(NotAsked)
	}
	return s.Cause
}
