package engine

import (
	"errors"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// what a command is.
type what uint8

const (
	nothing what = iota
	acquiring
	reentering
	extending
	leaving  // one of several holds given back
	unlocked // the last hold given back: release or retire
	settling // a debt released
)

// command is the one command of a resource that is in flight. From submit to
// Complete, the fields that are encoded do not change. Its pointers to waiters are
// cleared, under the shard's lock, when these stop waiting.
type command struct {
	what  what
	head  bool      // acquiring: for the front of waiters, so the wait must hear of it
	born  bool      // acquiring: the first command of a LockAsync, sent by that call
	want  resp.Acks // replicas that must acknowledge it
	count int32
	// events is, of an acquire, what the channel had said when it was sent.
	events uint32
	// server is where a release goes, or a debt's: for released.
	server resp.ServerID
	id     int64
	span   time.Duration // the lease; unlocked, settling: what a MinHold has left, if > 0

	acq  *acquisition
	hold *holding
	debt *debt

	paced *recoveryLane // of the recovery queue that counts it; nil: none does
}

func (r *resource) sendAcquire(a *acquisition, head bool) {
	c := &r.cmd
	c.what, c.head, r.headsTurn = acquiring, head, !head
	c.acq, c.span, c.want = a, a.firstLease(), a.want
	c.id = r.sh.ids.next(r.sh.eng.world.Secret)
	if r.wait != nil {
		c.events = r.wait.Events()
	}
	a.attempts++
	a.trying = true
}

func (r *resource) sendReenter(a *acquisition) {
	c := &r.cmd
	c.what = reentering
	c.acq, c.span, c.want = a, a.firstLease(), a.want
	c.id, c.count = a.parent.root().id, a.parent.count+1
	a.attempts++
	a.trying = true
}

func (r *resource) sendExtend(h *holding) {
	c := &r.cmd
	c.what = extending
	c.hold, c.id, c.span, c.want = h, h.root().id, h.extra.extend.lease, h.member.Want()
}

func (r *resource) sendLeave(h *holding) {
	c := &r.cmd
	c.what = leaving
	c.hold, c.id, c.count = h, h.root().id, h.parent.count
}

func (r *resource) sendRelease(h *holding) {
	c := &r.cmd
	c.what = unlocked
	c.hold, c.id = h, h.id
	r.sendEnd()
}

func (r *resource) sendSettle(d *debt) {
	c := &r.cmd
	c.what = settling
	c.debt, c.id = d, d.id
	r.sendEnd()
}

// sendEnd is what the end of a hold and that of a debt have in common.
func (r *resource) sendEnd() {
	c, e := &r.cmd, r.sh.eng
	c.server, c.span = e.released.serverOf(r.route), 0
	if at := c.minEnd(); at != 0 {
		c.span = at.Sub(e.clock.Now())
	}
}

// minEnd is the MinHold's of what a release is for; 0 without one.
func (c *command) minEnd() clock.Instant {
	if c.debt != nil {
		return c.debt.minEnd
	}
	return c.hold.minEnd()
}

// AppendCommand implements resp.Request.
func (r *resource) AppendCommand(dst []byte, form resp.Form) []byte {
	c := &r.cmd
	owner := r.owner(c.id)
	switch c.what {
	case acquiring:
		return script.AppendAcquire(dst, form, r.name, owner, c.span)
	case reentering:
		return script.AppendReenter(dst, form, r.name, owner, c.span, int(c.count))
	case extending:
		return script.AppendRenew(dst, form, []script.Renewal{{Key: r.name, Owner: owner, Lease: c.span}})
	case leaving:
		return script.AppendLeave(dst, form, r.name, owner, int(c.count))
	case unlocked, settling:
		return r.sh.eng.appendRelease(dst, form, r.kind, r.name, c.id, c.span)
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
func (r *resource) Wants() resp.Acks { return r.cmd.want }

// NeedsAck implements resp.DurableRequest: a refusal need not wait for replicas.
func (r *resource) NeedsAck(v resp.Value) bool {
	return r.cmd.what == extending || v.Kind == wire.KindInt && v.Int == script.Granted
}

// Rank implements resp.PatientRequest. On a full connection, commands that give locks back
// or keep them go before those that want one. A LockAsync fails at once.
func (r *resource) Rank() resp.Rank {
	switch c := &r.cmd; {
	case c.born:
		return resp.Refuse
	case c.what == acquiring || c.what == reentering:
		return resp.Later
	}
	return resp.Sooner
}

// Wanted implements resp.PatientRequest and resp.DurableRequest. An acquisition may
// have ended while its command waited for its turn.
func (r *resource) Wanted() bool {
	r.sh.mu.Lock()
	defer r.sh.mu.Unlock()
	c := &r.cmd
	return c.acq != nil || c.what != acquiring && c.what != reentering
}

// outcome is a reply, taken out of the lane's hands.
type outcome struct {
	verdict verdict
	code    int64
	err     error
	sent    clock.Instant
	now     clock.Instant
	moving  bool // the slot is being migrated
	ack     *resp.Ack
}

// cause is why there was no answer.
func (o *outcome) cause() error {
	_, cause := resp.Outcome(o.err)
	return cause
}

// errReply is an answer that no script of this package gives.
var errReply = errors.New("engine: the server's answer is not one of the script's")

// errRefused is renew's answer for a lock that it could not write.
var errRefused = errors.New("engine: the server refuses to write the lock for now")

func (c *command) outcome(reply resp.Reply) outcome {
	o := outcome{err: reply.Err, sent: reply.Sent, now: reply.Now, moving: reply.Moving, ack: reply.Ack}
	v := reply.Value
	if o.err == nil && c.what == extending {
		// renew answers a list; ours has one element.
		list := v
		v = resp.Value{}
		if list.Kind == wire.KindArray && list.Len() == 1 {
			list.Each(func(_ int, e resp.Value) bool { v = e; return true })
		}
	}
	if o.err == nil && v.Kind != wire.KindInt {
		o.err = errReply
	}
	o.code, o.verdict = v.Int, classify(o.err)
	if c.what == extending && o.verdict == answered && o.code == script.Refused {
		o.verdict, o.err = busy, errRefused
	}
	return o
}

// Complete implements resp.Request: the reply of the command in flight, or its
// failure.
func (r *resource) Complete(reply resp.Reply) {
	defer invariants.FailStop()
	e := r.sh.eng
	o := r.cmd.outcome(reply)
	if o.now == 0 {
		o.now = e.clock.Now()
	}
	var fx effects
	r.sh.mu.Lock()
	done := r.cmd
	r.cmd = command{}
	r.note(&done, o)
	switch {
	case o.verdict == notSent && o.cause() == resp.ErrClosed:
		r.abandonedByClient(&done, &fx)
	case o.verdict == notSent:
		r.notSent(&done, o, &fx)
	default:
		if o.verdict == answered {
			r.refused = 0
		}
		if (done.what == reentering || done.what == extending) && o.verdict != busy {
			r.raised(done.id, o.now.Add(done.span))
		}
		switch done.what {
		case acquiring:
			r.acquireReplied(&done, o, &fx)
		case reentering:
			r.reenterReplied(&done, o, &fx)
		case extending:
			r.extendReplied(&done, o, &fx)
		case leaving, unlocked:
			r.releaseReplied(&done, o, &fx)
		case settling:
			r.settleReplied(&done, o)
		}
		if o.verdict == busy {
			r.pause(o.now, o.moving)
		}
	}
	r.next(&fx)
	r.settled()
	r.sh.mu.Unlock()
	if done.paced != nil {
		e.recovery.answered(done.paced, o.verdict != notSent && o.verdict != unknown)
	}
	fx.run(e)
}

// notSent puts a command back that never left this process, and holds the name
// back until its lane works again.
func (r *resource) notSent(c *command, o outcome, fx *effects) {
	a := c.acq
	if a != nil {
		a.trying = false
	}
	if c.head && r.wait != nil {
		r.wait.Reset()
	}
	if o.cause() == resp.ErrUnwanted {
		return
	}
	full := o.cause() == resp.ErrLaneFull
	if full || c.want != 0 || o.moving {
		// Recovery cannot help: it waits for the lane of the name's node. The name's release
		// must not wait for a durable connection, and the node that ASK names while a slot
		// moves has no lane here.
		if full && a != nil && c.born {
			a.fail(ErrOverloaded, fx)
		}
		if a != nil && a.once && !a.ended {
			a.giveUpAt(o.now.Add(r.sh.eng.cfg.CommandTimeout))
		}
		if c.hold != nil {
			c.hold.boundRelease()
		}
		r.pause(o.now, false)
		return
	}
	if a != nil && a.once {
		a.giveUpAt(o.now.Add(r.sh.eng.cfg.CommandTimeout))
	}
	if c.hold != nil {
		c.hold.boundRelease()
	}
	if r.holdBack(stalled) { // otherwise it is listed already
		fx.stall(r)
	}
}
