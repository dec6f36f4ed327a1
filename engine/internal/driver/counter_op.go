package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// CounterOp is one operation on a count, with the shard of its name, whose lock guards it.
type CounterOp struct {
	counter.Op
	Shard *Shard
}

// Admit asks, unless the engine is being closed. The caller holds the lock.
func (a *CounterOp) Admit(k CounterKey, route uint64, rd *counter.Ready) {
	a.Shard.Count(k, route).core.Admit(&a.Op, rd)
}

// Cancel implements PendingOwner: it gives the operation up unless its caller has been told.
func (a *CounterOp) Cancel(s lockerr.Cancel) bool {
	var rd counter.Ready
	a.Shard.Lock()
	completed := a.Completed()
	switch {
	case completed:
	case a.Counter() == nil:
		a.Refuse(s.NotAskedErr(), &rd)
	default:
		a.Op.Cancel(s, &rd)
	}
	a.Shard.UnlockCount(&rd)
	return !completed
}

// Over implements PendingOwner.
func (a *CounterOp) Over() bool {
	a.Shard.Lock()
	defer a.Shard.Unlock()
	return a.Completed()
}

// Refuse ends an operation that is not admitted; without a reason it is done, and nothing is asked. The caller holds
// the lock.
func (a *CounterOp) Refuse(why error, rd *counter.Ready) {
	if why != nil && a.Kind == counter.Acquire {
		a.Shard.Locks.Count.NotAcquired++
	}
	a.Op.Refuse(why, rd)
}
