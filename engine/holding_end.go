package engine

import (
	"github.com/pawl-lock/pawl/internal/clock"
)

// expired reports whether the hold's time is over, and why.
func (h *holding) expired(now clock.Instant) (LostReason, bool) {
	if x := h.extra; x != nil && x.maxEnd != 0 && now >= x.maxEnd {
		return MaxHoldReached, true
	}
	if now < h.until() {
		return 0, false
	}
	if h.watched || h.follows {
		return NotRenewed, true
	}
	return LeaseEnded, true
}

// check ends the hold if its time is over. The clock is authoritative: timers and
// channels only follow it. The caller holds the shard's lock.
func (h *holding) check(now clock.Instant, fx *effects) {
	if h.parent != nil {
		h.parent.check(now, fx) // its end ends h, for its own reason
	}
	if h.state != live {
		return
	}
	if reason, yes := h.expired(now); yes {
		h.res.lose(h, reason, fx)
	}
}

// lose ends a live hold and its children before they were unlocked. The owner's
// field may still be on the server, where nobody renews it; a root's is therefore
// released as soon as its lane works.
func (r *resource) lose(h *holding, reason LostReason, fx *effects) {
	if h.state != live {
		return
	}
	h.end(&LostError{Name: h.name, Reason: reason}, fx)
	h.state = over
	h.sh.count.lost[reason]++
	h.eng.logLost(h, reason)
	h.eng.hookLost(h, reason)
	if h.parent != nil {
		h.parent.child = nil
		// The count on the server is one too high until the next command of the
		// owner; nothing depends on it.
		return
	}
	r.hold = nil
	if r.wait != nil {
		r.wait.Reset()
	}
	if reason != GoneOnServer && reason != TakenOnServer {
		r.owe(h.id, certain, h.lease, outcome{sent: h.eng.clock.Now()})
	}
}

// end tells everybody that the hold is not live any more: its children, its
// channel, its contexts, the renewer.
func (h *holding) end(why error, fx *effects) {
	for c := h.child; c != nil; c = c.child {
		c.endOne(why, fx)
		c.state = over
	}
	h.endOne(why, fx)
}

func (h *holding) endOne(why error, fx *effects) {
	if h.state != live {
		// A child that is being released: the end of its parent settles it.
		if h.state == releasing && h.parent != nil {
			h.settleUnlock(nil, fx)
		}
		return
	}
	h.ending = why
	h.sh.count.held--
	h.eng.renewer.Leave(&h.member)
	if h.done != nil {
		close(h.done)
	}
	h.handle = nil
	x := h.extra
	if x == nil {
		return
	}
	if x.timer != nil {
		h.eng.wheel.Cancel(&x.timer.timer)
	}
	for {
		a, ok := x.children.Front()
		if !ok {
			break
		}
		a.fail(fail(ErrNotAcquired, why), fx)
	}
	if x.extend != nil {
		x.extend.finish(why)
		x.extend = nil
	}
	for c := range x.contexts {
		fx.cancelled = append(fx.cancelled, func() { c.cancel(why) })
	}
	x.contexts = nil
}
