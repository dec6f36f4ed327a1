package lock

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
)

// end takes the request out of everything. The result follows by Ready.finish.
func (a *Request) end() {
	tried := a.state == trying
	a.state = ended
	r := a.res
	switch {
	case a.Parent != nil:
		if x := a.Parent.extra; x != nil {
			x.children.Remove(&a.place)
			a.passToNext(&x.children)
		}
	case a.Try:
		r.tries.Remove(&a.place)
		a.passToNext(r.tries)
	default:
		was := r.First()
		r.waiters.Remove(&a.place)
		a.passToNext(&r.waiters)
		if next := r.First(); next != nil && was == a && !tried && r.sub != nil && r.wakes(a, next) {
			r.sub.Reset()
		}
	}
	if r.Cmd.req == a {
		r.Cmd.req = nil // an orphan now
	}
	if a.extra != nil && a.extra.deadline != nil {
		a.extra.deadline.Over()
		a.extra.deadline = nil
	}
	if a.extra != nil && a.extra.outage != nil {
		a.extra.outage.Over()
		a.extra.outage = nil
	}
	r.Shard.Count.Pending--
}

// wakes reports whether the sleep of a is over for the next one: a slept until a message came, and
// that one polls; or it wants fewer permits, and there may be as many.
func (r *Entry) wakes(a, next *Request) bool {
	return r.Shard.Traits[next.Kind].Polls && !r.Shard.Traits[a.Kind].Polls || next.Permits < a.Permits
}

// fail ends the request without the lock, for the given reason.
func (a *Request) fail(why error, rd *Ready) {
	a.res.leaveServerQueue(a)
	a.end()
	a.res.Shard.Count.NotAcquired++
	rd.finish(a, nil, why)
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

// failEach fails all requests of a list, which may be nil.
func failEach(list *waitq.List[*Request], why error, rd *Ready) {
	for a, ok := list.Front(); ok; a, ok = list.Front() {
		a.fail(why, rd)
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
		if !a.Try {
			return
		}
		a.refuseLocal(h, rd)
	}
}
