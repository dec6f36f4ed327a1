package engine

import (
	"cmp"
	"context"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
)

// severalUnlock is one Unlock of several locks, and waits for their releases: for all of them,
// or for as many as are needed.
type severalUnlock struct {
	fut     Future[struct{}]
	of      *severalHold
	votes   []*quorum.Vote // that are released,
	each    []oneUnlock    // each by one of these
	ends    bool           // it has ended the whole, which no other Unlock has
	verdict error          // of one that has nothing to release

	// The lock of the hold guards these.
	count quorum.Count // of the releases: with as many as it needs, the rest goes on by itself
	now   int          // released by this call, not by an earlier one
}

// oneUnlock is the Unlock of one of the locks.
type oneUnlock struct {
	*unlocking
	hold *lockHold
}

// unlock returns when all locks have been released, or a majority of the servers, as nobody needs more; the
// releases at the others go on in the background.
func (h *severalHold) unlock(ctx context.Context) error {
	u := h.unlockAll(true)
	var err error
	if ctx == nil { // then nothing bounds the waiting; and locks must not stay for that
		err = lockerr.Wrap(ErrOutcomeUnknown, lockerr.ErrNoContext)
	} else {
		err = u.result(h.eng.awaitRelease(ctx, u.fut.Done(), h, holdsOf(u.votes)))
	}
	if u.ends {
		h.seen.released(err, true)
	}
	return err
}

func (h *severalHold) unlockAsync(byUser bool) *Future[struct{}] {
	u := h.unlockAll(byUser)
	if u.ends && h.seen != nil {
		u.fut.onComplete(func(_ struct{}, err error) { h.seen.released(err, false) })
	}
	return &u.fut
}

// unlockAll ends what was made of the locks, and then releases them: soon, or on a goroutine. Some are live for a
// moment more, though the user may have let go of the Hold.
func (h *severalHold) unlockAll(byUser bool) *severalUnlock {
	_ = h.err() // it may have ended by the clock
	u := &severalUnlock{of: h, fut: Future[struct{}]{source: h.eng}}
	var do quorum.Ready
	h.mu.Lock()
	h.unwatchLocked()
	before := h.Ending
	if u.ends = byUser && before == nil; u.ends {
		h.seen.claim()
	}
	votes, why := h.Release(&do)
	h.noteEnd(before)
	switch earlier := h.unlocked; {
	case h.Policy == quorum.All || len(votes) > 0 && (earlier == nil || !earlier.released()):
		u.votes = votes
	case why == ErrReleased: // before
		u.verdict = withName(h.name(), ErrNotHeld)
	default: // lost
		u.verdict = why
	}
	u.count = quorum.Count{Members: len(u.votes), Need: h.Need(), Pending: len(u.votes)}
	h.unlocked = cmp.Or(h.unlocked, u)
	soon := byUser && len(u.votes) > 0 && h.endsSoon()
	h.unlockMu(&do)
	u.each = make([]oneUnlock, len(u.votes))
	for i, v := range u.votes {
		hold := voteOf(v).hold
		u.each[i] = oneUnlock{hold.home().newUnlocking(true), hold}
		u.each[i].fut.onComplete(u.oneEnded)
	}
	if u.ends {
		defer h.seen.reportHoldEnd() // even if a context of the user's panics
	}
	if soon {
		u.release(&do)
	} else {
		h.eng.exec.Spawn(func() { u.release(&do) })
	}
	return u
}

// release ends the contexts, and then releases the locks, and gives back what is left of one that was lost. If a
// context of the user's panics, its own or that of a re-entry, the panic goes on after that.
func (u *severalUnlock) release(do *quorum.Ready) {
	if len(u.each) == 0 {
		defer u.fut.resolve(struct{}{}, u.verdict)
	}
	defer driver.Each(u.each, func(one oneUnlock) { one.hold.release(one.unlocking, true) })
	defer u.of.run(do, false)
	u.of.endContexts()
}

// oneEnded settles the whole when all have an answer, or enough.
func (u *severalUnlock) oneEnded(_ struct{}, err error) {
	u.of.mu.Lock()
	before := u.decided()
	u.count.Pending--
	if err == nil {
		u.now++
	}
	if err == nil || isNotHeld(err) {
		u.count.Granted++
	}
	settle := !before && u.decided()
	u.of.mu.Unlock()
	if settle {
		u.fut.resolve(struct{}{}, u.result(nil))
	}
}

// decided reports whether the caller is told: all have an answer, or as many as it needs. The lock of the hold is held.
func (u *severalUnlock) decided() bool {
	return u.count.Pending == 0 || u.count.Need < u.count.Members && u.count.Result() != quorum.Pending
}

// released reports whether as many have been released as are needed. The lock of the hold is held.
func (u *severalUnlock) released() bool { return u.count.Result() == quorum.Won }

// result is the error of the whole: none if enough were released. Locks whose release goes on
// are unsettled, for a caller who stops waiting, for that cause. The Unlock that has ended the whole does not
// depend on which Unlock has released its locks.
func (u *severalUnlock) result(cause error) error {
	u.of.mu.Lock()
	released := u.released() && (u.now > 0 || u.ends)
	u.of.mu.Unlock()
	if released || len(u.each) == 0 {
		return u.verdict
	}
	errs := make([]error, len(u.each))
	for i, one := range u.each {
		h := one.hold
		h.Shard().Lock()
		switch {
		case one.Decided():
			errs[i] = one.Err
		case h.IsOver(): // lost: its release has not been asked for yet
			errs[i] = h.UnlockResult()
		case cause == nil: // the others have decided
		default:
			errs[i] = h.StopAwaiting(&one.Unlock, cause)
		}
		h.Shard().Unlock()
	}
	return u.of.unreleased(u.votes, errs)
}
