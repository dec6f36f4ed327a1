package engine

import (
	"github.com/pawl-lock/pawl/engine/internal/queue"
)

// effects is what a transition leaves to be done after the shard's lock is given
// up: sending the next command, which may write a socket or complete at once, and
// telling users. Nothing of a user runs under a lock of this package.
type effects struct {
	send      *resource
	stalled   *resource
	acquired  queue.List[*acquisition]
	unlocked  queue.List[*unlocking]
	cancelled []func() // contexts of holds that ended
}

// finish tells the acquisition its result.
func (fx *effects) finish(a *acquisition) {
	if a.listed {
		panic("BUG: engine: acquisition finished twice")
	}
	a.listed = true
	fx.acquired.PushBack(&a.place)
}

// stall hands the resource to the recovery queue.
func (fx *effects) stall(r *resource) { fx.stalled = r }

// run does it all. The caller holds no lock.
func (fx *effects) run(e *Engine) {
	// First the wire, then the users: the round trip is the longer wait.
	if r := fx.send; r != nil {
		e.submit(r)
	}
	if r := fx.stalled; r != nil {
		e.recovery.add(e, r)
	}
	for {
		a, ok := fx.acquired.PopFront()
		if !ok {
			break
		}
		a.deliver()
	}
	for {
		u, ok := fx.unlocked.PopFront()
		if !ok {
			break
		}
		u.deliver()
	}
	for _, cancel := range fx.cancelled {
		cancel()
	}
}
