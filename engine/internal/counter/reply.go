package counter

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// answered settles the operations of a command that was executed.
func (t *Counter) answered(o *Outcome, rd *Ready) {
	c := &t.Cmd
	if !c.beside {
		t.pauses = 0
	}
	rd.NotPublished = rd.NotPublished || o.Mute
	if o.NoCount {
		t.failTaken(lockerr.ErrWrongType, rd)
		if c.Asks {
			t.failAwaiting(lockerr.ErrWrongType, rd)
		}
		t.clear()
		return
	}
	// gone: one who was refused has given up meanwhile. Those behind, who may want less, were
	// refused because of that, or were not asked for: they try again.
	refused, gave, gone := false, false, false
	for i, op := range c.Ops {
		op.taken = false
		answer := o.Answers[i]
		gave = gave || op.Kind == Release
		switch {
		case op.Kind == Acquire && answer <= 0:
			refused, gone = refused || op.waits(), gone || op.ended
			t.refuse(op, answer, rd)
		case op.Kind == Acquire && op.ended: // nobody wants it any more
			t.giveBack(op.N)
		case op.Kind == Acquire:
			op.grant(rd)
		default:
			op.end(answer, nil, rd)
		}
	}
	if c.Asks {
		refused = o.Answers[len(c.Ops)] > 0
		if !refused {
			t.failAwaiting(nil, rd)
		}
	}
	if gone && !c.Asks {
		refused = false
	}
	if c.attempts {
		t.refused = refused
	}
	if refused {
		for op := range t.tries.All() { // those for whom there was no room
			if op.since < c.no {
				t.refuse(op, 0, rd)
			}
		}
	}
	attempted, yields := c.attempts, c.yields
	c.attempts = false
	t.clear()
	switch {
	case yields && t.waiters.Len() > 0:
		t.alarm = t.wait.Skip(o.Sent, o.Now)
	case refused:
		t.sleep(o)
	case attempted:
		t.wait.Reset()
	case gave: // those who wait were not in the same command
		t.wait.Wake()
	}
}

// refuse tells one that makes one attempt: there are not so many permits, or the answer is
// negative, and nobody has said how many there are. Others go on waiting.
func (t *Counter) refuse(op *Op, answer int64, rd *Ready) {
	switch {
	case !op.Try:
	case answer < 0:
		op.end(0, lockerr.ErrNoPermits, rd)
	default:
		op.end(0, &lockerr.Held{TTL: -1}, rd)
	}
}

// sleep puts the first waiter to sleep after a refusal, or lets it try again at once.
func (t *Counter) sleep(o *Outcome) {
	if action, _ := t.wait.Refused(-1); action == serial.Sleep && t.waiters.Len() > 0 {
		t.listen() // the confirmation is an event: it makes the first try again
		t.alarm = o.Now.Add(serial.Spread(t.wait.Longest(LookEvery, o.Moving), t.Shard.Locks))
	}
}
