package lock

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// unsettled is ErrOutcomeUnknown for a caller who stops waiting, for that cause, and what
// stands in the way: a server that refuses must not look like one that is slow.
func (h *Hold) unsettled(cause error) error {
	return lockerr.Wrap(lockerr.ErrOutcomeUnknown, cause, h.trouble())
}

// await gives u the result of the release under way.
func (h *Hold) await(u *Unlock) { u.next, h.unlocks = h.unlocks, u }

// StopAwaiting returns the error of a caller who stops waiting for the release, for that
// cause. It is not called once u is Decided.
func (h *Hold) StopAwaiting(u *Unlock, cause error) error {
	for p := &h.unlocks; *p != nil; p = &(*p).next {
		if *p == u {
			*p, u.next = u.next, nil
			break
		}
	}
	h.Entry.Shard.Count.Unknown++
	return h.named(h.unsettled(cause))
}

// named is an error with the name, and what it is.
func (h *Hold) named(err error) error {
	return lockerr.WithName(h.Entry.Shard.Traits[h.Kind].Noun, h.Name, err)
}

// UnlockResult is what Unlock says of a hold that is over.
func (h *Hold) UnlockResult() error {
	switch {
	case h.Ending() != lockerr.ErrReleased:
		return h.Ending() // lost
	case h.rare().result != nil:
		return h.extra.result // released, and it did not go well
	}
	return h.named(lockerr.ErrNotHeld)
}

// releaseReplied goes on after the reply of a release, a retire or a leave.
func (r *Entry) releaseReplied(c *Command, o *Outcome, rd *Ready) {
	h := c.hold
	if h.state != releasing { // its parent's end, or its time, settled it
		r.applyNotOwner(c, o, rd)
		return
	}
	switch {
	case o.Result == Replied && o.Reply != NotOwner:
		if o.Reply == NotPublished {
			r.Shard.emit(MessageRefused).Entry = r
			r.wakeWriter(rd)
		}
		r.ended(c, o, rd)
		if c.Action == Decrementing {
			h.counts(c.Number)
		} else if h.joint {
			r.Shard.readers(r).yield(o)
		} else if h.handOvers > 0 && c.Batched == 0 {
			r.yield(o)
		}
	case (o.Result == Replied || o.Result == WrongType) && h.releaseInDoubt && c.Action == Releasing:
		// An earlier copy did it: the hold was valid when Unlock was called. What has the key
		// now came later. (A leave does not take the field away, so its copy must find it.)
		r.ended(c, o, rd)
	case o.Result == Replied:
		r.released(c, o) // a replica that is promoted may have the owner still
		r.releaseFoundNothing(h, RemovedOnServer, rd)
	case o.Result == WrongType:
		r.releaseFoundNothing(h, KeyOverwritten, rd)
	case o.Result == RetryLater:
		r.noteRefusal(o)
		h.releaseInDoubt = h.releaseInDoubt || o.Begun && c.Action == Releasing
		h.more().refusal = o.Err
		h.boundRelease()
	case o.Result == Refused && c.Action == Releasing && r.Shard.Phase == Closed:
		// Nor would a compensation be asked for again: Close need not wait for the lease to end.
		r.noteRefusal(o)
		h.released(h.named(lockerr.Wrap(lockerr.ErrOutcomeUnknown, o.Err)), rd)
	default: // unknown, or an error after which anything may be
		if c.Action == Releasing {
			h.releaseInDoubt = true
		}
		h.more().refusal = o.Err
		h.boundRelease()
		if o.Result == Refused {
			r.pause(o.Now, false)
		}
	}
}

// releaseFoundNothing: the first release found nothing, so the hold had been lost without
// anybody knowing; with it all others of the same owner.
func (r *Entry) releaseFoundNothing(h *Hold, why Loss, rd *Ready) {
	r.Shard.Count.Lost[why]++
	parent := h.Parent
	h.leave()
	h.completeUnlocks(r.Shard.LossError(h.Kind, h.Name, why), rd)
	if parent != nil {
		r.lose(parent.Root(), why, rd)
	}
}

// released ends the release of h. It counts even if nobody knows what became of it: it was
// unlocked.
func (h *Hold) released(result error, rd *Ready) {
	n := &h.Entry.Shard.Count
	h.leave()
	n.Released++
	if result != nil {
		for u := h.unlocks; u != nil; u = u.next {
			n.Unknown++
		}
	}
	h.completeUnlocks(result, rd)
}

// leave takes a hold that was being released out of its name.
func (h *Hold) leave() {
	r := h.Entry
	if h.Parent != nil {
		h.Parent.child = nil
		return
	}
	if r.hold != h {
		return // others have its grant: see readers.go
	}
	r.hold = nil
	r.sub.Reset()
	r.yieldToReaders()
}

// completeUnlocks tells the callers that wait for the release.
func (h *Hold) completeUnlocks(result error, rd *Ready) {
	h.setOver()
	if result != nil {
		h.more().result = result
	}
	for h.unlocks != nil {
		u := h.unlocks
		h.unlocks, u.next = u.next, nil
		u.complete(result, rd)
	}
}

// boundRelease makes a release that did not succeed at once end when the server cannot
// have the hold any more: there is nothing to release after it.
func (h *Hold) boundRelease() {
	if h.state == releasing {
		h.leaveBy = h.releaseBy()
		h.setTimer(h.leaveBy)
	}
}

// boundReleases bounds a release that has no answer yet, h's or that of a re-entry. A
// hold keeps its timer, or its place among the renewals, until it is released. Either one
// looks at it before the lease ends, so an Unlock that is answered costs no timer.
func (h *Hold) boundReleases() {
	for ; h != nil; h = h.child {
		h.boundRelease()
	}
}

// giveUpRelease ends a release whose lease is over. Its command may still be out; the
// answer concerns nobody.
func (h *Hold) giveUpRelease(rd *Ready) {
	r := h.Entry
	root := h.Parent == nil
	h.released(h.named(lockerr.Wrap(lockerr.ErrOutcomeUnknown, h.unavailable())), rd)
	if root {
		if r.lastAttempt == HeldHere {
			r.lastAttempt = NoAnswer // its time is over, here and on the server
		}
		r.compensateGrant(h, h.serverUntil)
	}
}

// unavailable is ErrUnavailable, with what is known of the cause.
func (h *Hold) unavailable() error {
	return lockerr.Wrap(lockerr.ErrUnavailable, h.trouble())
}

// ended ends the release of a hold, or of a re-entry, by the command c.
func (r *Entry) ended(c *Command, o *Outcome, rd *Ready) {
	r.released(c, o)
	c.hold.released(nil, rd)
}

// released notes that a server has answered the release c.
func (r *Entry) released(c *Command, o *Outcome) {
	if c.Action != Decrementing && c.Server != 0 {
		e := r.Shard.emit(Released)
		e.Entry, e.Lock, e.Server, e.ID, e.At, e.End = r, c.Kind, c.Server, c.ID, o.Now, c.minEnd()
	}
}

// Refusal is the latest answer to the release or the Extend under way, if it settled nothing.
func (h *Hold) Refusal() error { return h.rare().refusal }
