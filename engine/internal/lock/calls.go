package lock

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// What users do, as calls of their goroutines. Each ends with Advance, which chooses the next command.

// Admit takes a request for the name, and chooses what is to be sent.
func (r *Entry) Admit(a *Request, rd *Ready) {
	r.Shard.Count.Pending++
	a.res = r
	r.admit(a, rd)
	r.next(rd)
	if r.Cmd.req != a && !a.Ended() && a.since == 0 {
		a.waitsFrom(r.Shard.Stamp())
	}
	if a.Try() && !a.Ended() && (a.state != trying || a.Acks != 0) {
		// It has to wait for the answer to another command, for a connection, or for
		// the durable commands that are queued before its own.
		a.giveUpAt(r.Shard.Now().Add(r.Shard.Config.Patience(a.Acks)))
	}
	r.advanceReaders(rd)
	r.finishTransition()
}

// AdmitAsync is Admit for a LockAsync. A first command that is sent now fails if its lane is full, for its
// caller is not blocked, and can try again.
func (r *Entry) AdmitAsync(a *Request, rd *Ready) {
	if r.Admit(a, rd); r.Cmd.req == a { // otherwise the command in flight is another's, and the lane may be reading it
		r.Cmd.FirstAsync = true
	}
}

// Refuse ends a request for the name that is not admitted.
func (r *Entry) Refuse(a *Request, why error, rd *Ready) {
	r.Shard.Count.Pending++
	a.res = r
	a.fail(why, rd)
	r.finishTransition()
}

// Cancel gives up a request that has been admitted, and has not ended.
func (a *Request) Cancel(s lockerr.Cancel, rd *Ready) {
	r := a.res
	a.fail(a.cancelError(s), rd)
	r.Advance(rd)
}

// Unlock starts the release of h, or joins the one under way; u gets the result.
func (h *Hold) Unlock(u *Unlock, rd *Ready) {
	now := h.Entry.Shard.Now()
	h.check(now, rd)
	switch {
	case h.state == live:
		if h.Parent != nil {
			h.leaveBy = h.Until() // it changes a number that nothing depends on
		}
		h.end(0, now, rd)
		h.state, h.child = releasing, nil
		if h.extra != nil {
			h.extra.refusal = nil
		}
		h.await(u)
		h.endHere(rd)
		h.Entry.Advance(rd)
	case h.state == releasing:
		h.await(u)
	default:
		u.complete(h.UnlockResult(), rd)
		h.Entry.advanceAfterEnd(rd) // check may have ended h, or what it was a re-entry of
	}
}

// GiveBack is the Unlock of what nobody wants. That is released, not handed over: the next one may not
// want it either, and so on, all in one call on an event loop.
func (h *Hold) GiveBack(u *Unlock, rd *Ready) {
	h.mustRelease = true
	h.Unlock(u, rd)
}

// Extend has x sent, after those that came before it.
func (h *Hold) Extend(x *Extend, rd *Ready) {
	h.check(h.Entry.Shard.Now(), rd)
	switch why := h.extendable(); {
	case why != nil:
		h.finishExtend(x, why)
		h.Entry.advanceAfterEnd(rd)
	case h.joint: // a re-entry's: the server knows nothing of its lease
		h.acknowledged(h.Entry.Shard.Now(), x.Lease)
		h.setTimer(h.timeOut())
		h.finishExtend(x, nil)
	default:
		last := &h.more().extend
		for *last != nil {
			last = &(*last).next
		}
		*last = x
		h.Entry.next(rd)
	}
}

// Check ends the hold if its time is over, and returns why it has ended, if it has.
func (h *Hold) Check(now clock.Instant, rd *Ready) error {
	h.check(now, rd)
	why := h.Ending()
	if why != nil {
		h.Entry.advanceAfterEnd(rd)
	}
	return why
}

// StopWaiting ends every request that waits, and what would only keep a name in the table
// that nobody uses any more: a subscription that lingers, compensations that are idle.
func (r *Entry) StopWaiting(rd *Ready) {
	r.sub.stopLingering()
	if r.hold != nil {
		r.hold.Each(func(h *Hold) {
			for ; h != nil; h = h.child {
				failEach(&h.rare().children, lockerr.ErrClosed, rd)
			}
		})
	}
	r.failAll(rd)
	r.leaveUnneededPlace()
	for d := r.compensations; d != nil; {
		next := d.next
		if d.idle() {
			r.dropCompensation(d)
		}
		d = next
	}
	r.Advance(rd)
}

// EndHold tells the holder, and makes a compensation of what it held.
func (r *Entry) EndHold(rd *Ready) { r.LoseHold(EngineClosed, rd) }

// LoseHold is EndHold for another reason.
func (r *Entry) LoseHold(why Loss, rd *Ready) {
	if r.hold != nil {
		r.lose(r.hold, why, rd)
	}
	r.Advance(rd)
}

// Drop ends all that is left: nothing will be sent any more.
func (r *Entry) Drop(rd *Ready) {
	r.drop(rd)
	r.Advance(rd)
}
