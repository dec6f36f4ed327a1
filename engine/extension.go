package engine

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// extension is one Extend: the machine's, and its caller.
type extension struct {
	machine.Extend
	done chan struct{} // closed when it is settled
}

func newExtension(lease time.Duration) *extension {
	x := &extension{done: make(chan struct{})}
	x.Port, x.Lease = x, lease
	return x
}

// Settled implements machine.ExtendPort.
func (x *extension) Settled() { close(x.done) }

// mayExtend is why d is no good for an Extend of h, nil if it is.
func (h *holding) mayExtend(ctx context.Context, d time.Duration) error {
	margin := h.Shard.Config().Margin(d)
	switch {
	case ctx == nil:
		return errNoContext
	case d < time.Millisecond || d > maxDuration:
		return reason.Invalid("Extend (%v) must be between 1ms and 100 years", d)
	case d <= margin:
		return reason.Invalid("Extend (%v) must be longer than the safety margin (%v)", d, margin)
	case h.Watched():
		return reason.Invalid("Extend on a hold that the watchdog renews: take it with Lease")
	case h.Follows():
		return reason.Invalid("Extend on a re-entry without a Lease of its own, which lasts as long as the hold that it re-enters: extend that one")
	}
	return nil
}

// extendPatience is how long an Extend waits for the answer.
func (h *holding) extendPatience() time.Duration { return h.Shard.Config().Patience(h.Want) }

func (h *holding) extendBy(ctx context.Context, d time.Duration) error {
	if err := h.mayExtend(ctx, d); err != nil {
		return err
	}
	patience, stop := h.engine().world.After(h.extendPatience())
	defer stop()
	x := newExtension(d)
	ahead, err := h.startExtend(x)
	return h.awaitExtend(ctx, x, ahead, err, patience)
}

// startExtend has x sent. If another is ahead of it, which is returned, x must be started
// again when that one is done.
func (h *holding) startExtend(x *extension) (ahead *extension, err error) {
	var fx machine.Effects
	h.Shard.Lock()
	first, err := h.Extend(&x.Extend, &fx)
	h.Shard.Unlock()
	h.Shard.Table.RunForUser(&fx)
	if first != nil {
		ahead = first.Port.(*extension)
	}
	return ahead, err
}

// awaitExtend waits for the result of x, which startExtend has started with that result.
func (h *holding) awaitExtend(ctx context.Context, x, ahead *extension, err error, patience <-chan struct{}) error {
	for {
		if err != nil {
			return err
		}
		next := x
		if ahead != nil {
			next = ahead
		}
		switch h.engine().world.Wait(next.done, ctx.Done(), patience) {
		case 0:
			if next == x {
				return x.Err
			}
		case 1:
			return h.stopExtending(x, context.Cause(ctx))
		case 2:
			return h.stopExtending(x, nil)
		}
		ahead, err = h.startExtend(x)
	}
}

// stopExtending gives up waiting, for that cause, or, if it is nil, because the time is
// over.
func (h *holding) stopExtending(x *extension, cause error) error {
	h.Shard.Lock()
	defer h.Shard.Unlock()
	return h.StopExtending(&x.Extend, cause)
}
