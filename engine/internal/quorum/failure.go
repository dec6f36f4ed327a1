package quorum

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Failure is why the lock was not acquired.
type Failure struct {
	Is      error           // what is true of the whole: see Count.Cause; of a MultiLock nil: what One has said
	TTL     time.Duration   // if it is held by others
	One     MemberResult    // of a MultiLock
	Stop    *lockerr.Cancel // it was given up; of a MultiLock: and that is to be said
	Granted int             // members that have granted it
	Each    []MemberResult  // the others
}

// MemberResult is why a member has not granted it, or does not have it any more.
type MemberResult struct {
	Member int
	Why    error // of a Loss nil: its time ended just now, as that of the last
}

// failure is why a machine has failed.
func (m *Machine) failure() Failure {
	f := Failure{Stop: m.stop}
	c := Count{Members: len(m.Members), Need: m.Need()}
	var said error
	var ttls []time.Duration
	for i := range m.Members {
		p := &m.Members[i]
		one := MemberResult{i, lockerr.ErrSilent}
		switch {
		case p.Vote != nil:
			c.Granted++
			continue
		case p.Asked != nil:
			c.Pending++
		case p.refusal.none():
			one.Why = lockerr.ErrGivenBack
		case p.cut && p.refusal.State == Unknown:
			c.Pending++
			one.Why = lockerr.ErrEarly
		default:
			c.add(&p.refusal)
			one.Why = p.refusal.Why
			if p.refusal.State == Held {
				ttls = append(ttls, p.refusal.TTL)
			} else if p.refusal.State == Unknown {
				said = one.Why
			}
		}
		f.Each = append(f.Each, one)
	}
	f.Granted = c.Granted
	if f.Is = c.Cause(m.Once, m.stop, said); f.Is == lockerr.ErrHeld {
		slices.Sort(ttls)
		f.TTL = ttls[len(ttls)-1]
		if spare := c.spare(); len(ttls) > spare {
			f.TTL = ttls[len(ttls)-1-spare] // then a majority is free
		}
	}
	return f
}

// Loss is why a hold was lost.
type Loss struct {
	Last lock.Loss
	Left int            // servers that are certain to have had it all the time
	Each []MemberResult // the others
}

// loss is the end of a hold after the last loss. Left are those that have had the lock since
// then, or before.
func (m *Machine) loss(last End, since clock.Instant) error {
	if last.Loss == 0 {
		return last.Why // released, with what it re-entered
	}
	l := Loss{Last: last.Loss}
	for i := range m.Members {
		p := &m.Members[i]
		one := MemberResult{i, lockerr.ErrNotGranted}
		switch {
		case p.Vote != nil && p.Vote.Joined > since:
			one.Why = lockerr.ErrGrantedAgain
		case p.Vote != nil && p.Vote.Port.InTime():
			continue
		case p.Vote != nil: // nobody has looked
			one.Why = nil
		case p.lost != nil:
			one.Why = p.lost
		case p.refused():
			one.Why = p.refusal.Why
		}
		l.Each = append(l.Each, one)
	}
	l.Left = min(len(m.Members)-len(l.Each), m.Need()-1) // one may have joined just now
	return m.Port.Lost(l)
}
