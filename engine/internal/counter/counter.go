package counter

import (
	"github.com/pawl-lock/pawl/engine/internal/serial"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Kind is what counts.
type Kind uint8

// The kinds.
const (
	Semaphore Kind = iota
	Latch
	Kinds = iota
)

// A Counter is the local state of one count: its waiters and holders in this process,
// and the one command of the name that may be on the wire.
//
// Invariants, under the shard's lock:
//
//  1. At most one command of the name is out, or in doubt (Cmd). The next one is chosen from
//     the state at that time.
//  2. Operations of a command stay in their lists until it is answered, or stay at the front
//     if it was not sent. Those that their callers give up leave the list, and stay in the
//     command.
//  3. Waiters are served in order: once one of them is refused, so are all behind it, and
//     everybody who makes a single attempt.
//  4. A waiter that was refused sleeps until the channel says something, or for LookEvery.
//  5. It is in the table (not Out) as long as anything is left: operations, permits, a
//     command, a subscription, a pause.
type Counter struct {
	Shard  *Shard
	Handle any    // the driver's
	Name   string // as it stands on the server
	Route  uint64
	Kind   Kind
	Out    bool

	Cmd Command

	calls   waitq.List[*Op] // what is done when its turn comes
	waiters waitq.List[*Op] // Acquire and Await, first come first served
	tries   waitq.List[*Op] // Acquire, once
	held    waitq.List[*Permits]

	wait    serial.HeadWait
	blocked serial.Blocked
	pauses  serial.Refusals

	alarm, pauseEnds clock.Instant // of wait, and of blocked; 0: not set
	turnEnds         clock.Instant // 0: it has not begun

	refusal      error  // why the server refuses for now
	sent         uint64 // commands so far
	joinSeq      uint64 // waiters so far,
	subscribeSeq uint64 // when the channel was asked for last,
	confirmedSeq uint64 // and when what was confirmed was
	readsNext    bool   // what only looks is to be sent next, without the rest
	refused      bool   // the latest command that tried has refused a waiter
}

// readsOnly is BackingOff of a server that may answer who only looks.
const readsOnly = serial.OtherReasons

// Ready is what the transitions of a counter leave to be done. First, before the shard's lock is given back: the
// timer is set to Due, Channel is subscribed to or given up, and a counter that is Out is forgotten. Then, without
// the lock: the command is sent, or recovery lists the name, and callers are told.
type Ready struct {
	Counter *Counter // nil: there was no transition

	Unstalled    bool  // recovery lists it, and it has nothing to send any more
	NotPublished bool  // the server refused a message
	Refused      error // why the server refused to take permits back
	ForGood      bool  // and not only for now

	Send         bool // Cmd
	Disconnected bool // recovery is to list it
	completed    []verdict
}

type verdict struct {
	port   OpPort
	answer int64
	why    error
}

// Deliver tells the callers. No lock is held.
func (rd *Ready) Deliver() {
	for _, v := range rd.completed {
		v.port.Complete(v.answer, v.why)
	}
}

// Admit takes an op, and sends what can be sent.
func (t *Counter) Admit(op *Op, rd *Ready) {
	op.counter, op.since = t, t.sent
	t.Shard.Locks.Count.Pending++
	if op.waits() {
		if t.waiters.Len() == 0 {
			t.firstWaits()
		}
		t.joinSeq++
		op.no = t.joinSeq
	}
	op.list().PushBack(&op.place)
	t.Advance(rd)
	if op.waits() && t.wait.Listening() {
		t.listen() // for this one, too
	}
}

// First is the first that waits; nil if nobody does.
func (t *Counter) First() *Op {
	first, _ := t.waiters.Front()
	return first
}

// Urgent reports whether it has something to give back, or permits.
func (t *Counter) Urgent() bool { return t.held.Len() > 0 || t.calls.Len() > 0 || t.Cmd.doubt }

// InUse reports whether anybody has some of it or wants it, or something is to be given back.
func (t *Counter) InUse() bool {
	return t.calls.Len() > 0 || t.waiters.Len() > 0 || t.tries.Len() > 0 || t.held.Len() > 0 || t.Cmd.out || t.Cmd.doubt
}

// Advance chooses the next command, if none is out, and lets go of what is not needed any more.
// It ends a transition.
func (t *Counter) Advance(rd *Ready) {
	if t.Shard.closing() {
		t.failNew(rd)
	}
	t.next(rd)
	t.finishTransition(rd)
}

func (t *Counter) next(rd *Ready) {
	c := &t.Cmd
	if c.out || t.blocked == serial.Disconnected || t.blocked == serial.BackingOff {
		return
	}
	if c.tooOld(t.Shard.Locks.Now()) {
		t.giveUp(nil, rd)
	}
	if !c.doubt && !t.choose() {
		return
	}
	c.out = true
	rd.Send = true
}

// finishTransition lets go of what is not needed any more: the subscription, if nobody waits, and the
// whole, if nothing is left.
func (t *Counter) finishTransition(rd *Ready) {
	if t.Out {
		return
	}
	rd.Counter = t
	if t.waiters.Len() == 0 {
		t.nobodyWaits()
	}
	if !t.InUse() && t.pauseEnds == 0 && !t.wait.Listening() {
		t.unstall(rd)
		t.Out = true
	}
}

// Due is when Fired is to be called; 0: never.
func (t *Counter) Due() clock.Instant {
	at := t.alarm
	for _, due := range [...]clock.Instant{t.pauseEnds, t.Cmd.doubtEnds()} {
		if due != 0 && (at == 0 || due < at) {
			at = due
		}
	}
	return at
}

// Fired is called by the timer: a pause is over, a doubt, or what the head waits for.
func (t *Counter) Fired(now clock.Instant, rd *Ready) {
	if t.pauseEnds != 0 && t.pauseEnds <= now {
		t.pauseEnds, t.blocked = 0, serial.NotBlocked
	}
	if at := t.Cmd.doubtEnds(); at != 0 && at <= now {
		t.giveUp(t.trouble(), rd)
	}
	action := serial.Nothing
	if t.alarm != 0 && t.alarm <= now {
		if t.alarm = 0; t.wait.Lingers() {
			t.unlisten()
		} else {
			action = t.wait.Alarm()
		}
	}
	t.act(action, rd)
}

// pause holds the name back for a moment after a refusal. A server that refuses writes, as one without memory,
// may be asked during the pause by who only looks, as long as it answers that.
func (t *Counter) pause(why serial.Blocked, now clock.Instant, moving bool) {
	if t.blocked.Block(why) {
		t.pauseEnds = now.Add(t.pauses.Pause(moving, t.Shard.Locks))
	}
}

// blockReads ends the looks of a pause.
func (t *Counter) blockReads() {
	if t.blocked == readsOnly {
		t.blocked = serial.BackingOff
	}
}

// Reconnected goes on with a name that recovery lists.
func (t *Counter) Reconnected(rd *Ready) {
	if t.blocked.Unblock(serial.Disconnected) {
		t.Advance(rd)
	}
}

// unstall is called when there is nothing to send any more.
func (t *Counter) unstall(rd *Ready) {
	if t.blocked.Unblock(serial.Disconnected) {
		rd.Unstalled = true
	}
}

// IsDisconnected reports whether recovery is to go on with it.
func (t *Counter) IsDisconnected() bool { return t.blocked == serial.Disconnected }
