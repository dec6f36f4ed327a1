package quorum

import (
	"math"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Vote is a hold of one of the servers.
type Vote struct {
	Port     VotePort
	Server   int
	MaxEnd   clock.Instant // it is not held longer; 0: no bound
	Reenters bool          // a hold there that the caller has
	joined   clock.Instant // 0: when the whole was held, or soon after that
	ended    End           // before it was noted
}

// Joined is when the vote joined; 0: when the whole was held, or soon after that.
func (v *Vote) Joined() clock.Instant { return v.joined }

// onItsWay is how much later than a majority an answer may be to count since then. If it is later,
// somebody else may have had the lock there meanwhile; the look at the others costs a command each.
const onItsWay = 250 * time.Millisecond

// changed goes on after an answer while it is held: with a vote more, or by asking again.
func (m *Machine) changed(i int, do *Deeds) {
	switch p := &m.Parts[i]; {
	case p.Vote != nil:
		// If it was on its way when the whole was held, and comes soon, it is as the others.
		if now := m.Port.Now(); p.Waits || now.Sub(m.since) > onItsWay {
			p.Vote.joined = now
			m.lookAtOthers(i, do)
		}
		do.Join, do.Last = p.Vote, m.last
	case p.refusal.mayPass(): // the answer to the one try of a TryLock, or lost meanwhile
		m.ask(i, true, do)
	}
}

// Leave goes on without a vote, whose hold has ended. Its server had it at that time still.
//
// The whole is lost when no majority is left. A server that lost the lock is asked again, and
// counts again from then on: nobody else can have a majority as long as, at every moment, a
// majority of the servers has it. But it does not count for the time before. A hold that went
// missing was there when its last renewal was sent, and may be missing since then; so votes
// that joined later do not replace it:
//
//	all five servers        are emptied
//	renewal of 1            gone; asked again, granted
//	renewal of 2            gone; asked again, granted
//	renewal of 3            gone: only 4 and 5 may have had it since: lost
//
// So that a vote that joins counts soon, the others are looked at when it does.
func (m *Machine) Leave(v *Vote, end End, there clock.Instant, do *Deeds) {
	p := &m.Parts[v.Server]
	if p.Vote != v {
		v.ended = end // not noted yet, or given back
		return
	}
	p.Vote, p.lost = nil, end.Why
	switch {
	case m.Stage < Holding:
		p.refusal = EndedBefore(end)
		m.next(do)
	case m.Stage == Holding:
		gone := end.Loss == machine.GoneOnServer || end.Loss == machine.TakenOnServer
		all, since := 0, clock.Instant(math.MaxInt64) // it was there until now
		switch {
		case gone || end.Loss == machine.NotRenewed:
			since = max(there, m.since)
		case end.Loss == machine.LeaseEnded: // perhaps noticed late
			since = max(v.Port.Until(), m.since)
		}
		for i := range m.Parts {
			if other := m.Parts[i].Vote; other != nil && other.joined <= since {
				all++
			}
		}
		if gone {
			m.lookAtOthers(v.Server, do)
		}
		if all < m.Majority() {
			m.Stage, m.Ending = Over, m.loss(end, since)
			m.giveUp(do)
			if end.Loss != 0 && end.Loss != machine.EngineClosed {
				do.Lost = m.Ending
			}
		} else if !v.Reenters && (end.Loss == machine.GoneOnServer || end.Loss == machine.NotRenewed || m.outlives(end.Loss)) {
			m.ask(v.Server, true, do)
		}
	}
}

// outlives reports whether an Extend, which this vote missed, has the whole go on.
func (m *Machine) outlives(loss machine.Loss) bool {
	return loss == machine.LeaseEnded && m.Port.Now() < m.last
}

// lookAtOthers has the other servers asked whether they have it.
func (m *Machine) lookAtOthers(than int, do *Deeds) {
	for i := range m.Parts {
		if v := m.Parts[i].Vote; v != nil && i != than {
			do.LookAt = append(do.LookAt, v)
		}
	}
}
