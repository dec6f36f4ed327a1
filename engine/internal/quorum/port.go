package quorum

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Port is what surrounds a Machine. Its methods are called under the lock of the caller. They do
// not block, run no code of a user, and do not call back.
type Port interface {
	Now() clock.Instant
	// Stamp is the time of a moment ago, as a member's engine has it. It costs less.
	Stamp(member int) clock.Instant
	// Draw returns a random part of d.
	Draw(d time.Duration) time.Duration

	// RoundTrip is how long the latest answer of a server took, which SetRoundTrip notes; 0: it is not
	// known; or WasSilent.
	RoundTrip(member int) time.Duration
	SetRoundTrip(member int, d time.Duration)

	// NewTry makes the acquisition that asks a member; Ready.Ask begins it. It waits as a Lock does,
	// or it is one try.
	NewTry(member int, waits bool) Try

	// Away is why the server of a lock has no connection; nil if it has one.
	Away(member int) error

	// NotAcquired is the error of one that has failed, Lost the end of a hold that has too few
	// votes.
	NotAcquired(f Failure) error
	Lost(l Loss) error
}

// Config is what a machine is made for.
type Config struct {
	Policy  Policy
	Order   []int         // of the servers, by their addresses: the same for all contenders; of a MultiLock nil
	Once    bool          // TryLock: one attempt
	Renewal time.Duration // how often the watchdog renews; 0: the lease is fixed
}

// Try is the acquisition of one member. It is the caller's, and comparable.
type Try any

// VotePort is the hold of a vote. Its methods take no lock.
type VotePort interface {
	// InTime reports whether its time is not over yet, Until when that is.
	InTime() bool
	Until() clock.Instant
}

// MemberState is what a refusal says of its member.
type MemberState uint8

// The states.
const (
	Unknown MemberState = iota // something else
	Held                       // by another
	Unavailable
)

// RefusalOf is what the error of a member says.
func RefusalOf(why error) Refusal {
	is := lockerr.Parts(why)
	r := Refusal{
		Why: why, Passes: lockerr.MayPass(why),
		Full: slices.Contains(is, lockerr.ErrOverloaded), Late: slices.Contains(is, lockerr.ErrGrantTooLate), Closed: slices.Contains(is, lockerr.ErrClosed),
	}
	at := 0
	if r.State, at = StateIn(is); r.State == Held {
		held := is[at].(*lockerr.Held)
		r.TTL, r.Here = held.TTL, held.Here
	}
	return r
}

// StateIn reads it out of the conditions of an error, with the place of what says so.
func StateIn(is []error) (state MemberState, at int) {
	for i, one := range is {
		if _, yes := one.(*lockerr.Held); yes {
			return Held, i
		}
		if one == lockerr.ErrUnavailable {
			return Unavailable, i
		}
	}
	return Unknown, 0
}

// Refusal is why a member has not granted it. The zero Refusal is none.
type Refusal struct {
	Why    error // handed on to errors
	TTL    time.Duration
	State  MemberState
	Passes bool // waiting may help
	Full   bool // only asking again later may
	Late   bool // granted, later than the lease lasts
	Closed bool // its engine is
	Here   bool // held by this process: the server need not have been asked
}

// EndedBefore is the refusal of a member whose grant had ended before the whole was held. That is not
// ErrLost: nobody had the whole.
func EndedBefore(e End) Refusal {
	if e.Loss == lock.EngineClosed {
		return RefusalOf(lockerr.ErrClosed)
	}
	return RefusalOf(lockerr.Wrap(lockerr.ErrGrantTooLate, e.There))
}

// none reports whether there is no refusal.
func (r *Refusal) none() bool { return r.Why == nil }

// End is why the hold of a vote has ended: it was lost, or released (0).
type End struct {
	Member int
	Why    error // as the end of a MultiLock
	There  error // as what is said of this member alone
	Loss   lock.Loss
}
