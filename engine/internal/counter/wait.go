package counter

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/serial"
)

const (
	// LookEvery is how long the first waiter sleeps at most: a count has no expiry that
	// would end the sleep, and a message may be lost, such as a sharded one while a slot
	// moves.
	LookEvery = 10 * time.Second
	// movingLook is the same while the slot is being migrated.
	movingLook = 100 * time.Millisecond
	// LingerFor is how long a subscription outlives its last waiter.
	LingerFor = time.Second
	// yieldFor is how long a turn is skipped beside a round trip, yieldMost at most.
	yieldFor  = time.Millisecond
	yieldMost = 10 * time.Millisecond
)

// yield has the waiters skip a turn.
func (t *Counter) yield(o *Outcome) {
	if t.waiters.Len() > 0 {
		t.skips = true
		t.wait.Skip()
		t.Port.RingAt(o.Now.Add(min(o.Now.Sub(o.Sent)+yieldFor, yieldMost)))
	}
}

// listen subscribes, or has a latch ask for its channel once more: see opened.
func (t *Counter) listen() {
	last, _ := t.waiters.Back()
	if t.wait.Listen() || last != nil && t.Kind == Latch && t.wait.Hears() && t.confirmedSeq == t.subscribeSeq && last.no > t.subscribeSeq {
		t.Port.Listen()
		t.subscribeSeq = t.joinSeq
	}
}

// opened tells those who await a latch that it has reached zero: a message says so. A look at the
// count could be too late for that:
//
//	count down   zero, message
//	TrySetCount  closed again
//	             the message is read; a look would find it closed
//
// A message may have been published before somebody began to wait, and be under way still. So it is
// for those only whose own request for the channel was confirmed: what comes after the confirmation
// was published after that.
func (t *Counter) opened(rd *Ready) {
	for op := range t.waiters.All() {
		if op.no > t.confirmedSeq {
			return
		}
		op.end(0, nil, rd)
	}
}

// keepLingering keeps the subscription when nobody waits any more, and then ends it.
func (t *Counter) keepLingering() {
	switch {
	case !t.wait.Listening() || t.linger && !t.Port.Closing():
	case t.Port.Closing():
		t.unlisten()
	default:
		t.linger = true
		t.Port.RingAt(t.Port.Now().Add(LingerFor))
	}
}

// unlisten gives the subscription up, and the alarm of one that lingers.
func (t *Counter) unlisten() {
	t.linger = false
	t.Port.Silence()
	t.wait.Unlisten()
	t.Port.Unlisten()
}

// stopLingering is called when somebody waits again. What the one before was told is not
// true of this one.
func (t *Counter) stopLingering() {
	t.linger, t.refused = false, false
	t.Port.Silence()
	if !t.Cmd.attempts {
		t.wait.Reset()
	}
}

// nextFirst is called when the first waiter has gone: the next one may want less.
func (t *Counter) nextFirst() {
	if !t.skips && !t.Cmd.attempts {
		t.wait.Reset()
	}
}

// AlarmFired is called by the alarm: the sleep is over, or the turn that was skipped, or the
// lingering.
func (t *Counter) AlarmFired(rd *Ready) {
	switch {
	case t.Out:
	case t.linger:
		t.unlisten()
		t.finishTransition()
	default:
		t.skips = false
		t.act(t.wait.Alarm(), rd)
	}
}

// Subscribed is called when the server has confirmed the subscription. latest: the latest request
// for it, by Listen.
func (t *Counter) Subscribed(latest bool, rd *Ready) {
	if !t.wait.Listening() {
		return
	}
	if latest {
		t.confirmedSeq = t.subscribeSeq
	}
	t.act(t.wait.Confirmed(), rd) // perhaps by another node, and a message was missed
	if t.wait.Listening() {
		t.listen() // for those who came meanwhile
	}
}

// OnMessage is called when a message has come over the channel. zero: a latch has opened.
func (t *Counter) OnMessage(zero bool, rd *Ready) {
	if !t.wait.Listening() {
		return
	}
	if zero && t.Kind == Latch {
		t.opened(rd)
	}
	t.act(t.wait.Message(), rd)
}

// ConnectionLost is called when the connection of the channel was lost.
func (t *Counter) ConnectionLost(rd *Ready) {
	if t.wait.Listening() {
		t.act(t.wait.Disconnected(), rd)
	}
}

// ChannelRefused is called when the server does not let this user listen: all who wait fail.
func (t *Counter) ChannelRefused(why error, rd *Ready) {
	if !t.wait.Listening() {
		return
	}
	t.unlisten()
	for op := range t.waiters.All() {
		op.end(0, why, rd)
	}
	t.Advance(rd)
}

// act does what the wait says: after a lost connection many names try, so that is paced.
func (t *Counter) act(a serial.Action, rd *Ready) {
	if a == serial.TryPaced && !t.Cmd.out && t.waiters.Len() > 0 {
		t.blockReads() // the end of the pause paces it, too
		if t.block(disconnected) {
			rd.Disconnected = t
		}
	}
	t.Advance(rd)
}
