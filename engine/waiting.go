package engine

import (
	"math/rand/v2"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// waiting is the wait of a resource's head: queue.Wait decides, and here it is
// given a clock, a channel and a lock. It is made by the first refusal, or by the
// first waiter behind a hold of this process, which would otherwise not hear of a
// removal by force. It lives until nobody has waited for a moment (lingering), so
// that a name in demand does not subscribe and unsubscribe at every turn.
//
// It is an object of its own because timers and channel events may reach it after
// the resource is done with it: then over is set, and they do nothing.
type waiting struct {
	queue.Wait
	over     bool
	linger   bool  // nobody waits; the alarm ends the subscription
	look     bool  // the alarm makes the hold be looked at
	tries    uint8 // of a lock that polls, for the pause between them
	lookedAt clock.Instant
	res      *resource
	alarm    wheel.Timer
	channel  resp.Channel
}

const lingerFor = time.Second

// ensureWait returns the wait, begun if need be.
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
	if channelPrefix[r.kind] != "" && w.Listen() {
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
	w.listen() // the confirmation is an event: it makes the head try again
	switch {
	case channelPrefix[r.kind] == "":
		d = w.pollPause(d)
	case o.moving:
		d = min(d, movingPoll/2+rand.N(movingPoll/2))
	case r.sh.eng.client.Sharded():
		most := shardedPoll
		if r.sh.eng.cfg.Sharding == "both" {
			most = bothPoll
		}
		d = min(d, most/2+rand.N(most/2))
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

// bothPoll is that while a deployment changes over to sharded messages: those who have
// not been told announce in plain, and it is sharded ones that are listened to.
const bothPoll = time.Second

// pollPause is the back-off of a lock without a channel: 1 ms, doubled up to
// 128 ms as Redisson's spin lock does, each with a random part, and never longer
// than the holder's lease.
func (w *waiting) pollPause(ttl time.Duration) time.Duration {
	d := time.Millisecond << min(w.tries, 7)
	w.tries = min(w.tries+1, 7)
	return min(d/2+rand.N(d), ttl)
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

// act does what the wait decided and gives the shard's lock up.
func (w *waiting) act(action queue.Action) {
	r, e := w.res, w.res.sh.eng
	var fx effects
	switch action {
	case queue.Try:
		r.next(&fx)
	case queue.TryPaced:
		if r.held == freely && r.waiters.Len() > 0 && r.hold == nil {
			r.held = stalled
			fx.stall(r)
		}
	}
	w.res.sh.mu.Unlock()
	fx.run(e)
}

// lookEvery is how often a hold is looked at because of messages, at most. The
// releases of our own are announced to us too, a moment later, when another local
// waiter may have the lock already: without a bound every hand-over on a busy name
// would cost a command more.
const lookEvery = 100 * time.Millisecond

// heard returns the live hold if it shall be renewed at once: somebody announced a
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
		if !w.linger && !w.look {
			w.look = true
			w.res.sh.eng.wheel.Schedule(&w.alarm, next)
		}
		return nil
	}
	w.lookedAt = now
	return h
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
		a.fail(fail(ErrNotAcquired, invalid("the server refuses channel %q to this user (see the README on ACL rules)", r.channel().Name()), err), &fx)
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
	w.linger, w.look = true, false
	r.sh.eng.wheel.Schedule(&w.alarm, r.sh.eng.clock.Now().Add(lingerFor))
}

// stopLingering is called when somebody waits again.
func (w *waiting) stopLingering() {
	if w != nil && w.linger {
		w.linger = false
		w.res.sh.eng.wheel.Cancel(&w.alarm)
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

// Fire implements wheel.Task. A paused resource stays in the table, so res is
// still the one that was paused.
func (p *pauseTimer) Fire(*wheel.Timer, clock.Instant) {
	var fx effects
	p.sh.mu.Lock()
	r := p.res
	r.held = freely
	r.next(&fx)
	r.settled()
	p.sh.mu.Unlock()
	fx.run(r.sh.eng)
}
