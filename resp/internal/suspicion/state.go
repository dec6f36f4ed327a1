package suspicion

import (
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// State is whether the connections of a node may lead to a server that is not the one behind
// its address any more: the machine behind a name or a balancer was replaced, and the old one
// lives on. It refuses every command, while a new connection would be served. In a failover, a
// new connection is refused as well, and nothing would be gained by giving up the old ones.
//
//	old connections           suspicion         a new connection
//	MOVED to its own address  asking
//	                                            is served
//	                          outdone
//	MOVED to its own address  replace
//
// Invariants
//
//  1. One new connection is made at a time, and asks one question. From the beginning of one
//     to that of the next at least a second passes.
//  2. Connections are replaced if they are refused themselves (topology.Certain), or if what was
//     asked about is refused still, by the same words, of a command that was sent after a new
//     connection had been served: so not if the failover has ended meanwhile, or the slot is back,
//     for the old ones are served then, too. What is said of another slot does not count.
//
// The zero State suspects nothing. It looks at no connection and at no clock, and has no lock.
type State struct {
	phase phase
	about string        // the refusal that the latest question is about
	since clock.Instant // when the phase began
	asked clock.Instant // when a new connection was last begun; 0: never
}

type phase uint8

const (
	// trusted: nothing speaks against the connections.
	trusted phase = iota
	// refused: commands are, since then, by what passes with a failover.
	refused
	// asking: a goroutine makes a new connection and asks.
	asking
	// outdone: a new connection was served then.
	outdone
)

// Measure is what is to be done about a suspicion.
type Measure uint8

const (
	// Keep the connections.
	Keep Measure = iota
	// Ask on a new connection, and call Answered.
	Ask
	// Replace the connections.
	Replace
)

const (
	// lastsFor is how long refusals must last to be more than a failover's, and the least
	// time between two questions.
	lastsFor = time.Second
	// forgetAfter is how long a refusal, or the service of a new connection, counts.
	forgetAfter = 5 * time.Second
)

// Refused takes a refusal, and its words, of a command that was sent at an instant.
func (s *State) Refused(d topology.Doubt, words string, sent, now clock.Instant) Measure {
	if s.phase != asking && now.Sub(s.since) > forgetAfter {
		s.phase = trusted
	}
	switch {
	case d == topology.Certain:
		return Replace
	case s.phase == outdone && s.since.Before(sent) && (d == topology.AtOnce || words == s.about):
		s.enter(trusted, now)
		return Replace
	case s.phase == trusted:
		s.enter(refused, now)
	}
	lasts := d == topology.AtOnce || now.Sub(s.since) >= lastsFor
	if s.phase == refused && lasts && (s.asked == 0 || now.Sub(s.asked) >= lastsFor) {
		s.enter(asking, now)
		s.about, s.asked = words, now
		return Ask
	}
	return Keep
}

// Answered ends asking: whether a new connection was served.
func (s *State) Answered(served bool, now clock.Instant) {
	if served {
		s.enter(outdone, now)
	} else {
		s.enter(refused, now)
	}
}

func (s *State) enter(p phase, now clock.Instant) { s.phase, s.since = p, now }
