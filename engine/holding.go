package engine

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/renew"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// holding is what the engine knows of a hold; the user has a Hold, which points
// here. (Two objects, so that a Hold that the user dropped can be noticed.)
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
// Everything is guarded by the shard's lock, except validUntil, which is atomic,
// and what never changes: res, sh, id, count, parent.
type holding struct {
	res  *resource
	sh   *shard
	eng  *Engine
	name string // as the caller gave it; the server's is res.key.name
	id   int64

	parent, child *holding
	count         int32
	state         holdState
	watched       bool // the watchdog renews: a root without a fixed lease
	follows       bool // a child without a lease of its own: its parent's time counts
	asked         bool // a release may have been executed already

	validUntil atomic.Int64 // clock.Instant: what users may count on; past when it has ended
	// serverUntil of a root is how long the server may have its owner, counting everything
	// that was sent for it: unanswered renewals, and re-entries and Extends of its
	// children. A release is repeated until then; that of a re-entry until its own end.
	serverUntil clock.Instant
	member      renew.Member

	handle  *Hold // keeps the user's Hold alive until the first renewal
	ending  error // ErrReleased or a *LostError; nil while live
	done    chan struct{}
	unlocks queue.List[*unlocking] // calls of Unlock that wait for the release
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
	acked          int           // replicas that had what validUntil counts from
	there          clock.Instant // if ofQuorum: the server had the hold at that time, or later
	timer          *holdTimer
	children       queue.List[*acquisition] // re-entries that wait for their turn
	extend         *extension
	result         error // of the release, if it did not succeed
	refusal        error // the latest answer to the release or the Extend under way, if it settled nothing

	contexts  map[ender]struct{}
	untold    bool     // in shard.untold
	ofQuorum  bool     // it is one of several servers'
	nextEnded *holding // in an effects
}

func (h *holding) more() *holdExtra {
	if h.extra == nil {
		h.extra = new(holdExtra)
	}
	return h.extra
}

// newHolding makes the hold of a grant; begin starts it.
func newHolding(r *resource, a *acquisition, id int64, o outcome) *holding {
	h := &holding{
		res: r, sh: r.sh, eng: r.sh.eng, name: a.name(),
		id: id, count: 1, parent: a.parent,
	}
	fixed, lease := a.lease != 0, a.firstLease()
	h.member.Init(h, resp.Slot(r.route), a.want)
	h.handle = &Hold{h: h}
	h.setAcked(o.ack.Count())
	if a.rare != nil && a.rare.quorum != nil {
		h.more().ofQuorum = true
	}
	if h.parent != nil {
		h.count = h.parent.count + 1
		h.follows = !fixed
	} else {
		h.watched = !fixed
		h.serverUntil = o.now.Add(lease)
	}
	if l := a.rare; l != nil && l.maxHold != 0 {
		// From when it was sent, as the lease counts: MaxHold never ends after the lease it
		// has cut, so the reason is MaxHold, and not a renewal that nobody needed.
		h.more().maxEnd = o.sent.Add(l.maxHold)
	}
	h.acknowledged(o.sent, lease)
	if h.follows {
		h.setUntil(math.MaxInt64)
	}
	return h
}

// acknowledged notes that the server has given h the lease, by a command that was sent then.
func (h *holding) acknowledged(sent clock.Instant, lease time.Duration) {
	margin := h.eng.margin(lease)
	if x := h.extra; x != nil && x.ofQuorum {
		margin = max(margin, drift(lease))
		x.there = max(x.there, sent)
	}
	h.setUntil(max(h.Until(), sent.Add(lease-margin)))
}

// begin starts the clock of a hold that was granted to a: its renewals, or its timer.
func (h *holding) begin(a *acquisition, now clock.Instant) {
	h.sh.count.held++
	if l := a.rare; l != nil && l.minHold != 0 {
		x := h.root().more() // it is the root's release that keeps the lock taken
		x.minEnd = max(x.minEnd, now.Add(l.minHold))
	}
	if h.watched {
		h.eng.renewer.JoinFirst(&h.member, now)
	}
	if at := h.timeOut(); at != 0 {
		h.wakeAt(at)
	}
}

// timeOut is when the hold's own timer must look, 0 if the watchdog or the parent
// does.
func (h *holding) timeOut() clock.Instant {
	at := clock.Instant(0)
	if !h.watched && !h.follows {
		at = h.until()
	}
	if h.extra != nil && h.extra.maxEnd != 0 && (at == 0 || h.extra.maxEnd < at) {
		at = h.extra.maxEnd
	}
	return at
}

// until is when the hold ends here: the earliest end along the chain. It takes no
// lock.
func (h *holding) until() clock.Instant {
	at := clock.Instant(h.validUntil.Load())
	if h.parent != nil {
		at = min(at, h.parent.until())
	}
	return at
}

// setUntil moves the end; MaxHold stands.
func (h *holding) setUntil(at clock.Instant) {
	if x := h.extra; x != nil && x.maxEnd != 0 {
		at = min(at, x.maxEnd)
	}
	h.validUntil.Store(int64(at))
}

// trouble is why the release or the Extend under way is not settled, as far as is known. Only
// while it is under way is the resource h's for certain.
func (h *holding) trouble() error {
	if err := h.eng.client.LaneError(h.res.route); err != nil || h.extra == nil {
		return err
	}
	return h.extra.refusal
}

func (h *holding) setAcked(n int) {
	if n != 0 || h.extra != nil {
		h.more().acked = n
	}
}

// minEnd is until when the lock stays taken though the hold ends; 0: no longer.
func (h *holding) minEnd() clock.Instant {
	if h.extra == nil {
		return 0
	}
	return h.extra.minEnd
}

func (h *holding) root() *holding {
	for h.parent != nil {
		h = h.parent
	}
	return h
}

// innermost returns the innermost re-entry of h, or h.
func (h *holding) innermost() *holding {
	for h.child != nil {
		h = h.child
	}
	return h
}

// innermostLive returns the nearest hold outwards from h that is live, nil if none
// is.
func (h *holding) innermostLive() *holding {
	for ; h != nil; h = h.parent {
		if h.state == live {
			return h
		}
	}
	return nil
}

// pending reports whether re-entries wait under h.
func (h *holding) pending() bool { return h.extra != nil && h.extra.children.Len() > 0 }

// lockWaits reports whether a Lock is among them. TryLocks come before it, or are refused.
func (h *holding) lockWaits() bool {
	if !h.pending() {
		return false
	}
	last, _ := h.extra.children.Back()
	return !last.once
}

// reentered reports whether h has a live re-entry. One that is being released holds nothing
// any more.
func (h *holding) reentered() bool { return h.child != nil && h.child.state == live }

// holdTimer wakes a hold that the watchdog does not: a fixed lease, MaxHold, the
// time of a release.
type holdTimer struct {
	timer wheel.Timer
	h     *holding
}

// wakeAt arms the hold's own timer.
func (h *holding) wakeAt(at clock.Instant) {
	x := h.more()
	if x.timer == nil {
		x.timer = &holdTimer{h: h}
		x.timer.timer.Init(x.timer)
	}
	h.eng.wheel.Schedule(&x.timer.timer, at)
}

// Fire implements wheel.Task.
func (t *holdTimer) Fire(_ *wheel.Timer, now clock.Instant) {
	h := t.h
	var fx effects
	h.sh.mu.Lock()
	switch h.state {
	case live:
		h.check(now, &fx)
		if h.state == live {
			h.wakeAt(h.timeOut()) // it was extended
		} else {
			h.res.goOnAfter(&fx)
		}
	case releasing:
		if now < h.serverUntil {
			// It was armed for the hold, or for what the server had before an Extend.
			h.boundRelease()
			break
		}
		h.giveUpRelease(&fx)
		h.res.goOnAfter(&fx)
	}
	h.sh.mu.Unlock()
	fx.run(h.eng)
}
