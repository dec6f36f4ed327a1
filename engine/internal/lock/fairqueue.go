package lock

import "math"

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
	if r.Shard.Traits[a.Kind].Waiting != Queueing || a.Try {
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
		w.Port.SetTimer(0)
		w.end()
	}
}
