package driver

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Extension is one Extend: the core's, and its caller.
type Extension struct {
	lock.Extend
	hold *TimedHold
	done chan struct{} // closed when it is settled
}

// MayExtend is why d is no good for an Extend of h, nil if it is.
func (h *TimedHold) MayExtend(ctx context.Context, d time.Duration) error {
	margin := h.Shard().Locks.Config.Margin(d)
	switch {
	case ctx == nil:
		return lockerr.ErrNoContext
	case d < time.Millisecond || d > lock.MaxDuration:
		return lockerr.Invalid("Extend (%v) must be between 1ms and 100 years", d)
	case d <= margin:
		return lockerr.Invalid("Extend (%v) must be longer than the safety margin (%v)", d, margin)
	case h.Watched():
		return lockerr.Invalid("Extend on a hold that the watchdog renews: take it with Lease")
	case h.InheritsLease():
		return lockerr.Invalid("Extend on a re-entry without a Lease of its own, which lasts as long as the hold that it re-enters: extend that one")
	}
	return nil
}

// ExtendPatience is how long an Extend waits for the answer.
func (h *TimedHold) ExtendPatience() time.Duration { return h.Shard().Locks.Config.Patience(h.Acks) }

// ExtendBy makes the lease last d from now, and waits for the answer.
func (h *TimedHold) ExtendBy(ctx context.Context, d time.Duration) error {
	if err := h.MayExtend(ctx, d); err != nil {
		return err
	}
	patience, stop := h.Shard().Table.World.After(h.ExtendPatience())
	defer stop()
	return h.StartExtend(d).Await(ctx, patience)
}

// StartExtend begins to make the lease last d from now; Await waits for the answer.
func (h *TimedHold) StartExtend(d time.Duration) *Extension {
	x := &Extension{hold: h, done: make(chan struct{})}
	x.Handle, x.Lease = x, d
	var rd lock.Ready
	h.Shard().Lock()
	h.Extend(&x.Extend, &rd)
	h.Shard().Unlock()
	h.Shard().Table.ApplyForUser(&rd)
	return x
}

// Await waits for the result.
func (x *Extension) Await(ctx context.Context, patience <-chan struct{}) error {
	switch x.hold.Shard().Table.World.Wait(x.done, ctx.Done(), patience) {
	case 0:
		return x.Err
	case 1:
		return x.giveUp(context.Cause(ctx))
	}
	return x.giveUp(nil)
}

// giveUp gives up waiting, for that cause, or, if it is nil, because the time is over.
func (x *Extension) giveUp(cause error) error {
	x.hold.Shard().Lock()
	defer x.hold.Shard().Unlock()
	return x.hold.StopExtending(&x.Extend, cause)
}
