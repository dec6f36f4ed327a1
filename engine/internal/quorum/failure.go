package quorum

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Verdict is why the lock was not acquired.
type Verdict struct {
	Is      Cause
	TTL     time.Duration // if IsHeld
	ForGood Said          // if IsRefused
	Stop    *reason.Stop  // it was given up
	Granted int           // servers that have granted it
	Each    []Said        // the others
}

// Cause is what is true of the whole.
type Cause uint8

// The causes.
const (
	NoAnswer Cause = iota // it was given up too early to know
	IsHeld
	IsAway
	IsRefused // a server has said something else, for good
	EngineIsClosed
)

// Said is what became of one server.
type Said struct {
	Server int
	Is     What
	Why    error
}

// What became of a server.
type What uint8

// Those of a Verdict, and those of a Loss.
const (
	Silent    What = iota // it has not answered
	GivenBack             // it was granted, and given back
	Refused               // for that reason
	TooLate               // the grant had ended before, for that reason
	Cut                   // the whole was given up before it answered

	NotGranted
	GrantedAgain // perhaps too late
	EndedNow     // as the last
	WasLost      // for that reason
)

// said is what a refusal says.
func (p *Part) said(i int) Said {
	if p.refusal.Ended {
		return Said{i, TooLate, p.refusal.Why}
	}
	return Said{i, Refused, p.refusal.Why}
}

// verdict is why a machine has failed.
func (m *Machine) verdict() Verdict {
	if m.stop != nil && m.stop.Cause == reason.ErrClosed {
		return Verdict{Is: EngineIsClosed}
	}
	v := Verdict{Stop: m.stop}
	var ttls []time.Duration
	away, given, forGood := 0, 0, false
	for i := range m.Parts {
		p := &m.Parts[i]
		said := Said{Server: i}
		switch {
		case p.Vote != nil:
			v.Granted++
			continue
		case p.Asked == nil && p.refusal.none():
			given++
			said.Is = GivenBack
		case p.refused():
			said = p.said(i)
			switch {
			case p.refusal.Stand == Held:
				ttls = append(ttls, p.refusal.TTL)
			case p.refusal.Stand == Away:
				away++
			case p.cut:
				said = Said{Server: i, Is: Cut}
			case m.stop == nil:
				v.ForGood, forGood = said, true
			}
		}
		v.Each = append(v.Each, said)
	}
	spare := len(m.Parts) - m.Majority()
	switch {
	case m.stop != nil && m.stop.Away != nil:
		v.Is = IsAway
	case len(ttls) > spare:
		v.Is = IsHeld
		slices.Sort(ttls)
		v.TTL = ttls[len(ttls)-spare-1] // then a majority is free
	case away > 0 && len(v.Each)-given > spare:
		v.Is = IsAway
	case !m.Once && len(ttls) > 0 && len(ttls)+given > spare: // given back for the owner that has the others
		v.Is = IsHeld
		v.TTL = slices.Max(ttls)
	case forGood:
		v.Is = IsRefused
	case m.stop != nil && m.stop.Late:
		v.Is = IsAway // in all its time not enough of them have answered
	}
	return v
}

// Loss is why a hold was lost.
type Loss struct {
	Last machine.Loss
	Left int    // servers that are certain to have had it all the time
	Each []Said // the others
}

// loss is the end of a hold after the last loss. Left are those that have had the lock since
// then, or before.
func (m *Machine) loss(last End, since clock.Instant) error {
	if last.Loss == 0 {
		return last.Why // released, with what it re-entered
	}
	l := Loss{Last: last.Loss}
	for i := range m.Parts {
		p := &m.Parts[i]
		said := Said{Server: i, Is: NotGranted}
		switch {
		case p.Vote != nil && p.Vote.joined > since:
			said.Is = GrantedAgain
		case p.Vote != nil && p.Vote.Port.InTime():
			continue
		case p.Vote != nil: // its time ended just now, and nobody has looked
			said.Is = EndedNow
		case p.lost != nil:
			said = Said{i, WasLost, p.lost}
		case p.refused():
			said = p.said(i)
		}
		l.Each = append(l.Each, said)
	}
	l.Left = min(len(m.Parts)-len(l.Each), m.Majority()-1) // one may have joined just now
	return m.Port.Lost(l)
}
