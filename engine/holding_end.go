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
	now := h.eng.clock.Now()
	h.end(&LostError{Name: h.name, Reason: reason}, now, fx)
	h.setOver()
	h.eng.logLost(h, reason)
	if h.parent != nil {
		h.parent.child = nil
		// The count on the server is one too high until the next command of the
		// owner; nothing depends on it.
		return
	}
	r.hold, r.tried = nil, untried
	if r.wait != nil {
		r.wait.Reset()
	}
	if reason != GoneOnServer && reason != TakenOnServer {
		r.oweHold(h, max(h.serverUntil, now))
	}
}

// end tells everybody that the hold is not live any more: its children first, its
// contexts and its channel.
func (h *holding) end(why error, now clock.Instant, fx *effects) {
	if c := h.child; c != nil {
		if why == ErrReleased || c.state == releasing {
			h.sh.count.released++ // with its parent
		}
		c.end(why, now, fx)
		c.setOver()
	}
	h.endOne(why, now, fx)
}

// setOver ends what the engine has to do with the hold. Until then, while it is being
// released, its timer or its place among the renewals bounds that; see boundReleases.
func (h *holding) setOver() {
	h.state = over
	h.eng.renewer.Leave(&h.member)
	if x := h.extra; x != nil && x.timer != nil {
		h.eng.wheel.Cancel(&x.timer.timer)
	}
}

// hookEnd tells the statistics and the hooks why h has ended. Each hold has its event, for
// it had one when it was granted.
func (h *holding) hookEnd() {
	lost, _ := h.ending.(*LostError)
	if lost == nil {
		h.eng.hookReleased(h)
		return
	}
	h.sh.count.lost[lost.Reason]++
	h.eng.hookLost(h, lost.Reason)
}

func (h *holding) endOne(why error, now clock.Instant, fx *effects) {
	if h.state != live {
		// A child that is being released: the end of its parent settles it.
		if h.state == releasing && h.parent != nil {
			h.settleUnlock(nil, fx)
		}
		return
	}
	h.ending = why
	h.validUntil.Store(min(h.validUntil.Load(), int64(now)))
	h.sh.count.held--
	h.announce(fx)
	h.hookEnd()
	h.handle = nil
	x := h.extra
	if x == nil {
		return
	}
	for {
		a, ok := x.children.Front()
		if !ok {
			break
		}
		a.fail(why, fx)
	}
	if x.extend != nil {
		x.extend.finish(h.extendable())
		x.extend = nil
	}
}
