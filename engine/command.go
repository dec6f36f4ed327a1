package engine

import (
	"errors"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp"
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
// Complete, what encodes it does not change; the pointers to those who wait for it
// are cleared, under the shard's lock, when they stop waiting.
type command struct {
	what  what
	head  bool      // acquiring: for the front of waiters, so the wait must hear of it
	want  resp.Acks // replicas that shall acknowledge it
	count int32
	id    int64
	span  time.Duration // the lease; unlocked: what a MinHold has left, if > 0

	acq  *acquisition
	hold *holding
	debt *debt

	paced *recoveryLane // of the recovery queue that counts it; nil: none does
}

func (r *resource) sendAcquire(a *acquisition, head bool) {
	c := &r.cmd
	c.what, c.head = acquiring, head
	c.acq, c.span, c.want = a, a.firstLease(), a.want
	c.id = r.sh.ids.next()
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
	c.hold, c.id, c.span = h, h.id, 0
	if h.extra != nil && h.extra.minEnd != 0 {
		c.span = h.extra.minEnd.Sub(r.sh.eng.clock.Now())
	}
}

func (r *resource) sendSettle(d *debt) {
	c := &r.cmd
	c.what = settling
	c.debt, c.id = d, d.id
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
	case unlocked:
		if c.span > 0 {
			nobody := script.Owner{Engine: owner.Engine, ID: -owner.ID}
			return script.AppendRetire(dst, form, r.name, owner, nobody, c.span, r.channel())
		}
		return script.AppendRelease(dst, form, r.name, owner, r.channel())
	case settling:
		return script.AppendRelease(dst, form, r.name, owner, r.channel())
	}
	panic("BUG: engine: an empty command was sent")
}

// Wants implements resp.DurableRequest.
func (r *resource) Wants() resp.Acks { return r.cmd.want }

// NeedsAck implements resp.DurableRequest: who was refused need not wait for anybody.
func (r *resource) NeedsAck(v resp.Value) bool {
	return r.cmd.what == extending || v.Kind == resp.KindInt && v.Int == script.Granted
}

// Wanted implements resp.DurableRequest. An acquisition may have ended while its
// command waited for its turn.
func (r *resource) Wanted() bool {
	r.sh.mu.Lock()
	defer r.sh.mu.Unlock()
	return r.cmd.acq != nil || r.cmd.what == extending
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

// errReply is an answer that no script of this package gives.
var errReply = errors.New("engine: the server's answer is not one of the script's")

func (c *command) outcome(reply resp.Reply) outcome {
	o := outcome{err: reply.Err, sent: reply.Sent, now: reply.Now, moving: reply.Moving, ack: reply.Ack}
	v := reply.Value
	if o.err == nil && c.what == extending {
		// renew answers a list; ours has one element.
		list := v
		v = resp.Value{}
		if list.Kind == resp.KindArray && list.Len() == 1 {
			list.Each(func(_ int, e resp.Value) bool { v = e; return true })
		}
	}
	if o.err == nil && v.Kind != resp.KindInt {
		o.err = errReply
	}
	o.code, o.verdict = v.Int, classify(o.err)
	if c.what == extending && o.verdict == answered && o.code == script.Refused {
		o.verdict = busy
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
	switch {
	case o.verdict == notSent && errors.Is(o.err, resp.ErrClosed):
		r.abandonedByClient(&done, &fx)
	case o.verdict == notSent:
		r.notSent(&done, o, &fx)
	default:
		if o.verdict == answered {
			r.refused = 0
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
	if errors.Is(o.err, resp.ErrUnwanted) {
		return
	}
	full := errors.Is(o.err, resp.ErrLaneFull)
	if full || c.want != 0 || o.moving {
		// Not a matter for recovery, which goes by the lane of the name's node: the name's
		// release must not wait for a durable connection; and the node that ASK leads to,
		// while a slot moves, has no lane here.
		if full && a != nil && a.future && a.fresh && a.attempts == 1 {
			a.fail(fail(ErrNotAcquired, ErrOverloaded), fx)
		}
		if a != nil {
			a.fresh = false
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
	if r.held != stalled { // else it is listed already
		r.held = stalled
		fx.stall(r)
	}
}
