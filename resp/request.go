package resp

import (
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Form says how a script call is encoded.
type Form uint8

const (
	// Short is EVALSHA: the script is expected to be in the server's cache.
	Short Form = iota
	// Whole is EVAL, with the script's text: the answer to NOSCRIPT.
	Whole
)

// Request is one command and what becomes of its reply. The caller owns it and
// leaves it alone between Submit and Complete.
type Request interface {
	// AppendCommand appends the encoded command to dst and returns it. It is
	// called once per send (again, with Whole, after NOSCRIPT), under the lane's
	// lock: it appends bytes and does nothing else. A command that is no script
	// ignores the form.
	AppendCommand(dst []byte, form Form) []byte

	// Complete delivers the outcome, exactly once. It runs on the event loop, or
	// on the goroutine in Submit when the lane refused the request; it never
	// blocks, and may submit further requests. No lock of this package is held.
	Complete(r Reply)
}

// Value is a server's answer; package wire has its kinds.
type Value = wire.Value

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
