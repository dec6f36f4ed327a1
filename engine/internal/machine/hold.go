package machine

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Hold is what the machine knows of a hold; the user has an engine.Hold, which leads here.
//
//	live --Unlock--> releasing --reply, or its time is over--> over
//	  |                                                          ^
//	  +--lost (time over, gone on the server, Close)-------------+
//
// A hold ends for its user the moment it leaves live; releasing is the engine's
// affair. Re-entries form a chain: root, child, grandchild; count is the depth,
// and what the server's field shows while the hold is the innermost one. The end
// of a hold ends its children.
//
// Everything is guarded by the shard's lock, except validUntil, which is atomic, what never
// changes (Port, Res, Name, ID, Want, Parent, count, watched, follows), and Ending once it
// is set, for those who end the contexts.
type Hold struct {
	Port HoldPort
	Res  *Resource
	Name string // as the caller gave it; the server's is Res.Name
	ID   int64

	Parent, child *Hold
	count         int32
	Want          Acks // replicas that must have it
	state         holdState
	watched       bool // the watchdog renews: a root without a fixed lease
	follows       bool // a child without a lease of its own: its parent's time counts
	asked         bool // a release may have been executed already

	validUntil atomic.Int64 // clock.Instant: what users may count on; past when it has ended
	// serverUntil of a root is how long the server may have its owner, counting everything
	// that was sent for it: unanswered renewals, and re-entries and Extends of its
	// children. A release is repeated until then; that of a re-entry until its own end.
	serverUntil clock.Instant

	Ending  error   // released or lost; nil while live
	unlocks *Unlock // calls of Unlock that wait for the release
	extra   *holdExtra
}

type holdState uint8

const (
	live holdState = iota
	releasing
	over
)

// holdExtra is what most holds never need.
type holdExtra struct {
	maxEnd, minEnd clock.Instant
	there          clock.Instant        // if ofQuorum: the server had the hold at that time, or later
	children       queue.List[*Request] // re-entries that wait for their turn
	extend         *Extend
	result         error // of the release, if it did not succeed
	refusal        error // the latest answer to the release or the Extend under way, if it settled nothing

	contexts   queue.Set[Context]
	acked      int32 // replicas that had what validUntil counts from
	untold     bool  // in the resource's list
	ofQuorum   bool  // it is one of several servers'
	nextEnded  *Hold // in an Effects
	nextUntold *Hold
}

func (h *Hold) more() *holdExtra {
	if h.extra == nil {
		h.extra = new(holdExtra)
	}
	return h.extra
}

// newHold makes the hold of a grant; begin starts it.
func (r *Resource) newHold(a *Request, id int64, o Outcome) *Hold {
	h := r.Port.NewHold(r, a.Want)
	h.Res, h.Name, h.ID, h.Want = r, a.Name(), id, a.Want
	h.count, h.Parent = 1, a.Parent
	fixed, lease := a.Lease != 0, a.firstLease()
	h.setAcked(o.acked())
	if a.rare != nil && a.rare.Quorum != nil {
		h.more().ofQuorum = true
	}
	if h.Parent != nil {
		h.count = h.Parent.count + 1
		h.follows = !fixed
	} else {
		h.watched = !fixed
		h.serverUntil = o.Now.Add(lease)
	}
	if l := a.rare; l != nil && l.MaxHold != 0 {
		// From when it was sent, as the lease counts: MaxHold never ends after the lease it
		// has cut, so the reason is MaxHold, and not a renewal that nobody needed.
		h.more().maxEnd = o.Sent.Add(l.MaxHold)
	}
	h.acknowledged(o.Sent, lease)
	if h.follows {
		h.setUntil(math.MaxInt64)
	}
	return h
}

// acknowledged notes that the server has given h the lease, by a command that was sent then.
func (h *Hold) acknowledged(sent clock.Instant, lease time.Duration) {
	margin := h.Res.Port.Config().Margin(lease)
	if x := h.extra; x != nil && x.ofQuorum {
		margin = max(margin, Drift(lease))
		x.there = max(x.there, sent)
	}
	h.setUntil(max(h.OwnUntil(), sent.Add(lease-margin)))
}

// Drift is how far the clocks of several servers may run apart during a lease.
func Drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

// begin starts the clock of a hold that was granted to a: its renewals, or its timer.
func (h *Hold) begin(a *Request, now clock.Instant) {
	h.Res.Port.Counters().Held++
	if l := a.rare; l != nil && l.MinHold != 0 {
		x := h.Root().more() // it is the root's release that keeps the lock taken
		x.minEnd = max(x.minEnd, now.Add(l.MinHold))
	}
	if h.watched {
		h.Port.RenewFirst(now)
	}
	if at := h.timeOut(); at != 0 {
		h.Port.WakeAt(at)
	}
}

// timeOut is when the hold's own timer must look, 0 if the watchdog or the parent
// does.
func (h *Hold) timeOut() clock.Instant {
	at := clock.Instant(0)
	if !h.watched && !h.follows {
		at = h.Until()
	}
	if h.extra != nil && h.extra.maxEnd != 0 && (at == 0 || h.extra.maxEnd < at) {
		at = h.extra.maxEnd
	}
	return at
}

// Until is when the hold ends here: the earliest end along the chain. It takes no
// lock.
func (h *Hold) Until() clock.Instant {
	at := h.OwnUntil()
	if h.Parent != nil {
		at = min(at, h.Parent.Until())
	}
	return at
}

// OwnUntil is when the hold ends whatever its outer holds do. It takes no lock.
func (h *Hold) OwnUntil() clock.Instant { return clock.Instant(h.validUntil.Load()) }

// setUntil moves the end; MaxHold stands.
func (h *Hold) setUntil(at clock.Instant) {
	if x := h.extra; x != nil && x.maxEnd != 0 {
		at = min(at, x.maxEnd)
	}
	h.validUntil.Store(int64(at))
}

// trouble is why the release or the Extend under way is not settled, as far as is known. Only
// while it is under way is the resource h's for certain.
func (h *Hold) trouble() error {
	if err := h.Res.Port.Trouble(h.Res.Route); err != nil || h.extra == nil {
		return err
	}
	return h.extra.refusal
}

func (h *Hold) setAcked(n int) {
	if n != 0 || h.extra != nil {
		h.more().acked = int32(n)
	}
}

// minEnd is until when the lock stays taken though the hold ends; 0: no longer.
func (h *Hold) minEnd() clock.Instant {
	if h.extra == nil {
		return 0
	}
	return h.extra.minEnd
}

// Root returns the outermost hold.
func (h *Hold) Root() *Hold {
	for h.Parent != nil {
		h = h.Parent
	}
	return h
}

// innermost returns the innermost re-entry of h, or h.
func (h *Hold) innermost() *Hold {
	for h.child != nil {
		h = h.child
	}
	return h
}

// InnermostLive returns the nearest hold outwards from h that is live, nil if none
// is.
func (h *Hold) InnermostLive() *Hold {
	for ; h != nil; h = h.Parent {
		if h.state == live {
			return h
		}
	}
	return nil
}

// pending reports whether re-entries wait under h.
func (h *Hold) pending() bool { return h.extra != nil && h.extra.children.Len() > 0 }

// lockWaits reports whether a Lock is among them. TryLocks come before it, or are refused.
func (h *Hold) lockWaits() bool {
	if !h.pending() {
		return false
	}
	last, _ := h.extra.children.Back()
	return !last.Once
}

// reentered reports whether h has a live re-entry. One that is being released holds nothing
// any more.
func (h *Hold) reentered() bool { return h.child != nil && h.child.state == live }

// Fired is called by the hold's own timer. The watchdog has none: it is for a fixed lease,
// MaxHold, the time of a release.
func (h *Hold) Fired(now clock.Instant, fx *Effects) {
	switch h.state {
	case live:
		h.check(now, fx)
		if h.state == live {
			h.Port.WakeAt(h.timeOut()) // it was extended
		} else {
			h.Res.goOnAfter(fx)
		}
	case releasing:
		if now < h.serverUntil {
			// It was armed for the hold, or for what the server had before an Extend.
			h.boundRelease()
			break
		}
		h.giveUpRelease(fx)
		h.Res.goOnAfter(fx)
	}
}

// The methods below are for the engine, which calls them under the shard's lock.

// Acked is how many replicas had what Until counts from.
func (h *Hold) Acked() int {
	if h = h.timekeeper(); h.extra == nil {
		return 0
	}
	return int(h.extra.acked)
}

// IsLive and IsOver report on its state; if neither, it is being released.
func (h *Hold) IsLive() bool { return h.state == live }
func (h *Hold) IsOver() bool { return h.state == over }

// MaxEnd is when MaxHold ends it; 0 without one.
func (h *Hold) MaxEnd() clock.Instant {
	if h.extra == nil {
		return 0
	}
	return h.extra.maxEnd
}

// There is the latest time at which the server is known to have had the hold, if it is one
// of several servers'.
func (h *Hold) There() clock.Instant {
	if h = h.timekeeper(); h.extra == nil {
		return 0
	}
	return h.extra.there
}

// EndBy has a hold that joins others end with them.
func (h *Hold) EndBy(at clock.Instant) {
	if h.state != live || h.follows {
		return
	}
	if h.watched {
		x := h.more()
		x.maxEnd = min(x.maxEnd, at)
	}
	h.Shorten(at)
	if at := h.timeOut(); at != 0 {
		h.Port.WakeAt(at)
	}
}

// Shorten has the hold end at that time, if not sooner. It arms no timer: the next look
// notices it.
func (h *Hold) Shorten(at clock.Instant) { h.setUntil(min(h.OwnUntil(), at)) }
