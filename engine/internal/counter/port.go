package counter

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Port is what surrounds a Counter. Its methods are called under the shard's lock. They do not
// block, run no code of a user, and do not call back.
type Port interface {
	Now() clock.Instant
	// Draw returns a random part of d.
	Draw(d time.Duration) time.Duration
	// Trouble is what keeps the lane of the name from having a connection; nil: it has one.
	Trouble() error

	// SetTimer has Fired called at an instant, instead of any other; 0: never.
	SetTimer(at clock.Instant)
	// Listen subscribes to the channel of the name. If it is confirmed already, the server is asked
	// once more; the channel is heard meanwhile. Unlisten gives it up.
	Listen()
	Unlisten()

	// Unstalled: a name that recovery lists has nothing to send any more.
	Unstalled()
	// NotPublished: a message was refused.
	NotPublished()
	// Refused: the server refused to take permits back, for good or for now.
	Refused(why error, forGood bool)
	// Idle: nothing is left of the name.
	Idle()
}

// Shard is what the counters of a shard share. Its lock guards it.
type Shard struct {
	Phase lock.Phase
	// Turn is how long permits may go from one to the next in this process before others
	// get a chance; 0: no time at all.
	Turn   time.Duration
	Count  Counters
	number uint64 // of the latest command
}

func (s *Shard) closing() bool { return s.Phase != lock.Open }

// nextNumber returns one that is higher than all before it.
func (s *Shard) nextNumber() uint64 {
	s.number++
	return s.number
}

// OpPort is the caller of an Op.
type OpPort interface {
	// Granted makes the Permits of an acquire that is granted.
	Granted() *Permits
	// OnResult is called under the shard's lock: it has its verdict. Deliver follows, without it.
	OnResult(answer int64, why error)
	Deliver()
}

// PermitsPort is what the engine has of Permits.
type PermitsPort interface {
	// Ended: they were released, or the engine is being closed. It is called under the lock.
	Ended()
}

// Counters are one shard's part of the statistics, guarded by its lock.
type Counters struct {
	Held, Pending                 int
	Acquired, Released            uint64
	NotAcquired, Unknown, Revoked uint64 // Revoked: by Close
}

// Add adds those of another shard.
func (c *Counters) Add(o *Counters) {
	c.Held += o.Held
	c.Pending += o.Pending
	c.Acquired += o.Acquired
	c.Released += o.Released
	c.NotAcquired += o.NotAcquired
	c.Unknown += o.Unknown
	c.Revoked += o.Revoked
}
