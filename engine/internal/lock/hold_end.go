package lock

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// expired reports whether the hold's time is over, and why.
func (h *Hold) expired(now clock.Instant) (Loss, bool) {
	if x := h.extra; x != nil && x.maxEnd != 0 && now >= x.maxEnd {
		return MaxHoldReached, true
	}
	if now < h.Until() {
		return 0, false
	}
	if h.watched() || h.inheritsLease {
		return NotRenewed, true
	}
	return LeaseEnded, true
}

// check ends the hold if its time is over. The clock is authoritative: timers and
// channels only follow it. The caller holds the shard's lock.
func (h *Hold) check(now clock.Instant, rd *Ready) {
	if h.Parent != nil {
		h.Parent.check(now, rd) // its end ends h, for its own reason
	}
	if h.state != live {
		return
	}
	if why, yes := h.expired(now); yes {
		h.Entry.lose(h, why, rd)
	}
}

// lose ends a live hold and its children before they were unlocked, and with an outermost one
// all of its grant. The owner's
// field may still be on the server, where nobody renews it; a root's is therefore
// released as soon as its lane works.
func (r *Entry) lose(h *Hold, why Loss, rd *Ready) {
	if h.state != live {
		return
	}
	now := r.Shard.Now()
	if h.Parent != nil {
		h.loseOne(why, now, rd)
		if h.joint {
			h.endHere(rd)
			return
		}
		h.Parent.child = nil
		// The count on the server is one too high until the next command of the
		// owner; nothing depends on it.
		return
	}
	h.Each(func(one *Hold) { one.loseOne(why, now, rd) })
	r.hold, r.lastAttempt = nil, NoAnswer
	r.sub.Reset()
	r.yieldToReaders()
	// Of several permits only some may be gone. Where there is a queue, the owner may be in it again: a
	// replica was promoted that has not heard of the grant.
	kind := &r.Shard.Traits[h.Kind]
	several := kind.Entries == PerGrant && byte(h.ID) != 0
	if why != KeyOverwritten && (why != RemovedOnServer || several || kind.Waiting == Queueing) {
		r.compensateGrant(h, max(h.serverUntil, now))
	}
}

func (h *Hold) loseOne(why Loss, now clock.Instant, rd *Ready) {
	h.end(why, now, rd)
	h.setOver()
	h.effect(Lost, why)
}

// end tells everybody that the hold is not live any more: its children first, its
// contexts and its channel. It was released (0) or lost.
func (h *Hold) end(loss Loss, now clock.Instant, rd *Ready) {
	if c := h.child; c != nil && c.state != over {
		if loss == 0 || c.state == releasing {
			h.Entry.Shard.Count.Released++ // with its parent
		}
		c.end(loss, now, rd)
		c.setOver()
	}
	if h.state != live {
		// A child that is being released: the end of its parent settles it.
		if h.state == releasing && h.Parent != nil {
			h.completeUnlocks(nil, rd)
		}
		return
	}
	h.ended = unlocked
	if loss != 0 {
		h.ended, h.more().result = lost, h.Entry.Shard.LossError(h.Kind, h.Name, loss)
		h.Entry.Shard.Count.Lost[loss]++
	}
	h.ownUntil.Store(min(h.ownUntil.Load(), int64(now)))
	h.Entry.Shard.Count.Held--
	h.announce(rd)
	h.effect(Ended, loss)
	x := h.extra
	if x == nil {
		return
	}
	failEach(&x.children, h.Ending(), rd)
	for ; x.extend != nil; x.extend = x.extend.next {
		h.finishExtend(x.extend, h.extendable())
	}
}

// setOver ends what the engine has to do with the hold and, if it is the outermost one, with
// its grant. Until then, while it is being released, its timer or its grant's place among
// the renewals bounds that; see boundReleases.
func (h *Hold) setOver() {
	h.state = over
	if h.timeOut() != 0 || h.leaveBy != 0 { // else it never had a timer
		h.setTimer(0)
	}
	if next := h.hold(); h.Parent == nil && (next == nil || next == h) { // else it was handed over
		h.renew(RenewNoMore, 0)
	}
}

// drop ends all that there is: the client is closed.
func (r *Entry) drop(rd *Ready) {
	r.retire()
	if r.sub != nil {
		r.sub.queued = false
	}
	r.failAll(rd)
	if h := r.hold; h != nil {
		if h.state == live {
			r.lose(h, EngineClosed, rd)
		} else {
			h.released(h.named(lockerr.Wrap(lockerr.ErrOutcomeUnknown, lockerr.ErrClosed)), rd)
		}
	}
	for r.compensations != nil {
		r.dropCompensation(r.compensations)
	}
}
