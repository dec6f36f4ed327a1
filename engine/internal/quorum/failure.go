package quorum

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Count is what the servers have said. Those in no field have granted it, and got it back.
type Count struct {
	Servers     int // all of them
	Granted     int
	Pending     int // have not answered, or will be asked
	Held        int // by another
	Unavailable int
	TooLate     int // granted later than the lease lasts
	Refused     int // for another reason, which does not pass
}

func (c *Count) add(r *Refusal) {
	switch {
	case r.none():
	case r.State == Held:
		c.Held++
	case r.Late:
		c.TooLate++
	case r.Passes:
		c.Unavailable++
	default:
		c.Refused++
	}
}

// majority is how many of so many servers are needed.
func majority(servers int) int { return servers/2 + 1 }

// Result is what is true of an attempt.
type Result uint8

// The results.
const (
	Pending Result = iota
	Won
	Lost   // this attempt
	Denied // and any other would be
)

// Result is whether a majority has granted it, or may.
func (c Count) Result() Result {
	switch need := majority(c.Servers); {
	case c.Granted >= need:
		return Won
	case c.Refused > c.Servers-need:
		return Denied
	case c.Granted+c.Pending < need:
		return Lost
	}
	return Pending
}

// Cause is what is true of the whole.
type Cause uint8

// The causes.
const (
	NoAnswer Cause = iota // it was given up too early to know
	IsHeld
	IsUnavailable
	IsRefused // a server has said something else
	EngineIsClosed
)

// Cause is why it was not acquired. Of a Lock that was given up, stop says why. It has given
// votes back only because others have it; those that a TryLock gave back prove nothing.
func (c Count) Cause(tryLock bool, stop *lockerr.Cancel) Cause {
	spare := c.Servers - majority(c.Servers)
	refused := c.Held + c.Unavailable + c.TooLate + c.Refused
	givenBack := c.Servers - c.Granted - c.Pending - refused
	switch {
	case stop != nil && stop.Cause == lockerr.ErrClosed:
		return EngineIsClosed
	case stop != nil && stop.Away != nil, c.Held <= spare && c.Unavailable > 0 && refused+c.Pending > spare:
		return IsUnavailable
	case c.Held > spare, !tryLock && c.Held > 0 && c.Held+givenBack > spare:
		return IsHeld
	case stop == nil && refused > c.Held+c.Unavailable:
		return IsRefused
	case stop != nil && stop.TimedOut:
		return IsUnavailable // in all its time not enough of them have answered
	}
	return NoAnswer
}

// Failure is why the lock was not acquired.
type Failure struct {
	Is      Cause
	TTL     time.Duration   // if IsHeld
	ForGood ServerResult    // if IsRefused
	Stop    *lockerr.Cancel // it was given up
	Granted int             // servers that have granted it
	Each    []ServerResult  // the others
}

// ServerResult is what became of one server.
type ServerResult struct {
	Server int
	Is     Outcome
	Why    error
}

// Outcome is what became of a server.
type Outcome uint8

// Those of a Failure, and those of a Loss.
const (
	Silent    Outcome = iota // it has not answered
	GivenBack                // it was granted, and given back
	Refused                  // for that reason
	TooLate                  // the grant had ended before, for that reason
	Cut                      // the whole was given up before it answered

	NotGranted
	GrantedAgain // perhaps too late
	EndedNow     // as the last
	WasLost      // for that reason
)

// result is what a refusal says.
func (p *Member) result(i int) ServerResult {
	if p.refusal.Ended {
		return ServerResult{i, TooLate, p.refusal.Why}
	}
	return ServerResult{i, Refused, p.refusal.Why}
}

// failure is why a machine has failed.
func (m *Machine) failure() Failure {
	f := Failure{Stop: m.stop}
	c := Count{Servers: len(m.Members)}
	var ttls []time.Duration
	for i := range m.Members {
		p := &m.Members[i]
		one := ServerResult{Server: i}
		switch {
		case p.Vote != nil:
			c.Granted++
			continue
		case p.Asked != nil:
			c.Pending++
		case p.refusal.none():
			one.Is = GivenBack
		case p.cut && p.refusal.State == Unknown:
			c.Pending++
			one.Is = Cut
		default:
			c.add(&p.refusal)
			one = p.result(i)
			if p.refusal.State == Held {
				ttls = append(ttls, p.refusal.TTL)
			} else if p.refusal.State == Unknown {
				f.ForGood = one
			}
		}
		f.Each = append(f.Each, one)
	}
	f.Granted = c.Granted
	if f.Is = c.Cause(m.Once, m.stop); f.Is == IsHeld {
		slices.Sort(ttls)
		f.TTL = ttls[len(ttls)-1]
		if spare := len(m.Members) - m.Majority(); len(ttls) > spare {
			f.TTL = ttls[len(ttls)-1-spare] // then a majority is free
		}
	}
	return f
}

// Loss is why a hold was lost.
type Loss struct {
	Last lock.Loss
	Left int            // servers that are certain to have had it all the time
	Each []ServerResult // the others
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
		one := ServerResult{Server: i, Is: NotGranted}
		switch {
		case p.Vote != nil && p.Vote.Joined > since:
			one.Is = GrantedAgain
		case p.Vote != nil && p.Vote.Port.InTime():
			continue
		case p.Vote != nil: // its time ended just now, and nobody has looked
			one.Is = EndedNow
		case p.lost != nil:
			one = ServerResult{i, WasLost, p.lost}
		case p.refused():
			one = p.result(i)
		}
		l.Each = append(l.Each, one)
	}
	l.Left = min(len(m.Members)-len(l.Each), m.Majority()-1) // one may have joined just now
	return m.Port.Lost(l)
}
