package resp

import "github.com/pawl-lock/pawl/resp/internal/exchange"

// What a program exchanges with a Client.
type (
	// Request is one command and what becomes of its reply: AppendCommand(dst, form)
	// encodes it, under the lane's lock, and Complete(reply) takes the outcome, exactly
	// once, on the event loop (or in Submit, if the lane refused it). Neither may block.
	// The caller owns the Request and leaves it alone between Submit and Complete.
	Request = exchange.Request

	// PatientRequest is a Request that may wait for room on a full connection. Rank()
	// says in which order, and Wanted() whether it is to be sent still. A Request without
	// these methods has the rank Refuse.
	PatientRequest = exchange.PatientRequest

	// DurableRequest is a Request whose answer counts only once replicas have what it
	// wrote: Wants() says how many, and Complete is called with Reply.Ack.
	DurableRequest = exchange.DurableRequest

	// Reply is the outcome of a Request: a Value, or an Err of one of the classes of
	// ErrNotSent, with the instants at which it was sent and answered.
	Reply = exchange.Reply

	// Ack says how many replicas have acknowledged and how many had to.
	Ack = exchange.Ack

	// Form says how a script call is encoded: Short or Whole.
	Form = exchange.Form

	// Rank says what a connection does with a request while it is full.
	Rank = exchange.Rank

	// Acks says how many replicas of a primary must acknowledge a write: a number,
	// AllReplicas or MajorityOfReplicas.
	Acks = exchange.Acks
)

const (
	// Short is EVALSHA: the script is expected to be in the server's cache.
	Short = exchange.Short
	// Whole is EVAL, with the script's text: the answer to NOSCRIPT.
	Whole = exchange.Whole

	// Refuse fails a request with ErrLaneFull while the connection is full.
	Refuse = exchange.Refuse
	// Later lets it wait for room, first come, first served.
	Later = exchange.Later
	// Sooner lets it wait, too, in front of all that have the rank Later.
	Sooner = exchange.Sooner

	// AllReplicas means every replica: those that are attached to the primary, and those
	// that are away, as long as the deployment has not dropped them.
	AllReplicas = exchange.AllReplicas
	// MajorityOfReplicas means more than half of them.
	MajorityOfReplicas = exchange.MajorityOfReplicas
)

// Outcome takes the Err of a Reply apart: its class, ErrNotSent or ErrOutcomeUnknown, and
// the cause. Both are nil for a refusal, and for errors of others. It calls no method of
// an error, so it may be used on event loops, where no code of a user may run.
func Outcome(err error) (class, cause error) { return exchange.Outcome(err) }

// NotSent is the Err of a Request that was never sent, for the given cause. Those make it
// who stand in for a Client, as a simulation does.
func NotSent(cause error) error { return &exchange.Failure{Class: ErrNotSent, Cause: cause} }

// OutcomeUnknown is the Err of a Request that was sent and not answered; see NotSent.
func OutcomeUnknown(cause error) error {
	return &exchange.Failure{Class: ErrOutcomeUnknown, Cause: cause}
}
