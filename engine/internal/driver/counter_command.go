package driver

import (
	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// counterCommand is the command of a count that is out, as the client sees it.
type counterCommand Counter

func (c *counterCommand) count() *Counter { return (*Counter)(c) }

// AppendCommand implements resp.Request.
func (c *counterCommand) AppendCommand(dst []byte, form resp.ScriptForm) []byte {
	cmd := &c.Cmd
	call := script.CounterCall{
		Key: c.Name, Mark: c.mark, Number: cmd.Number,
		Channel: c.wakes, Verb: c.sh.Table.Verb(),
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
func (c *counterCommand) Priority() resp.Priority {
	if c.Cmd.GivesBack() {
		return resp.PriorityHigh
	}
	return resp.PriorityNormal
}

// Wanted implements resp.PatientRequest. While it waited for room on a full lane, a doubt may have
// become too old to be repeated.
func (c *counterCommand) Wanted() bool {
	c.sh.mu.Lock()
	defer c.sh.mu.Unlock()
	return c.Cmd.Wanted(c.count().Now())
}

// Complete implements resp.Request.
func (c *counterCommand) Complete(reply resp.Reply) {
	defer invariants.FailStop()
	n := c.count()
	o := readCount(&n.Cmd, reply)
	if o.Now == 0 {
		o.Now = n.Now()
	}
	var rd counter.Ready
	n.sh.mu.Lock()
	paced := n.paced
	n.paced = nil
	n.Replied(&o, &rd)
	n.sh.mu.Unlock()
	if paced != nil {
		n.sh.Table.Recovery.Answered(paced, o.Verdict.Answered())
	}
	n.sh.Table.ApplyCount(&rd)
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
