package quorum

import (
	"cmp"
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Policy is how many of n members are needed, and how they are acquired.
type Policy uint8

// The policies: that of a QuorumLock, and that of a MultiLock.
const (
	Majority Policy = iota
	All
)

// Need is how many of n are needed.
func (p Policy) Need(n int) int {
	if p == All {
		return n
	}
	return n/2 + 1
}

// Count is what the members have said. Those in no field have granted it, and got it back.
type Count struct {
	Members     int // all of them
	Need        int // of them
	Granted     int
	Pending     int // have not answered, or will be asked
	Held        int // by another
	Unavailable int
	TooLate     int // granted later than the lease lasts
	Refused     int // for another reason, which does not pass
}

func (c *Count) add(r *Refusal) {
	switch {
	case r.none():
	case r.State == Held:
		c.Held++
	case r.Late:
		c.TooLate++
	case r.Passes:
		c.Unavailable++
	default:
		c.Refused++
	}
}

// spare is how many may refuse it.
func (c Count) spare() int { return c.Members - c.Need }

// Result is what is true of a vote.
type Result uint8

// The results.
const (
	Pending Result = iota
	Won
	Lost   // this attempt
	Denied // and any other would be
)

// Result is whether as many as are needed have granted it, or may.
func (c Count) Result() Result {
	switch {
	case c.Granted >= c.Need:
		return Won
	case c.Refused > c.spare():
		return Denied
	case c.Granted+c.Pending < c.Need:
		return Lost
	}
	return Pending
}

// Reached returns the greatest value that so many of them reach. It sorts them.
func Reached[T cmp.Ordered](values []T, need int) T {
	slices.Sort(values)
	return values[len(values)-need]
}

// Cause is why it was not acquired: ErrHeld, ErrUnavailable, ErrClosed, ErrEarly, or what a member has said for good.
// Of a Lock that was given up, stop says why. It has given votes back only because others have it; those that a
// TryLock gave back prove nothing.
func (c Count) Cause(tryLock bool, stop *lockerr.Cancel, said error) error {
	spare := c.spare()
	refused := c.Held + c.Unavailable + c.TooLate + c.Refused
	givenBack := c.Members - c.Granted - c.Pending - refused
	switch {
	case stop != nil && stop.Cause == lockerr.ErrClosed:
		return lockerr.ErrClosed
	case stop != nil && stop.Away != nil, c.Held <= spare && c.Unavailable > 0 && refused+c.Pending > spare:
		return lockerr.ErrUnavailable
	case c.Held > spare, !tryLock && c.Held > 0 && c.Held+givenBack > spare:
		return lockerr.ErrHeld
	case stop == nil && refused > c.Held+c.Unavailable:
		return said
	case stop != nil && stop.TimedOut:
		return lockerr.ErrUnavailable // in all its time not enough of them have answered
	}
	return lockerr.ErrEarly
}
