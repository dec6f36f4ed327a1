package lock

import (
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Compensation is an owner that the lock's hash may contain although nobody here holds the
// lock: a grant that nobody wanted, a hold that was lost, an acquire whose reply never
// came. release(owner) pays it, and does no harm however often it is sent. Until the compensation
// is paid, the name's other commands queue behind it.
//
// The first answer pays a certain compensation. A doubtful compensation is that of an in-doubt id: the bytes
// of its acquire may still be in the server's socket buffer, and be executed after the
// first release:
//
//	engine                        server
//	acquire(id) on connection 1   (not read yet)
//	connection 1 dies
//	release(id) on connection 2   -> nothing there
//	                              reads connection 1: grants id to nobody
//	release(id) again, 1 s later  -> released
//
// So the release is sent at once, after a second, and after one lease. A phantom hold
// lives for at most a second.
type Compensation struct {
	Port              Timer  // calls Fired
	Entry             *Entry // nil once it is paid
	ID                int64
	kind              uint8 // of the grant
	next              *Compensation
	with              *Compensation // the next that the same command settles
	certainty         certainty
	due               bool          // to be sent now
	sharedWithReaders bool          // others may keep it in the hash: see extendWriterExpiry
	until             clock.Instant // by then the server has forgotten the owner by itself
	lease             time.Duration // what a command of the owner that is still under way may give it
	// minEnd is until when the lock is kept taken, by nobody: the MinHold of a hold that was
	// lost. Its job may have run, and that of another process must not run once more.
	minEnd clock.Instant
	at     clock.Instant // what the timer is set to
}

// certainty says how a compensation is paid.
type certainty uint8

const (
	certain certainty = iota // the next answered release pays it
	repeat                   // once more after a lease
	inDoubt                  // once more after a second, then after a lease
)

// compensate notes a compensation: an owner that the server may have until then, as far as is known.
func (r *Entry) compensate(id int64, kind uint8, g certainty, lease time.Duration, until clock.Instant) *Compensation {
	d := r.Shard.NewCompensation()
	d.Entry, d.ID, d.kind, d.certainty, d.due, d.lease = r, id, kind, g, true, lease
	d.extendUntil(until)
	d.next, r.compensations = r.compensations, d
	r.Shard.Count.Compensations++
	if g == inDoubt {
		r.Shard.Count.InDoubt++
	}
	d.wakeAt(d.until)
	return d
}

// compensateGrant notes that the grant of a hold which is over here may be there still.
func (r *Entry) compensateGrant(h *Hold, until clock.Instant) {
	d := r.compensate(h.ID, h.Kind, certain, r.Shard.Config.Lease, until)
	d.minEnd, d.sharedWithReaders = h.minEnd(), h.besideReaders
	if h.extra != nil {
		d.extendUntil(h.extra.sharedUntil)
	}
}

// idle reports whether a compensation would only keep a closing engine: it was paid once, and is to be paid again
// after a lease; or the server has forgotten the owner by itself.
func (d *Compensation) idle() bool {
	return !d.due || d.Entry.Shard.Now() >= d.until && !d.Entry.Cmd.carries(d)
}

// extendWriterExpiry notes that a reader of the name, which is beside a writer, may be on the server until then.
// A writer has no lease of its own: a reader in the hash keeps it there. So a Shutdown waits as long
// for its release; see Fired.
func (r *Entry) extendWriterExpiry(until clock.Instant) {
	w := r.Shard.ahead(r)
	if w == nil {
		return
	}
	if h := w.hold; h != nil && h.besideReaders {
		x := h.more()
		x.sharedUntil = max(x.sharedUntil, until)
	}
	for d := w.compensations; d != nil; d = d.next {
		if d.sharedWithReaders {
			d.extendUntil(until)
		}
	}
}

func (d *Compensation) wakeAt(at clock.Instant) {
	d.at = at
	d.Port.SetTimer(at)
}

// compensateAcquire notes that what an acquire took, or may have taken, is to be given back.
func (r *Entry) compensateAcquire(c *Command, g certainty, o *Outcome) {
	until := o.Now.Add(c.Lease)
	if r.Shard.Traits[c.Kind].ServerQueue {
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

// extendUntil notes until when the owner may stand on the server. Bytes of a renewal that lie
// in some buffer may be executed as late as that, and give it a lease more.
func (d *Compensation) extendUntil(until clock.Instant) {
	d.until = max(d.until, until.Add(d.lease+2*time.Second))
}

// leaseRaised notes that a command other than acquire may have given an owner until then on
// the server. Its hold may have been lost while the command was out.
func (r *Entry) leaseRaised(id int64, until clock.Instant) {
	shared := false
	if h := r.hold; h != nil && h.ID == id {
		h.serverUntil = max(h.serverUntil, until)
		shared = h.besideReaders
	}
	for d := r.compensations; d != nil; d = d.next {
		if d.ID == id {
			d.extendUntil(until)
			shared = shared || d.sharedWithReaders
		}
	}
	if shared {
		r.extendWriterExpiry(until)
	}
}

// compensationReplied goes on after the reply of a release that pays a compensation.
func (r *Entry) compensationReplied(c *Command, o *Outcome) {
	d := c.compensation
	if d.Entry == nil { // dropped while the command was out
		return
	}
	if o.Result == Refused || o.Result == RetryLater {
		r.Shard.Refused(*o)
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

// dropCompensation takes a compensation out.
func (r *Entry) dropCompensation(d *Compensation) {
	d.Port.SetTimer(0)
	for p := &r.compensations; *p != nil; p = &(*p).next {
		if *p == d {
			*p, d.next, d.Entry = d.next, nil, nil
			return
		}
	}
}

// Fired is called by the timer: the compensation is to be paid once more. Or nobody has answered for so long that the
// server has forgotten the owner by itself: then an engine that closes gives it up. An open one asks on. The
// bytes of an acquire may arrive when the network is back; and for how long a queue keeps a place, or a hash an
// owner, depends on others.
func (d *Compensation) Fired(now clock.Instant, rd *Ready) {
	r := d.Entry
	if r == nil || now < d.at { // paid, or set anew while this waited for the lock
		return
	}
	switch out := r.Cmd.carries(d); { // out: what it does to the owner is not known
	case d.due && (out || now < d.until || !r.Shard.closing()):
		d.wakeAt(max(d.until, now.Add(d.lease+2*time.Second)))
	case d.due:
		r.dropCompensation(d)
	default:
		// However late this is: the server may have slept as long, with the bytes of the
		// acquire before it.
		d.due = true
		d.wakeAt(now.Add(d.lease + 2*time.Second))
	}
	r.Advance(rd)
}
