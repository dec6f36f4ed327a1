package counter

import "github.com/pawl-lock/pawl/engine/internal/lock"

// Shard is what the counters of a shard share: with its locks the clock, the phase, and the statistics.
type Shard struct {
	Locks  *lock.Shard
	number uint64 // of the latest command
}

func (s *Shard) closing() bool { return s.Locks.Phase != lock.Open }

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
