package engine

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// enqueue puts a into its place and starts what can be started. The context has
// been joined already: if it ended, a has.
func (e *Engine) enqueue(a *acquisition, k key, route uint64, o options) {
	var fx effects
	sh := a.sh
	sh.mu.Lock()
	sh.count.pending++
	switch {
	case a.ended:
		sh.count.pending--
		sh.count.refused(a.fut.err)
		fx.finish(a)
	case e.closing.Load():
		a.res = sh.getLocked(k, route)
		a.fail(fail(ErrNotAcquired, ErrClosed), &fx)
		a.res.settled()
	default:
		r := sh.getLocked(k, route)
		a.res = r
		if o.waitGiven {
			a.endAt(e.clock.Now().Add(o.wait), nil)
		}
		r.admit(a, &fx)
		r.next(&fx)
		a.fresh = r.cmd.acq == a
		if a.once && !a.ended && (!a.trying || a.want != 0) {
			// Its turn comes with the answer of another command, with a connection, or
			// when those who waited for replicas before it have gone.
			a.giveUpAt(e.clock.Now().Add(a.patience()))
		}
		r.settled()
	}
	sh.mu.Unlock()
	fx.run(e)
}

// admit queues a: under the hold that it re-enters, among the attempts, or among
// those who wait.
func (r *resource) admit(a *acquisition, fx *effects) {
	if h := a.parent; h != nil {
		// The hold may have ended since the context was looked at: then a is a
		// stranger, like any other.
		if h = h.innermostLive(); h != nil {
			a.parent = h
			if err := a.settleReplicas(); err != nil {
				a.fail(fail(ErrNotAcquired, err), fx)
				return
			}
			if a.once && (h.child != nil || h.pending()) {
				a.refuseLocal(h, fx)
				return
			}
			h.more().children.PushBack(&a.place)
			return
		}
		a.parent = nil
	}
	_ = a.settleReplicas() // without a parent there is none
	if a.once {
		if r.hold != nil && r.hold.state == live {
			a.refuseLocal(r.hold, fx)
			return
		}
		if r.tries == nil {
			r.tries = new(queue.List[*acquisition])
		}
		r.tries.PushBack(&a.place)
		return
	}
	r.waiters.PushBack(&a.place)
	if r.hold != nil {
		r.ensureWait().listen()
	}
	r.wait.stopLingering()
}

// acquireReplied goes on after the reply of an acquire, or after its connection
// died.
func (r *resource) acquireReplied(c *command, o outcome, fx *effects) {
	a := c.acq // nil: an orphan
	if a != nil {
		a.trying = false
	}
	if c.head && r.wait != nil && !(o.verdict == answered && o.code != script.Granted) {
		r.wait.Reset()
	}
	if a != nil {
		a.refused(o.err)
	}
	switch o.verdict {
	case answered:
		if o.code == script.Granted {
			r.granted(c, o, fx)
			return
		}
		ttl := time.Duration(o.code) * time.Millisecond
		if c.head {
			if r.waiters.Len() > 0 {
				r.refusedFor(ttl, o)
			} else if r.wait != nil {
				r.wait.Reset()
			}
		}
		if a != nil && a.once {
			a.fail(&NotAcquiredError{Name: a.name(), TTL: ttl}, fx)
		}
	case unknown:
		// The server may have granted it, or may yet: its owner is burned.
		r.owe(c.id, doubtful, c.span, o)
		if a != nil && a.once {
			a.fail(fail(ErrNotAcquired, ErrUnavailable, o.err), fx)
		}
	case busy:
		if a != nil && a.once {
			a.fail(fail(ErrNotAcquired, ErrUnavailable, o.err), fx)
		}
	case wrongType:
		if a != nil {
			a.fail(fail(ErrNotAcquired, ErrWrongType, o.err), fx)
		}
	case denied:
		// An error from inside the script leaves open what was written before it.
		r.owe(c.id, certain, c.span, o)
		if a != nil {
			a.fail(fail(ErrNotAcquired, o.err), fx)
		}
	}
}

// maxLate is how often a grant may come after its own lease before the acquisition
// fails: once or twice may be bad luck.
const maxLate = 3

// granted makes a hold of a grant, unless nobody wants it any more or its time is
// over already: then it is given back.
func (r *resource) granted(c *command, o outcome, fx *effects) {
	a := c.acq
	if a == nil {
		r.owe(c.id, certain, c.span, o)
		return
	}
	if o.ack.Missing() {
		// The primary has it, and perhaps a replica that will be promoted.
		r.owe(c.id, certain, c.span, o)
		a.unacked(o, fx)
		return
	}
	h := newHolding(r, a, c.id, o)
	if h.until() <= o.now || r.sh.eng.closing.Load() {
		r.owe(c.id, certain, c.span, o)
		r.lateGrant(a, o, fx)
		return
	}
	r.hold = h
	if w := r.wait; w != nil {
		w.tries = 0
	}
	h.begin(o.now)
	a.grant(h, fx)
}

// unacked fails an acquisition whose grant too few replicas have acknowledged.
func (a *acquisition) unacked(o outcome, fx *effects) {
	a.sh.count.unacked++
	a.fail(fail(ErrNotAcquired, a.sh.eng.ackError(a.name(), o.ack)), fx)
}

func (r *resource) lateGrant(a *acquisition, o outcome, fx *effects) {
	a.late++
	switch {
	case r.sh.eng.closing.Load():
		a.fail(fail(ErrNotAcquired, ErrClosed), fx)
	case a.once || a.late >= maxLate:
		a.fail(fail(ErrNotAcquired, ErrLate), fx)
	}
}

// reenterReplied goes on after the reply of a re-entry.
func (r *resource) reenterReplied(c *command, o outcome, fx *effects) {
	a := c.acq
	if a == nil {
		// An orphan. The server may count one more than is held; the next command
		// of this owner carries the right count, and the last one removes the field
		// whatever its number.
		return
	}
	a.trying = false
	switch o.verdict {
	case answered:
		if o.code == script.NotThere {
			r.lose(a.parent.root(), GoneOnServer, fx) // ends a too
			return
		}
		if o.ack.Missing() {
			// The server may count one more than is held, as with an orphan.
			a.unacked(o, fx)
			return
		}
		h := newHolding(r, a, a.parent.root().id, o)
		if h.until() <= o.now {
			r.lateGrant(a, o, fx)
			return
		}
		h.parent.child = h
		h.begin(o.now)
		a.grant(h, fx)
	case wrongType:
		r.lose(a.parent.root(), TakenOnServer, fx)
	case denied:
		a.fail(fail(ErrNotAcquired, o.err), fx)
	case unknown, busy:
		// Harmless to repeat: next sends it again.
		if a.once {
			a.fail(fail(ErrNotAcquired, ErrUnavailable, o.err), fx)
		}
	}
}

// lock is what every form of acquiring comes down to. It returns the acquisition,
// enqueued, or the error it is born with.
func (e *Engine) lock(ctx context.Context, m Mutex, opts []Option, once, future bool) (*acquisition, error) {
	if err := ctx.Err(); err != nil {
		return nil, notAcquired(ctx)
	}
	o, err := e.resolve(opts, once)
	if err != nil {
		return nil, fail(ErrNotAcquired, err)
	}
	if m.err != nil {
		return nil, fail(ErrNotAcquired, m.err)
	}
	parent := carried(ctx, e, m.key)
	if parent != nil && o.nonReentrant {
		return nil, fail(ErrNotAcquired, ErrReentry)
	}
	a := e.newAcquisition(m, o, future)
	a.once, a.parent = once, parent
	a.want, a.ackedGiven = resp.Acks(o.acked), o.ackedGiven
	if future {
		e.watches.join(ctx, a)
	}
	e.enqueue(a, m.key, m.route, o)
	return a, nil
}

// heldUntil is when a hold ends here, if the command that took or renewed it was
// sent at the given instant.
func (e *Engine) heldUntil(sent clock.Instant, lease time.Duration) clock.Instant {
	return sent.Add(lease - e.margin(lease))
}
