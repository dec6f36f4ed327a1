package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
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
	Port RequestPort

	res    *Entry // nil until it is admitted
	Parent *Hold  // re-entry under this hold
	place  waitq.Elem[*Request]

	Lease time.Duration // 0: watchdog
	until clock.Instant // when the holder's lease ends, if that is known; see last_attempt.go
	extra *Extra        // what most do not need

	Attempts uint16       // as many as fit
	Acks     Acks         // replicas that must have the grant
	since    shortInstant // when it began to wait
	Kind     uint8        // the engine's
	// Permits is how many it wants besides the first, of a kind that is MultiHolder. They are the last
	// byte of its owners' numbers, so whatever has the number of one knows how many it has.
	Permits    uint8
	AcksGiven  bool // Acks was given, by the option Acked
	Try        bool // TryLock: one answer of the server
	Async      bool // LockAsync: no caller is blocked
	lateGrants uint8
	state      requestState
	MayQueue   bool // a command of it waits its turn on a full lane, though it is Async
}

// requestState is how far a request has come.
type requestState uint8

const (
	waiting   requestState = iota // or not admitted yet
	trying                        // a try of it is out
	ended                         // it has its verdict,
	delivered                     // which is in a Ready
)

// Backoff is how a head polls that has no channel: the pause is doubled up to Most.
type Backoff struct{ First, Most time.Duration }

// Extra is what most requests do not need.
type Extra struct {
	MaxHold, MinHold time.Duration
	Name             string        // as the caller gave it; set if a NameMapper changed it
	Quorum           bool          // it asks one of several servers
	Backoff          Backoff       // zero: the default
	Writer           *Hold         // of the same name: its owner does not keep the request out
	AnyRefusal       bool          // with Try: any refusal is an answer, since other locks are held meanwhile
	Origin           *Origin       // the engine's; nil if nobody asked for it
	Observed         any           // the engine's
	Asked, Granted   clock.Instant // if it is Observed: when it was admitted, and granted

	owner  int64 // at the server's queue; see fairqueue.go
	queued bool  // it has been refused there

	deadline     Deadline // what ends it by its own time
	outage       Deadline // what ends it when its server is away for too long
	afterCommand int64    // the id of the command that was out when a was bounded so
	refusal      error    // why the server has not answered; see last_attempt.go
}

// Init makes a ready to be admitted.
func (a *Request) Init(p RequestPort) { a.Port, a.place.Value = p, a }

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
	cfg := a.res.Port.Config()
	lease := cfg.Lease
	if a.extra != nil && a.extra.MaxHold != 0 {
		lease = min(lease, a.extra.MaxHold+cfg.Margin(lease))
	}
	return lease
}

// end takes the request out of everything. The result follows by Ready.finish.
func (a *Request) end() {
	tried := a.state == trying
	a.state = ended
	r := a.res
	switch {
	case a.Parent != nil:
		if x := a.Parent.extra; x != nil {
			x.children.Remove(&a.place)
			a.passToNext(&x.children)
		}
	case a.Try:
		r.tries.Remove(&a.place)
		a.passToNext(r.tries)
	default:
		was := r.First()
		r.waiters.Remove(&a.place)
		a.passToNext(&r.waiters)
		if next := r.First(); next != nil && was == a && !tried && r.sub != nil && r.wakes(a, next) {
			r.sub.Reset()
		}
	}
	if r.Cmd.req == a {
		r.Cmd.req = nil // an orphan now
	}
	if a.extra != nil && a.extra.deadline != nil {
		a.extra.deadline.Over()
		a.extra.deadline = nil
	}
	if a.extra != nil && a.extra.outage != nil {
		a.extra.outage.Over()
		a.extra.outage = nil
	}
	r.Port.Counters().Pending--
}

// wakes reports whether the sleep of a is over for the next one: a slept until a message came, and
// that one polls; or it wants fewer permits, and there may be as many.
func (r *Entry) wakes(a, next *Request) bool {
	return r.Port.Traits(next.Kind).Polls && !r.Port.Traits(a.Kind).Polls || next.Permits < a.Permits
}

// Drop ends a request that is not admitted yet. If somebody still comes with it, that is a
// case for Refuse.
func (a *Request) Drop() { a.state = ended }

// fail ends the request without the lock, for the given reason.
func (a *Request) fail(why error, rd *Ready) {
	a.res.leaveServerQueue(a)
	a.end()
	a.res.Port.Counters().NotAcquired++
	rd.finish(a, nil, why)
}

// grant ends the request with a hold.
func (a *Request) grant(h *Hold, rd *Ready) {
	a.end()
	a.res.Port.Counters().Acquired++
	rd.finish(a, h, nil)
}

// refuseLocal refuses a TryLock because this process holds the lock.
func (a *Request) refuseLocal(h *Hold, rd *Ready) {
	left := h.Until().Sub(a.res.Port.Stamp())
	a.fail(&lockerr.Held{TTL: max(left, 0), Here: true, ID: h.ID, Kind: h.Kind}, rd)
}

// Cancel gives up a request that has been admitted, and has not ended.
func (a *Request) Cancel(s lockerr.Cancel, rd *Ready) {
	r := a.res
	a.fail(a.cancelError(s), rd)
	r.Advance(rd)
}

// giveUpAt bounds how long a TryLock waits for a connection, or for its turn.
func (a *Request) giveUpAt(at clock.Instant) {
	if a.More().deadline == nil {
		a.Port.GiveUpAt(at)
		a.extra.afterCommand = a.res.Cmd.ID
	}
}

// SetDeadline notes what ends the request by its own time: Over is called when it has ended.
func (a *Request) SetDeadline(b Deadline) { a.More().deadline = b }

// SetOutageDeadline is SetDeadline for what ends it when its server is away for too long.
func (a *Request) SetOutageDeadline(b Deadline) { a.More().outage = b }

// Acks is how many replicas must have a grant: a number, or one of those below.
type Acks int16

// See engine.AllReplicas and engine.MajorityOfReplicas.
const (
	AllReplicas        Acks = -1
	MajorityOfReplicas Acks = -2
)

// Ack is what replicas have acknowledged.
type Ack interface {
	// Missing reports whether too few have.
	Missing() bool
	// Count returns how many have.
	Count() int
}

// covers reports whether a renewal that a acknowledges is good enough for b, however many
// replicas there are.
func covers(a, b Acks) bool {
	switch {
	case b == 0 || a == b:
		return true
	case a == AllReplicas:
		return b == MajorityOfReplicas || b == 1
	case a == MajorityOfReplicas:
		return b == 1
	}
	return b > 0 && b <= a
}

// resolveAcks is called when it is clear which hold a re-enters, if any: how many
// replicas does it want, if the caller did not say? An error if its hold would be
// renewed, with its parent's lease, for fewer.
func (a *Request) resolveAcks() error {
	switch {
	case a.Parent == nil && !a.AcksGiven:
		a.Acks = a.res.Port.Config().Replicas
	case a.Parent == nil:
	case !a.AcksGiven:
		a.Acks = a.Parent.Root().Acks
	case a.Parent.joint && a.Acks != 0:
		return lockerr.Invalid("Acked (%d) for the re-entry of a reader that shares its lease with others: ask for them where the lock is taken first", a.Acks)
	case a.Lease == 0 && !covers(a.Parent.Root().Acks, a.Acks):
		return lockerr.Invalid("Acked (%d) asks for more replicas than the hold that is re-entered: its lease is renewed for both; ask for them there, or give this one a Lease", a.Acks)
	}
	return nil
}

// Deadline is what ends the request by its own time; nil if nothing does.
func (a *Request) Deadline() Deadline {
	if a.extra == nil {
		return nil
	}
	return a.extra.deadline
}

// Origin is where a request comes from, for those who look at it: the engine fills it in.
type Origin struct {
	Stack []uintptr // the program counters of the call; nil: not recorded
	Under Context   // the innermost hold that its context carried; nil: none
}

// waitsFrom notes when a request began to wait. A head whose first command is out does not wait yet:
// it is noted when that is refused.
func (a *Request) waitsFrom(at clock.Instant) { a.since = milliseconds(at) }

// Waited is how long it has waited. It is called under the shard's lock, as all methods below.
func (a *Request) Waited(now clock.Instant) time.Duration {
	if a.since == 0 {
		return 0 // its first command is out
	}
	return a.since.until(now)
}
