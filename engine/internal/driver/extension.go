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
	done chan struct{} // closed when it is settled
}

// Done is closed when the Extend is settled.
func (x *Extension) Done() <-chan struct{} { return x.done }

// NewExtension makes one, which StartExtend sends.
func NewExtension(lease time.Duration) *Extension {
	x := &Extension{done: make(chan struct{})}
	x.Port, x.Lease = x, lease
	return x
}

// OnResult implements lock.ExtendPort.
func (x *Extension) OnResult() { close(x.done) }

// MayExtend is why d is no good for an Extend of h, nil if it is.
func (h *TimedHold) MayExtend(ctx context.Context, d time.Duration) error {
	margin := h.Shard().Config().Margin(d)
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
func (h *TimedHold) ExtendPatience() time.Duration { return h.Shard().Config().Patience(h.Acks) }

// ExtendBy makes the lease last d from now, and waits for the answer.
func (h *TimedHold) ExtendBy(ctx context.Context, d time.Duration) error {
	if err := h.MayExtend(ctx, d); err != nil {
		return err
	}
	patience, stop := h.Shard().Table.World.After(h.ExtendPatience())
	defer stop()
	x := NewExtension(d)
	ahead, err := h.StartExtend(x)
	return h.AwaitExtend(ctx, x, ahead, err, patience)
}

// StartExtend has x sent. If another is ahead of it, which is returned, x must be started
// again when that one is done.
func (h *TimedHold) StartExtend(x *Extension) (ahead *Extension, err error) {
	var rd lock.Ready
	h.Shard().Lock()
	first, err := h.Extend(&x.Extend, &rd)
	h.Shard().Unlock()
	h.Shard().Table.ApplyForUser(&rd)
	if first != nil {
		ahead = first.Port.(*Extension)
	}
	return ahead, err
}

// AwaitExtend waits for the result of x, which StartExtend has started with that result.
func (h *TimedHold) AwaitExtend(ctx context.Context, x, ahead *Extension, err error, patience <-chan struct{}) error {
	for {
		if err != nil {
			return err
		}
		next := x
		if ahead != nil {
			next = ahead
		}
		switch h.Shard().Table.World.Wait(next.done, ctx.Done(), patience) {
		case 0:
			if next == x {
				return x.Err
			}
		case 1:
			return h.GiveUpExtend(x, context.Cause(ctx))
		case 2:
			return h.GiveUpExtend(x, nil)
		}
		ahead, err = h.StartExtend(x)
	}
}

// GiveUpExtend gives up waiting, for that cause, or, if it is nil, because the time is
// over.
func (h *TimedHold) GiveUpExtend(x *Extension, cause error) error {
	h.Shard().Lock()
	defer h.Shard().Unlock()
	return h.StopExtending(&x.Extend, cause)
}
