package quorum

import (
	"cmp"
	"math"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Until is when too few are certain.
func (m *Machine) Until() clock.Instant {
	ends := make([]clock.Instant, len(m.Members))
	for i := range m.Members {
		if v := m.Members[i].Vote; v != nil {
			ends[i] = v.Port.Until()
		}
	}
	return Reached(ends, m.Need())
}

// Votes are those that it has. The locks of a MultiLock stay its own after their release.
func (m *Machine) Votes() []*Vote {
	if m.Policy == All && m.Stage == Over {
		return m.released
	}
	votes := make([]*Vote, 0, len(m.Members))
	for i := range m.Members {
		if v := m.Members[i].Vote; v != nil {
			votes = append(votes, v)
		}
	}
	return votes
}

// Check is what the clock says: whether enough are certain, and whose time is over though
// Leave was not called yet.
func (m *Machine) Check() (certain bool, expired []*Vote) {
	c := Count{Members: len(m.Members), Need: m.Need()}
	for i := range m.Members {
		if v := m.Members[i].Vote; v == nil {
		} else if v.Port.InTime() {
			c.Granted++
		} else {
			expired = append(expired, v)
		}
	}
	return c.Result() == Won, expired
}

// Expired ends one whose votes were found to have ended. Leave follows.
func (m *Machine) Expired(ends []End) {
	switch {
	case m.Ending != nil:
	case m.Policy == All:
		m.Ending = ends[0].Why
	default:
		for _, e := range ends {
			m.Members[e.Member].lost = e.There
		}
		m.Ending = m.loss(ends[len(ends)-1], math.MaxInt64)
	}
}

// Release ends what is held. It returns the votes that were released, which are not given back, as they
// have an answer each, and why it has ended. A second Release has the votes of the first. Those of a MultiLock
// are released even if one of them was lost.
func (m *Machine) Release(do *Ready) (released []*Vote, ending error) {
	if m.Stage != Holding {
		return m.released, m.Ending
	}
	if m.Ending == nil || m.Policy == All {
		m.released = m.Votes()
		for i := range m.Members {
			m.Members[i].Vote = nil
		}
	}
	m.Ending = cmp.Or(m.Ending, lockerr.ErrReleased)
	m.over(do)
	return m.released, m.Ending
}
