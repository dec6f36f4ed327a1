package engine

import (
	"errors"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// command is the command of a resource in flight, as the client sees it: it is encoded as
// the call of a script, and its reply is told to the machine.
type command machine.Resource

func (c *command) res() *machine.Resource { return (*machine.Resource)(c) }

// submit sends the resource's command. No lock is held. It is the one place where
// commands of resources leave, so joining several into one script plugs in here.
func (e *Engine) submit(r *machine.Resource) {
	if r.Cmd.Want != 0 {
		e.client.SubmitDurable(r.Route, (*command)(r))
		return
	}
	e.client.Submit(r.Route, (*command)(r))
}

// AppendCommand implements resp.Request.
func (c *command) AppendCommand(dst []byte, form resp.Form) []byte {
	r, cmd := c.res(), &c.Cmd
	owner := ownerOf(r, cmd.ID)
	switch cmd.What {
	case machine.Acquiring:
		return script.AppendAcquire(dst, form, r.Name, owner, cmd.Span)
	case machine.Reentering:
		return script.AppendReenter(dst, form, r.Name, owner, cmd.Span, int(cmd.Count))
	case machine.Extending:
		return script.AppendRenew(dst, form, []script.Renewal{{Key: r.Name, Owner: owner, Lease: cmd.Span}})
	case machine.Leaving:
		return script.AppendLeave(dst, form, r.Name, owner, int(cmd.Count))
	case machine.Unlocking, machine.Settling:
		return engineOf(r).appendRelease(dst, form, kindOf(r), r.Name, cmd.ID, cmd.Span)
	}
	panic("BUG: engine: an empty command was sent")
}

// appendRelease encodes a release, or a retire if a MinHold has something left.
func (e *Engine) appendRelease(dst []byte, form resp.Form, k kind.Kind, name string, id int64, rest time.Duration) []byte {
	owner := script.Owner{Engine: e.id, ID: id}
	if rest > 0 {
		nobody := script.Owner{Engine: e.id, ID: -id}
		return script.AppendRetire(dst, form, name, owner, nobody, rest, k.Channel(name, e.verb()))
	}
	return script.AppendRelease(dst, form, name, owner, k.Channel(name, e.verb()))
}

// Wants implements resp.DurableRequest.
func (c *command) Wants() resp.Acks { return resp.Acks(c.Cmd.Want) }

// NeedsAck implements resp.DurableRequest: a refusal need not wait for replicas.
func (c *command) NeedsAck(v resp.Value) bool {
	return c.Cmd.What == machine.Extending || v.Kind == wire.KindInt && v.Int == script.Granted
}

// Rank implements resp.PatientRequest. On a full connection, commands that give locks back
// or keep them go before those that want one. A LockAsync fails at once.
func (c *command) Rank() resp.Rank {
	switch cmd := &c.Cmd; {
	case cmd.Born:
		return resp.Refuse
	case cmd.What == machine.Acquiring || cmd.What == machine.Reentering:
		return resp.Later
	}
	return resp.Sooner
}

// Wanted implements resp.PatientRequest and resp.DurableRequest. An acquisition may
// have ended while its command waited for its turn.
func (c *command) Wanted() bool {
	sh := shardOf(c.res())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return c.Cmd.Wanted()
}

// Complete implements resp.Request: the reply of the command in flight, or its
// failure.
func (c *command) Complete(reply resp.Reply) {
	defer invariants.FailStop()
	r := c.res()
	sh := shardOf(r)
	o := reading(r.Cmd.What, reply)
	if o.Now == 0 {
		o.Now = sh.Now()
	}
	var fx machine.Effects
	sh.mu.Lock()
	done := r.Replied(o, &fx)
	sh.mu.Unlock()
	if done.Paced != nil {
		sh.eng.recovery.answered(done.Paced.Counter.(*recoveryLane), o.Verdict.Sent() && o.Verdict != machine.Unknown)
	}
	sh.eng.run(&fx)
}

// errReply is an answer that no script of this package gives.
var errReply = errors.New("engine: the server's answer is not one of the script's")

// errRefused is renew's answer for a lock that it could not write.
var errRefused = errors.New("engine: the server refuses to write the lock for now")

// reading reads the reply of a command.
func reading(what machine.What, reply resp.Reply) machine.Outcome {
	o := machine.Outcome{Err: reply.Err, Sent: reply.Sent, Now: reply.Now, Moving: reply.Moving}
	if reply.Ack != nil {
		o.Ack = reply.Ack
	}
	v := reply.Value
	if o.Err == nil && what == machine.Extending {
		// renew answers a list; ours has one element.
		list := v
		v = resp.Value{}
		if list.Kind == wire.KindArray && list.Len() == 1 {
			list.Each(func(_ int, e resp.Value) bool { v = e; return true })
		}
	}
	if o.Err == nil && v.Kind != wire.KindInt {
		o.Err = errReply
	}
	if o.Verdict = classify(o.Err); o.Verdict == machine.Answered {
		read(&o, what, v.Int)
	}
	return o
}

// read says what the answer of a script means.
func read(o *machine.Outcome, what machine.What, code int64) {
	switch {
	case what == machine.Acquiring:
		if code != script.Granted {
			o.Answer, o.TTL = machine.Taken, time.Duration(code)*time.Millisecond
		}
	case what == machine.Extending:
		switch code {
		case script.Renewed:
		case script.Gone:
			o.Answer = machine.Missing
		case script.WrongType:
			o.Answer = machine.Foreign
		case script.Refused:
			o.Verdict, o.Err = machine.Busy, errRefused
		default:
			o.Verdict, o.Err = machine.Denied, errReply
		}
	case code == script.NotThere:
		o.Answer = machine.Missing
	case code == script.Unheard && what != machine.Reentering:
		o.Answer = machine.Mute
	}
}
