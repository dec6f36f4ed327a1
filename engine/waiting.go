package engine

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// waiting is the wait of a resource's head. queue.Wait makes the decisions; waiting adds
// the clock, the channel and the lock. It is made by the first refusal, or when an
// acquisition waits behind a hold of this process. It stays for a moment after the last
// waiter has left (lingering), so that a name in demand does not subscribe and
// unsubscribe at every turn.
//
// It is an object of its own because timers and channel events may arrive after the
// resource has finished with it. Then over is set, and they do nothing.
type waiting struct {
	queue.Wait
	over     bool
	linger   bool  // nobody waits; the alarm ends the subscription
	look     bool  // the hold is to be looked at, by the alarm; while it lingers, when somebody waits again
	tries    uint8 // of a lock that polls, for the pause between them
	lookedAt clock.Instant
	lookBy   clock.Instant // what the alarm is set to, for look
	res      *resource
	alarm    wheel.Timer
	channel  resp.Channel
}

const lingerFor = time.Second

// ensureWait returns the wait, and makes it if there is none.
func (r *resource) ensureWait() *waiting {
	if r.wait == nil {
		w := &waiting{res: r}
		w.alarm.Init(w)
		r.wait = w
	}
	return r.wait
}

// listen subscribes to the channel, once. Subscribe neither blocks nor calls back.
func (w *waiting) listen() {
	r := w.res
	if !r.kind.Polls() && w.Listen() {
		w.channel.Init(r.channel().Name(), w)
		r.sh.eng.client.Subscribe(&w.channel)
	}
}

// refusedFor puts the head to sleep after a refusal, or lets it try again at once.
func (r *resource) refusedFor(ttl time.Duration, o outcome) {
	w := r.wait
	if w == nil { // the try was the first one
		w = r.ensureWait()
		w.Sent()
	}
	action, d := w.Refused(ttl)
	if action != queue.Sleep {
		return // ready again: next sends the try
	}
	w.listen()     // the confirmation is an event: it makes the head try again
	w.look = false // there is no hold, and the alarm is set to something else now
	switch {
	case r.kind.Polls():
		d = w.pollPause(d)
	case o.moving:
		d = min(d, movingPoll/2+r.sh.eng.world.Draw(movingPoll/2))
	case r.sh.eng.client.Sharded():
		most := shardedPoll
		if r.sh.eng.cfg.Sharding == "both" {
			most = bothPoll
		}
		d = min(d, most/2+r.sh.eng.world.Draw(most/2))
	}
	r.sh.eng.wheel.Schedule(&w.alarm, o.now.Add(d))
}

// movingPoll is how long a head sleeps at most while its slot is being migrated:
// sharded messages are then sent where nobody can be subscribed.
const movingPoll = 100 * time.Millisecond

// shardedPoll is how long a head sleeps at most on sharded messages. It may have
// fallen asleep before the migration began, and nothing tells it of that:
//
//	head                    holder                   the slot
//	refused, sleeps
//	                                                 the key is at the other node
//	                        releases there, with a
//	                        message to nobody
//	                                                 ... is the other node's
//	hears sunsubscribe, tries
const shardedPoll = 10 * time.Second

// bothPoll is the same while a deployment changes to sharded messages: processes that
// have not changed yet announce with plain messages, and this one listens to sharded ones.
const bothPoll = time.Second

// pollPause is the back-off of a lock without a channel: 1 ms, doubled up to
// 128 ms as Redisson's spin lock does, each with a random part, and never longer
// than the holder's lease.
func (w *waiting) pollPause(ttl time.Duration) time.Duration {
	d := time.Millisecond << min(w.tries, 7)
	w.tries = min(w.tries+1, 7)
	return min(d/2+w.res.sh.eng.world.Draw(d), ttl)
}

// Fire implements wheel.Task: the sleep is over, or the lingering.
func (w *waiting) Fire(*wheel.Timer, clock.Instant) {
	w.res.sh.mu.Lock()
	if w.over {
		w.res.sh.mu.Unlock()
		return
	}
	if w.linger {
		w.end()
		w.res.settled()
		w.res.sh.mu.Unlock()
		return
	}
	var h *holding
	if w.look {
		w.look = false
		h = w.heard()
	}
	w.act(w.Alarm()) // unlocks
	h.lookNow()
}

// ChannelEvent implements resp.ChannelHandler.
func (w *waiting) ChannelEvent(ev resp.ChannelEvent, _ []byte, err error) {
	defer invariants.FailStop()
	w.res.sh.mu.Lock()
	if w.over {
		w.res.sh.mu.Unlock()
		return
	}
	switch ev {
	case resp.Subscribed:
		w.lookSoon()
		w.act(w.Confirmed())
	case resp.Message:
		h := w.heard()
		w.act(w.Message())
		h.lookNow()
	case resp.Disconnected:
		w.act(w.Disconnected())
	case resp.Refused:
		w.refuse(err)
	}
}

// act does what the wait decided, and releases the shard's lock.
func (w *waiting) act(action queue.Action) {
	r, e := w.res, w.res.sh.eng
	var fx effects
	switch action {
	case queue.Try:
		r.next(&fx)
	case queue.TryPaced:
		if r.waiters.Len() > 0 && r.hold == nil && r.holdBack(stalled) {
			fx.stall(r)
		}
	}
	r.settled()
	r.sh.mu.Unlock()
	fx.run(e)
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
func (w *waiting) heard() *holding {
	h := w.res.hold
	if h == nil || h.state != live {
		return nil
	}
	now := w.res.sh.eng.clock.Stamp()
	if next := w.lookedAt.Add(lookEvery); now < next {
		w.lookAt(next)
		return nil
	}
	w.lookedAt = now
	return h
}

// lookAt has the alarm look at the hold by then; while nobody waits that can wait, too.
func (w *waiting) lookAt(at clock.Instant) {
	if !w.linger && (!w.look || at < w.lookBy) {
		w.res.sh.eng.wheel.Schedule(&w.alarm, at)
		w.lookBy = at
	}
	w.look = true
}

// lookUnasked has the hold looked at now and then where a removal may be announced to
// nobody here: a lock that polls has no channel, and a process that has not changed to
// sharded messages announces with plain ones.
func (w *waiting) lookUnasked() {
	e := w.res.sh.eng
	every := lookEvery
	if !w.res.kind.Polls() {
		every = bothPoll
		if e.cfg.Sharding != "both" || !e.client.Sharded() {
			return
		}
	}
	if !w.look {
		w.lookAt(e.clock.Stamp().Add(every))
	}
}

// lookAfterGrant has a fresh hold looked at if the channel said something since its
// acquire was sent, for that may have been about the hold:
//
//	this process             the server             somebody else
//	acquire  ------------->  granted
//	                         lock removed  <------  ForceUnlock
//	message: no hold yet
//	the grant
func (w *waiting) lookAfterGrant(c *command, now clock.Instant) {
	if w.Events() != c.events {
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
func (w *waiting) lookSoon() {
	h := w.res.hold
	switch {
	case h == nil || h.state != live:
	case w.linger:
		w.look = true
	default:
		h.eng.renewer.Soon(&h.member)
	}
}

// lookNow renews the hold at once; the answer tells whether it is there. No lock is
// held, and a nil hold is nobody's.
func (h *holding) lookNow() {
	if h != nil {
		h.eng.renewer.Now(&h.member)
	}
}

// refuse fails all who wait: the server does not let this user listen.
func (w *waiting) refuse(err error) {
	r, e := w.res, w.res.sh.eng
	var fx effects
	w.Unlisten()
	for {
		a, ok := r.waiters.Front()
		if !ok {
			break
		}
		a.fail(reason.Because(reason.Invalid("the server refuses channel %q to this user (see the ACL rules in docs/operations.md)", r.channel().Name()), err), &fx)
	}
	r.next(&fx)
	r.settled()
	w.res.sh.mu.Unlock()
	fx.run(e)
}

// linger keeps the subscription for a moment after the last waiter left, then ends
// it.
func (r *resource) linger() {
	w := r.wait
	if !w.Listening() || r.sh.eng.closing.Load() {
		r.sh.eng.wheel.Cancel(&w.alarm)
		w.end()
		return
	}
	if w.linger {
		return
	}
	w.Reset()
	w.linger = true
	r.sh.eng.wheel.Schedule(&w.alarm, r.sh.eng.clock.Now().Add(lingerFor))
}

// stopLingering is called when somebody waits again.
func (w *waiting) stopLingering() {
	if w != nil && w.linger {
		w.linger = false
		w.res.sh.eng.wheel.Cancel(&w.alarm)
		if w.look {
			w.look = false
			w.lookSoon()
		}
	}
}

// end gives the subscription up.
func (w *waiting) end() {
	w.over = true
	if w.Listening() {
		w.res.sh.eng.client.Unsubscribe(&w.channel)
	}
	w.res.wait = nil
}

// pauseTimer ends a pause of a resource.
type pauseTimer struct {
	timer wheel.Timer
	res   *resource
	sh    *shard
}

// Fire implements wheel.Task. A paused resource stays in the table, and one that Close
// set free serves no other name, so res is still the one that was paused.
func (p *pauseTimer) Fire(*wheel.Timer, clock.Instant) {
	var fx effects
	p.sh.mu.Lock()
	r := p.res
	if r.letGo(paused) {
		r.next(&fx)
		r.settled()
	}
	p.sh.mu.Unlock()
	fx.run(r.sh.eng)
}
