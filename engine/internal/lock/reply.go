package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

func (r *Entry) replied(c *Command, o *Outcome, rd *Ready) {
	if o.Result == Replied {
		r.refused = 0
	}
	if (c.Action == Reentering || c.Action == Extending) && (o.Result != RetryLater || o.Begun) {
		r.leaseRaised(c.ID, o.Now.Add(c.Lease))
	}
	if c.Writer() != nil {
		r.extendWriterExpiry(o.Now.Add(c.Lease))
	}
	r.batchReplied(c, o, rd)
	switch c.Action {
	case Acquiring:
		r.acquireReplied(c, o, rd)
	case Reentering:
		r.reenterReplied(c, o, rd)
	case Extending:
		r.extendReplied(c, o, rd)
	case Decrementing, Releasing:
		r.releaseReplied(c, o, rd)
	case Compensating, Withdrawing:
		r.compensationReplied(c, o)
	}
	if o.Result == RetryLater {
		r.pause(o.Now, o.Moving)
	}
}

// notSent puts a command back that never left this process, and holds the name
// back until its lane works again.
func (r *Entry) notSent(c *Command, o *Outcome, rd *Ready) {
	a := c.req
	if c.Head && r.sub != nil {
		r.sub.Reset()
		r.sub.answered()
	}
	if o.Result == Cancelled {
		return
	}
	full := o.Result == LaneFull
	if full && a != nil && c.FirstAsync {
		a.fail(lockerr.ErrOverloaded, rd)
	}
	if a != nil && a.Try() && !a.Ended() {
		a.giveUpAt(o.Now.Add(r.Shard.Config.CommandTimeout))
	}
	r.hold.boundReleases()
	if full || c.Acks != 0 || o.Moving {
		// Recovery cannot help: it waits for the lane of the name's node. The name's release
		// must not wait for a durable connection, and the node that ASK names while a slot
		// moves has no lane here.
		r.pause(o.Now, o.Moving)
		return
	}
	if r.blocked.Block(Disconnected) { // otherwise it is listed already
		rd.Disconnected = r
	}
}

// batchReplied goes on after the reply of a command, for what it has released beside.
func (r *Entry) batchReplied(c *Command, o *Outcome, rd *Ready) {
	if c.Batched == 0 {
		return
	}
	release := Command{Action: Compensating, Kind: c.Kind, Batched: c.Batched, Server: c.Server}
	if h := c.before; h != nil {
		release.Action, release.ID, release.hold = Releasing, h.ID, h
		one := o.batched(0)
		r.releaseReplied(&release, &one, rd)
		return
	}
	for i, d := 0, c.beside(); d != nil; i, d = i+1, d.with {
		release.ID, release.compensation = d.ID, d
		one := o.batched(i)
		r.compensationReplied(&release, &one)
	}
}

// compensationReplied goes on after the reply of a release that pays a compensation.
func (r *Entry) compensationReplied(c *Command, o *Outcome) {
	d := c.compensation
	if d.Entry == nil { // dropped while the command was out
		return
	}
	if (o.Result == Refused || o.Result == RetryLater) && d.what != aPlace {
		r.noteRefusal(o)
	}
	if o.Result == Unknown || o.Result == RetryLater {
		return // still due
	}
	// Answered, whatever the answer: the server has dealt with this owner. (An
	// error that is no refusal will not change by asking again.)
	r.released(c, o)
	d.due = false
	d.extendUntil(o.Now.Add(d.lease))
	switch {
	case d.certainty == certain || r.Shard.closing():
		r.dropCompensation(d)
	case d.certainty == inDoubt:
		d.certainty = repeat
		d.wakeAt(o.Now.Add(time.Second))
	case d.certainty == repeat:
		d.certainty = certain
		d.wakeAt(o.Now.Add(d.lease))
	}
}

// compensateAcquire notes that what an acquire took, or may have taken, is to be given back.
func (r *Entry) compensateAcquire(c *Command, g certainty, o *Outcome) {
	until := o.Now.Add(c.Lease)
	if r.Shard.Traits[c.Kind].Waiting == Queueing {
		until = until.Add(r.Shard.Config.Room)
		r.abandonOwner(c)
		for d := r.compensations; d != nil; d = d.next {
			if d.ID == c.ID { // its request has left the queue meanwhile
				d.certainty, d.due = max(d.certainty, g), true
				d.extendUntil(until)
				return
			}
		}
	}
	r.compensate(c.ID, c.Kind, g, c.Lease, until)
}
