package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
)

// What happens to a name: replies, timers, messages, renewals. Each ends with Advance, which chooses the next
// command.

// Replied goes on after the reply of the command in flight, or its failure. It returns that
// command.
func (r *Entry) Replied(o *Outcome, rd *Ready) Command {
	done := r.Cmd
	r.Cmd = Command{}
	if a := done.req; a != nil { // not an orphan
		a.state = waiting
	}
	r.recordAttempt(&done, o)
	switch o.Result {
	case ClientClosed:
		r.drop(rd)
	case NotSent, LaneFull, Cancelled:
		r.notSent(&done, o, rd)
	default:
		r.replied(&done, o, rd)
	}
	r.Advance(rd)
	return done
}

// PauseOver ends a pause. A paused entry stays in the table, and one that Close set free
// serves no other name, so r is still the one that was paused.
func (r *Entry) PauseOver(rd *Ready) {
	if r.blocked.Unblock(BackingOff) {
		r.Advance(rd)
	}
}

// Reconnected goes on with a name that recovery lists, and counts what is sent.
func (r *Entry) Reconnected(by *Throttle, rd *Ready) {
	if !r.blocked.Unblock(Disconnected) {
		return
	}
	if r.next(rd); rd.Send != nil {
		r.Cmd.Throttle = by
	}
	r.finishTransition()
}

// Vacate lets a name go that nobody uses and that only lingers, and reports whether it did. Then
// the name has another entry, if any.
func (r *Entry) Vacate() bool {
	if r.InUse() {
		return false
	}
	if w := r.sub; w != nil && w.Lingers() {
		w.setTimer(0)
		w.end()
	}
	r.finishTransition()
	return r.Detached
}

// Fired is called by the hold's own timer. The watchdog has none: it is for a fixed lease,
// MaxHold, the time of a release.
func (h *Hold) Fired(now clock.Instant, rd *Ready) {
	switch h.state {
	case live:
		h.check(now, rd)
		if h.state == live {
			h.setTimer(h.timeOut()) // it was extended
		} else {
			h.Entry.advanceAfterEnd(rd)
		}
	case releasing:
		switch {
		case h.joint && h.Parent != nil: // no server is asked: its contexts are ending
		case now < h.releaseBy():
			// It was armed for the hold, or for what the server had before an Extend.
			h.boundRelease()
		default:
			h.giveUpRelease(rd)
			h.Entry.advanceAfterEnd(rd)
		}
	}
}

// Fired is called by the timer: the compensation is to be paid once more. Or nobody has answered for so long that the
// server has forgotten the owner by itself: then an engine that closes gives it up. An open one asks on. The
// bytes of an acquire may arrive when the network is back; and for how long a queue keeps a place, or a hash an
// owner, depends on others.
func (d *Compensation) Fired(now clock.Instant, rd *Ready) {
	r := d.Entry
	if r == nil || now < d.at { // paid, or set anew while this waited for the lock
		return
	}
	switch out := r.Cmd.carries(d); { // out: what it does to the owner is not known
	case d.due && (out || now < d.until || !r.Shard.closing()):
		d.wakeAt(max(d.until, now.Add(d.lease+2*time.Second)))
	case d.due:
		r.dropCompensation(d)
	default:
		// However late this is: the server may have slept as long, with the bytes of the
		// acquire before it.
		d.due = true
		d.wakeAt(now.Add(d.lease + 2*time.Second))
	}
	r.Advance(rd)
}

// AlarmFired is called by the alarm: the sleep is over, or the lingering.
func (w *Subscription) AlarmFired(rd *Ready) {
	switch {
	case w.over():
	case w.Lingers():
		w.end()
		w.res.finishTransition()
	default:
		w.act(w.Alarm(), rd)
	}
}

// OnChannel is called when something has happened to the channel.
func (w *Subscription) OnChannel(e serial.ChannelEvent, rd *Ready) { w.act(w.Heard(e), rd) }

// Woken is called on what wakeWriter has found.
func (r *Entry) Woken(rd *Ready) {
	if w := r.sub; w != nil {
		w.act(w.Event(false), rd)
	}
}

// ChannelRefused is called when the server does not let this user listen: all who wait fail.
func (w *Subscription) ChannelRefused(channel string, why error, rd *Ready) {
	if w.over() {
		return
	}
	r := w.res
	w.Unlisten() // the next waiter asks for the channel anew
	err := lockerr.Wrap(lockerr.Invalid("the server refuses channel %q to this user (see the ACL rules in docs/operations.md)", channel), why)
	failEach(&r.waiters, err, rd)
	if r.Shard.anyBehind(r) { // for them it would listen again, and be refused again
		rd.AdvanceReaders, rd.Err = r, err
		return
	}
	r.Advance(rd)
}

// act does what the wait decided, unless that is over. A waiter behind a hold of this process asks no server: what would have
// it try has the hold looked at, for that may have been removed by somebody else.
func (w *Subscription) act(action serial.Action, rd *Ready) {
	if w.over() {
		return
	}
	r := w.res
	switch {
	case action == serial.Nothing:
	case r.hold != nil:
		w.verify()
	case action == serial.Try:
		r.next(rd)
	case r.waiters.Len() > 0 && r.blocked.Block(Disconnected):
		rd.Disconnected = r
	}
	r.finishTransition()
}

// ContextsEnded advances a name after the contexts of its ended holds, Ready.Ended, have ended.
func (r *Entry) ContextsEnded(ended *Hold, rd *Ready) {
	for h := ended; h != nil; {
		x := h.extra
		r.endingContexts--
		for of := h; of != nil; of = of.Parent {
			if of.extra.ending--; of.IsAnnounced() {
				of.effect(CloseDone, 0)
				of.endHere(rd)
			}
		}
		h, x.nextEnded, x.contexts = x.nextEnded, nil, waitq.Set[Context]{}
	}
	r.Advance(rd)
}

// Renewal says for how long the grant is to be renewed, by a command that is sent now. It is
// false for one that is over, or whose hold has ended, or ends here because its time is over.
func (t *Grant) Renewal(now clock.Instant, rd *Ready) (lease time.Duration, ok bool) {
	h := t.hold()
	if h == nil {
		return 0, false
	}
	if !h.renewable(now, rd) {
		return 0, false
	}
	cfg := t.Entry.Shard.Config
	lease = cfg.Lease
	if !t.watchdog {
		// Only a look: what is left is no more than the key has.
		lease = h.Until().Sub(now)
	} else if x := h.extra; x != nil && x.maxEnd != 0 {
		lease = min(lease, x.maxEnd.Sub(now)+cfg.Margin(lease))
	}
	t.serverUntil = max(t.serverUntil, now.Add(lease))
	t.Entry.extendWriterExpiry(t.serverUntil)
	return lease, true
}

// Renewed notes that the server has raised the lease, by a command that was sent then. It
// reports whether the watchdog goes on. An acknowledgement that comes after the time of
// the hold does not bring it back.
func (t *Grant) Renewed(sent, now clock.Instant, lease time.Duration, acked int, rd *Ready) bool {
	h := t.hold()
	if h == nil || !h.renewable(now, rd) {
		return false
	}
	if !t.watchdog {
		if x := h.extra; x != nil && x.ofQuorum {
			x.lastConfirmed = max(x.lastConfirmed, sent)
		}
		return false
	}
	h.acknowledged(sent, lease)
	h.setAcked(acked)
	t.Entry.Shard.Count.Renewed++
	t.renewals = max(t.renewals, t.renewals+1)
	h.renew(RenewNext, now)
	return true
}

// Gone notes that the server does not have the owner any more.
func (t *Grant) Gone(why Loss, rd *Ready) {
	h := t.hold()
	if h == nil {
		return
	}
	h.boundReleases()
	if h.state != live { // its release is found first, and will find the same
		h.mustRelease = true
		return
	}
	t.Entry.lose(h, why, rd)
	t.Entry.advanceAfterEnd(rd)
}

// renewable reports whether a renewal concerns the hold still. If not, the grant loses its
// place among the renewals, so it is released from now on, and not handed over:
//
//	a hold                       its grant
//	unlocked, its contexts end
//	                             due for renewal: not live, leaves the renewals
//	its contexts have ended      would be the next one's, and be renewed no more
func (h *Hold) renewable(now clock.Instant, rd *Ready) bool {
	h.check(now, rd)
	h.boundReleases()
	if h.state != live {
		h.mustRelease = true
		h.Entry.advanceAfterEnd(rd)
		return false
	}
	return true
}

// AdvanceReader goes on with readers that were BehindWriter, or fails them if there is a reason.
func (r *Entry) AdvanceReader(why error, rd *Ready) {
	if !r.blocked.Unblock(BehindWriter) {
		return
	}
	if why != nil {
		failEach(&r.waiters, why, rd)
	}
	r.Advance(rd)
}

// AdvanceWriter goes on with the name that was YieldingToReaders, when those that were BehindWriter have gone on.
func (r *Entry) AdvanceWriter(rd *Ready) {
	r.blocked.Unblock(YieldingToReaders)
	r.advanceAfterEnd(rd)
}
