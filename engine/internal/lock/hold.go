package lock

import (
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Hold is what the core knows of a user's hold; the user has an engine.Hold, which leads
// here.
//
//	live --Unlock--> releasing --reply, or its time is over--> over
//	  |                                                          ^
//	  +--lost (time over, gone on the server, Close)-------------+
//
// A hold ends for its user the moment it leaves live; releasing is the engine's
// affair. Re-entries form a chain under the outermost hold of a grant: root, child,
// grandchild; count is the depth, and what the server's field shows while the hold is the
// innermost one. The end of a hold ends its children.
//
// Everything is guarded by the shard's lock, except ownUntil, which is atomic, what never
// changes (Handle, Grant, Name, Parent, count, follows), and Ending once there is one, for
// those who end the contexts.
type Hold struct {
	Handle any    // the driver's
	*Grant        // what the server has: Entry, ID, Acks, and until when
	Name   string // as the caller gave it; the server's is Entry.Name

	Parent, child *Hold
	count         int32
	state         holdState
	ended         ending
	inheritsLease bool         // a child without a lease of its own: its parent's time counts
	mustRelease   bool         // its grant is released, not handed over: see renewable, lengthens and GiveBack
	place         int32        // in Grant.joined; -1: it has left
	since         shortInstant // its grant, or when it took over

	// ownUntil bounds what the user may count on, beside the grant and the outer holds:
	// MaxHold, the lease of a re-entry. It is past when the hold has ended. A clock.Instant.
	ownUntil atomic.Int64
	leaveBy  clock.Instant // until when its release is repeated; a root's is 0 until the first has failed

	unlocks *Unlock // calls of Unlock that wait for the release
	extra   *holdExtra
}

type holdState uint8

const (
	live holdState = iota
	releasing
	over
)

// ending is how a hold left live. It changes once, so those who end the contexts read it without the lock.
type ending uint8

const (
	notEnded ending = iota
	unlocked
	lost // for the reason in holdExtra.result
)

// holdExtra is what most holds never need.
type holdExtra struct {
	maxEnd, minEnd clock.Instant
	sharedUntil    clock.Instant        // of a writer: the readers beside it may keep it until then; 0: there were none
	lastConfirmed  clock.Instant        // if ofQuorum: the server had the hold at that time, or later
	children       waitq.List[*Request] // re-entries that wait for their turn
	extend         *Extend              // those under way: the first is sent, or will be
	result         error                // why it was lost; or what its release said, if it did not succeed
	refusal        error                // the latest answer to the release or the Extend under way, if it settled nothing

	contexts  waitq.Set[Context]
	token     int64  // the grant's fencing token, of the outermost hold
	acked     int32  // replicas that had what validUntil counts from
	ending    uint32 // how many have ended, of it and its re-entries, and their contexts have not
	ofQuorum  bool   // it is one of several servers'
	nextEnded *Hold  // in a Ready
}

// Context is what ends with a hold, before its release: a context, or a Hold.
type Context interface {
	// End returns when everything that was made from it has ended. It is called once, with
	// no lock held.
	End(why error)
}

// rare is what most holds never need, to be read. It is inlined, and the zero one stays on the stack.
func (h *Hold) rare() *holdExtra {
	if h.extra == nil {
		return new(holdExtra)
	}
	return h.extra
}

// more is the same, to be written.
func (h *Hold) more() *holdExtra {
	if h.extra == nil {
		h.extra = new(holdExtra)
	}
	return h.extra
}

// acknowledged notes that the server has given h the lease, by a command that was sent then.
func (h *Hold) acknowledged(sent clock.Instant, lease time.Duration) {
	margin := h.Entry.Shard.Config.Margin(lease)
	if x := h.extra; x != nil && x.ofQuorum {
		margin = max(margin, Drift(lease))
		x.lastConfirmed = max(x.lastConfirmed, sent)
	}
	until := sent.Add(lease - margin)
	if h.Parent == nil {
		h.validUntil.Store(int64(max(h.ValidUntil(), until)))
	} else {
		h.setUntil(max(h.OwnUntil(), until))
	}
}

// timeOut is when the hold's own timer must look, 0 if the watchdog or the parent
// does.
func (h *Hold) timeOut() clock.Instant {
	at := clock.Instant(0)
	if !h.watched() && !h.inheritsLease {
		at = h.Until()
	}
	if most := h.MaxEnd(); most != 0 && (at == 0 || most < at) {
		at = most
	}
	return at
}

// Until is when the hold ends here: the earliest end along the chain. It takes no
// lock.
func (h *Hold) Until() clock.Instant {
	if h.Parent == nil {
		return min(h.OwnUntil(), h.ValidUntil())
	}
	return min(h.OwnUntil(), h.Parent.Until())
}

// OwnUntil is when the hold ends whatever its grant and its outer holds do. It takes no lock.
func (h *Hold) OwnUntil() clock.Instant { return clock.Instant(h.ownUntil.Load()) }

// setUntil moves the end; MaxHold stands.
func (h *Hold) setUntil(at clock.Instant) {
	if x := h.extra; x != nil && x.maxEnd != 0 {
		at = min(at, x.maxEnd)
	}
	h.ownUntil.Store(int64(at))
}

// watched reports whether the watchdog renews it. A re-entry has no place there.
func (h *Hold) watched() bool { return h.watchdog && h.Parent == nil }

// Ending is why the hold has ended: released or lost; nil while it is live.
func (h *Hold) Ending() error {
	switch h.ended {
	case notEnded:
		return nil
	case lost:
		return h.rare().result
	}
	return lockerr.ErrReleased
}

// trouble is why the release or the Extend under way is not settled, as far as is known. Only
// while it is under way is the entry h's for certain.
func (h *Hold) trouble() error {
	if _, err := h.Entry.Shard.Lane(h.Entry.Route); err != nil {
		return err
	}
	return h.rare().refusal
}

func (h *Hold) setAcked(n int) {
	if n != 0 || h.extra != nil {
		h.more().acked = int32(n)
	}
}

// minEnd is until when the lock stays taken though the hold ends; 0: no longer.
func (h *Hold) minEnd() clock.Instant { return h.rare().minEnd }

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
	return !last.Try()
}

// reentered reports whether h has a live re-entry. One that is being released holds nothing
// any more.
func (h *Hold) reentered() bool { return h.child != nil && h.child.state == live }

// The methods below are for the engine, which calls them under the shard's lock.

// Acked is how many replicas had what Until counts from.
func (h *Hold) Acked() int { return int(h.timekeeper().rare().acked) }

// IsLive and IsOver report on its state; if neither, it is being released.
func (h *Hold) IsLive() bool { return h.state == live }
func (h *Hold) IsOver() bool { return h.state == over }

// Local reports whether a hold that was granted just now was handed over by another, or joined it.
func (h *Hold) Local() bool { return h.Parent == nil && h.handOvers > 0 }

// Token is the fencing token of its grant; 0 if that has none.
func (h *Hold) Token() int64 { return h.Root().rare().token }

// MaxEnd is when MaxHold ends it; 0 without one.
func (h *Hold) MaxEnd() clock.Instant { return h.rare().maxEnd }

// LastConfirmed is the latest time at which the server is known to have had the hold, if it is one
// of several servers'.
func (h *Hold) LastConfirmed() clock.Instant { return h.timekeeper().rare().lastConfirmed }

// EndBy has a hold that joins others end with them.
func (h *Hold) EndBy(at clock.Instant) {
	if h.state != live || h.inheritsLease {
		return
	}
	if h.watched() {
		x := h.more()
		x.maxEnd = min(x.maxEnd, at)
	}
	h.Shorten(at)
	if at := h.timeOut(); at != 0 {
		h.setTimer(at)
	}
}

// Shorten has the hold end at that time, if not sooner. It arms no timer: the next look
// notices it.
func (h *Hold) Shorten(at clock.Instant) {
	if h.Parent != nil {
		h.setUntil(min(h.OwnUntil(), at))
		return
	}
	h.validUntil.Store(int64(min(h.ValidUntil(), at)))
	h.setUntil(h.OwnUntil()) // of which MaxHold may leave less now
}

// releaseBy is until when a release that has no answer is repeated.
func (h *Hold) releaseBy() clock.Instant {
	if h.Parent != nil {
		return h.leaveBy
	}
	return h.serverUntil
}

// Watched reports whether the watchdog renews what counts for h.
func (h *Hold) Watched() bool { return h.timekeeper().watched() }

// InheritsLease reports whether h is a re-entry that lasts as long as what it re-enters.
func (h *Hold) InheritsLease() bool { return h.inheritsLease }

// timekeeper is the hold whose time counts for h.
func (h *Hold) timekeeper() *Hold {
	for h.inheritsLease {
		h = h.Parent
	}
	return h
}
