package lock

import (
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Port is what surrounds the names of a shard. Its methods are called under the shard's
// lock. They do not block, run no code of a user, and do not call back.
type Port interface {
	// Now is the time, Stamp the time of a moment ago, which costs less.
	Now() clock.Instant
	Stamp() clock.Instant
	// Draw returns a random part of d.
	Draw(d time.Duration) time.Duration
	// NewID returns the number of an owner, which nobody can guess and none has had.
	NewID() int64

	// NewGrant makes a grant with its first hold, NewHold another hold of the grant of one.
	NewGrant(r *Entry) *Hold
	NewHold(of *Hold) *Hold
	NewCompensation() *Compensation
	NewSubscription() *Subscription

	// Up reports whether the lane of a route has a connection, Trouble what keeps it from
	// having one.
	Up(route uint64) bool
	Trouble(route uint64) error
	// ServerOf names the server of a route, as long as that matters; else it is 0.
	ServerOf(route uint64) ServerID

	// Pause has PauseOver called at an instant.
	Pause(r *Entry, at clock.Instant)
	// Unstalled: a name that recovery lists has nothing to send any more.
	Unstalled(r *Entry)
	// Emptied: no entry is left in a shard that is not Open.
	Emptied()

	// Released: a server has answered the release of an owner, of a kind, whose MinHold ends
	// at end.
	Released(r *Entry, kind uint8, by ServerID, id int64, at, end clock.Instant)
	// NotPublished: a release was not announced, as the server refused the message.
	NotPublished(name string)
	// Refused: the server refused a release, for good (Refused) or for now (RetryLater).
	Refused(o Outcome)

	// LossError is the error of a hold that was lost.
	LossError(kind uint8, name string, why Loss) error
}

// RequestPort is the caller of a Request.
type RequestPort interface {
	// OnResult is called under the shard's lock: it has its verdict, a hold or why there is
	// none. Deliver follows, without it.
	OnResult(h *Hold, why error)
	Deliver()
	// GiveUpAt calls SetDeadline with what cancels the request at an instant.
	GiveUpAt(at clock.Instant)
}

// Deadline is a timer that cancels a request.
type Deadline interface {
	// Over: the request has ended.
	Over()
}

// Timer calls its owner at an instant.
type Timer interface {
	// SetTimer sets the instant, instead of any other; 0: never.
	SetTimer(at clock.Instant)
}

// Renewal is when a grant is renewed next.
type Renewal uint8

// The choices.
const (
	RenewFirst  Renewal = iota // for the first time
	RenewNext                  // a third of a lease later
	RenewSoon                  // now, together with others
	RenewNoMore                // its hold is over
)

// HoldPort is what the engine has of a Hold.
type HoldPort interface {
	Timer // calls Fired
	// Renew gives its grant a place among the renewals, moves that or ends it.
	Renew(when Renewal, now clock.Instant)
	// Ended: it is not live any more. It was released (0) or lost.
	Ended(why Loss)
	// Lost: it was lost, and not only with its outer hold.
	Lost(why Loss)
	// CloseDone: its contexts have ended, and everybody may know.
	CloseDone()
}

// SubscriptionPort is the alarm and the channel of a Subscription.
type SubscriptionPort interface {
	Timer // calls AlarmFired
	// Listen subscribes to the channel of the name, or of the owner if the kind queues owners.
	// Unlisten gives it up.
	Listen(r *Entry, kind uint8, owner int64)
	Unlisten()
	// ListenForCalls subscribes to the channel on which this engine is called to the front of the queue for
	// the name. UnlistenForCalls gives it up.
	ListenForCalls(r *Entry, kind uint8)
	UnlistenForCalls()
}

// UnlockPort is the caller of an Unlock: Deliver is called without the lock.
type UnlockPort interface{ Deliver() }

// ExtendPort is the caller of an Extend: Settled is called under the shard's lock.
type ExtendPort interface{ OnResult() }

// Context is what ends with a hold, before its release: a context, or a Hold.
type Context interface {
	// End returns when everything that was made from it has ended. It is called once, with
	// no lock held.
	End(why error)
}
