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
	Handle    any    // the driver's
	Entry     *Entry // nil once it is paid
	ID        int64
	kind      uint8 // of the grant
	next      *Compensation
	with      *Compensation // the next that the same command settles
	certainty certainty
	due       bool // to be sent now
	what      outstanding
	until     clock.Instant // by then the server has forgotten the owner by itself
	lease     time.Duration // what a command of the owner that is still under way may give it
	// minEnd is until when the lock is kept taken, by nobody: the MinHold of a hold that was
	// lost. Its job may have run, and that of another process must not run once more.
	minEnd clock.Instant
	at     clock.Instant // what the timer is set to
}

// outstanding is what a compensation gives back.
type outstanding uint8

const (
	anOwner outstanding = iota
	aWriter             // an owner that readers may keep in the hash: see extendWriterExpiry
	aPlace              // no owner, but a place in the queue at the server: see queue.go
)

// certainty says how a compensation is paid.
type certainty uint8

const (
	certain certainty = iota // the next answered release pays it
	repeat                   // once more after a lease
	inDoubt                  // once more after a second, then after a lease
)

// compensate notes a compensation: an owner that the server may have until then, as far as is known.
func (r *Entry) compensate(id int64, kind uint8, g certainty, lease time.Duration, until clock.Instant) *Compensation {
	d := &Compensation{Entry: r, ID: id, kind: kind, certainty: g, due: true, lease: lease}
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
	d.minEnd = h.minEnd()
	if x := h.rare(); x.sharedUntil != 0 {
		d.what = aWriter
		d.extendUntil(x.sharedUntil)
	}
}

// idle reports whether a compensation would only keep a closing engine: it was paid once, and is to be paid again
// after a lease; or the server has forgotten the owner by itself; or it is a place, and there is no connection.
func (d *Compensation) idle() bool {
	return !d.due || d.what == aPlace && d.Entry.blocked == Disconnected || d.Entry.Shard.Now() >= d.until && !d.Entry.Cmd.carries(d)
}

// extendWriterExpiry notes that a reader of the name, which may be beside a writer, may be on the server until then.
// A writer has no lease of its own: a reader in the hash keeps it there. So a Shutdown waits as long
// for its release; see Fired.
func (r *Entry) extendWriterExpiry(until clock.Instant) {
	w := r.Shard.ahead(r)
	if w == nil {
		return
	}
	if h := w.hold; h != nil && h.rare().sharedUntil != 0 {
		h.extra.sharedUntil = max(h.extra.sharedUntil, until)
	}
	for d := w.compensations; d != nil; d = d.next {
		if d.what == aWriter {
			d.extendUntil(until)
		}
	}
}

func (d *Compensation) wakeAt(at clock.Instant) {
	d.at = at
	d.setTimer(at)
}

// extendUntil notes until when the owner may stand on the server. Bytes of a renewal that lie
// in some buffer may be executed as late as that, and give it a lease more.
func (d *Compensation) extendUntil(until clock.Instant) {
	d.until = max(d.until, until.Add(d.lease+2*time.Second))
}

// leaseRaised notes that a command other than acquire may have given an owner until then on
// the server. Its hold may have been lost while the command was out.
func (r *Entry) leaseRaised(id int64, until clock.Instant) {
	if h := r.hold; h != nil && h.ID == id {
		h.serverUntil = max(h.serverUntil, until)
	}
	for d := r.compensations; d != nil; d = d.next {
		if d.ID == id {
			d.extendUntil(until)
		}
	}
	r.extendWriterExpiry(until)
}

// dropCompensation takes a compensation out.
func (r *Entry) dropCompensation(d *Compensation) {
	d.setTimer(0)
	for p := &r.compensations; *p != nil; p = &(*p).next {
		if *p == d {
			*p, d.next, d.Entry = d.next, nil, nil
			return
		}
	}
}
