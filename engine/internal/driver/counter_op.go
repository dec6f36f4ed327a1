package driver

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// CounterOp is one operation on a count, with the shard of its name, whose lock guards it.
type CounterOp struct {
	counter.Op
	Shard *Shard

	deadline deadline // of nothing: its time has no bound
	outage   *Outage  // nil: it waits for the server as long as its time lasts
}

// Init makes it ready.
func (a *CounterOp) Init(sh *Shard, p counter.OpPort, what counter.OpKind, n int64) {
	a.Op.Init(p, what, n)
	a.Shard = sh
}

// Bound gives the operation up after d, for that reason; nil: it did not find a server.
func (a *CounterOp) Bound(d time.Duration, late error) {
	a.deadline.init(a, late)
	a.Shard.Table.Timers.Schedule(&a.deadline.timer, a.Shard.Now().Add(d))
}

// Outage gives the operation up when its server has been away for d, or returns why that is so already.
func (a *CounterOp) Outage(route uint64, d time.Duration) error {
	t := a.Shard.Table
	a.outage = &Outage{of: a, sites: []site{{t.Client, route}}, need: 1, most: d}
	return t.Outages.add(a.outage)
}

// Admit asks, unless the engine is being closed. The caller holds the lock.
func (a *CounterOp) Admit(k CounterKey, route uint64, rd *counter.Ready) {
	a.Shard.Count(k, route).core.Admit(&a.Op, rd)
}

// Cancel gives the operation up unless its caller has been told; it reports whether it did.
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

// Refuse ends an operation that is not admitted; without a reason it is done, and nothing is asked. The caller holds
// the lock.
func (a *CounterOp) Refuse(why error, rd *counter.Ready) {
	if why != nil && a.Kind == counter.Acquire {
		a.Shard.Locks.Count.NotAcquired++
	}
	a.Op.Refuse(why, rd)
}

// Unbound is called when the operation has its verdict: nothing gives it up any more.
func (a *CounterOp) Unbound() {
	if a.deadline.of != nil {
		a.Shard.Table.Timers.Cancel(&a.deadline.timer)
	}
	if a.outage != nil {
		a.Shard.Table.Outages.remove(a.outage)
	}
}
