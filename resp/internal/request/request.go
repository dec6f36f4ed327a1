package request

import (
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

// ScriptForm says how a script call is encoded.
type ScriptForm uint8

const (
	// EvalSHA: the script is expected to be in the server's cache.
	EvalSHA ScriptForm = iota
	// Eval: EVAL, with the script's text: the answer to NOSCRIPT, and to a server that has no
	// EVALSHA.
	Eval
)

// Request is one command and what becomes of its reply. The caller owns it and
// leaves it alone between Submit and Complete.
type Request interface {
	// AppendCommand appends the encoded command to dst and returns it. It is
	// called once per send (again, with Eval, after NOSCRIPT and its like), under the lane's
	// lock: it appends bytes and does nothing else. A command that is no script
	// ignores the form.
	AppendCommand(dst []byte, form ScriptForm) []byte

	// Complete delivers the outcome, exactly once. It runs on the event loop, or
	// on the goroutine in Submit when the lane refused the request; it never
	// blocks, and may submit further requests. No lock of this package is held.
	Complete(r Reply)
}

// Reply is the outcome of a Request.
type Reply struct {
	// Value is the server's answer; zero if Err is set. Its bytes are borrowed:
	// they are valid until Complete returns.
	Value wire.Value
	// Err is a *ServerError (the server refused), or an error of class NotSent or
	// Unknown; see errors.go.
	Err error
	// Sent was taken immediately before the write that carried the command (the
	// last one, if it was sent again). Zero if it was never written.
	Sent clock.Instant
	// Now was taken when the bytes that held the answer had been read.
	Now clock.Instant
	// Moving: the slot is being migrated to another node (the answer came from there
	// after ASK, or is TRYAGAIN). Sharded messages reach nobody meanwhile.
	Moving bool
	// Ack is set for a DurableRequest whose answer needed it. (A pointer: every answer
	// is passed on by value, and few have one.)
	Ack *Ack
}

// Priority says what a connection does with a request while it is full: while as many
// commands wait for an answer, or as many bytes for the kernel, as the limits allow. On a
// durable connection it is full while as many wait for their group.
type Priority uint8

const (
	// PriorityNoWait fails the request with ErrLaneFull.
	PriorityNoWait Priority = iota
	// PriorityNormal lets it wait for room, first come, first served.
	PriorityNormal
	// PriorityHigh lets it wait, too, in front of all that have PriorityNormal: it is for
	// commands that end what others have begun.
	PriorityHigh
)

// PatientRequest is a Request that may wait for room on a full connection. A Request
// without these methods has PriorityNoWait.
type PatientRequest interface {
	Request
	// Priority does not change between Submit and Complete. It may be called under the lane's
	// lock.
	Priority() Priority
	// Wanted reports whether anybody waits for the request still. It is asked when
	// there is room, without a lock of this package; if not, Complete follows with
	// ErrUnwanted, and nothing is sent.
	Wanted() bool
}

// PriorityOf returns the priority of any request.
func PriorityOf(r Request) Priority {
	if p, ok := r.(PatientRequest); ok {
		return p.Priority()
	}
	return PriorityNoWait
}

// DurableRequest is a Request whose answer counts only once replicas have what it
// wrote: Complete is called with Reply.Ack, and it is for the request to look at it.
type DurableRequest interface {
	Request
	// Wants is how many. It does not change between submission and Complete.
	Wants() Acks
	// NeedsAck reports whether an answer that is not an error means a write. If not,
	// Complete follows at once. It runs on the event loop.
	NeedsAck(v wire.Value) bool
	// Wanted reports whether anybody still waits for it. It is called before the request
	// is sent, without a lock of this package. If not, Complete follows with ErrUnwanted.
	Wanted() bool
}
