package quorum

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Vote is a hold of one of the servers.
type Vote struct {
	Port     VotePort
	Member   int
	MaxEnd   clock.Instant // it is not held longer; 0: no bound
	Reenters bool          // a hold there that the caller has
	Joined   clock.Instant // 0: when the whole was held, or soon after that
	ended    End           // before it was noted
}

// onItsWay is how much later than a majority an answer may be to count since then. If it is later,
// somebody else may have had the lock there meanwhile; the look at the others costs a command each.
const onItsWay = 250 * time.Millisecond

// changed goes on after an answer while it is held.
func (m *Machine) changed(i int, do *Ready) {
	p := &m.Members[i]
	if p.Vote == nil {
		m.watch(do)
		return
	}
	// If it was on its way when the whole was held, and comes soon, it is as the others.
	if now := m.Port.Now(); p.how == joins || now.Sub(m.since) > onItsWay {
		p.Vote.Joined = now
		m.lookAtOthers(i, do)
	}
	do.Join, do.Last = p.Vote, m.bound
}

// askMissing asks the servers that lost or missed the lock, when it is held and at each renewal after that.
func (m *Machine) askMissing(do *Ready) {
	for i := range m.Members {
		if m.Members[i].missing() {
			m.ask(i, joins, do)
		}
	}
}

// mayGrant reports whether a server may grant it, once it is asked.
func (p *Member) mayGrant() bool { return p.refusal.none() || p.refusal.Passes || p.refusal.Full }

// missing reports whether a server is to be asked.
func (p *Member) missing() bool { return p.Vote == nil && p.Asked == nil && p.mayGrant() }

// watch has the servers that are missing be asked at the next renewal.
func (m *Machine) watch(do *Ready) {
	if m.Due == 0 && m.Renewal != 0 && slices.ContainsFunc(m.Members, func(p Member) bool { return p.missing() }) {
		m.setDue(m.Port.Now().Add(m.Renewal), do)
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
func (m *Machine) Leave(v *Vote, end End, there clock.Instant, do *Ready) {
	p := &m.Members[v.Member]
	switch {
	case p.Vote != v:
		v.ended = end // not noted yet, or given back
		return
	case m.Stage != Holding:
		p.Vote, p.lost, p.refusal = nil, end.There, EndedBefore(end)
		if m.Policy == Majority { // else an answer is to come
			m.next(do)
		}
		return
	case m.Policy == All: // its other locks are held until Unlock
		m.Ending = cmp.Or(m.Ending, end.Why)
		return
	}
	p.Vote, p.lost = nil, end.There
	gone := end.Loss == lock.RemovedOnServer || end.Loss == lock.KeyOverwritten
	since := clock.Instant(math.MaxInt64) // it was there until now
	switch {
	case gone || end.Loss == lock.NotRenewed:
		since = max(there, m.since)
	case end.Loss == lock.LeaseEnded: // perhaps noticed late
		since = max(v.Port.Until(), m.since)
	}
	all := 0
	for i := range m.Members {
		if other := m.Members[i].Vote; other != nil && other.Joined <= since {
			all++
		}
	}
	if gone {
		m.lookAtOthers(v.Member, do)
	}
	switch {
	case m.Ending != nil || all < m.Need():
		if m.Ending == nil {
			m.Ending = m.loss(end, since)
		}
		m.over(do)
		if end.Loss != 0 && end.Loss != lock.EngineClosed {
			do.Lost = m.Ending
		}
	case m.Renewal != 0 && !v.Reenters && (end.Loss == lock.RemovedOnServer || end.Loss == lock.NotRenewed):
		m.ask(v.Member, joins, do)
	default:
		p.refusal = Refusal{Why: end.Why} // it is not asked again
	}
}

// lookAtOthers has the other servers asked whether they have it.
func (m *Machine) lookAtOthers(than int, do *Ready) {
	for i := range m.Members {
		if v := m.Members[i].Vote; v != nil && i != than {
			do.LookAt = append(do.LookAt, v)
		}
	}
}
