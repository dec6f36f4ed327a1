package lock

import (
	"github.com/pawl-lock/pawl/engine/internal/serial"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
)

// An Entry is the local state of one lock name: its hold and its waiters in this
// process, and the one command of the name that may be on the wire. A name that several may
// hold at once, or whose waiters queue at the server, has one for each request (Traits.Entries): on
// the server they are owners that know nothing of each other, and here, too.
//
// Those who only read share one of these, and a grant; see readers.go.
//
// Invariants, under the shard's lock:
//
//  1. At most one command of the name is in flight (Cmd). The next one is chosen
//     by next from the state at that time; there is no queue of commands. So
//     nothing of a name can be overtaken by a command that had to be sent again,
//     and a compensation is written only after the reply of what it compensates,
//     or after the death of its connection.
//  2. hold is the outermost hold of this process, or one of several that read, from the grant
//     until the release is settled; while it is there no acquisition of the name is sent, except
//     re-entries under it, and one that goes with its release.
//  3. Only the front of waiters tries at the server; entries of tries try once each. While
//     both want to, they take turns.
//  4. Once the head was refused, and whenever somebody waits behind a hold of this
//     process, whichever came first, the channel is subscribed to (sub), until a
//     moment after the last waiter left.
//  5. The entry is in the table (not Detached) as long as any of these is there: hold,
//     waiters, tries, compensations, sub, a command in flight, a hold whose contexts are ending, a pause.
//  6. While contexts of a hold that ended are alive, nothing is sent (endingContexts).
//
// Renewals are not commands of the name: they go in batches over a connection of
// their own, and any order of them and the commands here is harmless.
type Entry struct {
	Shard *Shard // never changes, even if the entry is reused for another name
	Name  string // as it stands on the server
	Route uint64

	hold          *Hold
	waiters       waitq.List[*Request]  // Lock, first come first served
	tries         *waitq.List[*Request] // TryLock; nil until the first
	compensations *Compensation         // owners to be released; see compensation.go
	sub           *Subscription         // nil until a first refusal
	Cmd           Command

	heldUntil clock.Instant // of the latest try: when the holder's lease ends, if that is known
	refusal   *error        // of the latest command: why the server has not answered it; mostly nil

	blocked Blocked
	refused serial.Refusals
	// headNext: the latest acquire was that of a TryLock. So TryLocks that come again and
	// again do not keep the head from trying.
	headNext bool
	// Detached: it is not in the table any more. (A hold that ended may point to it still.)
	Detached       bool
	Cancelled      bool        // the engine's: recovery need not go on with it; guarded by recovery's lock
	lastAttempt    LastAttempt // the result of the latest try
	family         uint8
	member         int32  // its place in its group, from 1 on; 0: all requests of the name share it
	endingContexts uint32 // holds that ended and whose contexts have not: see contexts.go
}

// Blocked says why no command of the name may be sent.
type Blocked = serial.Blocked

// The reasons.
const (
	NotBlocked   = serial.NotBlocked
	Disconnected = serial.Disconnected
	BackingOff   = serial.BackingOff

	BehindWriter      = serial.OtherReasons     // a reader, while a writer of this process comes first: see handover.go
	YieldingToReaders = serial.OtherReasons + 1 // a writer's name, while readers that stayed behind it go first
	Retired           = serial.OtherReasons + 2 // it has nothing to send any more; recovery or a timer points to it still: not for use again
)

// retire lets a name go that has nothing to send any more. What held it back points to
// the entry still, so it never serves another name.
func (r *Entry) retire() {
	if r.blocked != NotBlocked {
		r.blocked = Retired
	}
}

// pause holds the name's commands back for a moment after the server refused one.
func (r *Entry) pause(now clock.Instant, moving bool) {
	if r.blocked.Block(BackingOff) {
		e := r.Shard.emit(Pause)
		e.Entry, e.At = r, now.Add(r.refused.Pause(moving, r.Shard))
	}
}

// The methods below are for who lists entries; like all others they are called under the
// shard's lock.

// First is the first that waits for the name in this process; nil if nobody does.
func (r *Entry) First() *Request {
	first, _ := r.waiters.Front()
	return first
}

// Blocked says why no command may be sent.
func (r *Entry) Blocked() Blocked { return r.blocked }

// Urgent reports whether it has something to give back, or a hold.
func (r *Entry) Urgent() bool { return r.compensations != nil || r.hold != nil }

// InUse reports whether anybody has the name or wants it, or something of it is to be given back.
func (r *Entry) InUse() bool {
	return r.hold != nil || r.waiters.Len() > 0 || r.tries.Len() > 0 || r.compensations != nil || r.Cmd.Action != NoCommand
}

// laneUp reports whether the lane of the name has a connection.
func (r *Entry) laneUp() bool {
	up, _ := r.Shard.Lane(r.Route)
	return up
}
