package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Request is one request for a lock, from Lock or LockAsync until its verdict.
//
//	admitted --front, lock free--> trying --granted--> ended
//	   ^                             |
//	   +------- refused: waits ------+       (TryLock: held by another -> ended)
//	any --context, Wait, Abandon, Close--> ended
//
// A try that is out when its request ends is an orphan: its reply finds no request, and if
// the server granted it, the grant becomes a compensation. Everything here is guarded by the
// shard's lock until ended, and belongs to the receiver of the verdict after that.
type Request struct {
	Handle Caller

	res    *Entry // nil until it is admitted
	Parent *Hold  // re-entry under this hold
	place  waitq.Elem[*Request]

	Lease time.Duration // 0: watchdog
	extra *Extra        // what most do not need

	Attempts uint16       // as many as fit
	Acks     Acks         // replicas that must have the grant
	since    shortInstant // when it began to wait
	Kind     uint8        // the engine's
	Persists Persistence
	// Permits is how many it wants besides the first, of a kind that is MultiHolder. They are the last
	// byte of its owners' numbers, so whatever has the number of one knows how many it has.
	Permits    uint8
	lateGrants uint8
	state      requestState
}

// Caller is who has a request. It is called under the shard's lock.
type Caller interface {
	// NewHold makes a hold for an entry: another one of the grant of a hold, or with a grant of its own if
	// that is nil.
	NewHold(r *Entry, of *Hold) *Hold
}

// Persistence is how long a request goes on.
type Persistence uint8

// The choices.
const (
	UntilGranted  Persistence = iota // Lock
	UntilAnswered                    // TryLock: one answer of the server
	UntilRefused                     // the same, and any refusal is one: other locks are held meanwhile
)

// requestState is how far a request has come.
type requestState uint8

const (
	waiting   requestState = iota // or not admitted yet
	trying                        // a try of it is out
	ended                         // it has its verdict,
	delivered                     // which is in a Ready
)

// Extra is what most requests do not need.
type Extra struct {
	MaxHold, MinHold time.Duration
	Name             string        // as the caller gave it; set if a NameMapper changed it
	Quorum           bool          // it asks one of several servers
	Backoff          Backoff       // zero: the default
	Writer           *Hold         // of the same name: its owner does not keep the request out
	Origin           *Origin       // the engine's; nil if nobody asked for it
	Observed         any           // the engine's
	Asked, Granted   clock.Instant // if it is Observed: when it was admitted, and granted
	Deadline, Outage any           // the driver's: what ends it by its own time, or when its server is away for too long

	owner  int64 // at the server's queue; see queue.go
	queued bool  // it has been refused there

	afterCommand int64 // the id of the command that was out when a was bounded so
}

// Init makes a ready to be admitted.
func (a *Request) Init(handle Caller) { a.Handle, a.place.Value, a.Acks = handle, a, DefaultAcks }

// More returns what is rare, made if need be.
func (a *Request) More() *Extra {
	if a.extra == nil {
		a.extra = new(Extra)
	}
	return a.extra
}

// Keep has x take the place of what is rare, of which there is nothing yet.
func (a *Request) Keep(x *Extra) { a.extra = x }

// Extra returns what is rare, nil if there is nothing.
func (a *Request) Extra() *Extra { return a.extra }

// writer is Extra.Writer.
func (a *Request) writer() *Hold {
	if a.extra == nil {
		return nil
	}
	return a.extra.Writer
}

// Entry is the name's; nil until a is admitted.
func (a *Request) Entry() *Entry { return a.res }

// Try reports whether it is a TryLock.
func (a *Request) Try() bool { return a.Persists != UntilGranted }

// Next is the request behind a in the list of a Ready, which a is in.
func (a *Request) Next() *Request { return a.place.Next().Value }

// Ended reports whether it has its verdict.
func (a *Request) Ended() bool { return a.state >= ended }

// Name is the lock's name as the caller gave it.
func (a *Request) Name() string {
	if a.extra != nil && a.extra.Name != "" {
		return a.extra.Name
	}
	return a.res.Name
}

// firstLease is what the server is asked for.
func (a *Request) firstLease() time.Duration {
	if a.Lease != 0 {
		return a.Lease
	}
	cfg := a.res.Shard.Config
	lease := cfg.Lease
	if a.extra != nil && a.extra.MaxHold != 0 {
		lease = min(lease, a.extra.MaxHold+cfg.Margin(lease))
	}
	return lease
}

// Drop ends a request that is not admitted yet. If somebody still comes with it, that is a
// case for Refuse.
func (a *Request) Drop() { a.state = ended }

// giveUpAt bounds how long a TryLock waits for a connection, or for its turn.
func (a *Request) giveUpAt(at clock.Instant) {
	if a.More().Deadline == nil {
		e := a.res.Shard.emit(GiveUpAt)
		e.Request, e.At = a, at
		a.extra.afterCommand = a.res.Cmd.ID
	}
}

// Origin is where a request comes from, for those who look at it: the engine fills it in.
type Origin struct {
	Stack []uintptr // the program counters of the call; nil: not recorded
	Under Context   // the innermost hold that its context carried; nil: none
}

// waitsFrom notes when a request began to wait. A head whose first command is out does not wait yet:
// it is noted when that is refused.
func (a *Request) waitsFrom(at clock.Instant) { a.since = milliseconds(at) }
