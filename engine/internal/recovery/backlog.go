package recovery

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

const (
	// maxTries bounds the unanswered tries of a lane.
	maxTries = 256
	// recheckAfter is how long after a stall the lane is checked, in case it came up
	// meanwhile or was never down (paced tries are stalled too).
	recheckAfter = 5 * time.Millisecond
	// sweepAt is how many dropped entries the lists may have at least.
	sweepAt = 256
)

// backlog is what waits for a lane, and decides what of it is sent next. Names with something
// to give back, or a hold, go first. Then follow those that want to acquire, with at most
// maxTries unanswered: without that bound 100,000 heads would try at the same moment against a
// server that has just come back. Past releases take turns with the tries, within the same
// bound.
type backlog struct {
	urgent     []Stalled // with compensations, releases or holds
	tries      []Stalled
	resend     []Release     // the latest comes last: it is the most likely to be needed
	resendAt   clock.Instant // not before
	turn       bool          // again had the latest turn
	out        int           // commands without an answer
	rechecking bool          // the lane will be looked at
}

// ready is what is sent next: a name's command, or a past release.
type ready struct {
	res    Stalled // nil: none
	past   Release // if isPast
	isPast bool
	wakeAt clock.Instant // past releases are due then; 0 if they are, or there are none
}

// add lists a name that is stalled.
func (b *backlog) add(r Stalled, urgent bool) {
	if urgent {
		b.urgent = append(b.urgent, r)
	} else {
		b.tries = append(b.tries, r)
	}
}

// addPast lists a past release, which is not sent before an instant.
func (b *backlog) addPast(r Release, at clock.Instant) {
	b.resend = append(b.resend, r)
	b.resendAt = max(b.resendAt, at)
}

// next takes out what is to be sent now, if anything may be, and counts it. Without a
// connection (up) past releases stay: the engine is being closed then, which a Shutdown
// may delay, and the lane may come up.
func (b *backlog) next(up bool, now clock.Instant) (s ready) {
	if s.res = take(&b.urgent); s.res != nil {
		b.out++
		return s
	}
	if b.out >= maxTries {
		return s
	}
	if b.turn = !b.turn; (b.turn || len(b.tries) == 0) && up && len(b.resend) > 0 {
		if s.isPast = now >= b.resendAt; s.isPast {
			s.past = take(&b.resend)
			b.out++
			return s
		}
		s.wakeAt = b.resendAt
	}
	if s.res = take(&b.tries); s.res != nil {
		b.out++
	}
	return s
}

// take takes the last one out of a list; none if it is empty.
func take[T any](list *[]T) (last T) {
	n := len(*list)
	if n == 0 {
		*list = nil
		return last
	}
	var none T
	last, (*list)[n-1] = (*list)[n-1], none
	*list = (*list)[:n-1]
	return last
}

// waiting reports whether anything is to be sent.
func (b *backlog) waiting() bool { return len(b.urgent)+len(b.tries)+len(b.resend) > 0 }

// over reports whether the lane has nothing to do, and may be forgotten.
func (b *backlog) over() bool { return !b.waiting() && b.out == 0 && !b.rechecking }

// recheck notes that the lane will be looked at. It reports whether that is to be arranged:
// it is not if it has been already.
func (b *backlog) recheck() bool {
	first := !b.rechecking
	b.rechecking = true
	return first
}

// answered counts an answer, or that there was nothing to send. It reports whether anything waits.
func (b *backlog) answered() (more bool) {
	b.out--
	return b.waiting()
}

// sweep forgets the names that nobody wants any more. It returns how many are left.
func (b *backlog) sweep() (left int) {
	for _, list := range []*[]Stalled{&b.urgent, &b.tries} {
		*list = slices.DeleteFunc(*list, func(r Stalled) bool { return *r.Unwanted() })
		left += len(*list)
	}
	return left
}

// takeAll takes out all that waits.
func (b *backlog) takeAll() (names []Stalled, past []Release) {
	names, past = append(b.urgent, b.tries...), b.resend
	b.urgent, b.tries, b.resend = nil, nil, nil
	return names, past
}

// sweeper says when the lists are swept: when half of what they have is dropped, or so. In an
// outage they must not grow with each name that somebody has asked for.
type sweeper struct {
	since int // dropped since the lists were swept
	left  int // names that were listed after that
}

// dropped counts one. It reports whether the lists are to be swept now.
func (d *sweeper) dropped() bool {
	d.since++
	return d.since >= max(d.left, sweepAt)
}

// swept notes how many names were left.
func (d *sweeper) swept(left int) { d.since, d.left = 0, left }
