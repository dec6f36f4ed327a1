package lock

import (
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Grant is what the server has of this process for a name: one owner, from its grant until
// its release is settled. A Hold is what a user has of it: the outermost one, and its
// re-entries; or several, if they read.
//
// Everything is guarded by the shard's lock, except validUntil, which is atomic, and what
// never changes (Res, ID, Acks, Traits, watchdog, joint).
type Grant struct {
	Entry          *Entry
	ID             int64
	Acks           Acks         // replicas that must have it
	Kind           uint8        // the engine's: where its release is announced
	watchdog       bool         // it is renewed: it has no fixed lease
	releaseInDoubt bool         // a release may have been executed already
	mayCountMore   bool         // the server may count more than one: a re-entry was sent
	besideReaders  bool         // a writer that readers have been let in beside, or such a reader: see extendWriterExpiry
	joint          bool         // a plain reader's: see readers.go
	handOvers      uint16       // how often it was handed over, or joined
	renewals       uint16       // as many as fit
	verifiedAt     shortInstant // the latest look at it because of a waiter, or its grant; see Wait.verify
	joined         *joined      // nil: it has one hold

	// validUntil is until when the server has the owner for certain: a clock.Instant.
	validUntil atomic.Int64
	// serverUntil is how long the server may have the owner, counting everything that was
	// sent for it: unanswered renewals, and re-entries and Extends. A release is repeated
	// until then.
	serverUntil clock.Instant
}

// hold is the outermost hold of the grant, one of several perhaps; nil when the grant is over.
func (t *Grant) hold() *Hold {
	if h := t.Entry.hold; h != nil && h.Grant == t {
		return h
	}
	return nil
}

// Each visits the outermost holds of a grant that is not over.
func (t *Grant) Each(visit func(h *Hold)) {
	if t.joined == nil {
		visit(t.hold())
		return
	}
	for _, h := range t.joined.holds {
		visit(h)
	}
}

// ValidUntil is until when the server has the owner for certain. It takes no lock.
func (t *Grant) ValidUntil() clock.Instant { return clock.Instant(t.validUntil.Load()) }

// The methods below are for those who look. They are called under the shard's lock.

// Held is how long a hold has lasted.
func (h *Hold) Held(now clock.Instant) time.Duration { return h.since.until(now) }

// Renewals is how often its grant was renewed: 65,535 mean that or more.
func (h *Hold) Renewals() int { return int(h.renewals) }

// Depth is how often it is held: once, and once more for each re-entry.
func (h *Hold) Depth() int { return int(h.innermost().count) }

// EachHold visits the outermost live holds of the name, until visit returns false.
func (r *Entry) EachHold(visit func(*Hold) bool) {
	switch {
	case r.hold == nil:
	case r.hold.joined == nil:
		if r.hold.state == live {
			visit(r.hold)
		}
	default:
		for _, h := range r.hold.joined.holds {
			if h.state == live && !visit(h) {
				return
			}
		}
	}
}

// EachWaiter visits the requests that wait in Lock, until visit returns false: first those that re-enter a
// hold of the name and wait for their turn.
func (r *Entry) EachWaiter(visit func(*Request) bool) {
	more := true
	r.EachHold(func(h *Hold) bool {
		for ; h != nil; h = h.child {
			if h.extra == nil {
				continue
			}
			for a := range h.extra.children.All() {
				if more = visit(a); !more {
					return false
				}
			}
		}
		return true
	})
	if !more {
		return
	}
	for a := range r.waiters.All() {
		if !visit(a) {
			return
		}
	}
}

// Waiters is how many wait in the queue of the name.
func (r *Entry) Waiters() int { return r.waiters.Len() }

// joined are all holds of a grant that has been joined. That of its Entry is the first.
type joined struct {
	holds []*Hold
	room  [4]*Hold
}

// grantsOne reports whether each hold needs a grant of its own.
func (t *Grant) grantsOne() bool {
	return t.Acks != 0 || !t.Entry.Shard.Traits[t.Kind].LocalHandOver
}
