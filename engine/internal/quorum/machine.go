package quorum

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Machine is one lock on several servers that somebody wants, and then has. The lock of the caller
// guards it; what is exported is for reading.
//
// Invariants:
//
//  1. A part is asked, or has a vote, or neither.
//  2. Each vote is bound to its hold: the end of that comes to Leave before the lock is
//     released there.
//  3. While it is blocked it has no vote, unless it was given up.
//  4. It is told once what became of it: Deeds.Won or Deeds.Failed.
type Machine struct {
	Port Port
	Config

	Stage    Stage
	Parts    []Part
	Ending   error         // of what was held
	Failures int           // rounds without a majority
	Looks    int           // at rounds that had no result
	Probes   int           // since it is blocked
	stop     *reason.Stop  // it is given up
	released []*Vote       // by Release
	out      int           // parts that are asked
	tries    int           // pauses, with the referee's vote
	again    int           // rounds after votes that came too late, since the latest probe
	patience time.Duration // how long this round waits for answers, at least
	probed   int           // the server that was asked by the latest probe
	late     int           // rounds that failed, with grants that came after their leases
	listed   bool          // with its engines
	armed    bool          // the timer of the stage
	since    clock.Instant // it is held
	last     clock.Instant // it is not held longer: a fixed lease, or MaxHold; 0: no bound
}

// Stage is how far it is.
type Stage uint8

// The stages, in the order of time.
const (
	Asking Stage = iota
	Pausing
	Blocked
	Holding
	Over
)

// Part is what is known of one of the servers.
type Part struct {
	Asked   Try
	Waits   bool // Asked does, until it is granted; else it is one try
	Vote    *Vote
	again   bool          // Asked was given up, to be asked anew
	granted bool          // the latest answer was a vote; it may have been given back
	took    time.Duration // for the latest answer that was no wait
	slow    bool          // it did not answer in good time
	cut     bool          // the refusal is none: the whole was given up first
	since   clock.Instant // it is asked
	refusal Refusal       // the latest answer, if that was one
	lost    error         // what became of the latest vote
}

// refused reports whether the latest answer of the server was a refusal.
func (p *Part) refused() bool { return p.Asked == nil && !p.refusal.none() }

// Init makes a machine for so many servers.
func (m *Machine) Init(port Port, servers int, c Config) {
	m.Port, m.Config, m.Parts = port, c, make([]Part, servers)
}

// Begin starts the first round.
func (m *Machine) Begin(do *Deeds) {
	for i := range m.Parts {
		m.ask(i, false, do)
	}
}

// Majority is how many votes are needed.
func (m *Machine) Majority() int { return len(m.Parts)/2 + 1 }

// ask notes that a server is to be asked.
func (m *Machine) ask(i int, waits bool, do *Deeds) {
	m.out++
	p := &m.Parts[i]
	p.Asked = m.Port.NewTry(i, How{Waits: waits, Lease: m.Lease})
	p.Waits, p.again, p.refusal, p.since = waits, false, Refusal{}, m.Port.Stamp(i)
	do.Ask = append(do.Ask, Request{i, p.Asked})
}

// Told is called with the answer of a server: a vote, or a refusal. It reports whether the try was
// one that waited.
func (m *Machine) Told(i int, v *Vote, r Refusal, do *Deeds) (waited bool) {
	m.out--
	p := &m.Parts[i]
	waited = p.Waits
	if p.again && v == nil && m.stop == nil && m.Stage != Over {
		p.slow = false
		m.ask(i, waited || m.Stage == Holding, do)
		return waited
	}
	p.Asked, p.refusal, p.cut, p.slow = nil, r, m.stop != nil, false
	if p.granted = v != nil && v.ended.Why == nil; (p.granted || r.Stand == Held) && !p.Waits {
		p.took = m.Port.Stamp(i).Sub(p.since)
	}
	switch {
	case v == nil:
	case v.ended.Why != nil:
		p.lost, p.refusal = v.ended.Why, EndedBefore(v.ended)
	case m.Stage == Over:
		do.Give = append(do.Give, v)
	default:
		p.Vote = v
	}
	if m.Stage == Blocked && m.stop == nil && p.Vote != nil {
		m.resume(i, do)
	}
	switch m.Stage {
	case Holding:
		m.changed(i, do)
	case Over:
	default:
		m.next(do)
	}
	return waited
}

// next goes on after an answer, while it is not held.
func (m *Machine) next(do *Deeds) {
	certain, refused, held, forGood := 0, 0, 0, 0
	for i := range m.Parts {
		switch p := &m.Parts[i]; {
		case p.Vote != nil && p.Vote.Port.InTime():
			certain++
		case p.refused():
			refused++
			switch {
			case p.refusal.Closed && m.stop == nil:
				m.fail(Verdict{Is: EngineIsClosed}, do)
				return
			case p.refusal.Stand == Held:
				held++
			case !p.refusal.Passes:
				forGood++
			}
		}
	}
	spare := len(m.Parts) - m.Majority()
	switch {
	case m.stop != nil:
		if m.out == 0 {
			m.fail(m.verdict(), do)
		}
		return
	case certain >= m.Majority():
		m.elected(do)
		return
	case forGood > spare, m.Once && refused > spare && (held > spare || held+m.out <= spare):
		m.fail(m.verdict(), do) // the rest does not change it any more
		return
	case m.Once && refused > spare:
		m.giveVotes(do) // the rest decides only what is to be said
	case m.Once:
	case m.Stage == Asking:
		if m.out > 0 && (refused > 0 || m.waits()) {
			do.Look = true // perhaps the others are away
		} else {
			m.decide(nil, false, do)
		}
	case m.Stage == Blocked:
		m.block(do)
	}
	if refused > 0 {
		m.list(do)
	}
}

// list lets the engines end it, from now on. Most are over sooner.
func (m *Machine) list(do *Deeds) {
	if !m.listed {
		m.listed, do.List = true, true
	}
}

// elected: a majority has granted it.
func (m *Machine) elected(do *Deeds) {
	m.Stage, m.since = Holding, m.Port.Now()
	for i := range m.Parts {
		if v := m.Parts[i].Vote; v != nil && v.MaxEnd != 0 && (m.last == 0 || v.MaxEnd < m.last) {
			m.last = v.MaxEnd
		}
	}
	if m.Lease != 0 {
		m.last = m.Until()
	}
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Vote == nil && p.Asked == nil && (p.refusal.none() || p.refusal.mayPass()) {
			m.ask(i, true, do)
		}
	}
	do.Won = true
}

// fail ends it without the lock.
func (m *Machine) fail(v Verdict, do *Deeds) {
	do.Failed = m.Port.NotAcquired(v)
	m.Stage = Over
	m.giveUp(do)
}

// giveUp takes all votes, and ends what is asked.
func (m *Machine) giveUp(do *Deeds) {
	m.giveVotes(do)
	m.cancelTries(do)
}

// giveVotes takes all votes.
func (m *Machine) giveVotes(do *Deeds) {
	for i := range m.Parts {
		if p := &m.Parts[i]; p.Vote != nil {
			do.Give = append(do.Give, p.Vote)
			p.Vote = nil
		}
	}
}

func (m *Machine) cancelTries(do *Deeds) {
	for i := range m.Parts {
		if a := m.Parts[i].Asked; a != nil {
			do.Cancel = append(do.Cancel, a)
		}
	}
}

// Cancel gives it up, unless it is held or over, or was given up before; it reports whether it did.
func (m *Machine) Cancel(s reason.Stop, do *Deeds) bool {
	if m.Decided() || m.stop != nil {
		return false
	}
	m.stop = &s
	do.Why = s
	m.cancelTries(do)
	if m.out == 0 {
		m.fail(m.verdict(), do)
	}
	return true
}

// Decided reports whether it was told what became of it.
func (m *Machine) Decided() bool { return m.Stage >= Holding }

// Stopped is why a try that is to begin is not wanted any more; nil if it is.
func (m *Machine) Stopped() *reason.Stop {
	if m.stop == nil && m.Stage == Over {
		return &reason.Stop{Cause: reason.ErrAbandoned}
	}
	return m.stop
}
