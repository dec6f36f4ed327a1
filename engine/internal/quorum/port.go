package quorum

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Port is what surrounds a Machine. Its methods are called under the lock of the caller. They do
// not block, run no code of a user, and do not call back.
type Port interface {
	Now() clock.Instant
	// Stamp is the time of a moment ago, as a server's engine has it. It costs less.
	Stamp(server int) clock.Instant
	// Draw returns a random part of d.
	Draw(d time.Duration) time.Duration

	// RoundTrip is how long the latest answer of a server took, which SetRoundTrip notes; 0: it is not
	// known; or WasSilent.
	RoundTrip(server int) time.Duration
	SetRoundTrip(server int, d time.Duration)

	// NewTry makes the acquisition that asks a server; Ready.Ask begins it. It waits as a Lock does,
	// or it is one try.
	NewTry(server int, waits bool) Try

	// NotAcquired is the error of one that has failed, Lost the end of a hold that has too few
	// votes.
	NotAcquired(f Failure) error
	Lost(l Loss) error
}

// Config is what a machine is made for.
type Config struct {
	Order   []int         // of the servers, by their addresses: the same for all contenders
	Once    bool          // TryLock: one attempt
	Renewal time.Duration // how often the watchdog renews; 0: the lease is fixed
}

// Try is the acquisition at one server. It is the caller's, and comparable.
type Try any

// VotePort is the hold of a vote. Its methods take no lock.
type VotePort interface {
	// InTime reports whether its time is not over yet, Until when that is.
	InTime() bool
	Until() clock.Instant
}

// ServerState is what a refusal says of its server.
type ServerState uint8

// The states.
const (
	Unknown ServerState = iota // something else
	Held                       // by another
	Unavailable
)

// Refusal is why a server has not granted it. The zero Refusal is none.
type Refusal struct {
	Why    error // handed on to errors
	TTL    time.Duration
	State  ServerState
	Passes bool // waiting may help
	Full   bool // only asking again later may
	Late   bool // granted, later than the lease lasts
	Closed bool // its engine is
	Here   bool // held by this process: the server need not have been asked
	Ended  bool // granted, and that has ended, as Why says
}

// EndedBefore is the refusal of a server whose grant had ended before the whole was held.
func EndedBefore(e End) Refusal {
	if e.Loss == lock.EngineClosed {
		return Refusal{Why: e.Why, Ended: true, Closed: true}
	}
	return Refusal{Why: e.Why, Ended: true, Late: true, Passes: true}
}

// none reports whether there is no refusal.
func (r *Refusal) none() bool { return r.Why == nil }

// End is why the hold of a vote has ended: it was lost, or released (0).
type End struct {
	Server int
	Why    error
	Loss   lock.Loss
}
