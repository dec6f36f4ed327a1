package lock

import (
	"math"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/serial"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Waiters queue at the server in two ways: those of a FairMutex for the order, each as an owner of its own; and the
// engines that wait for a Mutex, each as one owner, so that a release wakes few of them.
//
// Engines that wait for a name of a kind that is Racing queue at the server, so that a release wakes a few of
// them, however many wait. The first places are the front: they listen for releases, and race for the lock. The
// others sleep until a message to their engine alone calls them to the front.
//
//	first try  --refused-->   listens for releases
//	confirmed  --joins------> granted
//	                      +-> in the front: a release makes it try again
//	                      +-> behind it: listens for calls instead, and tries now and then
//	called     --listens for releases, confirmed--> tries again, from the front
//
// A head may find the lock free for others: for the first of the front, or for the whole front. It lets them go first
// for firstFor. Its next try names the first that it has waited for. If that is the first still, those others have not
// come: the head takes the lock, and they lose their places (see join.lua).
//
// An engine that finds itself behind for the first time listens for releases until it hears calls, and asks once
// more then: nobody may have been able to call it before.
//
// A place is the engine's, so whatever is executed late, or twice, gives it one place or none. It keeps the
// place while it has waiters, also when the head changes; a grant takes it out of the queue. A place that nobody needs is given
// up by a compensation. One that is lost comes back at the end of the queue with the next try.
//
// A call may be older, or newer, than the answer to a try:
//
//	this engine                     the server
//	joins            ------------>  it is behind
//	                                others leave: it is in the front now
//	  called         <------------
//	  "behind"       <------------  the answer to the join
//
// So a try that is out when a call comes is repeated if it is refused.

// queueStage is how far a wait has come in the queue at the server.
type queueStage uint8

const (
	uncalled  queueStage = iota // it has not been behind the front: it does not listen for calls
	calling                     // it wants to, and the server has not confirmed that
	racing                      // it does; the next try joins, or races from the front
	asking                      // the same; that try is out, and no call has come since
	behind                      // the same; it is behind the front, and sleeps
	queueless                   // the server refuses the queue, or the channel of the calls, to this user
)

// joins reports whether the next try of the name's head is one in the queue: not the first one, and none while
// the slot of the name moves, for a script has both keys or none.
func (w *Subscription) joins(a *Request) bool {
	if w == nil || a == nil || w.res.Shard.Traits[a.Kind].Waiting != Racing {
		return false
	}
	return w.res.hold == nil && !w.moving && w.stage != queueless && (w.queued || w.Hears() || w.hearsCalls())
}

func (w *Subscription) hearsCalls() bool {
	return w.stage == racing || w.stage == asking || w.stage == behind
}

// firstFor is how long a head lets others go first: they need a round trip to take a free lock.
const firstFor = 10 * time.Millisecond

// join notes that a try in the queue is sent, and returns whom the head has let go first for long enough; 0: nobody.
func (w *Subscription) join(a *Request) (first uint32) {
	w.kind, w.queued = a.Kind, true
	if w.hearsCalls() {
		w.stage = asking
	}
	if w.letsFirst(w.res.Shard.Stamp()) > 0 {
		return 0
	}
	return w.first
}

// letsFirst is how long the head lets others go first still.
func (w *Subscription) letsFirst(now clock.Instant) time.Duration {
	return min(max(time.Duration(int32(w.firstUntil-milliseconds(now)))*time.Millisecond, 0), firstFor)
}

// answered notes that the try in the queue is not out any more.
func (w *Subscription) answered() {
	if w.stage == asking {
		w.stage = racing
	}
}

// joined takes in whom the head is to let go first, and where its place is. It reports whether that is behind the
// front, where it sleeps, or asks once more, and does not listen for releases.
func (w *Subscription) joined(o *Outcome) (isBehind bool) {
	if o.First != 0 && o.First != w.first {
		w.first, w.firstUntil = o.First, milliseconds(o.Now.Add(firstFor))
	}
	switch {
	case o.Behind < 0 || w.stage == queueless:
		w.answered()
		return false
	case w.stage == racing: // called since it asked
		w.Reset()
		return true
	case w.stage == uncalled:
		w.stage = calling
		w.effect(ListenForCalls)
	}
	most := serial.Poll // a call may be missed
	if w.stage == asking {
		w.stage, most = behind, tryAfter(o.Behind)
		w.unlisten()
	}
	w.Sleep()
	at := o.Now.Add(most*3/4 + w.res.Shard.Draw(most/2))
	if o.First != 0 {
		at = o.Now.Add(w.letsFirst(o.Now))
	}
	w.setTimer(at)
	return true
}

// tryAfter is how long one that has so many behind it sleeps behind the front, a quarter more or less. The last one
// tries after a second, the one before after two, and so on: so somebody sees soon that nobody in the front comes,
// and few try.
func tryAfter(behind int) time.Duration {
	return min(time.Duration(min(behind, 100)+1)*serial.Poll, LongestSleepMissed)
}

// CallsConfirmed is called when the server has confirmed the channel of the calls: the head asks where its place
// is, for it may have missed one.
func (w *Subscription) CallsConfirmed(rd *Ready) {
	if w.over() || w.stage != calling {
		return
	}
	w.stage = racing
	again := !w.Listening() // the connection was lost, and many names ask
	w.act(w.Event(again), rd)
}

// Called is called when a message says that this engine is in the front.
func (w *Subscription) Called(rd *Ready) {
	r, was := w.res, w.stage
	switch {
	case w.over():
	case !w.queued:
		// A join ran late, or its wait has ended: nobody needs that place, and it keeps others from the front.
		if !r.withdraws() {
			r.compensatePlace(w.kind)
			r.Advance(rd)
		}
	case was == asking:
		w.stage = racing
	case was == behind:
		w.stage = racing
		w.listen() // the confirmation makes the head try
		if w.Asleep() {
			w.setTimer(r.Shard.Now().Add(serial.Poll))
		}
	}
}

// CallsLost is called when the connection of the calls was lost.
func (w *Subscription) CallsLost(rd *Ready) {
	if w.over() || !w.hearsCalls() {
		return
	}
	w.stage = calling
	if !w.Listening() { // else it hears of it there
		w.act(w.Event(true), rd)
	}
}

// CallsRefused is called when the server does not let this user listen for calls: it races as one in the front,
// for this wait.
func (w *Subscription) CallsRefused(rd *Ready) {
	if !w.over() {
		w.stage = uncalled // and nothing is to be given up there
		w.unqueue()
		w.res.Advance(rd)
	}
}

// listensForCalls reports whether the channel of the calls is subscribed to.
func (w *Subscription) listensForCalls() bool { return w.stage != uncalled && w.stage != queueless }

// unqueue has the name wait without the queue, until it is granted.
func (w *Subscription) unqueue() {
	w.leaveQueue()
	if w.listensForCalls() {
		w.effect(UnlistenForCalls)
	}
	w.stage = queueless
}

// leaveQueue gives the place up, if there may be one, and ends a sleep there.
func (w *Subscription) leaveQueue() {
	if !w.queued {
		return
	}
	w.res.compensatePlace(w.kind)
	w.queued, w.first = false, 0
	if w.hearsCalls() {
		w.stage = racing
	}
	w.Event(false)
}

// leaveUnneededPlace gives the place up if nobody needs it. A try that is out is answered first.
func (r *Entry) leaveUnneededPlace() {
	w := r.sub
	if w == nil || !w.queued || r.Cmd.Join {
		return
	}
	a := r.First()
	if a != nil && r.Shard.Traits[a.Kind].Waiting == Racing && !w.moving {
		return
	}
	if w.leaveQueue(); a == nil && r.hold == nil {
		r.forgetAttempt() // as if the name was idle
	}
}

// compensatePlace notes that the engine has a place in the queue that nobody needs, or may have.
func (r *Entry) compensatePlace(kind uint8) {
	r.compensate(0, kind, certain, 0, r.Shard.Now()).what = aPlace
}

// withdraws reports whether a place is being given up.
func (r *Entry) withdraws() bool {
	for d := r.compensations; d != nil; d = d.next {
		if d.what == aPlace {
			return true
		}
	}
	return false
}

// joinReplied notes what became of the place of the engine by a try in the queue.
func (r *Entry) joinReplied(o *Outcome) {
	w := r.sub
	switch {
	case w == nil || o.Result == Replied && o.Reply == HeldByOther:
		return // see joined
	case o.Result == Replied:
		w.queued = false
		if w.hearsCalls() && r.waiters.Len() <= 1 { // it will be behind others again, and need not hear its own release
			w.unlisten()
		}
	case o.Result == Refused, o.Result == WrongType: // for want of a right to the key, say
		w.unqueue()
	}
	w.answered()
}

// A lock whose kind queues has the order of its waiters on the server. There the owner of a
// request that was refused waits for its turn, so a request has one owner for all its tries.
//
//	no owner --try--> asked --refused--> queued --granted--> the owner of a grant
//	                    |                  |
//	                    +------------------+--ends without a grant--> compensation: leaves the queue
//	                    |
//	                    +--no answer, or a grant that comes too late--> compensation; the next try has a
//	                       new owner, at the end of the queue
//
// The release of a compensation takes an owner out of the queue, too. So a place that may be lost to a
// connection is given up: bytes that lie in some buffer could queue the owner again, or give it
// the lock, after it has left.

// owner is the one that the request has at the server's queue; 0 if none.
func (a *Request) owner() int64 {
	if a == nil || a.extra == nil {
		return 0
	}
	return a.extra.owner
}

// drawOwner returns the owner of the next try.
func (r *Entry) drawOwner(a *Request) int64 {
	for r.Shard.Traits[a.Kind].Entries == PerGrant {
		if id := r.Shard.NewID() &^ math.MaxUint8; id != 0 {
			return id | int64(a.Permits)
		}
	}
	if r.Shard.Traits[a.Kind].Waiting != Queueing || a.Try() {
		return r.Shard.NewID()
	}
	x := a.More()
	if x.owner == 0 {
		x.owner = r.Shard.NewID()
	}
	return x.owner
}

// keepsQueuePlace notes that the owner of a try is on the server, if a asks again as that owner.
func (a *Request) keepsQueuePlace(c *Command) bool {
	if a.owner() == 0 || a.owner() != c.ID {
		return false
	}
	a.extra.queued = true
	return true
}

// leaveServerQueue owes that the owner of a request that ends is taken out of the queue.
func (r *Entry) leaveServerQueue(a *Request) {
	x := a.extra
	if x == nil || x.owner == 0 {
		return
	}
	if x.queued || a.state == trying {
		lease := a.firstLease()
		r.compensate(x.owner, a.Kind, certain, lease, r.Shard.Now().Add(lease+r.Shard.Config.Room))
	}
	x.owner, x.queued = 0, false
}

// abandonOwner gives the owner of a try up for another: what it has is owed. The channel was its own.
func (r *Entry) abandonOwner(c *Command) {
	a := c.req
	if a == nil || a.owner() != c.ID || c.ID == 0 {
		return
	}
	a.extra.owner, a.extra.queued = 0, false
	if w := r.sub; w != nil {
		w.setTimer(0)
		w.end()
	}
}
