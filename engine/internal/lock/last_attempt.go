package lock

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// recordAttempt keeps the result of a command that is over.
func (r *Entry) recordAttempt(c *Command, o *Outcome) {
	if o.Result == Cancelled || o.Result == ClientClosed {
		return // it has not been tried
	}
	var refusal *error
	var until clock.Instant
	tried := NoAnswer // granted knows more
	switch {
	case o.Result == Unknown || o.Result == RetryLater || !o.Result.Sent():
		why := o.Err // not sooner: it goes to the heap
		refusal = &why
	case c.Action == Acquiring && o.Result == Replied && o.Reply == HeldByOther:
		tried = HeldElsewhere
		if o.TTL >= 0 {
			until = o.Now.Add(o.TTL)
		}
	}
	switch {
	case c.Action == Acquiring, r.lastAttempt == HeldHere && refusal != nil:
		r.lastAttempt = tried
	case r.lastAttempt == HeldElsewhere:
		return // what is known is the try's
	}
	r.heldUntil, r.refusal = until, refusal
}

// forgetAttempt: the next request must find out by itself.
func (r *Entry) forgetAttempt() { r.lastAttempt, r.heldUntil, r.refusal = NoAnswer, 0, nil }

// cancelError is the reason of an acquisition that stops waiting: what ended it, and what
// stood in its way. The caller holds the shard's lock.
func (a *Request) cancelError(s lockerr.Cancel) error {
	return s.Err(lockerr.Parts(a.Blocking(s.TimedOut))...)
}

// Blocking says why a does not have the lock: held, or ErrUnavailable with its cause. It is
// always one of the two if late, so that a has waited as long as it may: who does not know of
// a holder had no answer in all that time. One that is given up before may say that
// there was no answer yet.
func (a *Request) Blocking(late bool) error {
	r := a.res
	now := r.Shard.Stamp()
	holder, tried := r.hold, r.lastAttempt
	if a.Parent != nil {
		// Re-entries wait for each other; the hold itself is not in their way.
		holder, tried = a.Parent.child, NoAnswer
	}
	if r.blocked == BehindWriter {
		if w := r.Shard.ahead(r); w != nil && w.First() != nil && w.hold == nil {
			return w.First().Blocking(late)
		} else if w != nil {
			holder = w.hold
		}
	}
	switch {
	case holder != nil && holder.state == live:
		return &lockerr.Held{TTL: max(holder.Until().Sub(now), 0), Here: true, ID: holder.ID, Kind: holder.Kind}
	case r.endingContexts != 0:
		return &lockerr.Held{TTL: -1, Here: true} // nothing is sent before its contexts have ended
	case r.blocked == Disconnected && !r.laneUp(), late && a.ownTryUnanswered():
	case tried == HeldElsewhere:
		held := &lockerr.Held{TTL: -1}
		if r.heldUntil != 0 {
			held.TTL = max(r.heldUntil.Sub(now), 0)
		}
		if r.sub != nil {
			held.Owner = r.sub.holder.String()
		}
		return held
	case tried == HeldHere, r.blocked == BehindWriter:
		return &lockerr.Held{TTL: -1, Here: true} // it changes hands just now
	}
	switch trouble := r.trouble(); {
	case trouble != nil:
		return lockerr.Wrap(lockerr.ErrUnavailable, trouble)
	case late:
		return lockerr.Wrap(lockerr.ErrUnavailable, lockerr.ErrSilent)
	}
	return lockerr.ErrEarly
}

// ownTryUnanswered reports whether a is a TryLock that has heard of no holder in all its time:
// there was no answer to its own try, nor to the command that was out when it came, nor to
// a try of anybody else since this process gave the lock back. What an earlier try was
// told does not answer it, or a job would be skipped because the server hangs:
//
//	Unlock         the server           TryLock
//	sent           hangs
//	                                    waits for its turn
//	                                    gives up: "held by this process"
func (a *Request) ownTryUnanswered() bool {
	r := a.res
	if !a.Try() || r.Cmd.Action == NoCommand {
		return false
	}
	behind := a.extra != nil && a.extra.Deadline != nil && a.extra.afterCommand == r.Cmd.ID
	givenBack := r.lastAttempt == HeldHere && r.hold == nil
	return a.state == trying || behind || givenBack
}

// trouble is why the server does not answer: what keeps the connection from being
// made, or what became of the latest command; nil if nothing is known.
func (r *Entry) trouble() error {
	_, err := r.Shard.Lane(r.Route)
	if err == nil && r.refusal != nil {
		err = *r.refusal
	}
	return err
}
