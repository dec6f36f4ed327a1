package driver

import (
	"cmp"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/recovery"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// entry is a lock.Entry as the client and recovery see it. To the client it is the command in flight, of which
// an entry has one: that is encoded as the call of a script, and its reply goes to package lock.
// To recovery it is a name that is stalled. An object of its own for either would be an allocation.
type entry lock.Entry

func (r *entry) core() *lock.Entry { return (*lock.Entry)(r) }

// submit sends the entry's command. No lock is held.
func (t *Table) submit(r *lock.Entry) {
	if r.Cmd.Acks != 0 {
		t.Client.SubmitDurable(r.Route, (*entry)(r))
		return
	}
	t.Client.Submit(r.Route, (*entry)(r))
}

// AppendCommand implements resp.Request.
func (r *entry) AppendCommand(dst []byte, form resp.ScriptForm) []byte {
	t, cmd, k := ShardOf(r.core()).Table, &r.Cmd, kind.Kind(r.Cmd.Kind)
	owner := k.Owner(t.ID, cmd.ID)
	if cmd.Batched != 0 {
		return t.appendBatch(dst, form, r.Name, cmd, owner)
	}
	switch cmd.Action {
	case lock.Acquiring:
		if k.Traits().Waiting == lock.Queueing {
			return script.AppendFair(dst, form, t.queue(k, r.Name), owner, cmd.Lease, cmd.Head)
		}
		if cmd.Join {
			return k.AppendJoin(dst, form, t.queue(k, r.Name), owner, cmd.Lease, cmd.Number)
		}
		if h := cmd.Writer(); h != nil {
			return k.AppendBeside(dst, form, r.Name, owner, cmd.Lease, kind.Kind(h.Kind).Owner(t.ID, h.ID))
		}
		return k.AppendAcquire(dst, form, r.Name, owner, cmd.Lease, t.Verb())
	case lock.Reentering:
		return k.AppendReenter(dst, form, r.Name, owner, cmd.Lease, int(cmd.Number))
	case lock.Extending:
		return k.Renewal().Append(dst, form, []script.Renewal{{Key: r.Name, Owner: owner, Lease: cmd.Lease}})
	case lock.Decrementing:
		return k.AppendLeave(dst, form, r.Name, owner, int(cmd.Number), t.Verb())
	case lock.Withdrawing:
		return script.AppendWithdraw(dst, form, t.queue(k, r.Name), t.ID)
	case lock.Releasing, lock.Compensating:
		return t.AppendRelease(dst, form, &recovery.Release{Name: r.Name, ID: cmd.ID, Kind: k}, cmd.Lease)
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
func (t *Table) appendBatch(dst []byte, form resp.ScriptForm, name string, cmd *lock.Command, owner script.Owner) []byte {
	k, lease := kind.Kind(cmd.Kind), cmd.Lease
	var buf [4]script.Owner
	owners := buf[:0]
	if cmd.Action != lock.Acquiring {
		owners, lease = append(owners, owner), 0
	}
	for id := range cmd.BatchedIDs {
		owners = append(owners, k.Owner(t.ID, id))
	}
	return k.AppendSeveral(dst, form, name, owners, owner, lease, t.Verb())
}

// Wants implements resp.DurableRequest.
func (r *entry) Wants() resp.Acks { return resp.Acks(r.Cmd.Acks) }

// NeedsAck implements resp.DurableRequest: a refusal need not wait for replicas.
func (r *entry) NeedsAck(v resp.Value) bool {
	v = answer(&r.Cmd, v, new(lock.Outcome))
	return r.Cmd.Action == lock.Extending || v.Kind == wire.KindInt && v.Int == script.Granted
}

// Priority implements resp.PatientRequest. On a full connection, commands that give locks back
// or keep them go before those that want one. A LockAsync fails at once.
func (r *entry) Priority() resp.Priority {
	switch cmd := &r.Cmd; {
	case cmd.FirstAsync:
		return resp.PriorityNoWait
	case cmd.Batched == 0 && (cmd.Action == lock.Acquiring || cmd.Action == lock.Reentering):
		return resp.PriorityNormal
	}
	return resp.PriorityHigh
}

// Wanted implements resp.PatientRequest and resp.DurableRequest. An acquisition may
// have ended while its command waited for its turn.
func (r *entry) Wanted() bool {
	sh := ShardOf(r.core())
	sh.Lock()
	defer sh.Unlock()
	return r.Cmd.Wanted()
}

// Complete implements resp.Request: the reply of the command in flight, or its
// failure.
func (r *entry) Complete(reply resp.Reply) {
	defer invariants.FailStop()
	sh := ShardOf(r.core())
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
	done := r.core().Replied(&o, &rd)
	sh.Unlock()
	if done.Throttle != nil {
		sh.Table.Recovery.Answered(done.Throttle, o.Result.Answered())
	}
	sh.Table.Apply(&rd)
}
