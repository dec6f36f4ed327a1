package quorum

import (
	"cmp"
	"math"
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Until is when fewer than a majority are certain.
func (m *Machine) Until() clock.Instant {
	ends := make([]clock.Instant, len(m.Members))
	for i := range m.Members {
		if v := m.Members[i].Vote; v != nil {
			ends[i] = v.Port.Until()
		}
	}
	return OfMajority(ends)
}

// OfMajority returns the least of the greatest values that are a majority. It sorts them.
func OfMajority[T cmp.Ordered](values []T) T {
	slices.Sort(values)
	return values[len(values)-len(values)/2-1]
}

// Votes are those that it has.
func (m *Machine) Votes() []*Vote {
	votes := make([]*Vote, 0, len(m.Members))
	for i := range m.Members {
		if v := m.Members[i].Vote; v != nil {
			votes = append(votes, v)
		}
	}
	return votes
}

// Check is what the clock says: whether a majority is certain, and whose time is over though
// Leave was not called yet.
func (m *Machine) Check() (certain bool, expired []*Vote) {
	n := 0
	for i := range m.Members {
		if v := m.Members[i].Vote; v == nil {
		} else if v.Port.InTime() {
			n++
		} else {
			expired = append(expired, v)
		}
	}
	return n >= m.Majority(), expired
}

// Expired is the end of one whose votes were found to have ended. Leave follows.
func (m *Machine) Expired(ends []End) error {
	for _, e := range ends {
		m.Members[e.Server].lost = e.Why
	}
	return m.loss(ends[len(ends)-1], math.MaxInt64)
}

// Release ends what is held, because it is released, or for another reason that the clock has
// told. It returns the votes that were released, which are not given back, as they have an answer
// each, and why it has ended. A second Release has the votes of the first.
func (m *Machine) Release(why error, do *Ready) (released []*Vote, ending error) {
	if m.Stage != Holding {
		if why == nil {
			why = m.Ending // just now
		}
		return m.released, why
	}
	if why == nil {
		for i := range m.Members {
			if v := m.Members[i].Vote; v != nil {
				m.released = append(m.released, v)
				m.Members[i].Vote = nil
			}
		}
		why = lockerr.ErrReleased
	}
	m.Ending = why
	m.over(do)
	return m.released, why
}
