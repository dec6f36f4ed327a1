package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// What a command is.
type CommandKind uint8

// The commands.
const (
	NoCommand CommandKind = iota
	Acquiring
	Reentering
	Extending
	Decrementing // one of several holds given back
	Releasing    // the last hold given back: release or retire
	Compensating // a compensation released
)

// Command is the one command of an entry that is in flight. From when it is sent until it
// is answered, the fields that are encoded do not change. Its pointers to waiters are
// cleared, under the shard's lock, when these stop waiting.
type Command struct {
	Action     CommandKind
	Head       bool     // acquiring: for the front of waiters, so the wait must hear of it
	FirstAsync bool     // acquiring: the first command of a LockAsync, sent by that call
	Kind       uint8    // the engine's, of the owner
	Batched    uint8    // how many owners it releases beside what it is for: see compensation_batch.go
	Acks       Acks     // replicas that must acknowledge it
	Number     uint32   // of a re-entry or a leave: the count afterwards
	Server     ServerID // where a release goes, a hold's or a compensation's
	ID         int64
	Lease      time.Duration // the lease; of a release: what a MinHold has left, if > 0

	req          *Request
	hold         *Hold         // acquiring: see Writer
	before       *Hold         // acquiring: the hold of this process that the same command releases
	compensation *Compensation // the first of those that it settles

	Throttle *Throttle // who counts it, if anybody does
}

// Throttle is what the engine counts commands by, to send no more than so many.
type Throttle struct{ Counter any }

// Writer is a hold of the same name whose owner does not keep an acquire out; mostly nil.
func (c *Command) Writer() *Hold {
	if c.Action != Acquiring {
		return nil
	}
	return c.hold
}

// Wanted reports whether anybody wants it still.
func (c *Command) Wanted() bool {
	return c.req != nil || c.Batched != 0 || c.Action != Acquiring && c.Action != Reentering
}

func (r *Entry) sendAcquire(a *Request, head bool) {
	c := &r.Cmd
	c.Action, c.Head, r.headNext = Acquiring, head, !head
	c.req, c.Kind, c.Lease, c.Acks = a, a.Kind, a.firstLease(), a.Acks
	c.ID = r.drawOwner(a)
	if h := a.writer(); h != nil && h.state == live {
		c.hold = h
		h.Root().mustRelease = true // the next one of its process may not have others beside it
		h.besideReaders = true
		r.extendWriterExpiry(r.Shard.Now().Add(c.Lease))
	} else if h != nil {
		a.extra.Writer = nil // it is a reader as any other from now on
	}
	if head && r.sub != nil {
		r.sub.Sent()
	}
	a.Attempts = max(a.Attempts, a.Attempts+1)
	a.state = trying
}

func (r *Entry) sendReenter(a *Request) {
	c := &r.Cmd
	c.Action = Reentering
	c.req, c.Kind, c.Lease, c.Acks = a, a.Parent.Kind, a.firstLease(), a.Acks
	c.ID, c.Number = a.Parent.ID, uint32(a.Parent.count+1)
	a.Parent.mayCountMore = true
	r.lengthens(c.Lease)
	a.Attempts = max(a.Attempts, a.Attempts+1)
	a.state = trying
}

func (r *Entry) sendExtend(h *Hold) {
	c := &r.Cmd
	c.Action = Extending
	c.hold, c.Kind, c.ID, c.Lease, c.Acks = h, h.Kind, h.ID, h.extra.extend.Lease, h.Acks
	r.lengthens(c.Lease)
}

func (r *Entry) sendDecrement(h *Hold) {
	c := &r.Cmd
	c.Action = Decrementing
	c.hold, c.Kind, c.ID, c.Number = h, h.Kind, h.ID, uint32(h.Parent.count)
}

func (r *Entry) sendRelease(h *Hold) {
	c := &r.Cmd
	c.Action = Releasing
	c.hold, c.ID, c.Kind = h, h.ID, h.Kind
	r.finishRelease()
}

func (r *Entry) sendCompensation(d *Compensation) {
	c := &r.Cmd
	c.Action = Compensating
	c.compensation, c.ID, c.Kind, d.with = d, d.ID, d.kind, nil
	r.finishRelease()
}

// finishRelease is what the end of a hold and that of a compensation have in common.
func (r *Entry) finishRelease() {
	c := &r.Cmd
	c.Server, c.Lease = r.Shard.ServerOf(r.Route), 0
	if at := c.minEnd(); at != 0 {
		c.Lease = at.Sub(r.Shard.Now())
	}
}

// minEnd is the MinHold's of what a release is for; 0 without one.
func (c *Command) minEnd() clock.Instant {
	if c.compensation != nil {
		return c.compensation.minEnd
	}
	return c.hold.minEnd()
}

// Result classes what came back for a command.
type Result uint8

// The verdicts.
const (
	Replied      Result = iota // see Reply
	NotSent                    // no server can have seen it
	LaneFull                   // the same: its lane is full
	Cancelled                  // the same: nobody wanted it by then
	ClientClosed               // the same, and nothing will be sent any more
	Unknown                    // it may have been executed
	RetryLater                 // the server refuses for now; not executed, unless Outcome.Begun
	WrongType                  // the key is of another type; not executed
	Refused                    // the server refuses for good
)

// Sent reports whether a server may have seen it.
func (v Result) Sent() bool {
	return v != NotSent && v != LaneFull && v != Cancelled && v != ClientClosed
}

// Answered reports whether a server answered: then its lane works.
func (v Result) Answered() bool { return v.Sent() && v != Unknown }

// Reply is what a script said.
type Reply uint8

// The answers.
const (
	OK           Reply = iota // granted, renewed, released
	HeldByOther               // acquire: another has it, for Outcome.TTL
	NotOwner                  // the server does not have the owner
	OtherType                 // extend: the key is of another type
	NotPublished              // released, but not announced
)

// Outcome is what became of a command.
type Outcome struct {
	Result        Result
	Reply         Reply
	Moving        bool            // the slot is being migrated
	Begun         bool            // it is a refusal, of a script that had begun: what it did before is done
	BatchAnswered bool            // whatever Result is: what is released beside has answers
	BatchReplies  [maxBatch]Reply // to each of Command.BatchedIDs, if so
	TTL           time.Duration   // negative: the key has no expiry
	Holder        []byte          // of an acquire that was refused: by whom, if that is known; not to be kept
	Token         int64           // of an acquire: the fencing token, if the kind has one
	Err           error           // what the server or the connection said, if anything
	Sent, Now     clock.Instant
	Acked         int   // replicas that have it
	Unacked       error // they are too few, which the caller is told so; nil: they are enough, or were not asked
}

// refusal is what a TryLock is told by a server that has refused it.
func (o *Outcome) refusal() error {
	if o.Err != nil {
		return o.Err
	}
	return &lockerr.Held{TTL: o.TTL, Owner: string(o.Holder)}
}

// Replied goes on after the reply of the command in flight, or its failure. It returns that
// command.
func (r *Entry) Replied(o *Outcome, rd *Ready) Command {
	done := r.Cmd
	r.Cmd = Command{}
	r.recordAttempt(&done, o)
	switch o.Result {
	case ClientClosed:
		r.shut(&done, rd)
	case NotSent, LaneFull, Cancelled:
		r.notSent(&done, o, rd)
	default:
		r.replied(&done, o, rd)
	}
	r.Advance(rd)
	return done
}

func (r *Entry) replied(c *Command, o *Outcome, rd *Ready) {
	if o.Result == Replied {
		r.refused = 0
	}
	if (c.Action == Reentering || c.Action == Extending) && (o.Result != RetryLater || o.Begun) {
		r.leaseRaised(c.ID, o.Now.Add(c.Lease))
	}
	if c.Writer() != nil {
		r.extendWriterExpiry(o.Now.Add(c.Lease))
	}
	r.batchReplied(c, o, rd)
	switch c.Action {
	case Acquiring:
		r.acquireReplied(c, o, rd)
	case Reentering:
		r.reenterReplied(c, o, rd)
	case Extending:
		r.extendReplied(c, o, rd)
	case Decrementing, Releasing:
		r.releaseReplied(c, o, rd)
	case Compensating:
		r.compensationReplied(c, o)
	}
	if o.Result == RetryLater {
		r.pause(o.Now, o.Moving)
	}
}

// notSent puts a command back that never left this process, and holds the name
// back until its lane works again.
func (r *Entry) notSent(c *Command, o *Outcome, rd *Ready) {
	a := c.req
	if a != nil {
		a.state = waiting
	}
	if c.Head && r.sub != nil {
		r.sub.Reset()
	}
	if o.Result == Cancelled {
		return
	}
	full := o.Result == LaneFull
	if full && a != nil && c.FirstAsync {
		a.fail(lockerr.ErrOverloaded, rd)
	}
	if a != nil && a.Try && !a.Ended() {
		a.giveUpAt(o.Now.Add(r.Shard.Config.CommandTimeout))
	}
	r.hold.boundReleases()
	if full || c.Acks != 0 || o.Moving {
		// Recovery cannot help: it waits for the lane of the name's node. The name's release
		// must not wait for a durable connection, and the node that ASK names while a slot
		// moves has no lane here.
		r.pause(o.Now, o.Moving)
		return
	}
	if r.block(Disconnected) { // otherwise it is listed already
		rd.Disconnected = r
	}
}
