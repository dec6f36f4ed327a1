package quorum

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// The pause before a MultiLock waits for a lock: none after the first refusal, as most locks are held
// by an owner that does not want the others; then up to a bound that doubles. Each is as long as
// an attempt at least: where the server is slow, all that have come meanwhile would begin their
// next attempts at the same time, refuse each other, and make it slower by that.
const (
	firstPause   = time.Millisecond
	longPause    = 64 * time.Millisecond
	longAttempts = 16
)

// collect begins an attempt: every lock that is not held yet is tried once, all of them at the same time. But a
// lock whose server is away is waited for first: the others would be kept until it is given up.
func (m *Machine) collect(do *Ready) {
	if i, why := m.away(); why != nil {
		m.last = MemberResult{i, why}
		m.withdraw(do)
		return
	}
	m.Stage, m.since = Asking, m.Port.Now()
	do.Ask = slices.Grow(do.Ask, len(m.Members))
	for i := range m.Members {
		if m.Members[i].Vote == nil {
			m.ask(i, once, do)
		}
	}
}

// away is a lock that is not held yet and whose server is away, and why; a TryLock does not look.
func (m *Machine) away() (i int, why error) {
	for i := range m.Members {
		if m.Once || m.Members[i].Vote != nil {
			continue
		}
		if why := m.Port.Away(i); why != nil {
			return i, why
		}
	}
	return -1, nil
}

// collected goes on when all that are asked have answered.
func (m *Machine) collected(do *Ready) {
	if m.out > 0 {
		return
	}
	switch i := m.worst(); {
	case i >= 0:
		m.refusedBy(i, do)
	case m.Stage == Asking || len(m.Members) == 1:
		m.acquired(do)
	case m.stop != nil:
		m.failStopped(m.last, do)
	default:
		m.collect(do) // it has the lock that it waited for
	}
}

// worst returns the lock whose refusal decides, -1 if none has refused: one that will not go
// away; else, for a call that goes on, one whose server is away, because to wait for another means to
// keep that until the server is given up, again and again; else one that somebody has, else
// the first. One that was given up before its answer came says least.
func (m *Machine) worst() int {
	first, best := -1, 0
	for i := range m.Members {
		p := &m.Members[i]
		r, rank := &p.refusal, 2
		_, held := r.Why.(*lockerr.Held)
		switch {
		case r.none():
			continue
		case !r.Passes:
			if !p.cut {
				return i
			}
			rank = 1
		case !m.Once && m.stop == nil && r.State == Unavailable:
			rank = 4
		case held: // and nothing else went wrong
			rank = 3
		}
		if rank > best {
			first, best = i, rank
		}
	}
	return first
}

// refusedBy goes on after an attempt in which a lock was refused: without the others.
func (m *Machine) refusedBy(i int, do *Ready) {
	p := &m.Members[i]
	r := &p.refusal
	now, before := MemberResult{i, r.Why}, m.last
	m.last = now
	tooLate := r.Late
	if tooLate {
		m.late++
		tooLate = m.late >= lock.MaxLate || m.Stage == Waiting // one that waits has counted itself
	}
	noAnswer := p.cut && (!r.Passes || lockerr.CutOff(r.Why))
	blocking := lockerr.IsBlocking(lockerr.Parts(r.Why)[0])
	switch {
	case noAnswer && before.Why != nil: // what was known before stands
		m.failStopped(before, do)
	case m.Once || !r.Passes || tooLate && m.stop == nil:
		m.failOne(now, nil, do)
	case m.stop != nil && blocking: // told before the end, which another was told
		m.failStopped(now, do)
	case m.stop != nil:
		m.failOne(now, nil, do)
	default:
		m.withdraw(do)
	}
}

// withdraw gives everything back. Until GivenBack is called that counts as an answer that is to come: a call that
// fails meanwhile is told when nothing is held.
func (m *Machine) withdraw(do *Ready) {
	m.giveVotes(do)
	m.out++
	m.list(do)
	do.Withdraw = true
	for i := range m.Members {
		m.Members[i].refusal = Refusal{}
	}
}

// GivenBack goes on when everything has been given back: it waits for the lock that was refused, after a pause.
func (m *Machine) GivenBack(do *Ready) {
	m.out--
	if m.stop != nil {
		m.failStopped(m.last, do)
		return
	}
	now, pause := m.Port.Now(), time.Duration(0)
	if m.refusals > 0 {
		took := time.Duration(0)
		if m.Stage == Asking {
			took = now.Sub(m.since)
		}
		pause = m.Port.Draw(min(max(firstPause, took)<<min(m.refusals, 16), max(longPause, longAttempts*took)))
	}
	m.refusals++
	m.Stage = Waiting
	if pause == 0 {
		m.ask(m.last.Member, waits, do)
		return
	}
	m.setDue(now.Add(pause), do)
}

// failOne ends it because of one lock. stop is what has ended it, if that is to be said.
func (m *Machine) failOne(one MemberResult, stop *lockerr.Cancel, do *Ready) {
	if m.stop != nil && m.stop.Away != nil {
		stop = m.stop
	}
	m.fail(Failure{One: one, Stop: stop}, do)
}

// failStopped ends one that was given up between two attempts, with what the latest was told.
func (m *Machine) failStopped(latest MemberResult, do *Ready) {
	if m.stop.Cause == lockerr.ErrClosed {
		m.fail(Failure{Is: lockerr.ErrClosed, One: latest}, do)
		return
	}
	m.failOne(latest, m.stop, do)
}
