package lock

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

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
	Result       Result
	Reply        Reply
	Moving       bool            // the slot is being migrated
	Begun        bool            // it is a refusal, of a script that had begun: what it did before is done
	BatchAnswers int             // whatever Result is: how many of Command.BatchedIDs have answers
	BatchReplies [maxBatch]Reply // to each of them
	TTL          time.Duration   // negative: the key has no expiry
	Holder       []byte          // of an acquire that was refused: by whom, if that is known; not to be kept
	Behind       int             // of an acquire that joined the queue, and was refused: the owners behind it, or InFront
	First        uint32          // of the same: the lock is free for others, the first of whom has this number; 0: it is held
	Token        int64           // of an acquire: the fencing token, if the kind has one
	Err          error           // what the server or the connection said, if anything
	Sent, Now    clock.Instant
	Acked        int   // replicas that have it
	Unacked      error // the error if they are too few; nil: they are enough, or were not asked
}

// InFront is Outcome.Behind of an owner in the front.
const InFront = -1

// refusal is the error of a TryLock that a server has refused.
func (o *Outcome) refusal() error {
	if o.Err != nil {
		return o.Err
	}
	return &lockerr.Held{TTL: o.TTL, Owner: string(o.Holder)}
}

// batched is what became of the release of one of Command.BatchedIDs.
func (o *Outcome) batched(i int) Outcome {
	one := *o
	if i < o.BatchAnswers {
		one.Result, one.Err, one.Reply = Replied, nil, o.BatchReplies[i]
	}
	return one
}

// maxBatch bounds a command, so that it does not hold up the server.
const maxBatch = 64

// LastAttempt is the result of the name's latest try, for the errors of acquisitions that stop
// waiting: a busy lock must not look like an outage, nor an outage like a busy lock. It
// belongs to the name, not to one acquisition: the second waiter in the queue never tries
// itself. It is forgotten when the name is idle (see Entry.finishTransition).
//
// Every state says one of the two, so an acquisition that has waited as long as it may always has a
// reason. Only tries change it, and what ends HeldHere. In particular, the answer to
// another command does not:
//
//	head                  a compensation                the name
//	refused, sleeps                             HeldElsewhere
//	                      released: no answer   HeldElsewhere still: nobody else knows more
//	                      released: answered    HeldElsewhere
//	its time is over: held
type LastAttempt uint8

// What it may be.
const (
	// NoAnswer: no try has ended, or the latest one could not be sent, or had no answer, or
	// one that does not name the lock's owner: the server refuses for now, or it granted the lock
	// too late.
	NoAnswer LastAttempt = iota
	// HeldElsewhere: the server answered that another has it.
	HeldElsewhere
	// HeldHere: it was granted, to this process, and neither lost since nor given back in vain.
	HeldHere
)
