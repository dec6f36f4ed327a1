package machine

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Wait is the wait of a resource's head. queue.Wait decides when that tries; Wait adds the
// alarm and the channel. It is made by the first refusal, or when a request waits behind a
// hold of this process. It stays for a moment after the last waiter has left (lingering),
// so that a name in demand does not subscribe and unsubscribe at every turn.
//
// It is an object of its own because timers and channel events may arrive after the
// resource has finished with it. Then over is set, and they do nothing.
type Wait struct {
	queue.Wait
	turnEnds shortInstant // see handover.go
	Port     WaitPort
	res      *Resource
	over     bool
	own      bool  // the channel is that of one owner
	linger   bool  // nobody waits; the alarm ends the subscription, if there is one
	look     bool  // the hold is to be looked at, by the alarm; while it lingers, when somebody waits again
	unasked  bool  // that is for no reason but the time that has passed; see lookUnasked
	tries    uint8 // of a lock that polls, for the pause between them
	lookedAt clock.Instant
	holder   reason.Owner  // who has refused the head, if that is known
	lookBy   clock.Instant // what the alarm is set to, for look
}

// Resource is the name's.
func (w *Wait) Resource() *Resource { return w.res }

// LingerFor is how long a subscription outlives its last waiter.
const LingerFor = time.Second

// ensureWait returns the wait, and makes it if there is none.
func (r *Resource) ensureWait() *Wait {
	if r.wait == nil {
		r.wait = r.Port.NewWait()
		r.wait.res, r.wait.turnEnds = r, milliseconds(r.Port.Stamp()) // of a turn that goes on nothing is known
	}
	return r.wait
}

// headKind is the kind of the first that waits, and whether that polls.
func (r *Resource) headKind() (kind uint8, polls bool) {
	switch a, ok := r.waiters.Front(); {
	case ok:
		kind = a.Kind
	case r.hold != nil: // others are Behind it
		kind = r.hold.Kind
	default:
		return 0, false
	}
	return kind, r.Port.Kind(kind).Polls
}

// listen subscribes to the channel, once, unless the head polls.
func (w *Wait) listen() {
	if kind, polls := w.res.headKind(); !polls && w.Listen() {
		w.own = w.res.Port.Kind(kind).Queues
		w.Port.Listen(w.res, kind, w.res.First().owner())
	}
}

// refusedFor puts the head to sleep after a refusal, or lets it try again at once.
func (r *Resource) refusedFor(o *Outcome) {
	w := r.wait
	if w == nil { // the try was the first one
		w = r.ensureWait()
		w.Sent()
	}
	w.holder = reason.ParseOwner(o.Holder)
	action, d := w.Refused(o.TTL)
	if action != queue.Sleep {
		return // ready again: next sends the try
	}
	w.listen()     // the confirmation is an event: it makes the head try again
	w.look = false // there is no hold, and the alarm is set to something else now
	kind, polls := r.headKind()
	switch {
	case polls:
		d = w.pollPause(d)
	case o.Moving:
		d = min(d, movingPoll/2+r.Port.Draw(movingPoll/2))
	case r.Port.Clustered():
		most := MissedPoll
		if r.Port.Both() {
			most = bothPoll
		}
		d = min(d, most/2+r.Port.Draw(most/2))
	case r.Port.Kind(kind).Shared, r.Port.Kind(kind).Queues:
		// Another process may add some, and say nothing; or Redisson's head leaves the queue when it
		// has been told, and says nothing either.
		d = min(d, MissedPoll/2+r.Port.Draw(MissedPoll/2))
	}
	// The answer may have lain unread, in a process that was paused, say: the server counts since
	// it gave it, soon after the command was sent.
	w.Port.RingAt(min(o.Now.Add(d), o.Sent.Add(d+queue.Poll)))
}

// movingPoll is how long a head sleeps at most while its slot is being migrated:
// sharded messages are then sent where nobody can be subscribed.
const movingPoll = 100 * time.Millisecond

// MissedPoll is how long a head sleeps at most where a message may be missed. In a cluster
// with sharded messages it may have fallen asleep before a migration began, and nothing tells it
// of that:
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
// the others have forgotten, which may still have subscribers. And an engine that found the cluster
// before it had sharded messages does not hear those of an engine that came later.
const MissedPoll = 10 * time.Second

// bothPoll is the same while a deployment changes to sharded messages: processes that
// have not changed yet announce with plain messages, and this one listens to sharded ones.
const bothPoll = time.Second

// pollPause is the back-off of a lock without a channel, as the head has asked for: without
// that 1 ms, doubled up to 128 ms as Redisson's spin lock does. Each pause has a random part,
// and is never longer than the holder's lease.
func (w *Wait) pollPause(ttl time.Duration) time.Duration {
	b := Backoff{time.Millisecond, 128 * time.Millisecond}
	if a := w.res.First(); a != nil && a.rare != nil && a.rare.Backoff != (Backoff{}) {
		b = a.rare.Backoff
	}
	d := min(b.First<<w.tries, b.Most)
	w.tries = min(w.tries+1, 10) // enough for 1 ms to become a second, the most that it may be
	return min(d/2+w.res.Port.Draw(d), ttl)
}

// Rang is called by the alarm: the sleep is over, or the lingering.
func (w *Wait) Rang(fx *Effects) {
	switch {
	case w.over:
	case w.linger:
		w.end()
		w.res.settled()
	default:
		if w.look {
			w.look = false
			fx.Look = w.heard()
		}
		w.act(w.Alarm(), fx)
	}
}

// Subscribed is called when the server has confirmed the subscription.
func (w *Wait) Subscribed(fx *Effects) {
	if !w.over {
		if w.look && w.unasked && !w.linger { // lookSoon looks, and what is told from now on is heard
			w.look = false
			w.Port.Silence()
		}
		w.lookSoon()
		w.act(w.Confirmed(), fx)
	}
}

// Announced is called when a message has come over the channel.
func (w *Wait) Announced(fx *Effects) {
	if !w.over {
		fx.Look = w.heard()
		w.act(w.Message(), fx)
	}
}

// stir has those try that wait for a tenure apart from theirs: it has ended, and the server has told nobody.
// A writer would sleep until the lease that it was told has ended:
//
//	a reader, apart          the server             somebody else
//	                         lock removed  <------  DEL
//	renewed: it has gone
func (r *Resource) stir(fx *Effects) { fx.Stir = r.Port.Ahead(r) }

// Stirred is called on what stir has found.
func (r *Resource) Stirred(fx *Effects) {
	if w := r.wait; w != nil {
		w.Announced(fx)
	}
}

// Cut is called when the connection of the channel was lost.
func (w *Wait) Cut(fx *Effects) {
	if !w.over {
		w.act(w.Disconnected(), fx)
	}
}

// Forbidden is called when the server does not let this user listen: all who wait fail.
func (w *Wait) Forbidden(channel string, why error, fx *Effects) {
	if w.over {
		return
	}
	r := w.res
	w.Unlisten()
	w.look = false // the next waiter asks for the channel anew
	err := reason.Because(reason.Invalid("the server refuses channel %q to this user (see the ACL rules in docs/operations.md)", channel), why)
	for {
		a, ok := r.waiters.Front()
		if !ok {
			break
		}
		a.fail(err, fx)
	}
	if r.Port.Behind(r) { // for them it would listen again, and be refused again
		fx.Forward, fx.Why = r, err
		return
	}
	r.GoOn(fx)
}

// act does what the wait decided.
func (w *Wait) act(action queue.Action, fx *Effects) {
	r := w.res
	switch action {
	case queue.Try:
		r.next(fx)
	case queue.TryPaced:
		if r.waiters.Len() > 0 && r.hold == nil && r.holdBack(Stalled) {
			fx.Stalled = r
		}
	}
	r.settled()
}

// lookEvery is the shortest pause between two looks at a hold because of messages. Our
// own releases are announced to us too, a moment later, when another local waiter may
// already have the lock. Without a bound every hand-over on a busy name would cost one
// more command.
const lookEvery = 100 * time.Millisecond

// heard returns the live hold if it must be renewed at once: somebody announced a
// release, and if it was not one of ours, the lock was taken away by force. Within
// lookEvery of the last look the alarm does it, which is free: nobody sleeps while
// this process holds the lock.
func (w *Wait) heard() *Hold {
	h := w.res.looked()
	if h == nil {
		return nil
	}
	now := w.res.Port.Stamp()
	if next := w.lookedAt.Add(lookEvery); now < next {
		w.lookAt(next)
		return nil
	}
	w.lookedAt = now
	return h
}

// looked is the live hold, nil if there is none. One that is being released finds out by that.
func (r *Resource) looked() *Hold {
	h := r.hold
	if h != nil && h.state != live {
		h.forServer = true
		return nil
	}
	return h
}

// lookAt has the alarm look at the hold by then; while nobody waits that can wait, too.
func (w *Wait) lookAt(at clock.Instant) {
	if !w.linger && (!w.look || at < w.lookBy) {
		w.Port.RingAt(at)
		w.lookBy = at
	}
	w.look, w.unasked = true, false
}

// lookUnasked has the hold looked at now and then where a removal may be announced to
// nobody here: a lock that polls has no channel, a channel that is not confirmed says
// nothing, a process that has not changed to sharded messages announces with plain ones,
// and in a cluster a message may be missed (MissedPoll).
func (w *Wait) lookUnasked() {
	var every time.Duration
	_, polls := w.res.headKind()
	switch {
	case w.look:
		return
	case polls:
		every = lookEvery
	case !w.Hears(): // it may stay so: the server may refuse one more connection for hours
		every = queue.Poll/2 + w.res.Port.Draw(queue.Poll/2)
	case w.res.Port.Both():
		every = bothPoll
	case w.res.Port.Clustered():
		every = MissedPoll/2 + w.res.Port.Draw(MissedPoll/2)
	default:
		return
	}
	w.lookAt(w.res.Port.Stamp().Add(every))
	w.unasked = true
}

// lookAfterGrant has a fresh hold looked at if the channel said something since its
// acquire was sent, for that may have been about the hold:
//
//	this process             the server             somebody else
//	acquire  ------------->  granted
//	                         lock removed  <------  ForceUnlock
//	message: no hold yet
//	the grant
func (w *Wait) lookAfterGrant(c *Command, now clock.Instant) {
	if w.Events() != c.Number {
		w.lookAt(max(now, w.lookedAt.Add(lookEvery)))
	}
}

// lookSoon has the hold looked at because the channel was silent until now: what was
// announced before the confirmation, the first one or that after a lost connection, was
// announced to nobody here.
//
//	this process             the server             somebody else
//	the connection is lost
//	                         lock removed  <------  ForceUnlock
//	                         message to nobody
//	subscribed again
//
// After a lost connection many names hear of it together, so the looks are gathered
// into renewal scripts; a hold that is released before its look costs nothing. While
// nobody waits the look can wait, but must not be forgotten: the next waiter finds the
// channel confirmed, and no other confirmation follows.
func (w *Wait) lookSoon() {
	h := w.res.looked()
	switch {
	case h == nil:
	case w.linger:
		w.look, w.unasked = true, false
	default:
		h.Port.RenewSoon()
	}
}

// linger keeps the subscription for a moment after the last waiter left, then ends
// it. A lock that polls has none: it keeps when to look at the hold, as long as there is
// one, or waiters that come and go sooner than that would put it off for ever.
func (r *Resource) linger() {
	w := r.wait
	keeps := w.Listening() && !w.own && r.Place == 0 || w.look && r.hold != nil
	if !keeps || r.Port.Closing() {
		w.Port.Silence()
		w.end()
		return
	}
	if w.linger {
		return
	}
	if w.look && !w.unasked && w.Listening() {
		w.look = false // the alarm is set to something else now
		w.lookSoon()
	}
	w.Reset()
	w.linger = true
	if w.Listening() {
		w.Port.RingAt(r.Port.Now().Add(LingerFor))
	} else {
		w.Port.Silence()
	}
}

// stopLingering is called when somebody waits again.
func (w *Wait) stopLingering() {
	if w != nil && w.linger {
		w.linger = false
		w.Port.Silence()
		switch {
		case !w.look:
		case w.unasked && w.res.Port.Stamp() < w.lookBy:
			w.Port.RingAt(w.lookBy)
		default:
			w.look = false
			w.lookSoon()
		}
	}
}

// end gives the subscription up.
func (w *Wait) end() {
	w.over = true
	if w.Listening() {
		w.Port.Unlisten()
	}
	w.res.wait = nil
}
