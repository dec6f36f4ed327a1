package lock

import "github.com/pawl-lock/pawl/engine/internal/waitq"

// Advance chooses the next command, if none is out, and lets go of what is not needed any
// more. It ends a transition.
func (r *Entry) Advance(rd *Ready) {
	r.next(rd)
	r.advanceReaders(rd)
	r.finishTransition()
}

// next chooses the command that is to be sent now, if any, and notes it in Cmd.
// Compensations come first: what this process may still hold unknowingly stands in
// everybody's way. driver.Table.Apply submits it after the shard's lock is
// released, and the reply comes back to Replied.
func (r *Entry) next(rd *Ready) {
	r.leaveUnneededPlace()
	if r.Cmd.Action != NoCommand || r.blocked != NotBlocked || r.endingContexts != 0 {
		return
	}
	if r.sendCompensations(rd) || r.serveHold(rd) || r.headNext && r.serveHead(rd) || r.serveTry(rd) || r.serveHead(rd) {
		rd.Send = r
	}
}

// serveHold chooses among what the live or ending hold needs.
func (r *Entry) serveHold(rd *Ready) bool {
	h := r.hold
	if h == nil {
		return false
	}
	if h.state == releasing {
		a := r.successor(h)
		if a == nil {
			r.sendRelease(h)
			return true
		}
		if h.grantsOne() {
			r.sendReleaseAndAcquire(h, a)
			return true
		}
		r.handOver(h, a, rd)
		h = r.hold
	}
	for ; h != nil; h = h.child {
		if h.state == releasing {
			r.sendDecrement(h)
			return true
		}
		if h.extra != nil && h.extra.extend != nil {
			r.sendExtend(h)
			return true
		}
		h.refuseTries(rd)
		if h.child == nil && h.extra != nil {
			if a, ok := h.extra.children.Front(); ok {
				r.sendReenter(a)
				return true
			}
		}
	}
	return false
}

// serveTry lets the first TryLock make its attempt, or refuses it if this process
// holds the lock.
func (r *Entry) serveTry(rd *Ready) bool {
	for {
		a, ok := r.tries.Front()
		if !ok {
			return false
		}
		if r.hold == nil {
			if h := r.Shard.readers(r).open(); h != nil && r.joins(a) {
				h.join(a, r.Shard.Stamp(), rd)
				continue
			}
			r.sendAcquire(a, false)
			return true
		}
		if r.hold.state == releasing {
			return false
		}
		a.refuseLocal(r.hold, rd)
	}
}

// serveHead lets the first waiter try, unless it sleeps.
func (r *Entry) serveHead(rd *Ready) bool {
	if r.hold != nil || (r.sub != nil && !r.sub.Ready()) {
		return false
	}
	a, ok := r.waiters.Front()
	if !ok || r.admitReaders(rd) {
		return false
	}
	r.sendAcquire(a, true)
	return true
}

// sendCompensations chooses what settles the compensations that are due, if any: a try that takes all of them
// along, or else the first, with the others.
func (r *Entry) sendCompensations(rd *Ready) bool {
	var first *Compensation
	n, alike := 0, true
	for d := r.compensations; d != nil; d = d.next {
		if !d.due {
			continue
		}
		if first == nil {
			first = d
		}
		n++
		alike = alike && d.minEnd == 0 && d.kind == first.kind && d.what != aPlace
	}
	if first == nil {
		return false
	}
	alike = alike && r.Shard.Traits[first.kind].Waiting != Queueing // each leaves the queue, too
	if alike && n < maxBatch && r.hold == nil && r.mayTake(first) && (r.headNext && r.serveHead(rd) || r.serveTry(rd) || r.serveHead(rd)) {
		r.Cmd.Server = r.Shard.ServerOf(r.Route)
		r.addCompensations()
		return true
	}
	r.sendCompensation(first)
	if alike && n > 1 && r.Shard.Traits[first.kind].Batches {
		r.addCompensations()
	}
	return true
}

// mayTake reports whether the one that would try now may take d along: not by a durable connection,
// not if releases of d are announced elsewhere, and not if each hold needs a grant of its own. Then
// most compensations are grants that nobody wanted any more, and other processes would never have a turn;
// and while a slot moves the counter of tokens may be at another node than the lock, and a release
// alone does not need it.
func (r *Entry) mayTake(d *Compensation) bool {
	if !r.Shard.Traits[d.kind].LocalHandOver || r.sub.joins(r.First()) {
		return false
	}
	for _, list := range []*waitq.List[*Request]{&r.waiters, r.tries} {
		if a, ok := list.Front(); ok && (a.Acks != 0 || a.Kind != d.kind || !r.Shard.Traits[a.Kind].Batches) {
			return false
		}
	}
	return true
}

// advanceAfterEnd goes on with the entry of a hold that may have been lost just now.
// If it ended before that, the entry may be another name's by now, or nobody's.
func (r *Entry) advanceAfterEnd(rd *Ready) {
	if !r.Detached {
		r.Advance(rd)
	}
}
