package quorum

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Port is what surrounds a Machine. Its methods are called under the lock of the caller. They do
// not block, run no code of a user, and do not call back.
type Port interface {
	Now() clock.Instant
	// Stamp is the time of a moment ago, as a server's engine has it. It costs less.
	Stamp(server int) clock.Instant
	// Draw returns a random part of d, Pick a random number below n.
	Draw(d time.Duration) time.Duration
	Pick(n int) int

	// NewTry makes the acquisition that asks a server; Deeds.Ask begins it.
	NewTry(server int, how How) Try

	// NotAcquired is the error of one that has failed, Lost the end of a hold that has too few
	// votes.
	NotAcquired(v Verdict) error
	Lost(l Loss) error
}

// Config is what a machine is made for.
type Config struct {
	Order          []int         // in which the servers are referees: the same for all
	Once           bool          // TryLock: each server is tried once
	Lease          time.Duration // if fixed
	CommandTimeout time.Duration
}

// How is the way in which a server is asked.
type How struct {
	Waits bool // until it is granted; else it is one try
	Lease time.Duration
}

// Try is the acquisition at one server. It is the caller's, and comparable.
type Try any

// VotePort is the hold of a vote. Its methods take no lock.
type VotePort interface {
	// InTime reports whether its time is not over yet, Until when that is.
	InTime() bool
	Until() clock.Instant
}

// Stand is what a server has said to a try so far.
type Stand uint8

// The stands.
const (
	Open Stand = iota // nothing yet
	Held
	Away
)

// Refusal is why a server has not granted it. The zero Refusal is none.
type Refusal struct {
	Why    error // handed on to errors
	TTL    time.Duration
	Stand  Stand // Held, with the TTL; Away; or Open: something else
	Passes bool  // waiting may help
	Full   bool  // only asking again later may
	Late   bool  // granted, later than the lease lasts
	Closed bool  // its engine is
	Ended  bool  // granted, and that has ended, as Why says
}

// EndedBefore is the refusal of a server whose grant had ended before the whole was held.
func EndedBefore(e End) Refusal {
	if e.Loss == machine.EngineClosed {
		return Refusal{Why: e.Why, Ended: true, Closed: true}
	}
	return Refusal{Why: e.Why, Ended: true, Late: true, Passes: true}
}

// None reports whether there is no refusal.
func (r *Refusal) none() bool { return r.Why == nil }

// mayPass reports whether the server may grant it later.
func (r *Refusal) mayPass() bool { return r.Passes || r.Full }

// End is why the hold of a vote has ended: it was lost, or released (0).
type End struct {
	Server int
	Why    error
	Loss   machine.Loss
}
