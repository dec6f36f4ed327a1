package lock

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
)

// admit queues a: under the hold that it re-enters, among the attempts of TryLock, or
// among the waiters.
func (r *Entry) admit(a *Request, rd *Ready) {
	if r.hold != nil {
		// What refuses a, or what a re-enters, must be a hold that is one still: after a
		// suspend, say, no timer may have run.
		now := r.Shard.Now()
		r.hold.innermost().check(now, rd)
		a.waitsFrom(now)
		if a.extra != nil {
			a.extra.Asked = now
		}
	} else if a.extra != nil && a.extra.Observed != nil {
		a.extra.Asked = r.Shard.Stamp()
	}
	if a.Parent != nil { // one of several may be another than that
		a.Parent.innermost().check(r.Shard.Now(), rd)
	}
	// The hold may have ended since the context was looked at. Then a does not
	// re-enter, but queues like any other.
	a.Parent = a.Parent.InnermostLive()
	if err := a.resolveAcks(); err != nil {
		a.fail(err, rd)
		return
	}
	if h := a.Parent; h != nil {
		if a.Try() && (h.reentered() || h.lockWaits()) {
			a.refuseLocal(h, rd)
			return
		}
		h.more().children.PushBack(&a.place)
		if h.joint {
			h.reenterHere(rd)
		}
		return
	}
	if a.Try() {
		holder := r.hold
		if w := r.ahead(a); w != nil {
			holder = w.timely()
		}
		if holder != nil && holder.state == live {
			a.refuseLocal(holder, rd)
			return
		}
		if r.tries == nil {
			r.tries = new(waitq.List[*Request])
		}
		r.tries.PushBack(&a.place)
		return
	}
	r.waiters.PushBack(&a.place)
	r.gather(a)
	if w := r.behind(a); w != nil {
		r.waitBehindWriter(w)
	}
	r.sub.stopLingering()
}

// acquireReplied goes on after the reply of an acquire, or after its connection
// died.
func (r *Entry) acquireReplied(c *Command, o *Outcome, rd *Ready) {
	a := c.req // nil: an orphan
	if a != nil && a.since == 0 {
		a.waitsFrom(o.Sent)
	}
	if c.Head && !(o.Result == Replied && o.Reply == HeldByOther) {
		r.sub.Reset()
	}
	if c.Join {
		r.joinReplied(o)
	}
	switch o.Result {
	case Replied:
		switch o.Reply {
		case NotOwner: // the writer beside which it would read
			if h := c.hold.Root(); h.state == live {
				h.renew(RenewSoon, 0) // which finds the same
			}
			switch {
			case a == nil:
			case a.Try() && !a.extra.Quorum && c.hold.state == live:
				a.fail(r.Shard.LossError(c.hold.Kind, c.hold.Name, RemovedOnServer), rd)
			default: // it asks as any other: one server's loss is not that of a RedLock
				a.extra.Writer = nil
			}
			return
		case HeldByOther:
		default:
			r.granted(c, o, rd)
			return
		}
		a.keepsQueuePlace(c)
		if c.Head {
			switch w, next := r.overtaken(), r.First(); {
			case w != nil:
				r.waitBehindWriter(w)
			case next != nil && !r.tooMany(c, next):
				r.refusedFor(c, o)
			default:
				r.sub.Reset()
			}
		}
		if a != nil && a.Try() {
			a.fail(o.refusal(), rd)
		}
	case Unknown:
		// The server may have granted it, or may yet: its owner is in doubt.
		r.compensateAcquire(c, inDoubt, o)
		a.unanswered(o, rd)
	case RetryLater:
		if o.Begun && !a.keepsQueuePlace(c) {
			r.compensateAcquire(c, certain, o)
		}
		a.unanswered(o, rd)
	case WrongType:
		if a != nil && !c.Join { // else it tries once more, and may have met the queue
			a.fail(lockerr.Wrap(lockerr.ErrWrongType, o.Err), rd)
		}
	case Refused:
		// An error from inside the script does not say what was written before it.
		r.compensateAcquire(c, certain, o)
		if a != nil && !c.Join {
			a.fail(o.Err, rd)
		}
	}
	if c.Head && r.sub != nil {
		r.sub.moving = o.Moving
	}
}

// unanswered is called when the server has not said who has the lock: there was no answer, or it
// refuses for now. That is not the answer that a TryLock is for, so it tries again, for as long as
// a connection may be silent. a is nil if nobody wants it any more.
func (a *Request) unanswered(o *Outcome, rd *Ready) {
	if a == nil || !a.Try() {
		return
	}
	sent := o.Sent
	if sent == 0 { // it never was
		sent = o.Now
	}
	end := sent.Add(a.res.Shard.Config.Patience(a.Acks))
	if a.Persists == UntilRefused || end <= o.Now {
		a.fail(lockerr.Wrap(lockerr.ErrUnavailable, o.Err), rd)
		return
	}
	a.giveUpAt(end)
}

// reenterReplied goes on after the reply of a re-entry.
func (r *Entry) reenterReplied(c *Command, o *Outcome, rd *Ready) {
	a := c.req
	if r.applyNotOwner(c, o, rd) || a == nil { // gone: that ends a, too
		// Of an orphan the server may count one more than is held. The next command
		// of this owner carries the right count, and the last one removes the field
		// whatever its number.
		return
	}
	switch o.Result {
	case Replied:
		if o.Unacked != nil {
			// The server may count one more than is held, as with an orphan.
			a.unacked(o, rd)
			return
		}
		h := r.newHold(a, a.Parent.Root().ID, o)
		if h.Until() <= o.Now {
			r.lateGrant(a, o, rd)
			return
		}
		h.Parent.child = h
		h.begin(a, o.Now)
		a.grant(h, rd)
	case Refused:
		a.fail(o.Err, rd)
	case Unknown, RetryLater:
		// Harmless to repeat: next sends it again.
		a.unanswered(o, rd)
	}
}

// applyNotOwner ends the hold of a command's owner if the answer says that the server does not
// have that owner any more, and reports whether it says so. It does not matter whether
// anybody waits for the answer still: a fixed lease is not renewed, so perhaps nothing
// else would say it.
func (r *Entry) applyNotOwner(c *Command, o *Outcome, rd *Ready) bool {
	why := RemovedOnServer
	switch {
	case o.Result == WrongType, o.Result == Replied && o.Reply == OtherType:
		why = KeyOverwritten
	case o.Result == Replied && o.Reply == NotOwner:
	default:
		return false
	}
	if h := r.hold; h != nil && h.ID == c.ID {
		h.mustRelease = true // if it is being released, that finds the same
		r.lose(h, why, rd)
	}
	return true
}

// resolveAcks is called when it is clear which hold a re-enters, if any: how many
// replicas does it want, if the caller did not say? An error if its hold would be
// renewed, with its parent's lease, for fewer.
func (a *Request) resolveAcks() error {
	switch {
	case a.Parent == nil && a.Acks == DefaultAcks:
		a.Acks = a.res.Shard.Config.Replicas
	case a.Parent == nil:
	case a.Acks == DefaultAcks:
		a.Acks = a.Parent.Root().Acks
	case a.Parent.joint && a.Acks != 0:
		return lockerr.Invalid("Acked (%d) for the re-entry of a reader that shares its lease with others: ask for them where the lock is taken first", a.Acks)
	case a.Lease == 0 && !covers(a.Parent.Root().Acks, a.Acks):
		return lockerr.Invalid("Acked (%d) asks for more replicas than the hold that is re-entered: its lease is renewed for both; ask for them there, or give this one a Lease", a.Acks)
	}
	return nil
}
