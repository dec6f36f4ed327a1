package lock

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// extendable is why the hold cannot be extended any more, nil if it can.
func (h *Hold) extendable() error {
	why := h.Ending()
	if why == lockerr.ErrReleased {
		return lockerr.ErrNotHeld
	}
	return why
}

// StopExtending gives up waiting, for that cause, or, if it is nil, because the time is
// over, and returns the error of x. If the command is in flight it may still succeed. Then
// the lease is longer than the caller knows, which is harmless. x keeps its place until the
// reply, which would otherwise be taken for the reply to the next Extend:
//
//	Extend(10 s): sent; its ctx ends
//	Extend(60 s): its turn
//	reply to the first: the second would get it
func (h *Hold) StopExtending(x *Extend, cause error) error {
	if x.state == settled {
		return x.Err
	}
	err := lockerr.Wrap(lockerr.ErrOutcomeUnknown, h.unavailable())
	if cause != nil {
		err = h.unsettled(cause)
	}
	if cmd := &h.Entry.Cmd; cmd.Action == Extending && cmd.hold == h && h.extra.extend == x {
		x.state = abandoned
	} else {
		h.removeExtend(x)
	}
	return err
}

// extendReplied goes on after the reply of an Extend.
func (r *Entry) extendReplied(c *Command, o *Outcome, rd *Ready) {
	h := c.hold
	h.check(r.Shard.Now(), rd) // an answer that comes too late does not bring the hold back
	if r.applyNotOwner(c, o, rd) || h.state != live {
		return // the caller has the end of the hold as its result
	}
	x := h.extra.extend
	var err error
	switch {
	case o.Result == Replied && o.Unacked != nil:
		err = o.Unacked // the primary has it longer than we count on
		r.Shard.Count.Unacked++
	case o.Result == Replied:
		h.setAcked(o.Acked)
		h.acknowledged(o.Sent, c.Lease)
		h.setTimer(h.timeOut())
	case o.Result == Refused:
		err = o.Err
	case x.state == pending:
		h.extra.refusal = o.Err
		return // harmless to repeat: next sends it again
	}
	h.removeExtend(x)
	h.finishExtend(x, err)
}

// removeExtend takes x out of those of the hold. The answer to it says nothing of the next one.
func (h *Hold) removeExtend(x *Extend) {
	p := &h.extra.extend
	for *p != x {
		p = &(*p).next
	}
	if *p = x.next; p == &h.extra.extend {
		h.extra.refusal = nil
	}
}
