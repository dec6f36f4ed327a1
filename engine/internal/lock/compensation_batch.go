package lock

import (
	"slices"

	"github.com/pawl-lock/pawl/engine/internal/waitq"
)

// A Batch is what a command releases beside what it is for: compensations, beside another or an acquire, or
// a hold, beside the acquire of the next one. So an owner that was in doubt costs no round trip
// before the next try, and a lock is not free between two holds.
//
// Each has its own answer. On the server the releases come first.
type Batch struct {
	IDs           []int64         // never change
	compensations []*Compensation // nil: forgiven meanwhile
	hold          *Hold           // instead of compensations
}

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
	alike = alike && !r.Port.Traits(first.kind).ServerQueue // each leaves the queue, too
	if alike && n < maxBatch && r.hold == nil && r.mayTake(first) && (r.headNext && r.serveHead(rd) || r.serveTry(rd) || r.serveHead(rd)) {
		r.Cmd.Server = r.Port.ServerOf(r.Route)
		r.addCompensations(nil)
		return true
	}
	r.sendCompensation(first)
	if alike && n > 1 && r.Port.Traits(first.kind).Batches {
		r.addCompensations(first)
	}
	return true
}

// mayTake reports whether the one that would try now may take d along: not by a durable connection,
// not if releases of d are announced elsewhere, and not if each hold needs a grant of its own. Then
// most compensations are grants that nobody wanted any more, and other processes would never have a turn;
// and while a slot moves the counter of tokens may be at another node than the lock, and a release
// alone does not need it.
func (r *Entry) mayTake(d *Compensation) bool {
	if !r.Port.Traits(d.kind).LocalHandOver {
		return false
	}
	for _, list := range []*waitq.List[*Request]{&r.waiters, r.tries} {
		if a, ok := list.Front(); ok && (a.Acks != 0 || a.Kind != d.kind || !r.Port.Traits(a.Kind).Batches) {
			return false
		}
	}
	return true
}

// addCompensations has the command settle the compensations that are due, but for the one that it is for.
func (r *Entry) addCompensations(but *Compensation) {
	b := new(Batch)
	for d := r.compensations; d != nil && len(b.IDs) < maxBatch-1; d = d.next {
		if d.due && d != but {
			b.IDs, b.compensations = append(b.IDs, d.ID), append(b.compensations, d)
		}
	}
	r.Cmd.Batch = b
}

// sendReleaseAndAcquire releases h, and acquires for a.
func (r *Entry) sendReleaseAndAcquire(h *Hold, a *Request) {
	h.mustRelease = true // if this is in vain, it is released alone
	r.sendAcquire(a, true)
	r.Cmd.Server = r.Port.ServerOf(r.Route)
	r.Cmd.Batch = &Batch{IDs: []int64{h.ID}, hold: h}
}

// batchReplied goes on after the reply of a command, for what it has released beside.
func (r *Entry) batchReplied(c *Command, o *Outcome, rd *Ready) {
	if c.Batch == nil {
		return
	}
	for i, id := range c.Batch.IDs {
		one := *o
		if o.BatchReplies != nil {
			one.Result, one.Reply, one.Err = Replied, o.BatchReplies[i], nil
		}
		release := Command{Action: Compensating, Kind: c.Kind, Server: c.Server, ID: id, Batch: c.Batch, hold: c.Batch.hold}
		if release.hold != nil {
			release.Action = Releasing
			r.releaseReplied(&release, &one, rd)
		} else {
			release.compensation = c.Batch.compensations[i]
			r.compensationReplied(&release, &one)
		}
	}
}

// carries reports whether the command does something to the owner of d.
func (c *Command) carries(d *Compensation) bool {
	return c.Action != NoCommand && (c.ID == d.ID || c.Batch != nil && slices.Contains(c.Batch.IDs, d.ID))
}

// drop takes a compensation out.
func (b *Batch) drop(d *Compensation) {
	if b == nil {
		return
	}
	if i := slices.Index(b.compensations, d); i >= 0 {
		b.compensations[i] = nil
	}
}
