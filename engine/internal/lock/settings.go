package lock

import (
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// shortInstant is an instant as it fits into a Subscription, in milliseconds: two of them are compared by
// what is between them.
type shortInstant uint32

func milliseconds(at clock.Instant) shortInstant {
	return shortInstant(time.Duration(at) / time.Millisecond)
}

func (t shortInstant) before(other shortInstant) bool { return int32(other-t) > 0 }

// until is the time from then to now. A shortInstant tells no more than 49 days apart.
func (t shortInstant) until(now clock.Instant) time.Duration {
	return time.Duration(milliseconds(now)-t) * time.Millisecond
}

// Traits is what the core needs to know of a kind of lock.
type Traits struct {
	Entries       Entries
	Waiting       Waiting
	LocalHandOver bool   // a grant may be handed over without a command
	Batches       bool   // one command may release several owners, and acquire, too
	Noun          string // what its name is, for people; "": a lock
	Family        uint8  // the kinds that share a name: what they hold excludes each other
}

// Entries says how many a name has.
type Entries uint8

// The numbers.
const (
	PerName    Entries = iota // one for all requests
	PerRequest                // one for each, with the grant that it gets
	PerReader                 // the same, but those who want nothing else share one; see readers.go
	PerGrant                  // those who wait share one; a grant, of one permit or more, has its own
)

// Waiting is how those who were refused wait.
type Waiting uint8

// The ways.
const (
	Listening Waiting = iota // for a message
	Queueing                 // in a queue on the server, each for a message to its owner; see queue.go
	Polling                  // a release is announced nowhere
	Racing                   // as Listening, but of many engines that wait, only the first in a queue; see queue.go
)

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

	// LongestSleep is for a head that listens: LongestSleep, or LongestSleepMissed in a cluster.
	LongestSleep time.Duration
}

// MaxDuration bounds durations, so that instants cannot overflow. One that is sent
// to the server (a lease, MinHold, Extend) must not be longer: that is a mistake, and would keep
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

// Acks is how many replicas must have a grant: a number, or one of those below.
type Acks int16

// See engine.AllReplicas and engine.MajorityOfReplicas.
const (
	AllReplicas        Acks = -1
	MajorityOfReplicas Acks = -2
	DefaultAcks        Acks = -3 // as the hold that is re-entered, or as Config.Replicas: until it is admitted
)

// covers reports whether a renewal that a acknowledges is good enough for b, however many
// replicas there are.
func covers(a, b Acks) bool {
	switch {
	case b == 0 || a == b:
		return true
	case a == AllReplicas:
		return b == MajorityOfReplicas || b == 1
	case a == MajorityOfReplicas:
		return b == 1
	}
	return b > 0 && b <= a
}

// Backoff is how a head polls that has no channel: the pause is doubled up to Most.
type Backoff struct{ First, Most time.Duration }

// Drift is how far the clocks of several servers may run apart during a lease.
func Drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }
