package engine

import (
	"context"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/clock"
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
			h.sh.mu.Lock()
			waiting := !u.told
			if waiting {
				h.unlocks.Remove(&u.place)
				u.err = fail(ErrOutcomeUnknown, context.Cause(ctx))
				h.sh.count.unknown++
			}
			h.sh.mu.Unlock()
			if !waiting {
				<-u.ready // the verdict is on its way
			}
		}
	}
	err := u.err
	u.err, u.told, u.listedNext = nil, false, nil
	h.eng.unlockings.Put(u)
	return err
}

// unlock starts the release of h, or joins the one under way, and has u told.
func (h *holding) unlock(u *unlocking) {
	e := h.eng
	var fx effects
	h.sh.mu.Lock()
	h.check(e.clock.Now(), &fx)
	switch {
	case h.state == live:
		h.end(ErrReleased, &fx)
		h.state = releasing
		h.child = nil
		h.unlocks.PushBack(&u.place)
		e.hookReleased(h)
		h.res.next(&fx)
	case h.state == releasing:
		h.unlocks.PushBack(&u.place)
	case h.ending != ErrReleased:
		u.tell(h.ending, &fx) // lost
		h.res.goOnAfter(&fx)
	case h.extra != nil && h.extra.result != nil:
		u.tell(h.extra.result, &fx) // released, and it did not go well
	default:
		u.tell(ErrNotHeld, &fx)
	}
	h.sh.mu.Unlock()
	fx.run(e)
}

// releaseReplied goes on after the reply of a release, a retire or a leave.
func (r *resource) releaseReplied(c *command, o outcome, fx *effects) {
	h := c.hold
	if h == nil || h.state != releasing {
		return // its parent's end, or its time, settled it
	}
	switch {
	case o.verdict == answered && o.code != script.NotThere:
		if o.code == script.Unheard {
			r.sh.eng.logUnheard(r)
		}
		h.released(nil, fx)
	case o.verdict == answered && h.asked && c.what == unlocked:
		// An earlier copy did it: the hold was valid when Unlock was called. (A leave does
		// not take the field away, so its copy must find it.)
		h.released(nil, fx)
	case o.verdict == answered:
		r.notThere(h, GoneOnServer, fx)
	case o.verdict == wrongType:
		r.notThere(h, TakenOnServer, fx)
	case o.verdict == busy:
		h.boundRelease()
	default: // unknown, or an error after which anything may be
		h.asked = true
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
	if result == nil {
		h.sh.count.released++
	}
	h.settleUnlock(result, fx)
}

// settleUnlock tells those who wait for the release.
func (h *holding) settleUnlock(result error, fx *effects) {
	h.state = over
	if result != nil {
		h.more().result = result
	}
	if h.extra != nil && h.extra.timer != nil {
		h.eng.wheel.Cancel(&h.extra.timer.timer)
	}
	for {
		u, ok := h.unlocks.PopFront()
		if !ok {
			return
		}
		u.tell(result, fx)
	}
}

// boundRelease makes a release that did not succeed at once end with the lease:
// there is nothing to release after it.
func (h *holding) boundRelease() {
	if h.state == releasing {
		h.wakeAt(h.until())
	}
}

// giveUpRelease ends a release whose lease is over.
func (h *holding) giveUpRelease(fx *effects) {
	r := h.res
	if r.cmd.hold == h {
		r.cmd.hold = nil // its reply concerns nobody
	}
	h.sh.count.unknown++
	root := h.parent == nil
	h.released(fail(ErrOutcomeUnknown, ErrUnavailable), fx)
	if root {
		r.owe(h.id, certain, h.lease, outcome{sent: clock.Instant(h.validUntil.Load())})
	}
}
