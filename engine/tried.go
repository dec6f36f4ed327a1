package engine

import (
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// tried is the result of the name's latest command, for the errors of acquisitions that
// stop waiting: a busy lock must not look like an outage, nor an outage like a busy
// lock. It belongs to the name, not to one acquisition: the second waiter in the queue
// never tries itself. It is forgotten when the name is idle (see resource.settled).
type tried uint8

const (
	// untried: no try has ended, or its answer does not say who has the lock: a
	// grant that came too late, a permanent refusal.
	untried tried = iota
	// elsewhere: the server answered that another has it.
	elsewhere
	// here: it was granted, to this process.
	here
	// unanswered: the command could not be sent, or had no answer, or the server
	// refuses everything for now.
	unanswered
)

// note keeps the result of a command that is over. Details for the text of an error are
// kept by the first waiter, which passes them on when it leaves (see passOn).
func (r *resource) note(c *command, o outcome) {
	var err error
	var until clock.Instant
	switch {
	case o.verdict == notSent && (o.cause() == resp.ErrUnwanted || o.cause() == resp.ErrClosed):
		return // it has not been tried
	case o.verdict == unknown || o.verdict == busy || o.verdict == notSent:
		r.tried, err = unanswered, o.err
	case c.what == acquiring && o.verdict == answered && o.code != script.Granted:
		r.tried = elsewhere
		if o.code >= 0 {
			until = o.now.Add(time.Duration(o.code) * time.Millisecond)
		}
	case c.what == acquiring, r.tried == unanswered:
		r.tried = untried // granted knows more
		return
	default:
		return
	}
	if a := c.acq; a != nil {
		a.learn(until, err)
	}
	for _, list := range []*queue.List[*acquisition]{&r.waiters, r.tries} {
		if a, ok := list.Front(); ok && a != c.acq {
			a.learn(until, err)
		}
	}
}

// learn notes when the holder's lease ends, or why the server has not answered.
func (a *acquisition) learn(until clock.Instant, err error) {
	a.until = until
	if err != nil || a.rare != nil {
		a.more().refusal = err
	}
}

// passOn gives what a knows to the new first waiter of list.
func (a *acquisition) passOn(list *queue.List[*acquisition]) {
	if next, ok := list.Front(); ok && next.until == 0 && next.refusal() == nil {
		next.learn(a.until, a.refusal())
	}
}

func (a *acquisition) refusal() error {
	if a.rare == nil {
		return nil
	}
	return a.rare.refusal
}

// gaveUp is the reason of an acquisition that stops waiting: what ended it, and what
// stood in its way. The caller holds the shard's lock.
func (a *acquisition) gaveUp(s reason.Stop) error {
	obstacle := a.obstacle(s.Late)
	switch {
	case s.Cause == nil && obstacle == nil:
		return ErrUnavailable
	case s.Cause == nil:
		return obstacle
	case obstacle == nil:
		return s.Cause
	}
	return reason.Because(append([]error{s.Cause}, reason.Of(obstacle)...)...)
}

// obstacle says why a does not have the lock: held, or ErrUnavailable with its cause.
// If neither is known, it is nil, or says that there was no answer yet. If late, so that a
// has waited as long as it may, a first command that is still in flight counts as
// unanswered.
func (a *acquisition) obstacle(late bool) error {
	r := a.res
	now := r.sh.eng.clock.Stamp()
	out := r.cmd.what != nothing
	first := r.tried == untried
	holder := r.hold
	if a.parent != nil {
		// Re-entries wait for each other; the hold itself is not in their way.
		holder, first = a.parent.child, true
	}
	switch {
	case holder != nil && holder.state == live:
		return &reason.Held{TTL: max(holder.until().Sub(now), 0), Here: true}
	case r.telling != 0:
		return &reason.Held{TTL: -1, Here: true} // nothing is sent before its contexts have ended
	case r.tried == unanswered, out && late && (first || a.unheard()), r.held == stalled && !r.sh.eng.client.LaneOf(r.route).Up():
		return reason.Because(ErrUnavailable, a.trouble())
	case r.tried == elsewhere:
		return &reason.Held{TTL: a.left(now)}
	case r.tried == here && a.parent == nil:
		return &reason.Held{TTL: -1, Here: true} // it changes hands just now
	case out:
		return reason.ErrEarly
	}
	return nil
}

// unheard reports whether a is a TryLock that has been told of no holder in all its time:
// there was no answer to its own try, nor to the command that was out when it came, nor to
// a try of anybody else since this process gave the lock back. What an earlier try was
// told does not answer it, or a job would be skipped because the server hangs:
//
//	Unlock         the server           TryLock
//	sent           hangs
//	                                    waits for its turn
//	                                    gives up: "held by this process"
func (a *acquisition) unheard() bool {
	if !a.once {
		return false
	}
	r := a.res
	behind := a.rare != nil && a.rare.deadline != nil && a.rare.deadline.behind == r.cmd.id
	givenBack := r.tried == here && r.hold == nil
	return a.trying || behind || givenBack
}

// left is what the holder's lease has left, as far as the latest try knows.
func (a *acquisition) left(now clock.Instant) time.Duration {
	until := a.until
	for _, list := range []*queue.List[*acquisition]{&a.res.waiters, a.res.tries} {
		if first, ok := list.Front(); ok && until == 0 {
			until = first.until
		}
	}
	if until == 0 {
		return -1
	}
	return max(until.Sub(now), 0)
}

// trouble is why the server does not answer: what keeps the connection from being
// made, or what became of the latest command.
func (a *acquisition) trouble() error {
	r := a.res
	if err := r.sh.eng.client.LaneError(r.route); err != nil {
		return err
	}
	if err := a.refusal(); err != nil {
		return err
	}
	for _, list := range []*queue.List[*acquisition]{&r.waiters, r.tries} {
		if first, ok := list.Front(); ok && first.refusal() != nil {
			return first.refusal()
		}
	}
	return reason.ErrSilent
}
