package lock

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// Subscription is the wait of an entry's head. serial.HeadWait decides when that tries; Wait adds the
// alarm and the channel. It is made by the first refusal, or when a request waits behind a
// hold of this process. It stays for a moment after the last waiter has left (lingering),
// so that a name in demand does not subscribe and unsubscribe at every turn.
//
// It is an object of its own because timers and channel events may arrive after the
// entry has finished with it. Then it is over, and they do nothing.
type Subscription struct {
	serial.HeadWait
	stage      queueStage
	kind       uint8        // of the queue
	queued     bool         // the engine may have a place in the queue at the server: see queue.go
	moving     bool         // the latest answer said that the slot of the name moves
	tries      uint8        // of a lock that polls, for the pause between them
	first      uint32       // in the queue: whose turn it was; 0: nobody's. Not kept beyond a grant: in an empty queue the numbers begin anew
	firstUntil shortInstant // until then the head lets that one go first
	turnEnds   shortInstant // see handover.go
	res        *Entry
	Handle     any           // the driver's
	holder     lockerr.Owner // who has refused the head, if that is known
}

// Entry is the name's.
func (w *Subscription) Entry() *Entry { return w.res }

// Reset ends a try or a sleep without a verdict, if there is a wait: the next try may be sent.
func (w *Subscription) Reset() {
	if w != nil {
		w.HeadWait.Reset()
	}
}

// over reports whether the entry has finished with it.
func (w *Subscription) over() bool { return w.res.sub != w }

// ensureSubscription returns the wait, and makes it if there is none.
func (r *Entry) ensureSubscription() *Subscription {
	if r.sub == nil {
		r.sub = r.Shard.NewSubscription()
		r.sub.res, r.sub.turnEnds = r, milliseconds(r.Shard.Stamp()) // of a turn that goes on nothing is known
	}
	return r.sub
}

// headKind is the kind of the first that waits, and whether that polls.
func (r *Entry) headKind() (kind uint8, polls bool) {
	switch a, ok := r.waiters.Front(); {
	case ok:
		kind = a.Kind
	case r.hold != nil: // others wait behind it
		kind = r.hold.Kind
	default:
		return 0, false
	}
	return kind, r.Shard.Traits[kind].Waiting == Polling
}

// listen subscribes to the channel, once, unless the head polls.
func (w *Subscription) listen() {
	if kind, polls := w.res.headKind(); !polls && w.Listen() {
		e := w.res.Shard.emit(Listen)
		e.Subscription, e.Lock, e.ID = w, kind, w.res.First().owner()
	}
}

// linger keeps the subscription for a moment after the last waiter left, then ends it.
func (r *Entry) linger() {
	w := r.sub
	if !w.Listening() && !w.listensForCalls() || r.member != 0 || r.Shard.closing() {
		w.setTimer(0)
		w.end()
		return
	}
	if w.Linger() {
		w.setTimer(r.Shard.Now().Add(serial.LingerFor))
	}
}

// stopLingering is called when somebody waits again.
func (w *Subscription) stopLingering() {
	if w != nil && w.StopLingering() {
		w.setTimer(0)
	}
}

// unlisten gives the channel of releases up.
func (w *Subscription) unlisten() {
	if w.Listening() {
		w.effect(Unlisten)
		w.Unlisten()
	}
}

// end gives the subscription up.
func (w *Subscription) end() {
	w.unlisten()
	if w.listensForCalls() {
		w.effect(UnlistenForCalls)
	}
	w.res.sub = nil
}
