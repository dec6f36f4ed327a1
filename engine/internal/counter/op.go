package counter

import (
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
)

// What an Op does; see counter.lua for the letters.
type OpKind byte

// The operations.
const (
	Acquire   OpKind = 'a'
	Release   OpKind = 'r'
	Add       OpKind = 'p'
	Set       OpKind = 's'
	Drain     OpKind = 'd'
	CountDown OpKind = 'c'
	SetCount  OpKind = 'l'
	Get       OpKind = 'v'
	Await     OpKind = 'w' // until a latch is open: sent as a Get for all who wait
)

// Op is one operation of a caller, from its admission until its verdict. One that is given up
// while the server may have it stays in its command: what it is granted then is given back.
type Op struct {
	Kind OpKind
	N    int64
	Try  bool // an Acquire that is for one answer
	// Since is when it was asked for, for those who look at it.
	Since clock.Instant

	port    OpPort   // nil: nobody wants to know, or has been told
	counter *Counter // nil until it is admitted
	place   waitq.Elem[*Op]
	since   uint64 // commands before it
	no      uint64 // of those who wait
	taken   bool   // the command has it
	ended   bool   // it has its verdict
}

// Init makes an op ready to be admitted.
func (op *Op) Init(p OpPort, what OpKind, n int64) {
	op.port, op.Kind, op.N = p, what, n
	op.place.Value = op
}

// Letter is the operation, for the script. One that makes a single attempt does not wait, so those
// behind it may want less, and are not refused because of it.
func (op *Op) Letter() byte {
	if op.Kind == Acquire && op.Try {
		return 't'
	}
	return byte(op.Kind)
}

// Completed reports whether its caller has a verdict. A release may go on anyway.
func (op *Op) Completed() bool { return op.port == nil }

// Counter is that of its name; nil until it is admitted.
func (op *Op) Counter() *Counter { return op.counter }

// Refuse ends an op that is not admitted; without a reason it is done, and nothing is asked.
func (op *Op) Refuse(why error, rd *Ready) {
	op.ended = true
	op.deliver(0, why, rd)
}

// waits reports whether it waits until it gets what it asks for.
func (op *Op) waits() bool { return op.Kind == Await || op.Kind == Acquire && !op.Try }

// reads reports whether it changes nothing.
func (op *Op) reads() bool { return op.Kind == Get || op.Kind == Await }

// givesBack reports whether others may go on because of it. Such an operation needs no memory, if it
// is the first of its command.
func (op *Op) givesBack() bool { return op.Kind == Release || op.Kind == CountDown }

// list is where it is queued.
func (op *Op) list() *waitq.List[*Op] {
	switch t := op.counter; {
	case op.waits():
		return &t.waiters
	case op.Kind == Acquire:
		return &t.tries
	default:
		return &t.calls
	}
}

// end takes the op out of everything but its command, and tells its caller, unless it has ended.
func (op *Op) end(answer int64, why error, rd *Ready) {
	if op.ended {
		return
	}
	op.list().Remove(&op.place)
	op.ended = true
	op.complete(answer, why, rd)
}

// complete gives the caller its verdict; the result follows by Ready.
func (op *Op) complete(answer int64, why error, rd *Ready) {
	if op.port == nil {
		return
	}
	n := &op.counter.Shard.Locks.Count
	n.Pending--
	if why != nil && op.Kind == Acquire {
		n.NotAcquired++
	}
	op.deliver(answer, why, rd)
}

func (op *Op) deliver(answer int64, why error, rd *Ready) {
	rd.completed = append(rd.completed, verdict{op.port, answer, why})
	op.port = nil
}

// Cancel gives up an op that has been admitted, and has not ended. The server may have it:
// then it is unknown what becomes of it, but for an acquire, which is given back. A release
// is not given up, and goes on.
func (op *Op) Cancel(s lockerr.Cancel, rd *Ready) {
	t := op.counter
	first := op.waits() && t.First() == op
	why := t.cancelError(op, s)
	if op.Kind == Release {
		op.complete(0, why, rd)
	} else {
		op.end(0, why, rd)
	}
	if first {
		t.wait.Wake() // the next one may want less
	}
	t.Advance(rd)
}

// cancelError is the reason of one that is given up: what ended it, and what stood in its way.
func (t *Counter) cancelError(op *Op, s lockerr.Cancel) error {
	if s.Away != nil { // only of an acquire
		return s.Err()
	}
	is := []error{nil, s.Cause}
	unsure := op.Kind == Release || op.taken && op.Kind != Acquire && !op.reads()
	if unsure {
		is[0] = lockerr.ErrOutcomeUnknown
	}
	switch trouble := op.trouble(); {
	case trouble != nil:
		is = append(is, lockerr.ErrUnavailable, trouble)
	case unsure && s.Cause == nil:
		is = append(is, lockerr.ErrPatience)
	case unsure:
	case op.waits() && t.refused:
		is = append(is, t.taken())
	case s.TimedOut:
		is = append(is, lockerr.NoAnswer)
	case op.taken:
		is = append(is, lockerr.ErrEarly)
	}
	return lockerr.Wrap(is...)
}

// taken is what a waiter is told that was refused.
func (t *Counter) taken() error {
	if t.Kind == Latch {
		return lockerr.ErrPending
	}
	return &lockerr.Held{TTL: -1}
}

// trouble is why the server does not answer; nil if it may.
func (t *Counter) trouble() error {
	if _, err := t.Shard.Locks.Lane(t.Route); err != nil {
		return err
	}
	return t.refusal
}

// trouble is why the server does not answer the op.
func (op *Op) trouble() error {
	t := op.counter
	if t.blocked == readsOnly && op.reads() {
		_, err := t.Shard.Locks.Lane(t.Route)
		return err
	}
	return t.trouble()
}
