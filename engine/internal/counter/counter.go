package counter

import (
	"time"

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
	Port Port
	Name string // as it stands on the server
	Kind Kind

	Cmd Command

	calls   waitq.List[*Op] // what is done when its turn comes
	waiters waitq.List[*Op] // Acquire and Await, first come first served
	tries   waitq.List[*Op] // Acquire, once
	held    waitq.List[*Permits]

	wait     serial.HeadWait
	linger   bool          // nobody waits; the alarm ends the subscription
	skips    bool          // others get their turn; the alarm ends that
	turnEnds clock.Instant // 0: it has not begun

	blocked      blocked
	pauses       uint8  // refusals in a row, for the pause between them
	refusal      error  // why the server refuses for now
	readsNext    bool   // what only looks is to be sent next, without the rest
	sent         uint64 // commands so far
	joinSeq      uint64 // waiters so far,
	subscribeSeq uint64 // when the channel was asked for last,
	confirmedSeq uint64 // and when what was confirmed was
	refused      bool   // the latest command that tried has refused a waiter
	Out          bool
}

// blocked says why nothing of the name may be sent, or only looks.
type blocked uint8

const (
	notBlocked   blocked = iota
	disconnected         // no connection: recovery goes on with it
	backingOff           // the server refuses for now: the timer of the pause goes on with it
	readsOnly            // the same, but it may answer who only looks
)

// Ready are what a transition leaves to be done once the shard's lock is released: sending
// the command or handing the name to recovery, then telling callers.
type Ready struct {
	Send         *Counter // whose Cmd is to be sent
	Disconnected *Counter // for the recovery queue

	completed []OpPort // in order
}

// Deliver tells the callers. No lock is held.
func (rd *Ready) Deliver() {
	for _, p := range rd.completed {
		p.Deliver()
	}
}

// Admit takes an op, and sends what can be sent.
func (t *Counter) Admit(op *Op, rd *Ready) {
	op.counter, op.since = t, t.sent
	t.Port.Counters().Pending++
	if op.waits() {
		if t.waiters.Len() == 0 {
			t.stopLingering()
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
	if t.Port.Closing() {
		t.failNew(rd)
	}
	if t.waiters.Len() == 0 { // then nobody skips a turn
		t.turnEnds, t.skips = 0, false
	}
	t.next(rd)
	t.finishTransition()
}

func (t *Counter) next(rd *Ready) {
	c := &t.Cmd
	if c.out || t.blocked == disconnected || t.blocked == backingOff {
		return
	}
	if c.tooOld(t.Port.Now()) {
		t.giveUp(nil, rd)
	}
	if !c.doubt && !t.choose() {
		return
	}
	c.out = true
	rd.Send = t
}

// finishTransition lets go of what is not needed any more: the subscription, if nobody waits, and the
// whole, if nothing is left.
func (t *Counter) finishTransition() {
	if t.waiters.Len() == 0 {
		t.keepLingering()
	}
	if t.InUse() || t.backsOff() || t.wait.Listening() || t.Out {
		return
	}
	if t.blocked == disconnected {
		t.blocked = notBlocked
		t.Port.Unstalled()
	}
	t.Port.Silence()
	t.Out = true
	t.Port.Idle()
}

// pause holds the name back for a moment after a refusal, longer each time; not so if its slot
// is being migrated, which ends by itself. A server that refuses writes, as one without memory,
// may be asked during the pause by who only looks, as long as it answers that.
func (t *Counter) pause(why blocked, now clock.Instant, moving bool) {
	if !t.block(why) {
		return
	}
	t.pauses = min(t.pauses+1, 6)
	d := 10 * time.Millisecond << t.pauses // 20 ms ... 640 ms
	if moving {
		d = min(d, movingLook)
	}
	t.Port.PauseUntil(now.Add(d/2 + t.Port.Draw(d/2)))
}

// blockReads ends the looks of a pause.
func (t *Counter) blockReads() {
	if t.blocked == readsOnly {
		t.blocked = backingOff
	}
}

func (t *Counter) backsOff() bool { return t.blocked == backingOff || t.blocked == readsOnly }

// block keeps the name from sending, unless something does so already: then that goes on
// with it.
func (t *Counter) block(why blocked) bool {
	if t.blocked != notBlocked {
		return false
	}
	t.blocked = why
	return true
}

// PauseOver ends a pause.
func (t *Counter) PauseOver(rd *Ready) {
	if t.backsOff() {
		t.blocked = notBlocked
		t.Advance(rd)
	}
}

// Reconnected goes on with a name that recovery lists.
func (t *Counter) Reconnected(rd *Ready) {
	if t.blocked == disconnected {
		t.blocked = notBlocked
		t.Advance(rd)
	}
}

// IsDisconnected reports whether recovery is to go on with it.
func (t *Counter) IsDisconnected() bool { return t.blocked == disconnected }
