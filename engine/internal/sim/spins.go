package sim

import (
	"cmp"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/clock"
)

// A SpinMutex neither announces nor subscribes. Its waiters poll: less and less often, so that many of
// them are no burden, but never so rarely that a lock which is free is not found.

// backoff is how the waiters of a world poll; zero: as an engine does by itself.
type backoff struct{ first, most time.Duration }

var backoffs = []backoff{{}, {5 * time.Millisecond, 40 * time.Millisecond}, {200 * time.Millisecond, time.Second}}

func (b backoff) options() []engine.Option {
	if b == (backoff{}) {
		return nil
	}
	return []engine.Option{engine.Backoff(b.first, b.most)}
}

// longest is the longest pause, without its random part.
func (b backoff) longest() time.Duration { return cmp.Or(b.most, 128*time.Millisecond) }

// polling is what a process has tried since one of its programs asked for the lock, or had a verdict.
type polling struct {
	since clock.Instant
	tries int
}

// pollsAnew notes that it is asked for, or has its verdict.
func (h *held) pollsAnew() {
	if h.names[0] == spin {
		h.user.p.sites[0].polling = polling{}
	}
}

// notePoll checks how often a site tries.
func (x *site) notePoll(words []string) {
	s, p := x.sim, &x.polling
	switch {
	case words[3] != spin || takenBy(words) == "":
		return
	case !s.healthy():
		*p = polling{}
		return
	case p.tries == 0:
		p.since = s.now
	}
	p.tries++
	// Each pause is at least half of what it is to be. Some tries are for leases that end.
	if took := s.now.Sub(p.since); p.tries > 14+int(3*took/s.backoff.longest()) {
		s.fail("%s has polled %s %d times within %v", x.name, spin, p.tries, took)
	}
}

// checkQuiet checks that nobody is told, nor wants to be, of the end of a lock that polls.
func (s *Sim) checkQuiet(channel string) {
	if nameOf(channel) == spin {
		s.fail("the channel %q is used, and %s polls", channel, spin)
	}
}
