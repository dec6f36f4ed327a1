package lock

import (
	"math"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
)

// end takes the request out of everything. The result follows by Ready.finish.
func (a *Request) end() {
	tried := a.state == trying
	a.state = ended
	r := a.res
	switch {
	case a.Parent != nil:
		a.Parent.rare().children.Remove(&a.place)
	case a.Try():
		r.tries.Remove(&a.place)
	default:
		was := r.First()
		r.waiters.Remove(&a.place)
		if next := r.First(); next != nil && was == a && !tried && r.wakes(a, next) {
			r.sub.Reset()
		}
	}
	if r.Cmd.req == a {
		r.Cmd.req = nil // an orphan now
	}
	r.Shard.Count.Pending--
}

// wakes reports whether the sleep of a is over for the next one: a slept until a message came, and
// that one polls; or it wants fewer permits, and there may be as many.
func (r *Entry) wakes(a, next *Request) bool {
	return r.Shard.Traits[next.Kind].Waiting == Polling && r.Shard.Traits[a.Kind].Waiting != Polling || next.Permits < a.Permits
}

// fail ends the request without the lock, for the given reason.
func (a *Request) fail(why error, rd *Ready) {
	a.lose()
	rd.finish(a, nil, why)
}

func (a *Request) lose() {
	a.res.leaveServerQueue(a)
	a.end()
	a.res.Shard.Count.NotAcquired++
}

// grant ends the request with a hold.
func (a *Request) grant(h *Hold, rd *Ready) {
	a.end()
	a.res.Shard.Count.Acquired++
	rd.finish(a, h, nil)
}

// refuseLocal refuses a TryLock because this process holds the lock.
func (a *Request) refuseLocal(h *Hold, rd *Ready) {
	left := h.Until().Sub(a.res.Shard.Stamp())
	a.fail(&lockerr.Held{TTL: max(left, 0), Here: true, ID: h.ID, Kind: h.Kind}, rd)
}

// failEach fails all requests of a list, which may be nil. There may be 100,000, so one effect tells all.
func failEach(list *waitq.List[*Request], why error, rd *Ready) {
	a, ok := list.Front()
	if !ok {
		return
	}
	a.fail(why, rd)
	s := a.res.Shard
	verdict := len(s.effects) - 1
	for a, ok = list.Front(); ok; a, ok = list.Front() {
		a.lose()
		rd.list(a)
		s.effects[verdict].Behind++
	}
}

func (r *Entry) failAll(rd *Ready) {
	failEach(r.tries, lockerr.ErrClosed, rd)
	failEach(&r.waiters, lockerr.ErrClosed, rd)
}

// refuseTries refuses the TryLocks that waited for the answer to another one, which has re-entered h.
func (h *Hold) refuseTries(rd *Ready) {
	for h.reentered() && h.pending() {
		a, _ := h.extra.children.Front()
		if !a.Try() {
			return
		}
		a.refuseLocal(h, rd)
	}
}

// newHold makes the hold of a grant, with a grant unless it is a re-entry; begin starts it.
func (r *Entry) newHold(a *Request, id int64, o *Outcome) *Hold {
	var h *Hold
	fixed, lease := a.Lease != 0, a.firstLease()
	if a.Parent == nil {
		h = a.Handle.NewHold(r, nil)
		h.Grant.begin(r, a, id, o.Now)
		h.count = 1
		if o.Token != 0 {
			h.more().token = o.Token
		}
	} else {
		h = a.Handle.NewHold(r, a.Parent)
		h.Parent, h.count, h.inheritsLease = a.Parent, a.Parent.count+1, !fixed
	}
	h.Name, h.since = a.Name(), milliseconds(o.Now)
	h.setAcked(o.Acked)
	if x := a.extra; x != nil {
		x.Granted = o.Now
		if x.Quorum {
			h.more().ofQuorum = true
		}
		if x.MaxHold != 0 {
			// From when it was sent, as the lease counts: MaxHold never ends after the lease it
			// has cut, so the reason is MaxHold, and not a renewal that nobody needed.
			h.more().maxEnd = o.Sent.Add(x.MaxHold)
		}
	}
	h.acknowledged(o.Sent, lease)
	if h.Parent == nil || h.inheritsLease {
		h.setUntil(math.MaxInt64)
	}
	return h
}

// begin starts the clock of a hold that was granted to a: its renewals, or its timer.
func (h *Hold) begin(a *Request, now clock.Instant) {
	h.Entry.Shard.Count.Held++
	if l := a.extra; l != nil && l.MinHold != 0 {
		x := h.Root().more() // it is the root's release that keeps the lock taken
		x.minEnd = max(x.minEnd, now.Add(l.MinHold))
	}
	if h.watched() {
		h.renew(RenewFirst, now)
	}
	if at := h.timeOut(); at != 0 {
		h.setTimer(at)
	}
}

// begin sets up the grant to a.
func (t *Grant) begin(r *Entry, a *Request, id int64, now clock.Instant) {
	t.Entry, t.ID, t.Acks, t.Kind = r, id, a.Acks, a.Kind
	t.watchdog, t.joint = a.Lease == 0, r.joins(a)
	t.serverUntil, t.verifiedAt = now.Add(a.firstLease()), milliseconds(now)
}

// MaxLate is how often a grant may come after its own lease before the acquisition
// fails: once or twice may be bad luck.
const MaxLate = 3

// granted makes a hold of a grant, unless nobody wants it any more or its time is
// over already: then it is given back.
func (r *Entry) granted(c *Command, o *Outcome, rd *Ready) {
	a := c.req
	if a == nil {
		r.compensateAcquire(c, certain, o)
		return
	}
	if o.Unacked != nil {
		// The primary has it, and perhaps a replica that will be promoted.
		r.compensateAcquire(c, certain, o)
		a.unacked(o, rd)
		return
	}
	h := r.newHold(a, c.ID, o)
	if h.Until() <= o.Now || r.Shard.closing() {
		r.compensateAcquire(c, certain, o)
		r.lateGrant(a, o, rd)
		return
	}
	r.lastAttempt = HeldHere
	if r.Shard.Traits[c.Kind].Entries == PerGrant {
		h.Entry = r.Shard.makeInGroup(r.Name, r.family, r.Route)
		h.Entry.hold = h // it is in nobody's way: the next one tries at once
	} else {
		r.hold = h
		if w := r.sub; w != nil {
			w.tries, w.first = 0, 0
			if w.stage == queueless { // the next wait tries again
				w.stage = uncalled
			}
		}
	}
	if c.before != nil {
		h.handOvers = c.before.handOvers + 1
		r.Shard.Count.HandedOver++
	}
	h.begin(a, o.Now)
	a.grant(h, rd)
	if h.handOvers == 0 { // else it is the same turn
		r.beginTurn(o.Now)
	}
	if h.Entry == r {
		r.share(o.Now, rd)
	}
}

// unacked fails an acquisition whose grant too few replicas have acknowledged.
func (a *Request) unacked(o *Outcome, rd *Ready) {
	r := a.res
	r.Shard.Count.Unacked++
	a.fail(o.Unacked, rd)
}

func (r *Entry) lateGrant(a *Request, o *Outcome, rd *Ready) {
	a.lateGrants++
	switch {
	case r.Shard.closing():
		a.fail(lockerr.ErrClosed, rd)
	case a.Try() || a.lateGrants >= MaxLate:
		a.fail(lockerr.ErrGrantTooLate, rd)
	}
}

// tooMany reports whether the refusal of an orphan says nothing to the one that is first now: it
// wants fewer permits.
func (r *Entry) tooMany(c *Command, next *Request) bool {
	return r.Shard.Traits[c.Kind].Entries == PerGrant && next.Permits < uint8(c.ID)
}
