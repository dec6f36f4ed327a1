package driver

import (
	"cmp"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// command is the command of an entry in flight, as the client sees it: it is encoded as
// the call of a script, and its reply goes to package lock. It is the entry itself under
// another name: an entry has one command in flight, and an object for each would be an allocation.
type command lock.Entry

func (c *command) res() *lock.Entry { return (*lock.Entry)(c) }

// submit sends the entry's command. No lock is held.
func (t *Table) submit(r *lock.Entry) {
	if r.Cmd.Acks != 0 {
		t.Client.SubmitDurable(r.Route, (*command)(r))
		return
	}
	t.Client.Submit(r.Route, (*command)(r))
}

// AppendCommand implements resp.Request.
func (c *command) AppendCommand(dst []byte, form resp.ScriptForm) []byte {
	r, cmd := c.res(), &c.Cmd
	owner := OwnerOf(r, cmd.Kind, cmd.ID)
	if cmd.Batched != 0 {
		return c.appendBatch(dst, form)
	}
	k := kind.Kind(cmd.Kind)
	switch cmd.Action {
	case lock.Acquiring:
		if k.Traits().Waiting == lock.Queueing {
			return script.AppendFair(dst, form, ShardOf(r).Table.queue(k, r.Name), owner, cmd.Lease, cmd.Head)
		}
		if cmd.Join != lock.NoJoin {
			return k.AppendJoin(dst, form, ShardOf(r).Table.queue(k, r.Name), owner, cmd.Lease, cmd.Join == lock.Look)
		}
		if h := cmd.Writer(); h != nil {
			return k.AppendBeside(dst, form, r.Name, owner, cmd.Lease, OwnerOf(r, h.Kind, h.ID))
		}
		return k.AppendAcquire(dst, form, r.Name, owner, cmd.Lease, ShardOf(r).Table.Verb())
	case lock.Reentering:
		return k.AppendReenter(dst, form, r.Name, owner, cmd.Lease, int(cmd.Number))
	case lock.Extending:
		return k.Renewal().Append(dst, form, []script.Renewal{{Key: r.Name, Owner: owner, Lease: cmd.Lease}})
	case lock.Decrementing:
		return k.AppendLeave(dst, form, r.Name, owner, int(cmd.Number), ShardOf(r).Table.Verb())
	case lock.Withdrawing:
		return script.AppendWithdraw(dst, form, ShardOf(r).Table.queue(k, r.Name), ShardOf(r).Table.ID)
	case lock.Releasing, lock.Compensating:
		return ShardOf(r).Table.AppendRelease(dst, form, k, r.Name, cmd.ID, cmd.Lease)
	}
	panic("BUG: engine: an empty command was sent")
}

// front is how many engines that wait for a name listen for its release, and race for it: enough that one
// that is slow, or far from the server, keeps nobody waiting, and few enough that a release costs little
// (docs/benchmarks.md has the figures).
const front = 3

// queue is what the scripts of a kind that queues are told.
func (t *Table) queue(k kind.Kind, name string) script.Queue {
	verb := t.Verb()
	return script.Queue{
		Key: name, Channel: k.Channel(name, verb), Room: t.Lock.Room, Front: cmp.Or(t.World.Front, front),
		Counts: verb == "SPUBLISH" || !t.Client.Clustered(), // PUBLISH tells of one node only
	}
}

// AppendForce encodes that a lock is taken away, from that owner or from any.
func (t *Table) AppendForce(dst []byte, form resp.ScriptForm, k Key, owner string) []byte {
	if k.Kind.Traits().Waiting == lock.Queueing {
		return script.AppendFairForce(dst, form, t.queue(k.Kind, k.Name), owner)
	}
	return k.Kind.AppendForce(dst, form, k.Name, owner, t.Verb())
}

// appendBatch encodes a command that releases others beside what it is for.
func (c *command) appendBatch(dst []byte, form resp.ScriptForm) []byte {
	r, cmd := c.res(), &c.Cmd
	owner, lease := OwnerOf(r, cmd.Kind, cmd.ID), cmd.Lease
	var buf [4]script.Owner
	owners := buf[:0]
	if cmd.Action != lock.Acquiring {
		owners, lease = append(owners, owner), 0
	}
	for id := range cmd.BatchedIDs {
		owners = append(owners, OwnerOf(r, cmd.Kind, id))
	}
	return kind.Kind(cmd.Kind).AppendSeveral(dst, form, r.Name, owners, owner, lease, ShardOf(r).Table.Verb())
}

// AppendRelease encodes a release, or a retire if a MinHold has something left.
func (t *Table) AppendRelease(dst []byte, form resp.ScriptForm, k kind.Kind, name string, id int64, rest time.Duration) []byte {
	owner, nobody := k.Owner(t.ID, id), k.Owner(t.ID, -id)
	switch {
	case k.Traits().Waiting == lock.Queueing:
		return script.AppendFairRelease(dst, form, t.queue(k, name), owner, nobody, max(rest, 0))
	case rest > 0:
		return k.AppendRetire(dst, form, name, owner, nobody, rest, t.Verb())
	}
	return k.AppendRelease(dst, form, name, owner, t.Verb())
}

// Wants implements resp.DurableRequest.
func (c *command) Wants() resp.Acks { return resp.Acks(c.Cmd.Acks) }

// NeedsAck implements resp.DurableRequest: a refusal need not wait for replicas.
func (c *command) NeedsAck(v resp.Value) bool {
	switch {
	case c.Cmd.Batched != 0:
		v = parts(v, &c.Cmd, new(lock.Outcome))
	case c.Cmd.Action == lock.Acquiring:
		v = kind.Kind(c.Cmd.Kind).Granted(v).Code
	}
	return c.Cmd.Action == lock.Extending || v.Kind == wire.KindInt && v.Int == script.Granted
}

// Priority implements resp.PatientRequest. On a full connection, commands that give locks back
// or keep them go before those that want one. A LockAsync fails at once.
func (c *command) Priority() resp.Priority {
	switch cmd := &c.Cmd; {
	case cmd.FirstAsync:
		return resp.PriorityNoWait
	case cmd.Batched == 0 && (cmd.Action == lock.Acquiring || cmd.Action == lock.Reentering):
		return resp.PriorityNormal
	}
	return resp.PriorityHigh
}

// Wanted implements resp.PatientRequest and resp.DurableRequest. An acquisition may
// have ended while its command waited for its turn.
func (c *command) Wanted() bool {
	sh := ShardOf(c.res())
	sh.Lock()
	defer sh.Unlock()
	return c.Cmd.Wanted()
}

// Complete implements resp.Request: the reply of the command in flight, or its
// failure.
func (c *command) Complete(reply resp.Reply) {
	defer invariants.FailStop()
	r := c.res()
	sh := ShardOf(r)
	o := reading(&r.Cmd, reply)
	if o.Now == 0 {
		o.Now = sh.Now()
	}
	if ack := reply.Ack; ack != nil {
		if o.Acked = ack.Count(); ack.Missing() {
			o.Unacked = sh.Table.Engine.AckError(r.Cmd.Kind, ack)
		}
	}
	var rd lock.Ready
	sh.Lock()
	done := r.Replied(&o, &rd)
	sh.Unlock()
	if done.Throttle != nil {
		sh.Table.Recovery.Answered(done.Throttle, o.Result.Answered())
	}
	sh.Table.Apply(&rd)
}
