package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
)

// severalHold is a MultiLock or a QuorumLock that is held: by as many of its servers as it needs at least.
type severalHold struct {
	group
	q *severalAcquisition
}

func (h *severalHold) name() string            { return h.q.all.name() }
func (h *severalHold) describe() string        { return h.q.all.describe() }
func (h *severalHold) home() *Engine           { return h.q.home }
func (h *severalHold) parts() []*lockHold      { return h.locks() }
func (h *severalHold) patience() time.Duration { return releaseTimeout(h.q.locks) }

func (h *severalHold) locks() []*lockHold {
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	return holdsOf(h.q.Votes())
}

func holdsOf(votes []*quorum.Vote) []*lockHold {
	holds := make([]*lockHold, len(votes))
	for i, v := range votes {
		holds[i] = voteOf(v).hold
	}
	return holds
}

func (h *severalHold) find(e *Engine, k driver.Key) *lockHold {
	i, is := h.q.all.index[severalKey{e, k.Name}]
	if !is {
		return nil
	}
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	if v := h.q.Members[i].Vote; v != nil {
		return voteOf(v).hold
	}
	return nil
}

// servers has each once, unless each is an engine of its own.
func (h *severalHold) servers() []string {
	var all []string
	for _, one := range h.locks() {
		for _, server := range one.servers() {
			if h.q.Policy == quorum.Majority || !slices.Contains(all, server) {
				all = append(all, server)
			}
		}
	}
	return all
}

func (h *severalHold) validUntil() time.Time {
	q := h.q
	now := q.home.clock.Now()
	q.mu.Lock()
	at := q.Until()
	q.mu.Unlock()
	if h.err() != nil {
		at = min(at, now)
	}
	return q.home.clock.Wall().Add(at.Sub(now))
}

func (h *severalHold) acked() int {
	acked := make([]int, len(h.q.locks))
	for i, one := range h.locks() {
		acked[i] = one.acked()
	}
	return quorum.Reached(acked, h.q.Need())
}

// err is a *LostError if too few servers are left: the text says what became of which. What is
// left then is given back.
func (h *severalHold) err() error {
	q := h.q
	if why := q.whole.settle(nil); why != nil {
		return why
	}
	q.mu.Lock()
	why := q.Ending
	certain, expired := q.Check()
	q.mu.Unlock()
	if why == nil && certain || why == ErrReleased { // what is released has its end from its Unlock
		return why
	}
	if why == nil {
		var ends []quorum.End
		for _, v := range expired {
			if err := voteOf(v).hold.Look(); err != nil { // vote.End follows, on a goroutine
				ends = append(ends, endOf(v.Member, err))
			}
		}
		if len(ends) == 0 { // they joined or left meanwhile
			return q.whole.settle(nil)
		}
		q.mu.Lock()
		why = q.Expired(ends)
		q.mu.Unlock()
	}
	return q.whole.settle(why)
}

// A re-entry does not follow to servers that join later, or that lost the lock and grant it
// again. So it may be lost sooner than the hold that it re-enters.
func (h *severalHold) attach(c *heldContext) error {
	if why := h.err(); why != nil {
		return why
	}
	return h.add(c)
}

// unlock returns when all locks have been released, or a majority of the servers, as nobody needs more; the
// releases at the others go on in the background.
func (h *severalHold) unlock(ctx context.Context) error {
	u := h.unlockAll(true)
	err := u.wait(ctx, h)
	if u.ends {
		h.observed().released(err, true)
	}
	return err
}

func (h *severalHold) unlockAsync(byUser bool) *Future[struct{}] {
	u := h.unlockAll(byUser)
	if u.ends && h.observed() != nil {
		u.fut.onComplete(func(_ struct{}, err error) { h.observed().released(err, false) })
	}
	return &u.fut
}

func (h *severalHold) unlockAll(byUser bool) *groupUnlock {
	q := h.q
	soon := byUser && q.whole.endsSoon()
	why := h.err() // also by the clock
	var do quorum.Ready
	q.mu.Lock()
	votes, why := q.Release(why, &do)
	earlier := q.unlocked
	q.mu.Unlock()
	if q.Policy == quorum.Majority && (len(votes) == 0 || earlier != nil && earlier.done()) { // lost, or released before
		verdict, rest := why, do
		if why == ErrReleased {
			verdict = withName(h.name(), ErrNotHeld)
		}
		u := newGroupUnlock(q.home, nil, 1, func([]error) error { return verdict })
		q.home.exec.Spawn(func() {
			defer u.fut.resolve(struct{}{}, verdict) // when the contexts have ended
			defer q.run(&rest, false)                // even if one of the user's ends the goroutine
			q.whole.End(why)
		})
		return u
	}
	ends := q.whole.release(byUser)
	q.run(&do, false)
	u := newGroupUnlock(q.home, holdsOf(votes), q.Need(), func(errs []error) error { return q.unreleased(votes, errs) })
	u.ends = ends
	q.mu.Lock()
	q.unlocked = cmp.Or(q.unlocked, u)
	q.mu.Unlock()
	u.begin(&q.whole.group, soon)
	return u
}

// extend returns when the locks of a MultiLock have an answer, or when a majority of a QuorumLock has done so; else the
// error joins theirs.
func (h *severalHold) extend(ctx context.Context, d time.Duration) error {
	if h.q.Policy == quorum.All {
		return h.extendAll(ctx, d)
	}
	return withName(h.name(), h.extendBy(ctx, d))
}

// extendAll extends all locks of a MultiLock at the same time.
func (h *severalHold) extendAll(ctx context.Context, d time.Duration) error {
	holds, wait := h.locks(), time.Duration(0)
	for _, one := range holds {
		if err := one.MayExtend(ctx, d); err != nil {
			return withName(one.Name, err) // nothing was sent
		}
		wait = max(wait, one.ExtendPatience())
	}
	patience, stop := h.q.home.world.After(wait)
	defer stop()
	all := make([]*driver.Extension, len(holds))
	for i, one := range holds { // not one after the other, which would take a round trip each
		all[i] = one.StartExtend(d)
	}
	errs := make([]error, len(holds))
	for i, one := range holds {
		errs[i] = withName(one.Name, all[i].Await(ctx, patience))
	}
	return joined(errs)
}

func (h *severalHold) extendBy(ctx context.Context, d time.Duration) error {
	q := h.q
	switch why := h.err(); {
	case ctx == nil:
		return lockerr.ErrNoContext
	case why == ErrReleased:
		return ErrNotHeld
	case why != nil:
		return why
	case d <= drift(d):
		return lockerr.Invalid("Extend (%v) must be longer than the drift of the clocks (%v)", d, drift(d))
	}
	q.mu.Lock()
	votes := q.Votes()
	q.mu.Unlock()
	return h.extendAt(ctx, votes, d)
}

// extendAt extends the hold where it has these votes: none, if Unlock has just taken them.
func (h *severalHold) extendAt(ctx context.Context, votes []*quorum.Vote, d time.Duration) error {
	q := h.q
	for _, v := range votes {
		if err := voteOf(v).hold.MayExtend(ctx, d); err != nil {
			return err // nothing was sent
		}
	}
	// The rest is not waited for: what was sent may still succeed.
	ectx, cancel := context.WithCancel(ctx)
	defer cancel()
	world := &q.home.world
	results, ready := make(chan error, len(votes)), make(chan struct{}, len(votes))
	for _, v := range votes {
		world.Go(func() {
			err := ofName(voteOf(v).hold.Name, voteOf(v).hold.ExtendBy(ectx, d))
			if lost, isLost := err.(*LostError); isLost {
				err = lossAt(lost.Reason)
			}
			if err != nil {
				err = &serverError{q.locks[v.Member].home.serverName(), err}
			}
			results <- err
			ready <- struct{}{}
		})
	}
	count := quorum.Count{Members: len(votes), Need: q.Need()}
	var errs []error
	for range votes {
		world.Wait(ready, nil, nil)
		if err := <-results; err != nil {
			errs = append(errs, err)
		} else if count.Granted++; count.Result() == quorum.Won {
			return nil
		}
	}
	switch why := h.err(); why {
	case nil:
		return joined(errs)
	case ErrReleased:
		return ErrNotHeld
	default:
		return why
	}
}

// partHold is a lock of several as Parts shows it. Only the whole ends it.
type partHold struct {
	*lockHold
	whole hold
}

func (p partHold) unlock(context.Context) error { return p.refusal("unlock") }

func (p partHold) unlockAsync(bool) *Future[struct{}] {
	return failedFuture[struct{}](p.home(), p.refusal("unlock"))
}

func (p partHold) extend(context.Context, time.Duration) error { return p.refusal("extend") }

// observed is nil: the context of its events is the Observer's.
func (p partHold) observed() *observation { return nil }

func (p partHold) refusal(what string) error {
	return withName(p.name(), lockerr.Invalid("a part of the hold %s: %s that", p.whole.describe(), what))
}
