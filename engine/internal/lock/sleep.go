package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
	"github.com/pawl-lock/pawl/internal/clock"
)

// refusedFor puts the head to sleep after a refusal, or lets it try again at once.
func (r *Entry) refusedFor(c *Command, o *Outcome) {
	w := r.sub
	if w == nil { // the try was the first one
		w = r.ensureSubscription()
		w.Sent()
	}
	w.holder = lockerr.ParseOwner(o.Holder)
	action, d := w.Refused(o.TTL)
	if c.Join && w.joined(o) || action != serial.Sleep {
		return // it sleeps behind the front, or is ready again: next sends the try
	}
	w.listen() // the confirmation is an event: it makes the head try again
	switch _, polls := r.headKind(); {
	case polls:
		d = w.pollPause(d)
	case o.First != 0:
		d = w.letsFirst(o.Now)
	default:
		d = min(d, w.longestSleep(o.Moving))
	}
	// The answer may have lain unread, in a process that was paused, say: the server counts since
	// it gave it, soon after the command was sent.
	w.setTimer(min(o.Now.Add(d), o.Sent.Add(d+serial.Poll)))
}

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

// longestSleep is how long the head sleeps at most.
func (w *Subscription) longestSleep(moving bool) time.Duration {
	s := w.res.Shard
	most := s.Config.LongestSleep
	kind, polls := w.res.headKind()
	switch k := &s.Traits[kind]; {
	case polls:
		return verifyEvery
	case k.Entries == PerGrant, k.Waiting == Queueing:
		most = LongestSleepMissed
	}
	return serial.Spread(w.Longest(most, moving), s)
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

// sleepBehindHold puts a waiter behind a live hold of this process to sleep. The renewals of a hold look at it
// themselves, if they come often enough.
func (w *Subscription) sleepBehindHold(h *Hold) {
	if h.state != live || !w.Ready() {
		return
	}
	w.Sleep()
	if d := w.longestSleep(false); !h.watched() || d < w.res.Shard.Config.Lease/3 {
		now := w.res.Shard.Stamp()
		w.setTimer(now.Add(h.untilVerify(now, d)))
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
		w.setTimer(now.Add(d))
		return
	}
	h.verifiedAt = milliseconds(now)
	h.renew(RenewSoon, 0)
}

// untilVerify is how long it takes until the latest look at the grant, or its grant, is d ago.
func (t *Grant) untilVerify(now clock.Instant, d time.Duration) time.Duration {
	return max(d-time.Duration(milliseconds(now)-t.verifiedAt)*time.Millisecond, 0)
}

// wakeWriter has the writers of this process try whose name a reader has released, if the server
// refused the message that would have told them.
func (r *Entry) wakeWriter(rd *Ready) { rd.Wake = r.Shard.ahead(r) }

// finishTransition subscribes if somebody waits behind a hold, and lets go of what the entry
// does not need any more: the subscription, if nobody waits, and the entry itself, if
// nothing is left. It is the last thing a transition does.
func (r *Entry) finishTransition() {
	behind := r.Shard.anyBehind(r)
	switch waiting := r.waiters.Len() > 0 || behind; {
	case waiting && r.hold != nil:
		w := r.ensureSubscription()
		w.listen()
		w.sleepBehindHold(r.hold)
	case !waiting && r.sub != nil && !r.Cmd.Head:
		r.linger()
	}
	if r.InUse() || r.blocked == BackingOff || r.blocked == YieldingToReaders || r.endingContexts != 0 || behind {
		return
	}
	r.blocked.Unblock(BehindWriter)
	r.forgetAttempt()
	if r.sub != nil || r.Detached {
		return
	}
	if r.blocked == Disconnected { // an outage may last, and names be used once
		r.retire()
		r.Shard.emit(Unstalled).Entry = r
	}
	r.Shard.remove(r)
}
