package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// What a Counter sends is the command of its core that is out: it is a resp.Request.

// AppendCommand implements resp.Request.
func (c *Counter) AppendCommand(dst []byte, form resp.ScriptForm) []byte {
	cmd := &c.core.Cmd
	call := script.CounterCall{
		Key: c.core.Name, Mark: c.mark, Number: cmd.Number,
		Channel: c.channel, Verb: c.sh.Table.Verb(),
	}
	var buf [counter.MostOps]script.CounterOp
	call.Ops = buf[:0]
	for _, op := range cmd.Ops {
		call.Ops = append(call.Ops, script.CounterOp{What: op.Letter(), N: op.N})
	}
	if cmd.Asks {
		call.Ops = append(call.Ops, script.CounterOp{What: byte(counter.Get)})
	}
	return script.AppendCounter(dst, form, &call)
}

// Priority implements resp.PatientRequest.
func (c *Counter) Priority() resp.Priority {
	if c.core.Cmd.GivesBack() {
		return resp.PriorityHigh
	}
	return resp.PriorityNormal
}

// Wanted implements resp.PatientRequest. While it waited for room on a full lane, a doubt may have
// become too old to be repeated.
func (c *Counter) Wanted() bool {
	c.sh.Lock()
	defer c.sh.Unlock()
	return c.core.Cmd.Wanted(c.sh.Now())
}

// Complete implements resp.Request.
func (c *Counter) Complete(reply resp.Reply) {
	defer invariants.FailStop()
	o := readCount(&c.core.Cmd, reply)
	if o.Now == 0 {
		o.Now = c.sh.Now()
	}
	var rd counter.Ready
	c.sh.Lock()
	throttle := c.throttle
	c.throttle = nil
	c.core.Replied(&o, &rd)
	c.sh.UnlockCount(&rd)
	if throttle != nil {
		c.sh.Table.Recovery.Answered(throttle, o.Verdict.Answered())
	}
}

// readCount reads the reply of a command.
func readCount(c *counter.Command, reply resp.Reply) counter.Outcome {
	o := counter.Outcome{Err: reply.Err, Sent: reply.Sent, Now: reply.Now, Moving: reply.Moving, Begun: Begun(reply.Err)}
	v, wanted := reply.Value, len(c.Ops)
	if c.Asks {
		wanted++
	}
	switch {
	case o.Err != nil:
	case v.Kind == wire.KindInt && v.Int == script.NoCount:
		o.NoCount = true
	case v.Kind == wire.KindInt && v.Int == script.Superseded:
		o.Superseded = true
	case v.Kind != wire.KindArray || v.Len() != wanted+1:
		o.Err = ErrReply
	default:
		o.Answers = make([]int64, 0, wanted)
		v.Each(func(i int, e resp.Value) bool {
			switch {
			case e.Kind != wire.KindInt:
				o.Err = ErrReply
			case i < wanted:
				o.Answers = append(o.Answers, e.Int)
			default:
				o.Mute = e.Int == script.Unheard
			}
			return o.Err == nil
		})
	}
	o.Verdict = Classify(o.Err)
	return o
}
