package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Subscription is the wait of an entry's head. waitq.HeadWait decides when that tries; Wait adds the
// alarm and the channel. It is made by the first refusal, or when a request waits behind a
// hold of this process. It stays for a moment after the last waiter has left (lingering),
// so that a name in demand does not subscribe and unsubscribe at every turn.
//
// It is an object of its own because timers and channel events may arrive after the
// entry has finished with it. Then over is set, and they do nothing.
type Subscription struct {
	waitq.HeadWait
	turnEnds shortInstant // see handover.go
	Port     SubscriptionPort
	res      *Entry
	over     bool
	own      bool          // the channel is that of one owner
	linger   bool          // nobody waits; the alarm ends the subscription
	tries    uint8         // of a lock that polls, for the pause between them
	holder   lockerr.Owner // who has refused the head, if that is known
}

// Entry is the name's.
func (w *Subscription) Entry() *Entry { return w.res }

// LingerFor is how long a subscription outlives its last waiter.
const LingerFor = time.Second

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
	return kind, r.Shard.Traits[kind].Polls
}

// listen subscribes to the channel, once, unless the head polls.
func (w *Subscription) listen() {
	if kind, polls := w.res.headKind(); !polls && w.Listen() {
		w.own = w.res.Shard.Traits[kind].ServerQueue
		w.Port.Listen(w.res, kind, w.res.First().owner())
	}
}

// refusedFor puts the head to sleep after a refusal, or lets it try again at once.
func (r *Entry) refusedFor(o *Outcome) {
	w := r.sub
	if w == nil { // the try was the first one
		w = r.ensureSubscription()
		w.Sent()
	}
	w.holder = lockerr.ParseOwner(o.Holder)
	action, d := w.Refused(o.TTL)
	if action != waitq.Sleep {
		return // ready again: next sends the try
	}
	w.listen() // the confirmation is an event: it makes the head try again
	switch _, polls := r.headKind(); {
	case polls:
		d = w.pollPause(d)
	case o.Moving:
		d = min(d, movingPoll/2+r.Shard.Draw(movingPoll/2))
	default:
		d = min(d, w.longestSleep())
	}
	// The answer may have lain unread, in a process that was paused, say: the server counts since
	// it gave it, soon after the command was sent.
	w.Port.SetTimer(min(o.Now.Add(d), o.Sent.Add(d+waitq.Poll)))
}

// movingPoll is how long a head sleeps at most while its slot is being migrated:
// sharded messages are then sent where nobody can be subscribed.
const movingPoll = 100 * time.Millisecond

// How long a head sleeps at most. A release may be silent: the key was deleted by hand, or evicted;
// the message was lost.
const (
	// LongestSleep is for a plain server.
	LongestSleep = 30 * time.Second
	// LongestSleepMissed is for a cluster, and for the kinds of which some releases are silent: permits
	// that another process adds, and a queue that Redisson's head leaves after it has been told. In a
	// cluster with sharded messages a head may have fallen asleep before a migration:
	//
	//	head                    holder                   the slot
	//	refused, sleeps
	//	                                                 the key is at the other node
	//	                        releases there, with a
	//	                        message to nobody
	//	                                                 ... is the other node's
	//	hears sunsubscribe, tries
	//
	// Plain messages go from node to node, on connections that may be down, and not to a node that
	// the others have forgotten, which may still have subscribers.
	LongestSleepMissed = 10 * time.Second
)

// longestSleep has a random part, so that heads that fell asleep together do not wake together.
func (w *Subscription) longestSleep() time.Duration {
	most := LongestSleep
	kind, polls := w.res.headKind()
	switch k := &w.res.Shard.Traits[kind]; {
	case polls:
		return verifyEvery
	case !w.Hears():
		most = waitq.Poll
	case w.res.Shard.MayMiss, k.MultiHolder, k.ServerQueue:
		most = LongestSleepMissed
	}
	return most/2 + w.res.Shard.Draw(most/2)
}

// pollPause is the back-off of a lock without a channel, as the head has asked for: without
// that 1 ms, doubled up to 128 ms as Redisson's spin lock does. Each pause has a random part,
// and is never longer than the holder's lease.
func (w *Subscription) pollPause(ttl time.Duration) time.Duration {
	b := Backoff{time.Millisecond, 128 * time.Millisecond}
	if a := w.res.First(); a != nil && a.extra != nil && a.extra.Backoff != (Backoff{}) {
		b = a.extra.Backoff
	}
	d := min(b.First<<w.tries, b.Most)
	w.tries = min(w.tries+1, 10) // enough for 1 ms to become a second, the most that it may be
	return min(d/2+w.res.Shard.Draw(d), ttl)
}

// AlarmFired is called by the alarm: the sleep is over, or the lingering.
func (w *Subscription) AlarmFired(rd *Ready) {
	switch {
	case w.over:
	case w.linger:
		w.end()
		w.res.finishTransition()
	default:
		w.act(w.Alarm(), rd)
	}
}

// Subscribed is called when the server has confirmed the subscription.
func (w *Subscription) Subscribed(rd *Ready) {
	if !w.over {
		w.act(w.Confirmed(), rd)
	}
}

// OnMessage is called when a message has come over the channel.
func (w *Subscription) OnMessage(rd *Ready) {
	if !w.over {
		w.act(w.Message(), rd)
	}
}

// wakeWriter has the writers of this process try whose name a reader has released, if the server
// refused the message that would have told them.
func (r *Entry) wakeWriter(rd *Ready) { rd.Wake = r.Shard.ahead(r) }

// Woken is called on what wakeWriter has found.
func (r *Entry) Woken(rd *Ready) {
	if w := r.sub; w != nil {
		w.OnMessage(rd)
	}
}

// ConnectionLost is called when the connection of the channel was lost.
func (w *Subscription) ConnectionLost(rd *Ready) {
	if !w.over {
		w.act(w.Disconnected(), rd)
	}
}

// ChannelRefused is called when the server does not let this user listen: all who wait fail.
func (w *Subscription) ChannelRefused(channel string, why error, rd *Ready) {
	if w.over {
		return
	}
	r := w.res
	w.Unlisten() // the next waiter asks for the channel anew
	err := lockerr.Wrap(lockerr.Invalid("the server refuses channel %q to this user (see the ACL rules in docs/operations.md)", channel), why)
	failEach(&r.waiters, err, rd)
	if r.Shard.anyBehind(r) { // for them it would listen again, and be refused again
		rd.AdvanceReaders, rd.Err = r, err
		return
	}
	r.Advance(rd)
}

// act does what the wait decided. A waiter behind a hold of this process asks no server: what would have
// it try has the hold looked at, for that may have been removed by somebody else.
func (w *Subscription) act(action waitq.Action, rd *Ready) {
	r := w.res
	switch {
	case action == waitq.Nothing:
	case r.hold != nil:
		w.verify()
	case action == waitq.Try:
		r.next(rd)
	case r.waiters.Len() > 0 && r.block(Disconnected):
		rd.Disconnected = r
	}
	r.finishTransition()
}

// sleepBehindHold puts a waiter behind a live hold of this process to sleep. The renewals of a hold look at it
// themselves, if they come often enough.
func (w *Subscription) sleepBehindHold(h *Hold) {
	if h.state != live || !w.Ready() {
		return
	}
	w.Sleep()
	if d := w.longestSleep(); !h.watched() || d < w.res.Shard.Config.Lease/3 {
		now := w.res.Shard.Stamp()
		w.Port.SetTimer(now.Add(h.untilVerify(now, d)))
	}
}

// verifyEvery is the shortest pause between two looks at a hold. Our own releases are announced to us, too,
// when another waiter of this process may already have the lock. Without a bound every turn on a busy name
// would cost one more command.
const verifyEvery = 100 * time.Millisecond

// verify has the hold renewed soon, together with others: the answer tells whether it is there. If it was
// looked at less than verifyEvery ago, the alarm does that. A hold that is being released finds out by that.
func (w *Subscription) verify() {
	h, now := w.res.hold, w.res.Shard.Stamp()
	if h.state != live {
		h.mustRelease = true
		return
	}
	if d := h.untilVerify(now, verifyEvery); d > 0 {
		w.Sleep()
		w.Port.SetTimer(now.Add(d))
		return
	}
	h.verifiedAt = milliseconds(now)
	h.Port.Renew(RenewSoon, 0)
}

// untilVerify is how long it takes until the latest look at the grant, or its grant, is d ago.
func (t *Grant) untilVerify(now clock.Instant, d time.Duration) time.Duration {
	return max(d-time.Duration(milliseconds(now)-t.verifiedAt)*time.Millisecond, 0)
}

// linger keeps the subscription for a moment after the last waiter left, then ends it.
func (r *Entry) linger() {
	w := r.sub
	if !w.Listening() || w.own || r.member != 0 || r.Shard.closing() {
		w.Port.SetTimer(0)
		w.end()
		return
	}
	if !w.linger {
		w.Reset()
		w.linger = true
		w.Port.SetTimer(r.Shard.Now().Add(LingerFor))
	}
}

// stopLingering is called when somebody waits again.
func (w *Subscription) stopLingering() {
	if w != nil && w.linger {
		w.linger = false
		w.Port.SetTimer(0)
	}
}

// end gives the subscription up.
func (w *Subscription) end() {
	w.over = true
	if w.Listening() {
		w.Port.Unlisten()
	}
	w.res.sub = nil
}
