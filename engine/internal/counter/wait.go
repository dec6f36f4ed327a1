package counter

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// LookEvery is how long the first waiter sleeps at most: a count has no expiry that
// would end the sleep, and a message may be lost, such as a sharded one while a slot
// moves.
const LookEvery = 10 * time.Second

// listen subscribes, or has a latch ask for its channel once more: see opened.
func (t *Counter) listen() {
	last, _ := t.waiters.Back()
	if t.wait.Listen() || last != nil && t.Kind == Latch && t.wait.Hears() && t.confirmedSeq == t.subscribeSeq && last.no > t.subscribeSeq {
		t.subscribeSeq = t.joinSeq
	}
}

// Channel is a number that is higher for each request for the channel, and 0 if it is not wanted. If it is confirmed already,
// another request has the server asked once more; the channel is heard meanwhile.
func (t *Counter) Channel() uint64 {
	if !t.wait.Listening() {
		return 0
	}
	return t.subscribeSeq
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

// nobodyWaits keeps the subscription for a moment. A try that is out is answered first.
func (t *Counter) nobodyWaits() {
	t.turnEnds = 0
	switch {
	case t.Cmd.attempts:
	case !t.wait.Listening(), t.Shard.closing():
		t.unlisten()
	case t.wait.Linger():
		t.alarm = t.Shard.Locks.Now().Add(serial.LingerFor)
	}
}

// unlisten ends the wait, and the subscription.
func (t *Counter) unlisten() {
	t.wait, t.alarm = serial.HeadWait{}, 0
}

// firstWaits is called when somebody waits, and nobody did. What the one before was told is not
// true of this one.
func (t *Counter) firstWaits() {
	t.refused = false
	if t.wait.StopLingering() {
		t.alarm = 0
	}
}

// OnChannel is called when something has happened to the channel: what was confirmed is a request of that number;
// a message says that a latch is open.
func (t *Counter) OnChannel(e serial.ChannelEvent, request uint64, open bool, rd *Ready) {
	if !t.wait.Listening() {
		return
	}
	switch {
	case e == serial.Confirmed:
		t.confirmedSeq = max(t.confirmedSeq, request)
	case open && t.Kind == Latch:
		t.opened(rd)
	}
	t.act(t.wait.Heard(e), rd) // a confirmation is perhaps by another node, and a message was missed
	if t.wait.Listening() {
		t.listen() // for those who came meanwhile
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
		if t.blocked.Block(serial.Disconnected) {
			rd.Disconnected = true
		}
	}
	t.Advance(rd)
}
