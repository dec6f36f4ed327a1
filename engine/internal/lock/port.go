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

// Traits is what the core needs to know of a kind of lock.
type Traits struct {
	Polls           bool // waiters poll: a release is announced nowhere
	LocalHandOver   bool // a grant may be handed over without a command
	Batches         bool // one command may release several owners, and acquire, too
	PerRequestEntry bool // each request has an Entry of its own, with the grant that it gets
	JoinsReaders    bool // but those who want nothing else share one; see readers.go
	ServerQueue     bool // a refusal queues the owner on the server; see fairqueue.go
	// MultiHolder: there are permits for many. Those who wait share an Entry, and a grant, of one
	// permit or more, has one of its own from its grant on.
	MultiHolder bool
	Noun        string // what its name is, for people; "": a lock
	// Family is the kinds that share a name: what they hold excludes each other.
	Family uint8
}

// ServerID names a server; 0 is none.
type ServerID uint32

// Config is what the core needs of the engine's.
type Config struct {
	Lease, CommandTimeout, AckTimeout time.Duration
	Replicas                          Acks          // of a request that does not say
	FixedMargin                       time.Duration // 0: a part of each lease

	// HandOvers is how often a grant is handed over at most, HandOverFor how long after its
	// grant.
	HandOvers   uint16
	HandOverFor time.Duration

	// Room is how long the server waits for an owner in a queue, for each place.
	Room time.Duration
}

// MaxDuration bounds durations, so that instants cannot overflow. One that the server is
// told (a lease, MinHold, Extend) must not be longer: that is a mistake, and would keep
// a lock for good. One that bounds something (Wait, MaxHold, the timeouts of Config) is
// meant as no bound if it is longer, and is none.
const MaxDuration = 100 * 365 * 24 * time.Hour

// Margin is the safety margin of a lease.
func (c *Config) Margin(lease time.Duration) time.Duration {
	if c.FixedMargin > 0 {
		return c.FixedMargin
	}
	return min(max(lease/10, 5*time.Millisecond), 3*time.Second)
}

// Patience is how long an operation that wants so many replicas waits for its answer.
func (c *Config) Patience(want Acks) time.Duration {
	if want != 0 {
		return c.CommandTimeout + c.AckTimeout
	}
	return c.CommandTimeout
}

// Counters are one shard's part of the statistics, guarded by its lock.
type Counters struct {
	Held, Pending                            int
	Acquired, Released, Renewed, NotAcquired uint64
	Compensations, InDoubt, Unknown, Leaked  uint64
	Unacked, HandedOver                      uint64
	Lost                                     [Losses]uint64
}

// Add adds those of another shard.
func (c *Counters) Add(o *Counters) {
	c.Held += o.Held
	c.Pending += o.Pending
	c.Acquired += o.Acquired
	c.Released += o.Released
	c.Renewed += o.Renewed
	c.NotAcquired += o.NotAcquired
	c.Compensations += o.Compensations
	c.InDoubt += o.InDoubt
	c.Unknown += o.Unknown
	c.Leaked += o.Leaked
	c.Unacked += o.Unacked
	c.HandedOver += o.HandedOver
	for why, n := range o.Lost {
		c.Lost[why] += n
	}
}

// Loss is why a hold was lost.
type Loss uint8

// The reasons, in the order of engine.LostReason.
const (
	LeaseEnded Loss = iota + 1
	NotRenewed
	MaxHoldReached
	RemovedOnServer
	KeyOverwritten
	EngineClosed
	Losses = iota + 1
)

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
}

// UnlockPort is the caller of an Unlock: Deliver is called without the lock.
type UnlockPort interface{ Deliver() }

// ExtendPort is the caller of an Extend: Settled is called under the shard's lock.
type ExtendPort interface{ OnResult() }
