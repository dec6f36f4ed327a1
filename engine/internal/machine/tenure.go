package machine

import (
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Tenure is what the server has of this process for a name: one owner, from its grant until
// its release is settled. A Hold is what a user has of it: the outermost one, and its
// re-entries.
//
// Everything is guarded by the shard's lock, except validUntil, which is atomic, and what
// never changes (Res, ID, Want, Kind, watchdog).
type Tenure struct {
	Res      *Resource
	ID       int64
	Want     Acks         // replicas that must have it
	Kind     uint8        // the engine's: where its release is announced
	watchdog bool         // it is renewed: it has no fixed lease
	asked    bool         // a release may have been executed already
	deep     bool         // the server may count more than one: a re-entry was sent
	shared   bool         // a writer that readers have been let in beside, or such a reader: see keepsWriter
	handed   uint16       // how often it was handed over; see handover.go
	lookedAt shortInstant // the latest look at it because of a waiter, or its grant; see Wait.look

	// validUntil is until when the server has the owner for certain: a clock.Instant.
	validUntil atomic.Int64
	// serverUntil is how long the server may have the owner, counting everything that was
	// sent for it: unanswered renewals, and re-entries and Extends. A release is repeated
	// until then.
	serverUntil clock.Instant
}

// begin sets up the tenure of a grant to a.
func (t *Tenure) begin(r *Resource, a *Request, id int64, now clock.Instant) {
	t.Res, t.ID, t.Want, t.Kind = r, id, a.Want, a.Kind
	t.watchdog, t.shared = a.Lease == 0, a.beside() != nil
	t.serverUntil, t.lookedAt = now.Add(a.firstLease()), milliseconds(now)
}

// hold is the outermost hold of the tenure; nil when the tenure is over.
func (t *Tenure) hold() *Hold {
	if h := t.Res.hold; h != nil && h.Tenure == t {
		return h
	}
	return nil
}

// ValidUntil is until when the server has the owner for certain. It takes no lock.
func (t *Tenure) ValidUntil() clock.Instant { return clock.Instant(t.validUntil.Load()) }

// Drift is how far the clocks of several servers may run apart during a lease.
func Drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

// Renewal says for how long the tenure is to be renewed, by a command that is sent now. It is
// false for one that is over, or whose hold has ended, or ends here because its time is over.
func (t *Tenure) Renewal(now clock.Instant, fx *Effects) (lease time.Duration, ok bool) {
	h := t.hold()
	if h == nil {
		return 0, false
	}
	if !h.renewable(now, fx) {
		return 0, false
	}
	cfg := t.Res.Port.Config()
	lease = cfg.Lease
	if !t.watchdog {
		// Only a look: what is left is no more than the key has.
		lease = h.Until().Sub(now)
	} else if x := h.extra; x != nil && x.maxEnd != 0 {
		lease = min(lease, x.maxEnd.Sub(now)+cfg.Margin(lease))
	}
	t.serverUntil = max(t.serverUntil, now.Add(lease))
	if t.shared {
		t.Res.keepsWriter(t.serverUntil)
	}
	return lease, true
}

// Renewed notes that the server has raised the lease, by a command that was sent then. It
// returns the hold if the watchdog goes on. An acknowledgement that comes after the time of
// the hold does not bring it back.
func (t *Tenure) Renewed(sent, now clock.Instant, lease time.Duration, acked int, fx *Effects) *Hold {
	h := t.hold()
	if h == nil {
		return nil
	}
	if !h.renewable(now, fx) {
		return nil
	}
	if !t.watchdog {
		if x := h.extra; x != nil && x.ofQuorum {
			x.there = max(x.there, sent)
		}
		return nil
	}
	h.acknowledged(sent, lease)
	h.setAcked(acked)
	t.Res.Port.Counters().Renewed++
	h.Port.RenewNext(now)
	return h
}

// Gone notes that the server does not have the owner any more.
func (t *Tenure) Gone(why Loss, fx *Effects) {
	h := t.hold()
	if h == nil {
		return
	}
	h.boundReleases()
	if h.state != live { // its release is found first, and will find the same
		h.forServer = true
		return
	}
	t.Res.lose(h, why, fx)
	t.Res.goOnAfter(fx)
}

// renewable reports whether a renewal concerns the hold still. If not, the tenure loses its
// place among the renewals, so it is released from now on, and not handed over:
//
//	a hold                       its tenure
//	unlocked, its contexts end
//	                             due for renewal: not live, leaves the renewals
//	its contexts have ended      would be the next one's, and be renewed no more
func (h *Hold) renewable(now clock.Instant, fx *Effects) bool {
	h.check(now, fx)
	h.boundReleases()
	if h.state != live {
		h.forServer = true
		h.Res.goOnAfter(fx)
		return false
	}
	return true
}

// A reader has a tenure of its own, and nobody waits behind it to whom that could be handed over.
// But where many read, a release is on its way mostly, and the next reader comes before the answer
// to that. So while the release of a tenure is out, those of others of its name stay here, on
// offer (see queue.Offers): a reader that comes is handed the oldest one.
//
//	this process                                      the server
//	unlocks: release  ------------------------------>
//	unlocks: on offer
//	locks: has it, unlocks: on offer
//	the answer  <------------------------------------
//	nobody came: release  -------------------------->
//
// An Unlock takes the time of two more answers at most. Of a few readers nothing is on offer: they
// leave the lock free now and then, for writers elsewhere, and would not if one waited for the
// other.
//
// That would keep the lock taken as long as readers come and go. So all readers of a name have one
// turn, from the first tenure that is handed over. When it ends, tenures are released as they are
// unlocked, and readers that come rest: long enough for the releases, and for a writer
// elsewhere that hears of the last one. If somebody reads on, they have rested for nothing.

// Offers are the tenures of a name that are on offer, and the turn of its readers.
type Offers struct {
	Port     Port
	Readers  int // the engine's: how many read, or want to
	queue    queue.Offers[*Resource]
	going    *Resource     // see GoOn
	turnEnds clock.Instant // 0: none has been handed over since the last rest
	trip     time.Duration // how long a release took lately
	resting  bool
}

// For is the resource whose tenure a is handed; nil if it needs one of its own. A TryLock does:
// it is not admitted as one that waits.
func (o *Offers) For(a *Request) *Resource {
	if o.queue.Len() == 0 || o.resting || a.Once || !a.plain() || a.beside() != nil {
		return nil
	}
	r := o.queue.Oldest()
	if w := o.Port.Ahead(r); w != nil && (w.hold != nil || w.First() != nil) {
		return nil // it stays Behind
	}
	if a.Want != 0 || r.hold.Kind != a.Kind || !r.handsOver(r.hold) {
		return nil
	}
	return r
}

// offer puts the tenure of h on offer, and reports true, or has others wait for its release.
func (r *Resource) offer(h *Hold, fx *Effects) bool {
	if r.Place == 0 || r.First() != nil || !r.handsOver(h) {
		return false
	}
	o, cfg := r.Port.Offers(r), r.Port.Config()
	if o.Readers < cfg.ManyReaders || cfg.HandOverFor < yieldFor { // else the rests would be longer than the turns
		return false
	}
	if o.turnEnds != 0 && o.turnEnds < r.Port.Stamp() {
		o.rest(r, fx)
	}
	if o.resting {
		return false
	}
	if o.queue.Open() && o.going != r {
		o.queue.Push(r)
		r.held = Offered
		return true
	}
	o.queue.Sent()
	r.Cmd.Leads = true
	return false
}

// rest ends the turn: nothing is on offer any more, and readers that come wait for a moment.
func (o *Offers) rest(r *Resource, fx *Effects) {
	o.turnEnds, o.resting = 0, true
	if o.queue.LetAll() {
		fx.Offers = o
	}
	o.Port.Rest(r, o.Port.Now().Add(min(2*o.trip+yieldFor, yieldMost)))
}

// RestOver ends the rest. Who calls it goes on with the readers that are Resting, by GoRested.
func (o *Offers) RestOver() { o.resting = false }

// GoRested goes on with a reader that was Resting.
func (r *Resource) GoRested(fx *Effects) {
	if r.letGo(Resting) {
		r.GoOn(fx)
	}
}

// rests reports whether a new request of r has to rest.
func (r *Resource) rests(a *Request) bool {
	return r.Place != 0 && a.beside() == nil && r.Port.Offers(r).resting
}

// takeOffer takes the tenure for a request that is being admitted.
func (r *Resource) takeOffer() {
	if !r.letGo(Offered) {
		return
	}
	o := r.Port.Offers(r)
	o.queue.Take(r)
	if o.turnEnds == 0 {
		o.turnEnds = r.Port.Stamp().Add(r.Port.Config().HandOverFor)
	}
}

// withdraw takes the tenure off the offer, if it is on.
func (r *Resource) withdraw() {
	if r.letGo(Offered) {
		r.Port.Offers(r).queue.Remove(r)
	}
}

// ledReplied goes on after the reply of a release that others wait for, or its failure.
func (r *Resource) ledReplied(out *Outcome, fx *Effects) {
	o := r.Port.Offers(r)
	o.trip = out.Now.Sub(out.Sent)
	if o.queue.Answered() {
		fx.Offers = o
	}
}

// GoOn goes on with the release of a tenure that nobody took in time, and reports whether there was
// one. Who runs the Effects calls it until there is none.
func (o *Offers) GoOn(fx *Effects) bool {
	r, ok := o.queue.Due()
	if ok {
		r.withdraw()
		o.going = r
		r.GoOn(fx)
		o.going = nil
	}
	return ok
}
