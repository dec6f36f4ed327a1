package counter

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Port is what surrounds the counters of a shard. Its methods are called under the shard's lock. They do not
// block, run no code of a user, and do not call back.
type Port interface {
	Now() clock.Instant
	// Draw returns a random part of d.
	Draw(d time.Duration) time.Duration
	// Lane reports whether the lane of a route has a connection, and what keeps it from having one.
	Lane(route uint64) (up bool, trouble error)
}

// Shard is what the counters of a shard share. Its lock guards it.
type Shard struct {
	Port
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
	// Granted makes the Permits of an acquire that is granted. It is called under the shard's lock.
	Granted() *Permits
	// Complete gives the verdict. No lock is held.
	Complete(answer int64, why error)
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
