package drive

import (
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
func (t *Table) submit(r *machine.Resource) {
	if r.Cmd.Want != 0 {
		t.Client.SubmitDurable(r.Route, (*command)(r))
		return
	}
	t.Client.Submit(r.Route, (*command)(r))
}

// AppendCommand implements resp.Request.
func (c *command) AppendCommand(dst []byte, form resp.Form) []byte {
	r, cmd := c.res(), &c.Cmd
	owner := OwnerOf(r, cmd.ID)
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
		return ShardOf(r).Table.AppendRelease(dst, form, KindOf(r), r.Name, cmd.ID, cmd.Span)
	}
	panic("BUG: engine: an empty command was sent")
}

// AppendRelease encodes a release, or a retire if a MinHold has something left.
func (t *Table) AppendRelease(dst []byte, form resp.Form, k kind.Kind, name string, id int64, rest time.Duration) []byte {
	owner := script.Owner{Engine: t.ID, ID: id}
	if rest > 0 {
		nobody := script.Owner{Engine: t.ID, ID: -id}
		return script.AppendRetire(dst, form, name, owner, nobody, rest, k.Channel(name, t.verb()))
	}
	return script.AppendRelease(dst, form, name, owner, k.Channel(name, t.verb()))
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
	sh := ShardOf(c.res())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return c.Cmd.Wanted()
}

// Complete implements resp.Request: the reply of the command in flight, or its
// failure.
func (c *command) Complete(reply resp.Reply) {
	defer invariants.FailStop()
	r := c.res()
	sh := ShardOf(r)
	o := reading(r.Cmd.What, reply)
	if o.Now == 0 {
		o.Now = sh.Now()
	}
	var fx machine.Effects
	sh.mu.Lock()
	done := r.Replied(o, &fx)
	sh.mu.Unlock()
	if done.Paced != nil {
		sh.Table.Recovery.Answered(done.Paced, o.Verdict.Heard())
	}
	sh.Table.Run(&fx)
}
