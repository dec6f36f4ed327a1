package resp

import (
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/wire"
)

// What a program exchanges with a Client.
type (
	// Request is one command and what becomes of its reply: AppendCommand(dst, form)
	// encodes it, under the lane's lock, each time that it is sent, and Complete(reply)
	// takes the outcome, exactly once, on the event loop (or in Submit, if the lane refused
	// it), without a lock. Neither may block; Complete may submit further requests.
	// The caller owns the Request and leaves it alone between Submit and Complete.
	Request = request.Request

	// PatientRequest is a Request that may wait for room on a full connection. Priority()
	// says in which order; it does not change, and may be called under the lane's lock.
	// Wanted() says whether it is to be sent still; if not, Complete follows with
	// ErrUnwanted. A Request without these methods has PriorityNoWait.
	PatientRequest = request.PatientRequest

	// DurableRequest is a Request whose answer counts only once replicas have what it
	// wrote: Wants() says how many, and Complete is called with Reply.Ack. NeedsAck(value)
	// reports, on the event loop, whether an answer means a write; if not, Complete follows
	// at once. Wanted() is that of a PatientRequest.
	DurableRequest = request.DurableRequest

	// Reply is the outcome of a Request:
	//
	//   - Value is the server's answer; zero if Err is set. Its bytes are borrowed: they
	//     are valid until Complete returns.
	//   - Err is a *ServerError, or an error of class ErrNotSent or ErrOutcomeUnknown.
	//   - Sent is when the command was about to be written, the last time; zero if it
	//     never was. Now is when the answer had been read.
	//   - Moving: the slot is being migrated to another node (the answer came from there
	//     after ASK, or is TRYAGAIN). Sharded messages reach nobody meanwhile.
	//   - Ack is set for a DurableRequest whose answer needed it.
	Reply = request.Reply

	// Ack says how many replicas have acknowledged (Acked) and how many had to (Wanted). If
	// that is not known, Err says why. If too few have, Away has the addresses of replicas
	// that are not attached to the primary, as far as they are known. Missing reports
	// whether too few have, Count is Acked; both may be called for nil.
	Ack = request.Ack

	// ScriptForm says how a script call is encoded: EvalSHA or Eval.
	ScriptForm = request.ScriptForm

	// Priority says what a connection does with a request while it is full: while as many
	// commands wait for an answer, or as many bytes for the kernel, as the limits allow. A
	// durable connection is full while as many wait for their group.
	Priority = request.Priority

	// Acks says how many replicas of a primary must acknowledge a write: a number,
	// AllReplicas or MajorityOfReplicas.
	Acks = request.Acks
)

const (
	// EvalSHA: the script is expected to be in the server's cache.
	EvalSHA = request.EvalSHA
	// Eval: EVAL, with the script's text: the answer to NOSCRIPT.
	Eval = request.Eval

	// PriorityNoWait fails a request with ErrLaneFull while the connection is full.
	PriorityNoWait = request.PriorityNoWait
	// PriorityNormal lets it wait for room, first come, first served.
	PriorityNormal = request.PriorityNormal
	// PriorityHigh lets it wait, too, in front of all that have PriorityNormal: it is for
	// commands that end what others have begun.
	PriorityHigh = request.PriorityHigh

	// AllReplicas means every replica: those that are attached to the primary, and those
	// that are away, as long as the deployment has not dropped them.
	AllReplicas = request.AllReplicas
	// MajorityOfReplicas means more than half of them.
	MajorityOfReplicas = request.MajorityOfReplicas
)

// Outcome takes the Err of a Reply apart: its class, ErrNotSent or ErrOutcomeUnknown, and
// the cause. Both are nil for a refusal, and for errors of others. It calls no method of
// an error, so it may be used on event loops, where no code of a user may run.
func Outcome(err error) (class, cause error) { return request.Outcome(err) }

// Unreadable reports whether err is the Err of a Request whose reply came and could not be read, which has cost the
// connection: it is longer than any reply may be. Another try would cost the next one. It calls no method of an error.
func Unreadable(err error) bool {
	_, cause := Outcome(err)
	_, is := cause.(*wire.ProtocolError)
	return is
}

// NotSent is the Err of a Request that was never sent, for the given cause. It is for what
// takes the place of a Client, such as a simulation.
func NotSent(cause error) error { return &request.Failure{Class: ErrNotSent, Cause: cause} }

// OutcomeUnknown is the Err of a Request that was sent and not answered; see NotSent.
func OutcomeUnknown(cause error) error {
	return &request.Failure{Class: ErrOutcomeUnknown, Cause: cause}
}
