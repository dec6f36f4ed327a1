package engine

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// enqueue puts a into its queue and sends what can be sent. a already watches its
// context: if that has ended, so has a.
func (e *Engine) enqueue(a *acquisition, m Mutex, o options) {
	var fx effects
	sh := a.sh
	sh.mu.Lock()
	sh.count.pending++
	switch {
	case a.ended:
		sh.count.pending--
		a.fut.err = notAcquired(m.name, a.fut.err)
		sh.count.refused(a.fut.err)
		fx.finish(a)
	case e.closing.Load():
		a.res = sh.getLocked(m.key, m.route)
		a.fail(ErrClosed, &fx)
		a.res.settled()
	default:
		r := sh.getLocked(m.key, m.route)
		a.res = r
		if o.waitGiven {
			a.endAt(e.clock.Now().Add(o.wait), reason.ErrWaited)
		}
		r.admit(a, &fx)
		r.next(&fx)
		if r.cmd.acq == a { // otherwise the command in flight is another's, and the lane may be reading it
			r.cmd.born = a.future && !a.patient
		}
		if a.once && !a.ended && (!a.trying || a.want != 0) {
			// It has to wait for the answer to another command, for a connection, or for
			// the durable commands that are queued before its own.
			a.giveUpAt(e.clock.Now().Add(a.patience()))
		}
		r.settled()
	}
	sh.mu.Unlock()
	fx.run(e)
}

// admit queues a: under the hold that it re-enters, among the attempts of TryLock, or
// among the waiters.
func (r *resource) admit(a *acquisition, fx *effects) {
	if r.hold != nil {
		// What refuses a, or what a re-enters, must be a hold that is one still: after a
		// suspend, say, no timer may have run.
		r.hold.innermost().check(a.sh.eng.clock.Now(), fx)
	}
	if h := a.parent; h != nil {
		// The hold may have ended since the context was looked at. Then a does not
		// re-enter, but queues like any other.
		if h = h.innermostLive(); h != nil {
			a.parent = h
			if err := a.settleReplicas(); err != nil {
				a.fail(err, fx)
				return
			}
			if a.once && (h.reentered() || h.lockWaits()) {
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
			a.fail(&reason.Held{TTL: ttl}, fx)
		}
	case unknown:
		// The server may have granted it, or may yet: its owner is burned.
		r.oweTaken(c, doubtful, o)
		if a != nil && a.once {
			a.fail(reason.Because(ErrUnavailable, o.err), fx)
		}
	case busy:
		if a != nil && a.once {
			a.fail(reason.Because(ErrUnavailable, o.err), fx)
		}
	case wrongType:
		if a != nil {
			a.fail(reason.Because(ErrWrongType, o.err), fx)
		}
	case denied:
		// An error from inside the script does not say what was written before it.
		r.oweTaken(c, certain, o)
		if a != nil {
			a.fail(o.err, fx)
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
		r.oweTaken(c, certain, o)
		return
	}
	if o.ack.Missing() {
		// The primary has it, and perhaps a replica that will be promoted.
		r.oweTaken(c, certain, o)
		a.unacked(o, fx)
		return
	}
	h := newHolding(r, a, c.id, o)
	if h.until() <= o.now || r.sh.eng.closing.Load() {
		r.oweTaken(c, certain, o)
		r.lateGrant(a, o, fx)
		return
	}
	r.hold, r.tried = h, here
	if w := r.wait; w != nil {
		w.tries = 0
		w.lookAfterGrant(c, o.now)
	}
	h.begin(a, o.now)
	a.grant(h, fx)
}

// unacked fails an acquisition whose grant too few replicas have acknowledged.
func (a *acquisition) unacked(o outcome, fx *effects) {
	a.sh.count.unacked++
	a.fail(a.sh.eng.ackError(a.name(), o.ack), fx)
}

func (r *resource) lateGrant(a *acquisition, o outcome, fx *effects) {
	a.late++
	switch {
	case r.sh.eng.closing.Load():
		a.fail(ErrClosed, fx)
	case a.once || a.late >= maxLate:
		a.fail(ErrLate, fx)
	}
}

// reenterReplied goes on after the reply of a re-entry.
func (r *resource) reenterReplied(c *command, o outcome, fx *effects) {
	a := c.acq
	if a != nil {
		a.trying = false
	}
	if r.saysGone(c, o, fx) || a == nil { // gone: that ends a, too
		// Of an orphan the server may count one more than is held. The next command
		// of this owner carries the right count, and the last one removes the field
		// whatever its number.
		return
	}
	switch o.verdict {
	case answered:
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
		h.begin(a, o.now)
		a.grant(h, fx)
	case denied:
		a.fail(o.err, fx)
	case unknown, busy:
		// Harmless to repeat: next sends it again.
		if a.once {
			a.fail(reason.Because(ErrUnavailable, o.err), fx)
		}
	}
}

// saysGone ends the hold of a command's owner if the answer says that the server does not
// have that owner any more, and reports whether it says so. It does not matter whether
// anybody waits for the answer still: a fixed lease is not renewed, so perhaps nothing
// else would say it.
func (r *resource) saysGone(c *command, o outcome, fx *effects) bool {
	reason := GoneOnServer
	switch {
	case o.verdict == wrongType, c.what == extending && o.verdict == answered && o.code == script.WrongType:
		reason = TakenOnServer
	case c.what == extending && o.verdict == answered && o.code == script.Gone:
	case c.what != extending && o.verdict == answered && o.code == script.NotThere:
	default:
		return false
	}
	if h := r.hold; h != nil && h.id == c.id {
		r.lose(h, reason, fx)
	}
	return true
}

// lock begins every form of acquiring. It returns the acquisition, enqueued, or the error
// because of which it could not begin.
func (e *Engine) lock(ctx context.Context, m Mutex, opts []Option, once, future bool) (*acquisition, error) {
	if ctx == nil {
		return nil, e.bornFailed(m, errNoContext)
	}
	if ctx.Err() != nil {
		return nil, e.bornFailed(m, context.Cause(ctx))
	}
	o, err := e.resolve(opts, once)
	if err != nil {
		return nil, e.bornFailed(m, err)
	}
	if m.err != nil {
		return nil, e.bornFailed(m, m.err)
	}
	parent := carried(ctx, e, m.key)
	if parent != nil && o.nonReentrant {
		return nil, e.bornFailed(m, ErrReentry)
	}
	a := e.newAcquisition(m, o, future)
	a.once, a.parent = once, parent
	if future {
		e.watches.join(ctx, a)
	}
	e.enqueue(a, m, o)
	return a, nil
}

// bornFailed counts and reports an acquisition that ends before it begins, and returns
// its error.
func (e *Engine) bornFailed(m Mutex, why error) error {
	err := notAcquired(m.name, why)
	sh := e.table.shard(m.route)
	sh.mu.Lock()
	sh.count.refused(err)
	sh.mu.Unlock()
	if e.hooks.acquired {
		e.tellAcquired(AcquiredEvent{Kind: m.key.kind.String(), Name: m.name, Start: e.clock.Wall(), Err: err})
	}
	return err
}
