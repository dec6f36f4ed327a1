package driver

import (
	"errors"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// ErrReply is an answer that no script of ours gives.
var ErrReply = errors.New("engine: the server's answer is not one of the script's")

// errRefused is renew's answer for a lock that it could not write.
var errRefused = errors.New("engine: the server refuses to write the lock for now")

// reading reads the reply of a command.
func reading(c *lock.Command, reply resp.Reply) lock.Outcome {
	o := lock.Outcome{Err: reply.Err, Sent: reply.Sent, Now: reply.Now, Moving: reply.Moving, Begun: Begun(reply.Err)}
	v := reply.Value
	if o.Err == nil {
		switch v = answer(c, v, &o); {
		case v.Kind == wire.KindInt:
		case v.Kind == wire.KindError && c.Batched != 0:
			refused := wire.NewServerError(v.Bytes)
			o.Err, o.Moving = refused, o.Moving || resp.RefusalOf(refused).Apart()
		default:
			o.Err = ErrReply
		}
	}
	if o.Result = Classify(o.Err); o.Result == lock.Replied {
		read(&o, c.Action, v.Int)
	}
	return o
}

// answer is what the reply to a command says to what that is for. It notes what else the reply says.
func answer(c *lock.Command, v resp.Value, o *lock.Outcome) resp.Value {
	switch {
	case c.Batched != 0:
		return parts(v, c, o)
	case c.Action == lock.Acquiring:
		answer := kind.Kind(c.Kind).Granted(v)
		v, o.Token, o.Holder, o.Behind, o.First = answer.Code, answer.Token, answer.Holder, answer.Behind, answer.First
	case c.Action == lock.Extending: // renew answers a list; ours has one element
		if v.Kind != wire.KindArray || v.Len() != 1 {
			return resp.Value{}
		}
		for _, e := range v.Each {
			v = e
		}
	}
	return v
}

// parts reads the answers to a batch: it returns that to what the command is for, and notes the token of a
// grant, and the answers to the releases beside, up to one that is none. There are none if they are not as many
// as were asked for.
func parts(list resp.Value, c *lock.Command, o *lock.Outcome) (own resp.Value) {
	n, at := int(c.Batched), 0 // that of a release comes first, that of an acquire last
	if c.Action == lock.Acquiring {
		at = n
	}
	if list.Kind != wire.KindArray || list.Len() != n+1 && list.Len() != n+2 {
		return resp.Value{}
	}
	list.Each(func(i int, e resp.Value) bool {
		switch {
		case i == at:
			own = e
		case i > n:
			o.Token = e.Int
		case e.Kind != wire.KindInt:
			own = resp.Value{}
			return false
		default:
			var one lock.Outcome
			read(&one, lock.Compensating, e.Int)
			o.BatchReplies[o.BatchAnswers] = one.Reply
			o.BatchAnswers++
		}
		return true
	})
	return own
}

// read says what the answer of a script means.
func read(o *lock.Outcome, what lock.CommandKind, code int64) {
	switch {
	case what == lock.Acquiring:
		switch code {
		case script.Granted:
		case script.NotThere:
			o.Reply = lock.NotOwner
		case script.Unset: // one that waits, waits until somebody sets them
			o.Reply, o.TTL, o.Err = lock.HeldByOther, -1, lockerr.ErrNoPermits
		default:
			o.Reply, o.TTL = lock.HeldByOther, time.Duration(code)*time.Millisecond
		}
	case what == lock.Extending:
		switch code {
		case script.Renewed:
		case script.Gone:
			o.Reply = lock.NotOwner
		case script.WrongType:
			o.Reply = lock.OtherType
		case script.Refused:
			o.Result, o.Err = lock.RetryLater, errRefused
		default:
			o.Result, o.Err = lock.Refused, ErrReply
		}
	case code == script.NotThere:
		o.Reply = lock.NotOwner
	case code == script.Unheard && what != lock.Reentering:
		o.Reply = lock.NotPublished
	}
}

// Begun reports whether a command was refused that may have been executed, in part at least. It looks no
// further than Classify.
func Begun(err error) bool {
	refused, ok := err.(*wire.ServerError)
	return ok && resp.RefusalOf(refused).Executed == resp.Perhaps
}

// Classify is what an error of resp says about a command. It looks at what resp made, and no
// further: what lies behind it may be a user's error (a Dialer's, say), whose methods are user
// code.
func Classify(err error) lock.Result {
	if err == nil {
		return lock.Replied
	}
	if err == ErrReply {
		return lock.Refused // asking again at once would not help
	}
	if refused, ok := err.(*resp.ServerError); ok {
		switch {
		case resp.RefusalOf(refused).NotNow():
			return lock.RetryLater
		case refused.Code == "WRONGTYPE":
			return lock.WrongType
		}
		return lock.Refused
	}
	switch class, cause := resp.Outcome(err); {
	case class != resp.ErrNotSent:
		return lock.Unknown // whatever cost the connection, a refusal of another command too
	case cause == resp.ErrClosed:
		return lock.ClientClosed
	case cause == resp.ErrUnwanted:
		return lock.Cancelled
	case cause == resp.ErrLaneFull:
		return lock.LaneFull
	}
	return lock.NotSent
}
