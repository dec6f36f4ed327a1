package quorum

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// round asks all servers that have no vote and are not being asked. Some may need as long as took
// for an answer: it waits for that, and a quarter more, at least, and after each pause again.
func (m *Machine) round(took time.Duration, do *Deeds) {
	m.patience = min(took+took/4, m.CommandTimeout)
	m.goOn(do)
}

// goOn asks them again in the same round.
func (m *Machine) goOn(do *Deeds) {
	m.Stage, m.armed = Asking, false
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Vote == nil && p.Asked == nil {
			m.ask(i, false, do)
		}
	}
}

// expected is how long it may take until those that have granted it before are a majority; 0 if they
// are not. If their votes were given back just now, they are asked when that is answered.
func (m *Machine) expected() time.Duration {
	var took []time.Duration
	needed := m.Majority()
	for i := range m.Parts {
		switch p := &m.Parts[i]; {
		case p.Vote != nil:
			needed--
		case p.granted && !p.refused():
			took = append(took, 2*p.took)
		}
	}
	if needed <= 0 || len(took) < needed {
		return 0
	}
	slices.Sort(took)
	return took[needed-1]
}

// decide ends a round that has no majority, if it cannot get one any more: as far as answers
// go, and what is known of the servers that have not answered, if that was looked at. If that takes
// too long, they do not count, unless nobody has refused. While nobody has in this round, that one
// held it before says nothing.
func (m *Machine) decide(seen []Seen, tooLong bool, do *Deeds) {
	votes, coming, slow, late := 0, 0, 0, 0
	referee, holder := -1, -1 // the first that counts as one; the first that refused
	unknown := false          // the referee has not answered
	refused := slices.ContainsFunc(m.Parts, func(p Part) bool { return p.refused() })
	for _, i := range m.Order {
		p := &m.Parts[i]
		stand := Open
		switch {
		case p.Vote != nil:
			votes++
		case p.refused():
			stand = p.refusal.Stand // Open, if it refused for good or granted too late: it is nobody's referee
			if p.refusal.Late {
				late++
			}
		case p.Asked != nil && p.Waits: // it was refused there before
			if stand = Held; seen != nil && seen[i].Stand == Away {
				stand = Away
			}
		case seen != nil && (refused || tooLong || seen[i].Stand == Away):
			stand = seen[i].Stand
		}
		if stand == Open && p.Asked != nil {
			if p.slow = p.slow || tooLong; p.slow {
				slow++
				continue
			}
			coming++
		}
		if stand == Held && holder < 0 {
			holder = i
		}
		switch {
		case referee >= 0, stand == Held && p.Asked != nil && p.Waits: // see the comment of the package
		case p.Vote != nil, stand == Held, stand == Open && p.Asked != nil:
			referee, unknown = i, p.Vote == nil && stand == Open
		}
	}
	mine := referee >= 0 && m.Parts[referee].Vote != nil
	enough := votes+coming >= m.Majority()
	pauses := mine && refused && holder >= 0 && m.tries < maxPauses
	switch {
	case holder < 0 && votes+coming+slow >= m.Majority(), holder >= 0 && (unknown || enough && !pauses):
		if (votes > 0 || holder >= 0) && !m.armed {
			m.arm(max(FirstLook<<min(m.Looks, MaxLooks), m.patience), do)
			m.Looks++
		}
		return
	case pauses:
		m.Stage = Pausing
		m.arm(min(firstPause<<m.tries, mostPause), do)
		m.tries++
		return
	}
	m.Failures++
	if late > len(m.Parts)-m.Majority() {
		if m.late++; m.late >= machine.MaxLate {
			m.fail(m.verdict(), do)
			return
		}
	}
	m.armed = false
	m.Stage, m.tries, m.Probes, m.probed = Blocked, 0, 0, -1
	m.giveVotes(do)
	m.block(do)
}

// block waits at the first server that has refused, if there is one and it does not wait
// anywhere.
func (m *Machine) block(do *Deeds) {
	if !m.armed {
		m.arm(LongWait, do)
	}
	if m.waits() {
		return
	}
	for _, i := range m.Order {
		if p := &m.Parts[i]; p.refused() && p.refusal.Stand == Held {
			m.ask(i, true, do)
			return
		}
	}
}

// resume goes on when it was blocked, and got a vote. The others are waited for as long as this
// vote took: if it was far, they may be, too. No longer: a slow server may not be needed, and
// meanwhile somebody else needs the votes that are kept. But if a majority has granted it, each too
// late for the others, they are waited for as long as they took.
func (m *Machine) resume(i int, do *Deeds) {
	p := &m.Parts[i]
	took := m.Port.Stamp(i).Sub(p.since)
	switch {
	case p.Waits:
		took = 0 // it waited for an owner
	case m.probed == i, !m.waits():
	case m.almost():
		m.again++
		took = max(took, m.expected())
	default: // late: it is not wanted alone
		do.Give, p.Vote = append(do.Give, p.Vote), nil
		return
	}
	m.round(took, do)
}

// almost reports whether a majority has granted it, though not within one round, as some are
// slow. Then another round is worth it, a few times. One that a probe asks again has granted it,
// too: to give back the vote that came now would part the two again, with each probe.
func (m *Machine) almost() bool {
	granted := 0
	for i := range m.Parts {
		if p := &m.Parts[i]; p.granted && !p.refused() {
			granted++
		}
	}
	return granted >= m.Majority() && m.again < maxAgain
}

// The times are up to twice as long.
const (
	FirstLook  = 4 * time.Millisecond // at a round that has no result; doubles
	MaxLooks   = 5
	maxAgain   = 6 // rounds after a probe, for what it nearly got
	firstPause = time.Millisecond
	mostPause  = 8 * time.Millisecond
	maxPauses  = 12
	LongWait   = 250 * time.Millisecond // until another server is asked
	MaxProbes  = 4                      // how often that doubles
	mostFar    = time.Second            // until another far server is asked
)

func (m *Machine) arm(bound time.Duration, do *Deeds) {
	m.armed, do.Arm = true, bound+m.Port.Draw(bound)
}

// Rang notes that the time of the stage is over. Look follows.
func (m *Machine) Rang() { m.armed = false }

// Seen is what a try has heard so far, which Look is told of.
type Seen struct {
	Try   Try // nil: the server is not asked
	Stand Stand
	First bool // it is the first that waits there in this process
	Again bool // it waits as a stranger where the caller has a hold now: it is to be asked anew
}

// Asked are the tries to look at, for each server. Their stands are read without the lock.
func (m *Machine) Asked() []Seen {
	seen := make([]Seen, len(m.Parts))
	for i := range m.Parts {
		seen[i].Try = m.Parts[i].Asked
	}
	return seen
}

// Look goes on by what those say that have not answered: the time is over, or not.
func (m *Machine) Look(seen []Seen, tooLong bool, do *Deeds) {
	first := false
	for i := range m.Parts {
		first = first || seen[i].First
		if m.Parts[i].Asked != seen[i].Try {
			seen[i].Stand = Open // another one
		}
	}
	switch {
	case m.stop != nil:
	case m.Stage == Asking:
		m.decide(seen, tooLong, do)
	case !tooLong || m.armed: // another transition was first
	case m.Stage == Pausing:
		m.goOn(do)
		m.next(do)
	case m.Stage == Blocked:
		m.probe(seen, first, do)
	}
	if tooLong && !m.Decided() {
		m.askAnew(seen, do)
		m.list(do)
	}
}

// askAnew gives up tries that are to be asked again. Told asks when they have ended.
func (m *Machine) askAnew(seen []Seen, do *Deeds) {
	for i := range m.Parts {
		if p := &m.Parts[i]; seen[i].Again && p.Asked == seen[i].Try && m.stop == nil {
			p.again, do.Why = true, reason.Stop{Cause: reason.ErrAbandoned}
			do.Cancel = append(do.Cancel, p.Asked)
		}
	}
}

// probe asks another server than the one that it waits at, or all, if that is away and the
// others may be a majority. Where they are away it waits, too. Of those in this process that
// wait at one server, the first asks another often, and the others rarely.
func (m *Machine) probe(seen []Seen, first bool, do *Deeds) {
	waits := false
	var others []int
	for i := range m.Parts {
		p := &m.Parts[i]
		switch {
		case p.Asked != nil:
			waits = waits || p.Waits && seen[i].Stand == Held
		case p.refusal.Stand == Away:
			m.ask(i, true, do)
		default:
			others = append(others, i)
		}
	}
	if first {
		m.Probes = 0
	} else {
		m.Probes = min(m.Probes+1, MaxProbes)
	}
	m.arm(m.between(), do)
	m.again = 0
	switch {
	case waits && len(others) > 0:
		m.probed = others[m.Port.Pick(len(others))]
		m.ask(m.probed, false, do)
	case len(others) >= m.Majority():
		m.round(0, do)
	}
}

// between is how long it waits until it asks another server. Probes that come faster than a
// majority answers only take votes from others. A server that is slow now and then is not far.
func (m *Machine) between() time.Duration {
	var took []time.Duration
	for i := range m.Parts {
		took = append(took, 2*m.Parts[i].took)
	}
	return max(LongWait<<m.Probes, min(OfMajority(took), mostFar))
}

// First is called for the first of those in this process that wait at a server which another has
// just left: it asks others often from now on. It may have been one that asks rarely, and its time
// is far away.
func (m *Machine) First(do *Deeds) {
	if m.Stage == Blocked && m.Probes > 0 {
		m.Probes = 0
		m.arm(m.between(), do)
	}
}

// waits reports whether it waits at a server.
func (m *Machine) waits() bool {
	return slices.ContainsFunc(m.Parts, func(p Part) bool { return p.Asked != nil && p.Waits })
}
