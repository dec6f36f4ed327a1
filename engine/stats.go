package engine

import (
	"errors"

	"github.com/pawl-lock/pawl/wheel"
)

// Stats is a snapshot of an engine; its parts are not taken at one instant.
type Stats struct {
	// Held are live holds, re-entries included. Waiting are acquisitions without a
	// verdict. InFlight are commands without an answer. Channels are subscribed.
	Held, Waiting, InFlight, Channels int

	// Acquired, Released and Renewed count holds. NotAcquired counts acquisitions
	// that ended without the lock, whatever the cause.
	Acquired, Released, Renewed, NotAcquired uint64
	// Lost counts holds lost, by reason.
	Lost map[LostReason]uint64
	// Compensations are releases of owners that nobody wanted; of these, Burned
	// had an acquire of unknown outcome.
	Compensations, Burned uint64
	// UnknownOutcomes are releases whose caller was told ErrOutcomeUnknown.
	UnknownOutcomes uint64
	// NotAcked are grants, re-entries and extensions that too few replicas acknowledged.
	NotAcked uint64
	// Leaked are holds that were dropped without Unlock.
	Leaked uint64
	// HooksDropped are hook calls that did not fit into the queue.
	HooksDropped uint64

	// Commands, BytesIn and BytesOut count what went over the connections; Redirects
	// how many commands another node of the cluster had to take; Reconnects how often a
	// connection came back.
	Commands, BytesIn, BytesOut uint64
	Redirects                   uint64
	Reconnects                  int
	// WheelRebuilds is how often the timing wheel was replaced.
	WheelRebuilds uint64
}

// counters are one shard's part of Stats, guarded by its lock.
type counters struct {
	held, pending                            int
	acquired, released, renewed, notAcquired uint64
	compensations, burned, unknown, leaked   uint64
	unacked                                  uint64
	lost                                     [EngineClosed + 1]uint64
}

// refused counts an acquisition that ended with an error.
func (c *counters) refused(error) { c.notAcquired++ }

// Stats returns a snapshot. It looks at every shard: cheap, but not for a hot path.
func (e *Engine) Stats() Stats {
	s := Stats{Lost: make(map[LostReason]uint64)}
	for i := range e.table {
		sh := &e.table[i]
		sh.mu.Lock()
		c := sh.count
		sh.mu.Unlock()
		s.Held += c.held
		s.Waiting += c.pending
		s.Acquired += c.acquired
		s.Released += c.released
		s.Renewed += c.renewed
		s.NotAcquired += c.notAcquired
		s.Compensations += c.compensations
		s.Burned += c.burned
		s.UnknownOutcomes += c.unknown
		s.Leaked += c.leaked
		s.NotAcked += c.unacked
		for reason, n := range c.lost {
			if n > 0 {
				s.Lost[LostReason(reason)] += n
			}
		}
	}
	c := e.client.Stats()
	s.InFlight, s.Channels = c.InFlight, c.Channels
	s.Commands, s.BytesIn, s.BytesOut, s.Reconnects = c.Commands, c.BytesIn, c.BytesOut, c.Reconnects
	var w wheel.Stats = e.wheel.Stats()
	s.Redirects = c.Redirects
	s.WheelRebuilds = w.Rebuilds.Total()
	s.HooksDropped = e.hooks.dropped.Load()
	return s
}

var (
	errAbandoned = errors.New("the future was abandoned")
	errNotClean  = errors.New("Close ran into Config.CloseTimeout: some locks end with their leases")
)
