package engine

import (
	"errors"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
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
	res   *resource
	what  what
	head  bool // acquiring: for the front of waiters, so the wait must hear of it
	paced bool // counted by the recovery queue
	count int32
	id    int64
	lease time.Duration
	rest  time.Duration // unlocked: > 0 to retire instead

	acq  *acquisition
	hold *holding
	debt *debt
}

func (c *command) acquire(a *acquisition, head bool) {
	c.what, c.head = acquiring, head
	c.acq, c.lease = a, a.firstLease()
	c.id = c.res.sh.ids.next()
	a.attempts++
	a.trying = true
}

func (c *command) reenter(a *acquisition) {
	c.what = reentering
	c.acq, c.lease = a, a.firstLease()
	c.id, c.count = a.parent.root().id, a.parent.count+1
	a.attempts++
	a.trying = true
}

func (c *command) extend(h *holding) {
	c.what = extending
	c.hold, c.id, c.lease = h, h.root().id, h.extra.extend.lease
}

func (c *command) leave(h *holding) {
	c.what = leaving
	c.hold, c.id, c.count = h, h.root().id, h.parent.count
}

func (c *command) release(h *holding) {
	c.what = unlocked
	c.hold, c.id, c.rest = h, h.id, 0
	if h.extra != nil && h.extra.minEnd != 0 {
		c.rest = h.extra.minEnd.Sub(c.res.eng.clock.Now())
	}
}

func (c *command) settle(d *debt) {
	c.what = settling
	c.debt, c.id = d, d.id
}

// AppendCommand implements resp.Request.
func (c *command) AppendCommand(dst []byte, form resp.Form) []byte {
	r := c.res
	owner := r.owner(c.id)
	switch c.what {
	case acquiring:
		return script.AppendAcquire(dst, form, r.key.name, owner, c.lease)
	case reentering:
		return script.AppendReenter(dst, form, r.key.name, owner, c.lease, int(c.count))
	case extending:
		return script.AppendRenew(dst, form, []script.Renewal{{Key: r.key.name, Owner: owner, Lease: c.lease}})
	case leaving:
		return script.AppendLeave(dst, form, r.key.name, owner, int(c.count))
	case unlocked:
		if c.rest > 0 {
			nobody := script.Owner{Engine: owner.Engine, ID: -owner.ID}
			return script.AppendRetire(dst, form, r.key.name, owner, nobody, c.rest, r.channel())
		}
		return script.AppendRelease(dst, form, r.key.name, owner, r.channel())
	case settling:
		return script.AppendRelease(dst, form, r.key.name, owner, r.channel())
	}
	panic("BUG: engine: an empty command was sent")
}

// outcome is a reply, taken out of the lane's hands.
type outcome struct {
	verdict verdict
	code    int64
	err     error
	sent    clock.Instant
	now     clock.Instant
}

// errReply is an answer that no script of this package gives.
var errReply = errors.New("engine: the server's answer is not one of the script's")

func (c *command) outcome(reply resp.Reply) outcome {
	o := outcome{err: reply.Err, sent: reply.Sent, now: reply.Now}
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
	return o
}

// Complete implements resp.Request: the reply of the command in flight, or its
// failure.
func (c *command) Complete(reply resp.Reply) {
	r, e := c.res, c.res.eng
	o := c.outcome(reply)
	if o.now == 0 {
		o.now = e.clock.Now()
	}
	lane := e.client.LaneOf(r.hash)
	var fx effects
	r.sh.mu.Lock()
	done := *c
	*c = command{res: r}
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
			r.pause(o.now)
		}
	}
	r.next(&fx)
	r.settled()
	r.sh.mu.Unlock()
	if done.paced {
		e.recovery.answered(e, lane, o.verdict != notSent && o.verdict != unknown)
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
	if errors.Is(o.err, resp.ErrLaneFull) {
		if a != nil && a.future && a.attempts == 1 {
			a.fail(fail(ErrNotAcquired, ErrOverloaded), fx)
		}
		r.pause(o.now)
		return
	}
	if a != nil && a.once {
		a.giveUpAt(o.now.Add(r.eng.cfg.CommandTimeout))
	}
	if c.hold != nil {
		c.hold.boundRelease()
	}
	r.held = stalled
	fx.stall(r)
}
