package engine

import (
	"context"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/engine/internal/script"
)

// unlocking is one call of Unlock or UnlockAsync that waits for the release.
type unlocking struct {
	fut   Future[struct{}] // what UnlockAsync returns
	ready chan struct{}    // what Unlock waits on: one token
	eng   *Engine
	async bool
	told  bool // err is the verdict, and on its way; guarded by the shard's lock
	place queue.Elem[*unlocking]
	err   error

	listedNext *unlocking // in an effects
}

func newPooledUnlocking() any {
	u := &unlocking{ready: make(chan struct{}, 1)}
	u.place.Value = u
	return u
}

func (e *Engine) newUnlocking(async bool) *unlocking {
	if !async {
		return e.unlockings.Get().(*unlocking)
	}
	u := &unlocking{async: true}
	u.place.Value = u
	u.fut.source = u
	return u
}

func (u *unlocking) executor() *executor { return &u.eng.exec }
func (u *unlocking) abandon()            {} // a release is never taken back
func (u *unlocking) drop(struct{})       {}

// tell gives the verdict; the caller holds the shard's lock. From here on the
// waiting goroutine takes it and nothing else.
func (u *unlocking) tell(err error, fx *effects) {
	u.err, u.told = err, true
	fx.finishUnlock(u)
}

func (u *unlocking) deliver() {
	if u.async {
		u.fut.settle(struct{}{}, u.err)
		return
	}
	u.ready <- struct{}{}
}

// wait is the synchronous half. It gives u back to its pool.
func (u *unlocking) wait(ctx context.Context, h *holding) error {
	select {
	case <-u.ready:
	default:
		select {
		case <-u.ready:
		case <-ctx.Done():
			u.ctxEnded(ctx, h)
		}
	}
	err := u.err
	u.err, u.told, u.listedNext = nil, false, nil
	h.eng.unlockings.Put(u)
	return err
}

// ctxEnded goes on waiting if ctx has ended only with the hold, as one does that was made
// from its Context; else nobody waits for the release any more.
func (u *unlocking) ctxEnded(ctx context.Context, h *holding) {
	cause := context.Cause(ctx) // without a lock: it may be the user's context
	if cause == ErrReleased {
		if outer, cancel := h.outside(ctx); outer != nil {
			defer cancel()
			select {
			case <-u.ready:
				return
			case <-outer.Done():
				cause = context.Cause(outer)
			}
		}
	}
	h.sh.mu.Lock()
	waiting := !u.told
	if waiting {
		h.unlocks.Remove(&u.place)
		u.err = about(h.name, h.unsettled(cause))
		h.sh.count.unknown++
	}
	h.sh.mu.Unlock()
	if !waiting {
		<-u.ready // the verdict is on its way
	}
}

// unsettled is ErrOutcomeUnknown for a caller who stops waiting, for that cause, and what
// stands in the way: a server that refuses must not look like one that is slow.
func (h *holding) unsettled(cause error) error {
	if why := h.trouble(); why != nil {
		return reason.Because(ErrOutcomeUnknown, cause, why)
	}
	return reason.Because(ErrOutcomeUnknown, cause)
}

// unlock starts the release of h, or joins the one under way, and has u told. The
// caller is a goroutine of the user's, unless byUser is false.
func (h *holding) unlock(u *unlocking, byUser bool) {
	e := h.eng
	var fx effects
	h.sh.mu.Lock()
	now := e.clock.Now()
	h.check(now, &fx)
	switch {
	case h.state == live:
		if h.parent != nil {
			h.serverUntil = h.until() // its leave changes a number that nothing depends on
		}
		h.end(ErrReleased, now, &fx)
		h.state = releasing
		h.child = nil
		if h.extra != nil {
			h.extra.refusal = nil
		}
		h.unlocks.PushBack(&u.place)
		h.res.next(&fx)
	case h.state == releasing:
		h.unlocks.PushBack(&u.place)
	default:
		u.tell(h.verdict(), &fx)
		h.res.goOnAfter(&fx) // check may have ended h, or what it was a re-entry of
	}
	h.sh.mu.Unlock()
	if byUser {
		fx.runForUser(e)
		return
	}
	fx.run(e)
}

// verdict is what Unlock says of a hold that is over.
func (h *holding) verdict() error {
	switch {
	case h.ending != ErrReleased:
		return h.ending // lost
	case h.extra != nil && h.extra.result != nil:
		return h.extra.result // released, and it did not go well
	}
	return about(h.name, ErrNotHeld)
}

// releaseReplied goes on after the reply of a release, a retire or a leave.
func (r *resource) releaseReplied(c *command, o outcome, fx *effects) {
	h := c.hold
	if h.state != releasing { // its parent's end, or its time, settled it
		r.saysGone(c, o, fx)
		return
	}
	switch {
	case o.verdict == answered && o.code != script.NotThere:
		if o.code == script.Unheard {
			r.sh.eng.logUnheard(r.name)
		}
		r.remember(c, o)
		h.released(nil, fx)
	case (o.verdict == answered || o.verdict == wrongType) && h.asked && c.what == unlocked:
		// An earlier copy did it: the hold was valid when Unlock was called. What has the key
		// now came later. (A leave does not take the field away, so its copy must find it.)
		r.remember(c, o)
		h.released(nil, fx)
	case o.verdict == answered:
		r.notThere(h, GoneOnServer, fx)
	case o.verdict == wrongType:
		r.notThere(h, TakenOnServer, fx)
	case o.verdict == busy:
		h.eng.noteRefusal(o)
		h.more().refusal = o.err
		h.boundRelease()
	case o.verdict == denied && c.what == unlocked && h.eng.closed.begun.Load():
		// Nor would a debt be asked for again: Close need not wait for the lease to end.
		h.eng.noteRefusal(o)
		h.released(about(h.name, reason.Because(ErrOutcomeUnknown, o.err)), fx)
	default: // unknown, or an error after which anything may be
		h.asked = true
		h.more().refusal = o.err
		h.boundRelease()
		if o.verdict == denied {
			r.pause(o.now, false)
		}
	}
}

// notThere: the first release found nothing, so the hold had been lost without
// anybody knowing; with it all others of the same owner.
func (r *resource) notThere(h *holding, reason LostReason, fx *effects) {
	h.sh.count.lost[reason]++
	lost := &LostError{Name: h.name, Reason: reason}
	parent := h.parent
	h.released(lost, fx)
	if parent != nil {
		r.lose(parent.root(), reason, fx)
	}
}

// released ends the release of h.
func (h *holding) released(result error, fx *effects) {
	r := h.res
	if h.parent != nil {
		h.parent.child = nil
	} else {
		r.hold = nil
		if r.wait != nil {
			r.wait.Reset()
		}
	}
	_, lost := result.(*LostError)
	if !lost { // perhaps nobody knows what became of it, but it was unlocked
		h.sh.count.released++
	}
	if result != nil && !lost {
		h.sh.count.unknown += uint64(h.unlocks.Len())
	}
	h.settleUnlock(result, fx)
}

// settleUnlock tells the callers that wait for the release.
func (h *holding) settleUnlock(result error, fx *effects) {
	h.setOver()
	if result != nil {
		h.more().result = result
	}
	for {
		u, ok := h.unlocks.PopFront()
		if !ok {
			return
		}
		u.tell(result, fx)
	}
}

// boundRelease makes a release that did not succeed at once end when the server cannot
// have the hold any more: there is nothing to release after it.
func (h *holding) boundRelease() {
	if h.state == releasing {
		h.wakeAt(h.serverUntil)
	}
}

// boundReleases bounds a release that has no answer yet, h's or that of a re-entry. A
// hold keeps its timer, or its place among the renewals, until it is released. Either one
// looks at it before the lease ends, so an Unlock that is answered costs no timer.
func (h *holding) boundReleases() {
	for ; h != nil; h = h.child {
		h.boundRelease()
	}
}

// giveUpRelease ends a release whose lease is over. Its command may still be out; the
// answer concerns nobody.
func (h *holding) giveUpRelease(fx *effects) {
	r := h.res
	root := h.parent == nil
	h.released(about(h.name, reason.Because(ErrOutcomeUnknown, h.eng.unavailable(r.route, h.trouble()))), fx)
	if root {
		if r.tried == here {
			r.tried = untried // its time is over, here and on the server
		}
		r.oweHold(h, h.serverUntil)
	}
}
