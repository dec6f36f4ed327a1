package quorum

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Machine is several locks that somebody wants as one, and then has. The lock of the caller
// guards it; what is exported is for reading.
//
// Invariants:
//
//  1. A member is asked, or has a vote, or neither.
//  2. Each vote is bound to its hold: the end of that comes to Leave before the lock is
//     released there.
//  3. While it waits for a member it has no vote, unless it was given up.
//  4. It is told once what became of it: Ready.Won or Ready.Failed.
//  5. Until then something is out that will be answered, or Due is set.
type Machine struct {
	Port Port
	Config

	Stage    Stage
	Members  []Member
	Ending   error           // of what was held
	Due      clock.Instant   // Tick is to be called then; 0: it is not
	first    int             // the place in Order at which this attempt has begun
	stop     *lockerr.Cancel // it is given up
	out      int             // members that are asked
	released []*Vote         // by Release
	late     int             // attempts that failed, with grants that came after their leases
	waited   int             // in vain, since all were asked at once
	refusals int             // attempts of a MultiLock that failed
	last     MemberResult    // the refusal because of which the latest of these failed
	listed   bool            // with its engines
	since    clock.Instant   // it is held; of a MultiLock: its attempt has begun
	bound    clock.Instant   // it is not held longer: MaxHold; 0: no bound
}

// Stage is how far it is.
type Stage uint8

// The stages, in the order of time.
const (
	Asking  Stage = iota // an attempt
	Waiting              // for one member
	Holding
	Over
)

// Member is what is known of one of the locks.
type Member struct {
	Asked   Try
	Vote    *Vote
	how     how           // it was asked latest
	cut     bool          // the refusal is none: the whole was given up first
	since   clock.Instant // it is asked
	refusal Refusal       // the latest answer, if that was one
	lost    error         // what became of the latest vote: End.There
}

// how is the way in which a server is asked.
type how uint8

const (
	once  how = iota // one try
	waits            // as a Lock does, until it is granted
	joins            // one try, while the whole is held
)

// refused reports whether the latest answer was a refusal.
func (p *Member) refused() bool { return p.Asked == nil && p.Vote == nil && !p.refusal.none() }

// Init makes a machine for so many members.
func (m *Machine) Init(port Port, members int, c Config) {
	m.Port, m.Config, m.Members = port, c, make([]Member, members)
}

// Need is how many votes are needed.
func (m *Machine) Need() int { return m.Policy.Need(len(m.Members)) }

// Begin begins to ask.
func (m *Machine) Begin(do *Ready) {
	if m.Policy == All {
		m.collect(do)
		return
	}
	m.askAll(do)
}

// ask notes that a member is to be asked.
func (m *Machine) ask(i int, how how, do *Ready) {
	p := &m.Members[i]
	p.Asked = m.Port.NewTry(i, how == waits)
	p.how, p.refusal, p.since = how, Refusal{}, m.Port.Stamp(i)
	m.out++
	do.Ask = append(do.Ask, Request{i, p.Asked})
}

// Reply is called with the answer of a member: a vote, or a refusal.
func (m *Machine) Reply(i int, v *Vote, r Refusal, do *Ready) {
	p := &m.Members[i]
	how, wanted := p.how, m.Stage != Over
	p.Asked, p.refusal, p.cut = nil, r, m.stop != nil
	m.out--
	m.noteRoundTrip(i, v != nil, &r)
	if m.Stage == Waiting {
		wanted = how == waits // else it is late, and not wanted alone
	}
	switch {
	case v == nil:
	case v.ended.Why != nil:
		p.lost, p.refusal = v.ended.There, EndedBefore(v.ended)
	case !wanted:
		do.Give = append(do.Give, v)
	default:
		p.Vote = v
	}
	switch {
	case m.Stage == Over:
	case m.Stage == Holding:
		m.changed(i, do)
	case m.Policy == All:
		m.collected(do)
	default:
		m.answered(i, do)
	}
}

// list notes that its engines are to know it, from its first refusal on.
func (m *Machine) list(do *Ready) {
	do.List = do.List || !m.listed
	m.listed = true
}

// acquired: as many have granted it as are needed.
func (m *Machine) acquired(do *Ready) {
	m.Stage, m.since = Holding, m.Port.Now()
	for i := range m.Members {
		if v := m.Members[i].Vote; v != nil && v.MaxEnd != 0 && (m.bound == 0 || v.MaxEnd < m.bound) {
			m.bound = v.MaxEnd
		}
	}
	m.setDue(0, do)
	do.Won = true
	m.askMissing(do)
}

// fail ends it without the lock.
func (m *Machine) fail(f Failure, do *Ready) {
	do.Failed = m.Port.NotAcquired(f)
	m.over(do)
}

// over gives everything back, and ends what is asked.
func (m *Machine) over(do *Ready) {
	m.Stage = Over
	m.setDue(0, do)
	m.giveVotes(do)
	m.cancelTries(do)
}

// giveVotes takes all votes.
func (m *Machine) giveVotes(do *Ready) {
	for i := range m.Members {
		if p := &m.Members[i]; p.Vote != nil {
			do.Give = append(do.Give, p.Vote)
			p.Vote = nil
		}
	}
}

func (m *Machine) cancelTries(do *Ready) {
	for i := range m.Members {
		if a := m.Members[i].Asked; a != nil {
			do.Cancel = append(do.Cancel, a)
		}
	}
}

// Cancel gives it up, unless it is held or over, or was given up before; it reports whether it did.
func (m *Machine) Cancel(s lockerr.Cancel, do *Ready) bool {
	if m.Decided() || m.stop != nil {
		return false
	}
	m.stop = &s
	do.Why = s
	m.setDue(0, do)
	m.cancelTries(do)
	switch {
	case m.out > 0:
	case m.Policy == All:
		m.failStopped(m.last, do)
	default:
		m.fail(m.failure(), do)
	}
	return true
}

// Decided reports whether it was told what became of it.
func (m *Machine) Decided() bool { return m.Stage >= Holding }

// Stopped is why a try that is to begin is not wanted any more; nil if it is.
func (m *Machine) Stopped() *lockerr.Cancel {
	if m.stop == nil && m.Stage == Over {
		return &lockerr.Cancel{Cause: lockerr.ErrAbandoned}
	}
	return m.stop
}

// setDue changes when Tick is called.
func (m *Machine) setDue(at clock.Instant, do *Ready) {
	do.Timer = do.Timer || m.Due != at
	m.Due = at
}

// Tick goes on when the time of the stage is over. It may be called too early.
func (m *Machine) Tick(do *Ready) {
	switch {
	case m.Due == 0:
		return
	case m.Port.Now() < m.Due:
		do.Timer = true
		return
	}
	m.setDue(0, do)
	switch m.Stage {
	case Asking:
		m.advance(do)
	case Waiting:
		if m.Policy == All {
			m.ask(m.last.Member, waits, do) // it has paused
			return
		}
		m.stopWaiting(do)
	case Holding:
		m.askMissing(do)
	}
}
