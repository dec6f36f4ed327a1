package engine

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// extension is an Extend under way. Only one of a hold is sent at a time; the next one
// waits for it and then takes its own turn.
type extension struct {
	lease   time.Duration
	dropped bool // the caller stopped waiting while the command was out
	done    chan struct{}
	err     error
}

// finish tells the caller. The caller of finish holds the shard's lock.
func (x *extension) finish(err error) {
	x.err = err
	close(x.done)
}

// mayExtend is why d is no good for an Extend of h, nil if it is.
func (h *holding) mayExtend(ctx context.Context, d time.Duration) error {
	e := h.eng
	switch {
	case ctx == nil:
		return errNoContext
	case d < time.Millisecond || d > maxDuration:
		return reason.Invalid("Extend (%v) must be between 1ms and 100 years", d)
	case d <= e.margin(d):
		return reason.Invalid("Extend (%v) must be longer than the safety margin (%v)", d, e.margin(d))
	case h.timekeeper().watched:
		return reason.Invalid("Extend on a hold that the watchdog renews: take it with Lease")
	case h.follows:
		return reason.Invalid("Extend on a re-entry without a Lease of its own, which lasts as long as the hold that it re-enters: extend that one")
	}
	return nil
}

// extendPatience is how long an Extend waits for the answer.
func (h *holding) extendPatience() time.Duration {
	if h.member.Want() != 0 {
		return h.eng.cfg.CommandTimeout + h.eng.cfg.AckTimeout
	}
	return h.eng.cfg.CommandTimeout
}

func (h *holding) extendBy(ctx context.Context, d time.Duration) error {
	if err := h.mayExtend(ctx, d); err != nil {
		return err
	}
	patience := time.NewTimer(h.extendPatience())
	defer patience.Stop()
	x := &extension{lease: d, done: make(chan struct{})}
	ahead, err := h.startExtend(x)
	return h.awaitExtend(ctx, x, ahead, err, patience.C)
}

// startExtend has x sent. If another is ahead of it, which is returned, x must be started
// again when that one is done.
func (h *holding) startExtend(x *extension) (ahead *extension, err error) {
	var fx effects
	h.sh.mu.Lock()
	h.check(h.eng.clock.Now(), &fx)
	err = h.extendable()
	switch {
	case err != nil:
		h.res.goOnAfter(&fx)
	case h.more().extend != nil:
		ahead = h.extra.extend
	default:
		h.extra.extend, h.extra.refusal = x, nil
		h.res.next(&fx)
	}
	h.sh.mu.Unlock()
	fx.runForUser(h.eng)
	return ahead, err
}

// awaitExtend waits for the result of x, which startExtend has started with that result.
func (h *holding) awaitExtend(ctx context.Context, x, ahead *extension, err error, patience <-chan time.Time) error {
	for {
		if err != nil {
			return err
		}
		next := x
		if ahead != nil {
			next = ahead
		}
		select {
		case <-next.done:
			if next == x {
				return x.err
			}
		case <-ctx.Done():
			return h.stopExtending(x, context.Cause(ctx))
		case <-patience:
			return h.stopExtending(x, nil)
		}
		ahead, err = h.startExtend(x)
	}
}

// extendable is why the hold cannot be extended any more, nil if it can.
func (h *holding) extendable() error {
	if h.ending == ErrReleased {
		return ErrNotHeld
	}
	return h.ending
}

// timekeeper is the hold whose time counts for h.
func (h *holding) timekeeper() *holding {
	for h.follows {
		h = h.parent
	}
	return h
}

// stopExtending gives up waiting, for that cause, or, if it is nil, because the time is
// over. If the command is in flight it may still succeed. Then the lease is longer than the
// caller knows, which is harmless. x keeps its place until the reply, which would otherwise
// be taken for the reply to the next Extend:
//
//	Extend(10 s): sent; its ctx ends
//	Extend(60 s) takes the place
//	reply to the first: the second is told 60 s
func (h *holding) stopExtending(x *extension, cause error) error {
	h.sh.mu.Lock()
	defer h.sh.mu.Unlock()
	select {
	case <-x.done:
		return x.err
	default:
	}
	if err := h.extendable(); err != nil {
		return err // it waited for its turn, which never came; ctx may have ended with the hold
	}
	if cmd := &h.res.cmd; cmd.what == extending && cmd.hold == h && h.extra.extend == x {
		x.dropped = true
	} else if h.extra.extend == x {
		h.extra.extend = nil
		x.finish(nil) // for the one that waits behind it, which takes its turn
	}
	// Not sooner: the name of a hold that has ended may be another's by now.
	if cause == nil {
		return reason.Because(ErrOutcomeUnknown, h.eng.unavailable(h.res.route, h.trouble()))
	}
	return h.unsettled(cause)
}

// extendReplied goes on after the reply of an Extend.
func (r *resource) extendReplied(c *command, o outcome, fx *effects) {
	h := c.hold
	h.check(h.eng.clock.Now(), fx) // an answer that comes too late does not bring the hold back
	if r.saysGone(c, o, fx) || h.state != live {
		return // the end of the hold has told the caller
	}
	x := h.extra.extend
	var err error
	switch {
	case o.verdict == answered && o.code == script.Renewed && o.ack.Missing():
		err = h.eng.ackError(h.name, o.ack) // the primary has it longer than we count on
		h.sh.count.unacked++
	case o.verdict == answered && o.code == script.Renewed:
		h.setAcked(o.ack.Count())
		h.acknowledged(o.sent, c.span)
		h.wakeAt(h.timeOut())
	case o.verdict == denied:
		err = o.err
	case !x.dropped:
		h.extra.refusal = o.err
		return // harmless to repeat: next sends it again
	}
	h.extra.extend, h.extra.refusal = nil, nil
	x.finish(err)
}
