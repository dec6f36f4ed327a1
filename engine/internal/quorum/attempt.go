package quorum

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

const (
	// LongestWait bounds the wait at one server. It lasts at least half of that: contenders that were
	// refused together do not ask together again.
	LongestWait = time.Second
	// waitsInVain is the number of waits without a grant after which all servers are asked at once again.
	waitsInVain = 2
	// leastPatience is how long a server may be silent at least before it is passed over.
	leastPatience = 50 * time.Millisecond
	// WasSilent is the round trip of a server that was passed over, until it answers.
	WasSilent time.Duration = -1
)

// askAll asks all servers at once.
func (m *Machine) askAll(do *Ready) {
	m.waited = 0
	m.askFrom(0, do)
}

// answered goes on after the answer of a server, while it is not held.
func (m *Machine) answered(i int, do *Ready) {
	if m.Stage == Waiting && m.Members[i].Vote != nil && m.stop == nil {
		m.askBehind(i, do)
	}
	m.next(do)
}

// next goes on with what the servers have said, while it is not held.
func (m *Machine) next(do *Ready) {
	waiting, closed := false, false
	for i := range m.Members {
		p := &m.Members[i]
		closed = closed || p.refused() && p.refusal.Closed
		waiting = waiting || p.Asked != nil && p.how == waits
	}
	switch {
	case m.stop != nil:
		if m.out == 0 {
			m.fail(m.failure(), do)
		}
	case closed:
		m.fail(Failure{Is: lockerr.ErrClosed}, do)
	case m.Stage != Waiting:
		m.advance(do)
	case m.Due == 0 && !waiting:
		m.waitOrAsk(do)
	}
}

// askFrom begins an attempt: it asks the servers from that place in the order on.
func (m *Machine) askFrom(place int, do *Ready) {
	m.setDue(0, do)
	m.Stage, m.first = Asking, place
	for _, i := range m.Order[place:] {
		if p := &m.Members[i]; p.Vote == nil && p.Asked == nil {
			m.ask(i, once, do)
		}
	}
}

// askBehind goes on with the vote of the server that it has waited for: it asks those behind it, unless they
// are too few for a majority.
func (m *Machine) askBehind(i int, do *Ready) {
	place := slices.Index(m.Order, i)
	if n, _ := m.reachable(place); n < m.Need() {
		m.giveVotes(do)
		m.waitOrAsk(do)
		return
	}
	m.askFrom(place, do)
}

// reachable is how many servers from that place in the order on have granted it or may do so soon, and the
// first of them that is not being asked; -1: there is none.
func (m *Machine) reachable(place int) (n, first int) {
	first = -1
	for _, i := range m.Order[place:] {
		p := &m.Members[i]
		if p.Vote == nil && (!p.mayGrant() || m.Port.RoundTrip(i) == WasSilent) {
			continue
		}
		if n++; first < 0 && p.Asked == nil {
			first = i
		}
	}
	return n, first
}

// noteRoundTrip notes how long the answer of a server took.
func (m *Machine) noteRoundTrip(i int, granted bool, r *Refusal) {
	switch p := &m.Members[i]; {
	case m.Policy == All: // it waits for all, as long as that takes
	case r.State == Unavailable:
		m.Port.SetRoundTrip(i, WasSilent)
	case p.how != waits && (granted || r.State == Held && !r.Here):
		m.Port.SetRoundTrip(i, max(m.Port.Stamp(i).Sub(p.since), 1))
	}
}

// advance goes on with an attempt, after an answer, or because a server has been silent for too long.
func (m *Machine) advance(do *Ready) {
	c, due := m.count()
	switch c.Result() {
	case Won:
		m.acquired(do)
	case Denied:
		m.fail(m.failure(), do)
	case Lost:
		m.refused(c, due, do)
	case Pending:
		m.setDue(due, do)
	}
}

// count is what the servers have said in this attempt, and until when it waits for the next answer; 0:
// for as long as that takes. Once somebody has refused, silent servers do not count: before that,
// the votes that are kept are in nobody's way.
func (m *Machine) count() (c Count, due clock.Instant) {
	c.Members, c.Need = len(m.Members), m.Need()
	for place, i := range m.Order {
		switch p := &m.Members[i]; {
		case p.Vote != nil:
			if p.Vote.Port.InTime() {
				c.Granted++
			}
		case place < m.first:
		case p.Asked != nil:
			c.Pending++
		default:
			c.add(&p.refusal)
		}
	}
	if m.Once || c.Held == 0 {
		return c, 0
	}
	now := m.Port.Now()
	for _, i := range m.Order[m.first:] {
		p := &m.Members[i]
		if p.Asked == nil {
			continue
		}
		switch at := p.since.Add(m.patience(i)); {
		case at <= now:
			c.Pending--
			m.Port.SetRoundTrip(i, WasSilent)
		case due == 0 || at < due:
			due = at
		}
	}
	return c, due
}

// patience is how long a server may be silent.
func (m *Machine) patience(i int) time.Duration {
	switch trip := m.Port.RoundTrip(i); trip {
	case WasSilent:
		return 0
	case 0: // not known
		return LongestWait
	default:
		return max(leastPatience, 4*trip)
	}
}

// refused ends an attempt that has no majority: all is given back, and it waits at the first server that
// has refused.
func (m *Machine) refused(c Count, due clock.Instant, do *Ready) {
	spare := c.spare()
	if m.Once && (c.Held > spare || c.Held+c.Pending <= spare) {
		m.fail(m.failure(), do) // the rest does not change it any more
		return
	}
	m.giveVotes(do)
	switch {
	case m.Once:
		return
	case due != 0:
		m.setDue(due, do) // the first may not have answered yet
		return
	case c.TooLate > spare:
		if m.late++; m.late >= lock.MaxLate {
			m.fail(m.failure(), do)
			return
		}
	}
	m.list(do)
	refusals, at := 0, -1
	for _, i := range m.Order[m.first:] {
		p := &m.Members[i]
		if !p.refused() {
			continue
		}
		refusals++
		if p.refusal.State == Held {
			at = i
			break
		}
		if at < 0 && p.refusal.Passes {
			at = i
		}
	}
	if refusals == 0 { // those behind the one that it has waited for are silent
		m.waitOrAsk(do)
		return
	}
	m.wait(at, do)
}

// wait waits at a server, as a Lock does; -1: at none.
func (m *Machine) wait(at int, do *Ready) {
	m.Stage = Waiting
	if at >= 0 {
		m.ask(at, waits, do)
	}
	m.setDue(m.Port.Now().Add(LongestWait/2+m.Port.Draw(LongestWait/2)), do)
}

// stopWaiting ends a wait in vain. The answer to the try that is cancelled follows.
func (m *Machine) stopWaiting(do *Ready) {
	m.waited++
	for i := range m.Members {
		if p := &m.Members[i]; p.Asked != nil && p.how == waits {
			do.Cancel, do.Why = append(do.Cancel, p.Asked), lockerr.Cancel{Cause: lockerr.ErrAbandoned, TimedOut: true}
			return
		}
	}
	m.waitOrAsk(do)
}

// waitOrAsk waits at the first server that may grant it, or asks all at once again.
func (m *Machine) waitOrAsk(do *Ready) {
	n, first := m.reachable(0)
	if m.waited >= waitsInVain || first < 0 || n < m.Need() {
		m.askAll(do)
		return
	}
	m.wait(first, do)
}
