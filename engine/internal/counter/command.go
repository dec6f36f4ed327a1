package counter

import (
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
	"github.com/pawl-lock/pawl/internal/clock"
)

// DoubtFor is how long a command without an answer is repeated. The mark lasts ten seconds
// longer: a copy may lie unread in the server for that long.
const DoubtFor = 50 * time.Second

// MostOps bounds the operations of a command, the look of a latch included.
const MostOps = 64

// forWaiters is how many of them calls leave to those who wait.
const forWaiters = 16

// Command is the command of a name that is out, or in doubt. From when it is first sent until
// it is over, its number and its operations do not change.
type Command struct {
	Number uint64 // 0: it only looks, and there is no harm in a repeat
	Ops    []*Op
	Asks   bool // a look for those who await a latch follows

	no       uint64 // which one it is
	out      bool
	doubt    bool          // a copy of it may have been executed
	since    clock.Instant // when that was sent
	beside   bool          // a look, while the server refuses the rest: its answer says nothing of that
	attempts bool          // for the first of waiters, so the wait must hear of it
	yields   bool          // others get their turn after it
}

// tooOld reports whether it is in doubt for so long that the mark may be gone soon.
func (c *Command) tooOld(now clock.Instant) bool { return c.doubt && now >= c.since.Add(DoubtFor) }

// doubtEnds is when it is given up; 0: it is out, or not in doubt.
func (c *Command) doubtEnds() clock.Instant {
	if c.out || !c.doubt {
		return 0
	}
	return c.since.Add(DoubtFor)
}

// GivesBack reports whether it gives something back, or is in doubt: then it goes before those
// that only ask.
func (c *Command) GivesBack() bool {
	return c.doubt || len(c.Ops) > 0 && c.Ops[0].givesBack()
}

// Wanted reports whether it is to be sent still: somebody wants it, and it is not in doubt for
// too long.
func (c *Command) Wanted(now clock.Instant) bool {
	if c.doubt {
		return !c.tooOld(now)
	}
	if c.Asks {
		return true
	}
	for _, op := range c.Ops {
		if !op.ended {
			return true
		}
	}
	return false
}

// choose makes the next command, and reports whether there is anything to send. Calls come
// first: a release may serve the waiters of the same command.
func (t *Counter) choose() bool {
	c := &t.Cmd
	c.beside = t.blocked == readsOnly
	looks := t.readsNext
	if t.readsNext = false; c.beside {
		t.chooseReads()
	} else if !looks || !t.chooseReads() {
		most := MostOps - min(forWaiters, t.waiters.Len()+t.tries.Len())
		gives := t.takeCalls(most)
		switch t.Kind {
		case Semaphore:
			t.takeAcquires(gives)
		case Latch:
			t.askFor(t.wait.Ready() || len(c.Ops) > 0)
		}
	}
	if len(c.Ops) == 0 && !c.Asks {
		if t.blocked == serial.NotBlocked { // who was refused has gone
			t.refusal = nil
		}
		return false
	}
	t.sent++
	c.no = t.sent
	for _, op := range c.Ops {
		if op.Kind != Get {
			c.Number = t.Shard.nextNumber()
			break
		}
	}
	return true
}

// chooseReads takes what only looks, and reports whether there is any. A server that refuses the
// mark answers a look: it has no memory, too few replicas, or the slot moves.
func (t *Counter) chooseReads() bool {
	for op := range t.calls.All() {
		if op.Kind == Get && len(t.Cmd.Ops) < MostOps-1 {
			t.take(op)
		}
	}
	t.askFor(t.Kind == Latch && t.wait.Ready())
	return len(t.Cmd.Ops) > 0 || t.Cmd.Asks
}

// askFor has those who await a latch looked for, if anybody does and it is time.
func (t *Counter) askFor(time bool) {
	if time && t.waiters.Len() > 0 {
		t.Cmd.Asks = true
		t.attempt()
	}
}

// takeCalls takes what is done in its turn: first what gives something back. It reports
// whether there will be more permits.
func (t *Counter) takeCalls(most int) (gives bool) {
	for op := range t.calls.All() {
		if op.givesBack() && len(t.Cmd.Ops) < most {
			t.take(op)
			gives = true
		}
	}
	for op := range t.calls.All() {
		if !op.givesBack() && len(t.Cmd.Ops) < most {
			t.take(op)
			gives = gives || op.Kind == Set || op.Kind == Add && op.N > 0
		}
	}
	return gives
}

func (t *Counter) take(op *Op) {
	op.taken = true
	t.Cmd.Ops = append(t.Cmd.Ops, op)
}

// takeAcquires takes the first waiters, if they may try, and then those who make one attempt.
func (t *Counter) takeAcquires(gives bool) {
	c := &t.Cmd
	if t.waiters.Len() > 0 && (t.wait.Skips() || gives && t.turnOver()) {
		return
	}
	if t.waiters.Len() > 0 && (t.wait.Ready() || gives || t.tries.Len() > 0) {
		t.attempt()
		for op := range t.waiters.All() {
			if len(c.Ops) == MostOps {
				return
			}
			t.take(op)
		}
	}
	for op := range t.tries.All() {
		if len(c.Ops) == MostOps {
			return
		}
		t.take(op)
	}
}

func (t *Counter) attempt() {
	t.Cmd.attempts = true
	t.wait.Sent()
}

// turnOver reports whether permits that are released are for other processes. A release and
// the acquire of a waiter in one command leave nobody a chance, so that goes on for one turn
// only:
//
//	this process             the server             another process
//	release  ------------->  more than before
//	                         message  ----------->  wakes
//	the answer: skips a turn <--------------------  acquire
//	                         granted  ----------->
//	acquire  ------------->  refused, waits for a message
func (t *Counter) turnOver() bool {
	cfg, now := t.Shard.Locks.Config, t.Shard.Locks.Now()
	switch {
	case cfg.HandOvers == 0 || cfg.HandOverFor == 0:
		return true
	case t.turnEnds == 0:
		t.turnEnds = now.Add(cfg.HandOverFor)
	case now > t.turnEnds:
		t.turnEnds, t.Cmd.yields = 0, true
		return true
	}
	return false
}

// Outcome is what became of a command.
type Outcome struct {
	Verdict    lock.Result
	Answers    []int64 // to each operation, and to the look of a latch
	NoCount    bool    // the key is no count
	Superseded bool    // a later command has been executed
	Mute       bool    // a message was refused
	Moving     bool    // the slot is being migrated
	Begun      bool    // it is a refusal, of a script that had begun
	Err        error   // what the server or the connection said, if anything
	Sent, Now  clock.Instant
}

// Replied goes on after the reply of the command that is out, or its failure.
func (t *Counter) Replied(o *Outcome, rd *Ready) {
	c := &t.Cmd
	c.out = false
	if o.Verdict.Answered() && !c.beside {
		t.refusal = nil
	}
	if o.Verdict != lock.Replied && o.Verdict != lock.Cancelled {
		t.blockReads()
	}
	switch v := o.Verdict; {
	case v == lock.ClientClosed:
		t.drop(rd)
	case !v.Sent():
		t.notSent(o, rd)
	case v == lock.Replied && o.Superseded:
		t.giveUp(nil, rd)
	case v == lock.Replied:
		t.answered(o, rd)
	case v == lock.Unknown && c.Number == 0:
		t.reset()
	case v == lock.Unknown:
		t.doubt(o)
	case v == lock.RetryLater:
		t.refusal = o.Err
		t.noteRefusal(o, rd)
		why := serial.BackingOff
		if o.Begun && c.Number != 0 {
			t.doubt(o)
		}
		if !c.doubt {
			if c.Number != 0 {
				why = readsOnly
			}
			t.reset()
		}
		t.pause(why, o.Now, o.Moving)
	default:
		t.noteRefusal(o, rd)
		t.denied(o, rd)
	}
	t.Advance(rd)
}

// noteRefusal notes for Close that permits are not taken back.
func (t *Counter) noteRefusal(o *Outcome, rd *Ready) {
	for _, op := range t.Cmd.Ops {
		if op.Kind == Release {
			rd.Refused, rd.ForGood = o.Err, o.Verdict != lock.RetryLater
			return
		}
	}
}

// notSent puts a command back that did not leave this process.
func (t *Counter) notSent(o *Outcome, rd *Ready) {
	if !t.Cmd.doubt {
		t.reset()
	}
	switch {
	case o.Verdict == lock.Cancelled:
	case o.Verdict == lock.LaneFull || o.Moving:
		t.pause(serial.BackingOff, o.Now, false)
	case t.blocked.Block(serial.Disconnected):
		rd.Disconnected = true
	}
}

// doubt notes that a copy of the command may have been executed.
func (t *Counter) doubt(o *Outcome) {
	c := &t.Cmd
	if c.doubt {
		return
	}
	c.doubt, c.since = true, o.Sent
	if c.since == 0 {
		c.since = o.Now
	}
}

// giveUp tells that nobody knows what became of the command.
func (t *Counter) giveUp(why error, rd *Ready) {
	unknown := lockerr.ErrOutcomeUnknown
	if why != nil {
		unknown = lockerr.Wrap(unknown, lockerr.ErrUnavailable, why)
	}
	t.Shard.Locks.Count.Unknown++
	t.failTaken(unknown, rd)
	t.clear()
}

// denied fails a command that the server refuses for good. Who only looks may still be answered, and
// asks again without the others.
func (t *Counter) denied(o *Outcome, rd *Ready) {
	c, why := &t.Cmd, o.Err
	if t.readsNext = c.Number != 0; t.readsNext {
		c.Ops = slices.DeleteFunc(c.Ops, func(op *Op) bool {
			if op.Kind == Get {
				op.taken = false
			}
			return op.Kind == Get
		})
	} else if c.Asks {
		t.failAwaiting(why, rd)
	}
	if c.doubt { // an earlier copy may have been executed
		why = lockerr.Wrap(lockerr.ErrOutcomeUnknown, o.Err)
		t.Shard.Locks.Count.Unknown++
	}
	t.failTaken(why, rd)
	t.clear()
}

// failTaken fails the operations of the command.
func (t *Counter) failTaken(why error, rd *Ready) {
	for _, op := range t.Cmd.Ops {
		op.end(0, why, rd)
	}
}

// failAwaiting tells those who awaited a latch when the command was made.
func (t *Counter) failAwaiting(why error, rd *Ready) {
	for op := range t.waiters.All() {
		if op.since < t.Cmd.no {
			op.end(0, why, rd)
		}
	}
}

// reset takes a command apart that nobody has executed.
func (t *Counter) reset() {
	for _, op := range t.Cmd.Ops {
		op.taken = false
	}
	t.clear()
}

// clear ends a command.
func (t *Counter) clear() {
	c := &t.Cmd
	if c.attempts {
		t.wait.Reset()
	}
	clear(c.Ops)
	*c = Command{Ops: c.Ops[:0]}
}
