package lock

import (
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Debt is an owner that the lock's hash may contain although nobody here holds the
// lock: a grant that nobody wanted, a hold that was lost, an acquire whose reply never
// came. release(owner) pays it, and does no harm however often it is sent. Until the debt
// is paid, the name's other commands queue behind it.
//
// The first answer pays a certain debt. A doubtful debt is that of a burned id: the bytes
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
type Debt struct {
	Port              DebtPort
	Entry             *Entry // nil once it is paid
	ID                int64
	kind              uint8 // of the grant
	next              *Debt
	grade             grade
	due               bool          // to be sent now
	sharedWithReaders bool          // others may keep it in the hash: see keepsWriter
	until             clock.Instant // by then the server has forgotten the owner by itself
	lease             time.Duration // what a command of the owner that is still under way may give it
	// minEnd is until when the lock is kept taken, by nobody: the MinHold of a hold that was
	// lost. Its job may have run, and that of another process must not run once more.
	minEnd clock.Instant
	at     clock.Instant // what the timer is set to
}

// grade says how a debt is paid.
type grade uint8

const (
	certain  grade = iota // the next answered release pays it
	again                 // once more after a lease
	doubtful              // once more after a second, then after a lease
)

// owe notes a debt: an owner that the server may have until then, as far as is known.
func (r *Entry) owe(id int64, kind uint8, g grade, lease time.Duration, until clock.Instant) *Debt {
	d := r.Port.NewDebt()
	d.Entry, d.ID, d.kind, d.grade, d.due, d.lease = r, id, kind, g, true, lease
	d.stands(until)
	d.next, r.debts = r.debts, d
	r.Port.Counters().Compensations++
	if g == doubtful {
		r.Port.Counters().Burned++
	}
	d.wakeAt(d.until)
	return d
}

// oweTenure notes that the grant of a hold which is over here may be there still.
func (r *Entry) oweTenure(h *Hold, until clock.Instant) {
	d := r.owe(h.ID, h.Kind, certain, r.Port.Config().Lease, until)
	d.minEnd, d.sharedWithReaders = h.minEnd(), h.besideReaders
	if h.extra != nil {
		d.stands(h.extra.sharedUntil)
	}
}

// idle reports whether a debt would only keep a closing engine: it was paid once, and is to be paid again
// after a lease; or the server has forgotten the owner by itself.
func (d *Debt) idle() bool {
	return !d.due || d.Entry.Port.Now() >= d.until && !d.Entry.Cmd.carries(d)
}

// keepsWriter notes that a reader of the name, which is beside a writer, may be on the server until then.
// A writer has no lease of its own: a reader in the hash keeps it there. So a Shutdown waits as long
// for its release; see Fired.
func (r *Entry) keepsWriter(until clock.Instant) {
	w := r.Port.Ahead(r)
	if w == nil {
		return
	}
	if h := w.hold; h != nil && h.besideReaders {
		x := h.more()
		x.sharedUntil = max(x.sharedUntil, until)
	}
	for d := w.debts; d != nil; d = d.next {
		if d.sharedWithReaders {
			d.stands(until)
		}
	}
}

func (d *Debt) wakeAt(at clock.Instant) {
	d.at = at
	d.Port.WakeAt(at)
}

// oweTaken notes that what an acquire took, or may have taken, is to be given back.
func (r *Entry) oweTaken(c *Command, g grade, o *Outcome) {
	until := o.Now.Add(c.Span)
	if r.Port.Kind(c.Kind).Queues {
		until = until.Add(r.Port.Config().Room)
		r.burn(c)
		for d := r.debts; d != nil; d = d.next {
			if d.ID == c.ID { // its request has left the queue meanwhile
				d.grade, d.due = max(d.grade, g), true
				d.stands(until)
				return
			}
		}
	}
	r.owe(c.ID, c.Kind, g, c.Span, until)
}

// stands notes until when the owner may stand on the server. Bytes of a renewal that lie
// in some buffer may be executed as late as that, and give it a lease more.
func (d *Debt) stands(until clock.Instant) {
	d.until = max(d.until, until.Add(d.lease+2*time.Second))
}

// raised notes that a command other than acquire may have given an owner until then on
// the server. Its hold may have been lost while the command was out.
func (r *Entry) raised(id int64, until clock.Instant) {
	shared := false
	if h := r.hold; h != nil && h.ID == id {
		h.serverUntil = max(h.serverUntil, until)
		shared = h.besideReaders
	}
	for d := r.debts; d != nil; d = d.next {
		if d.ID == id {
			d.stands(until)
			shared = shared || d.sharedWithReaders
		}
	}
	if shared {
		r.keepsWriter(until)
	}
}

// settleReplied goes on after the reply of a release that pays a debt.
func (r *Entry) settleReplied(c *Command, o *Outcome) {
	d := c.debt
	if d == nil {
		return
	}
	if o.Verdict == Denied || o.Verdict == Busy {
		r.Port.Refused(*o)
	}
	if o.Verdict == Unknown || o.Verdict == Busy {
		return // still due
	}
	// Answered, whatever the answer: the server has dealt with this owner. (An
	// error that is no refusal will not change by asking again.)
	r.released(c, o)
	d.due = false
	d.stands(o.Now.Add(d.lease))
	switch {
	case d.grade == certain || r.Port.Closing():
		r.forgive(d)
	case d.grade == doubtful:
		d.grade = again
		d.wakeAt(o.Now.Add(time.Second))
	case d.grade == again:
		d.grade = certain
		d.wakeAt(o.Now.Add(d.lease))
	}
}

// forgive takes a debt out.
func (r *Entry) forgive(d *Debt) {
	d.Port.Over()
	if r.Cmd.debt == d {
		r.Cmd.debt = nil
	}
	r.Cmd.Also.forgive(d)
	for p := &r.debts; *p != nil; p = &(*p).next {
		if *p == d {
			*p, d.next, d.Entry = d.next, nil, nil
			return
		}
	}
}

// Fired is called by the timer: the debt is to be paid once more. Or nobody has answered for so long that the
// server has forgotten the owner by itself: then an engine that closes gives it up. An open one asks on. The
// bytes of an acquire may arrive when the network is back; and for how long a queue keeps a place, or a hash an
// owner, depends on others.
func (d *Debt) Fired(now clock.Instant, fx *Effects) {
	r := d.Entry
	if r == nil || now < d.at { // paid, or set anew while this waited for the lock
		return
	}
	switch out := r.Cmd.carries(d); { // out: what it does to the owner is not known
	case d.due && (out || now < d.until || !r.Port.Closing()):
		d.wakeAt(max(d.until, now.Add(d.lease+2*time.Second)))
	case d.due:
		r.forgive(d)
	default:
		// However late this is: the server may have slept as long, with the bytes of the
		// acquire before it.
		d.due = true
		d.wakeAt(now.Add(d.lease + 2*time.Second))
	}
	r.GoOn(fx)
}
