package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/waitq"
)

// Engines that wait for a name of a kind that is Racing queue at the server, so that a release wakes a few of
// them, however many wait. The first places are the front: they listen for releases, and race for the lock. The
// others sleep until a message to their engine alone says that they have come into the front.
//
//	first try --refused--> subscribes to releases, and to the engine's channel
//	confirmed --join-----> granted
//	                   |-> in the front: sleeps; a release: joins again
//	                   +-> behind: listens for no release, and sleeps; called to the front: listens, confirmed: joins again
//
// A place is that of the name's wait, not of a request: a head that gives up leaves it to the next one. All
// tries of the name's head are sent as its owner, until the server has granted one, or may have: the grant takes
// the owner out of the queue. A place that nobody needs is given up by a compensation, as is one that may be lost:
// bytes that lie in some buffer could queue the owner again after it has left.
//
// What may come late:
//
//	this engine                     the server
//	joins            ------------>  is behind
//	                                others leave: it is in the front now
//	  called         <------------
//	  "behind"       <------------  the answer to the join
//
// The call counts as an event of the channel, so the older answer puts nobody to sleep (see waitq.HeadWait).

// queueStage is how far a wait has come in the queue at the server.
type queueStage uint8

const (
	unqueued  queueStage = iota // it does not use the queue yet
	calling                     // the engine's channel was subscribed to, and is not confirmed
	racing                      // it is confirmed: the next try joins, or races from the front
	asking                      // such a try is out, and nothing was heard on the engine's channel since
	behind                      // the latest try found it behind the front
	queueless                   // the server refuses the queue, or the channel, to this user
)

// joins reports whether the next try of the name's head is one in the queue. While the slot of the name moves
// none is: a script has both keys or none.
func (w *Subscription) joins(a *Request) bool {
	return w != nil && a != nil && w.res.Shard.Traits[a.Kind].Waiting == Racing && w.res.hold == nil &&
		!w.moving && (w.place != 0 || w.stage == racing || w.stage == behind)
}

// join returns the owner that the name has in the queue, made if there is none, for a try that is sent.
func (w *Subscription) join() (owner int64, how Joins) {
	how = JoinsRace
	switch w.stage {
	case behind:
		how, w.stage = Looks, asking
	case racing:
		w.stage = asking
	}
	for w.place == 0 {
		w.place = w.res.Shard.NewID()
	}
	return w.place, how
}

// listenForCalls subscribes to the engine's channel of the name, once.
func (w *Subscription) listenForCalls(a *Request) {
	if w.stage == unqueued && a != nil && w.res.Shard.Traits[a.Kind].Waiting == Racing {
		w.stage, w.kind = calling, a.Kind
		w.Port.ListenForCalls(w.res, a.Kind)
	}
}

func (w *Subscription) listensForCalls() bool { return w.stage != unqueued && w.stage != queueless }

// joined takes in where the server says that a place is. It reports whether the head is behind the front: then it
// sleeps, whatever it has heard of releases, or tries again, if it has heard of its place since it asked.
func (w *Subscription) joined(o *Outcome) (isBehind bool) {
	switch {
	case o.Behind < 0 || w.stage == queueless:
		return false
	case w.stage == racing:
		w.Reset()
	default:
		w.sleepBehind(o)
	}
	return true
}

// sleepBehind puts a head to sleep that is behind the front. Whoever is last looks after a second, the one before
// after two, and so on: so somebody sees soon that all in the front have gone, and few ask.
func (w *Subscription) sleepBehind(o *Outcome) {
	most := LongestSleepMissed
	if n := time.Duration(o.Behind+1) * waitq.Poll; n < most {
		most = n
	}
	if w.stage == asking {
		w.stage = behind
	} else { // a call may be missed
		most = waitq.Poll
	}
	if w.Listening() {
		w.Port.Unlisten()
		w.Unlisten()
	}
	w.Sleep()
	w.Port.SetTimer(o.Now.Add(most/2 + w.res.Shard.Draw(most/2)))
}

// CallsConfirmed is called when the server has confirmed the engine's channel. A try that waits for the other
// one is not woken twice.
func (w *Subscription) CallsConfirmed(rd *Ready) {
	if w.over || w.stage != calling {
		return
	}
	w.stage = racing
	if !w.Listening() || w.Hears() {
		w.act(w.Event(w.place != 0), rd)
	}
}

// Called is called when a message says that an owner of this engine is in the front.
func (w *Subscription) Called(owner int64, rd *Ready) {
	r := w.res
	switch {
	case w.over:
	case owner != w.place:
		// A join ran late, or its wait has ended: nobody needs that place, and it keeps others from the front.
		if !r.withdraws() {
			r.compensatePlace(owner, w.kind, certain)
			r.Advance(rd)
		}
	default: // the answer to a try that is out may be older
		w.Outdate()
		was := w.stage
		if was == asking || was == behind {
			w.stage = racing
		}
		if was != behind {
			return
		}
		w.listen() // the confirmation makes the head try
		if w.Asleep() {
			w.Port.SetTimer(r.Shard.Now().Add(waitq.Poll))
		}
	}
}

// CallsLost is called when the connection of the engine's channel was lost.
func (w *Subscription) CallsLost(rd *Ready) {
	if w.over || w.stage != racing && w.stage != asking && w.stage != behind {
		return
	}
	w.stage = calling
	if !w.Listening() { // else it hears of it there
		w.act(w.Event(true), rd)
	}
}

// CallsRefused is called when the server does not let this user listen to the engine's channel: it races as
// one in the front, for this wait.
func (w *Subscription) CallsRefused(rd *Ready) {
	if !w.over {
		w.unqueue()
		w.Event(false)
		w.res.Advance(rd)
	}
}

// unqueue has the name wait without the queue.
func (w *Subscription) unqueue() {
	w.leaveQueue(certain)
	if w.listensForCalls() {
		w.Port.UnlistenForCalls()
	}
	w.stage = queueless
}

// leaveQueue gives the place up, if there is one.
func (w *Subscription) leaveQueue(g certainty) {
	if w.place != 0 {
		w.res.compensatePlace(w.place, w.kind, g)
		w.place = 0
	}
}

// keepsPlace reports whether anybody needs the place of the name.
func (r *Entry) keepsPlace() bool {
	if r.Cmd.Joins != JoinsNone {
		return true // it is answered first
	}
	a := r.First()
	return a != nil && r.Shard.Traits[a.Kind].Waiting == Racing && !r.sub.moving
}

// compensatePlace notes that an owner has a place in the queue that nobody needs, or may have. The queue ends by
// itself, so an engine that closes does not wait long for the answer.
func (r *Entry) compensatePlace(owner int64, kind uint8, g certainty) {
	r.compensate(owner, kind, g, r.Shard.Config.Lease, r.Shard.Now()).ofPlace = true
}

// withdraws reports whether a place is being given up.
func (r *Entry) withdraws() bool {
	for d := r.compensations; d != nil; d = d.next {
		if d.ofPlace {
			return true
		}
	}
	return false
}

// joinReplied notes what became of the place of a name by a try in the queue.
func (r *Entry) joinReplied(c *Command, o *Outcome) {
	w := r.sub
	if w == nil || w.place != c.ID { // it was given up while this was out
		return
	}
	switch {
	case o.Result == Replied && o.Reply == HeldByOther:
		return // see joined
	case o.Result == Replied:
		w.place = 0 // the grant took it
	case o.Result == Unknown:
		w.leaveQueue(inDoubt)
	case o.Result == Refused, o.Result == WrongType: // for want of a right to the key, say
		w.unqueue()
	case o.Result == RetryLater && o.Begun:
		w.leaveQueue(certain)
	}
	w.answered()
}

// answered notes that the try in the queue is not out any more.
func (w *Subscription) answered() {
	if w.stage == asking {
		w.stage = racing
	}
}
