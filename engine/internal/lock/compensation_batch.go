package lock

import (
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/waitq"
)

// A command may release owners beside what it is for: compensations, beside another or an acquire, or
// a hold, beside the acquire of the next one. So an owner that was in doubt costs no round trip
// before the next try, and a lock is not free between two holds.
//
// Each has its own answer. On the server the releases come first.

// maxBatch bounds a command, so that it does not hold up the server.
const maxBatch = 64

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
		alike = alike && d.minEnd == 0 && d.kind == first.kind
	}
	if first == nil {
		return false
	}
	alike = alike && !r.Shard.Traits[first.kind].ServerQueue // each leaves the queue, too
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
	if !r.Shard.Traits[d.kind].LocalHandOver {
		return false
	}
	for _, list := range []*waitq.List[*Request]{&r.waiters, r.tries} {
		if a, ok := list.Front(); ok && (a.Acks != 0 || a.Kind != d.kind || !r.Shard.Traits[a.Kind].Batches) {
			return false
		}
	}
	return true
}

// addCompensations has the command settle the compensations that are due, but for the one that it is for.
func (r *Entry) addCompensations() {
	c := &r.Cmd
	first, last := c.compensation, &c.compensation
	if first != nil {
		last = &first.with
	}
	for d := r.compensations; d != nil && c.Batched < maxBatch-1; d = d.next {
		if d.due && d != first {
			*last, last = d, &d.with
			c.Batched++
		}
	}
	*last = nil
}

// sendReleaseAndAcquire releases h, and acquires for a.
func (r *Entry) sendReleaseAndAcquire(h *Hold, a *Request) {
	h.mustRelease = true // if this is in vain, it is released alone
	r.sendAcquire(a, true)
	r.Cmd.Server = r.Shard.ServerOf(r.Route)
	r.Cmd.before, r.Cmd.Batched = h, 1
}

// beside is the first of the compensations that the command settles beside what it is for.
func (c *Command) beside() *Compensation {
	if c.Action == Compensating {
		return c.compensation.with
	}
	return c.compensation
}

// BatchedIDs are the owners that the command releases beside what it is for. They do not change
// while it is out, whatever becomes of the compensations.
func (c *Command) BatchedIDs(yield func(id int64) bool) {
	if c.before != nil {
		yield(c.before.ID)
		return
	}
	for d := c.beside(); d != nil && yield(d.ID); {
		d = d.with
	}
}

// batchReplied goes on after the reply of a command, for what it has released beside.
func (r *Entry) batchReplied(c *Command, o *Outcome, rd *Ready) {
	if c.Batched == 0 {
		return
	}
	one, release := *o, Command{Action: Compensating, Kind: c.Kind, Batched: c.Batched, Server: c.Server}
	if o.BatchAnswered {
		one.Result, one.Err = Replied, nil
	}
	if h := c.before; h != nil {
		release.Action, release.ID, release.hold = Releasing, h.ID, h
		one.Reply = o.BatchReplies[0]
		r.releaseReplied(&release, &one, rd)
		return
	}
	for i, d := 0, c.beside(); d != nil; i, d = i+1, d.with {
		release.ID, release.compensation = d.ID, d
		one.Reply = o.BatchReplies[i]
		r.compensationReplied(&release, &one)
	}
}

// carries reports whether the command does something to the owner of d.
func (c *Command) carries(d *Compensation) bool {
	return c.Action != NoCommand && (c.ID == d.ID || slices.Contains(slices.Collect(c.BatchedIDs), d.ID))
}
