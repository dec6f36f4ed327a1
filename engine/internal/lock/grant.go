package lock

import (
	"math"
	"sync/atomic"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Grant is what the server has of this process for a name: one owner, from its grant until
// its release is settled. A Hold is what a user has of it: the outermost one, and its
// re-entries; or several, if they read.
//
// Everything is guarded by the shard's lock, except validUntil, which is atomic, and what
// never changes (Entry, ID, Acks, Kind, watchdog, joint).
type Grant struct {
	Entry          *Entry
	ID             int64
	Acks           Acks         // replicas that must have it
	Kind           uint8        // the engine's: where its release is announced
	watchdog       bool         // it is renewed: it has no fixed lease
	releaseInDoubt bool         // a release may have been executed already
	joint          bool         // a plain reader's: see readers.go
	handOvers      uint16       // how often it was handed over, or joined
	renewals       uint16       // as many as fit
	counted        uint16       // what the server counts of it since the latest re-entry, or may; as many as fit
	verifiedAt     shortInstant // the latest look at it because of a waiter, or its grant; see Subscription.verify
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

// counts notes what the server counts of it, or may.
func (t *Grant) counts(n uint32) { t.counted = uint16(min(n, math.MaxUint16)) }

// ValidUntil is until when the server has the owner for certain. It takes no lock.
func (t *Grant) ValidUntil() clock.Instant { return clock.Instant(t.validUntil.Load()) }

// joined are all holds of a grant that has been joined. That of its Entry is the first.
type joined struct {
	holds []*Hold
	room  [4]*Hold
}

// grantsOne reports whether each hold needs a grant of its own.
func (t *Grant) grantsOne() bool {
	return t.Acks != 0 || !t.Entry.Shard.Traits[t.Kind].LocalHandOver
}
