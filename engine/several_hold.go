package engine

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
)

// The methods of severalHold as a hold: by as many of its servers as it needs at least.

func (h *severalHold) name() string            { return h.all.name() }
func (h *severalHold) describe() string        { return h.all.describe() }
func (h *severalHold) owner() string           { return "" }
func (h *severalHold) token() int64            { return 0 }
func (h *severalHold) permitIDs() []string     { return nil }
func (h *severalHold) home() *Engine           { return h.eng }
func (h *severalHold) observed() *observation  { return h.seen }
func (h *severalHold) ended() <-chan struct{}  { return h.done }
func (h *severalHold) parts() []*lockHold      { return h.locks() }
func (h *severalHold) patience() time.Duration { return releaseTimeout(h.all.locks) }

// handle makes the user's Hold. If the watchdog renews its locks it is watched: one that is garbage,
// while one of its locks is held still, is reported.
func (h *severalHold) handle() *Hold {
	l := &Hold{h: h}
	if h.opts.lease != 0 {
		return l
	}
	c := runtime.AddCleanup(l, (*severalHold).leaked, h)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watched = &c; h.left <= 0 {
		h.unwatchLocked()
	}
	return l
}

// unwatchLocked ends the watch; see lockHold.unwatch.
func (h *severalHold) unwatchLocked() {
	if h.watched != nil {
		h.watched.Stop()
		h.watched = nil
	}
}

// leaked runs when the user's Hold is garbage. Its re-entries end with what they re-enter, which is
// watched itself.
func (h *severalHold) leaked() {
	for _, one := range h.locks() {
		if one.Parent == nil && one.live() {
			reportLeak(h, one)
			return
		}
	}
}

func (h *severalHold) locks() []*lockHold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return holdsOf(h.Votes())
}

func holdsOf(votes []*quorum.Vote) []*lockHold {
	holds := make([]*lockHold, len(votes))
	for i, v := range votes {
		holds[i] = voteOf(v).hold
	}
	return holds
}

func (h *severalHold) find(e *Engine, k driver.Key) *lockHold {
	i, is := h.all.index[severalKey{e, k.Name}]
	if !is {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if v := h.Members[i].Vote; v != nil {
		return voteOf(v).hold
	}
	return nil
}

// servers has each once, unless each is an engine of its own.
func (h *severalHold) servers() []string {
	var all []string
	for _, one := range h.locks() {
		for _, server := range one.servers() {
			if h.Policy == quorum.Majority || !slices.Contains(all, server) {
				all = append(all, server)
			}
		}
	}
	return all
}

func (h *severalHold) validUntil() time.Time {
	now := h.eng.clock.Now()
	h.mu.Lock()
	at := h.Until()
	h.mu.Unlock()
	if h.err() != nil {
		at = min(at, now)
	}
	return h.eng.clock.Wall().Add(at.Sub(now))
}

func (h *severalHold) acked() int {
	acked := make([]int, len(h.all.locks))
	for i, one := range h.locks() {
		acked[i] = one.acked()
	}
	return quorum.Reached(acked, h.Need())
}

// err is a *LostError if too few servers are left: the text says what became of which. What is
// left then is given back.
func (h *severalHold) err() error {
	h.mu.Lock()
	why := h.Ending
	certain, expired := h.Check()
	h.mu.Unlock()
	if why != nil || certain {
		return why
	}
	var ends []quorum.End
	for _, v := range expired {
		if err := voteOf(v).hold.Look(); err != nil { // vote.End follows, on a goroutine
			ends = append(ends, endOf(v.Member, err))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.Ending
	if certain, _ = h.Check(); !certain && len(ends) > 0 { // else some joined or left meanwhile
		h.Expired(ends)
		h.noteEnd(before)
	}
	return h.Ending
}

// noteEnd has the end reported if there was none before. The contexts may end later: the lock may have ended
// already, and the goroutine that is to end them may not have run yet. The caller holds mu.
func (h *severalHold) noteEnd(before error) {
	if before == nil && h.Ending != nil {
		h.seen.over(lossOf(h.Ending), 0)
	}
}

// A re-entry does not follow to servers that join later, or that lost the lock and grant it
// again. So it may be lost sooner than the hold that it re-enters.
func (h *severalHold) attach(c *heldContext) error {
	if why := h.err(); why != nil {
		return why
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.Ending == nil && !c.over {
		h.contexts.Add(c)
	}
	return h.Ending
}

func (h *severalHold) detach(c *heldContext) {
	h.mu.Lock()
	c.over = true
	h.contexts.Remove(c)
	h.mu.Unlock()
}

// endContexts ends the contexts. It returns when they have ended, no matter which goroutine ends them.
func (h *severalHold) endContexts() {
	h.mu.Lock()
	first, contexts, why := !h.ending, h.contexts, h.Ending
	h.ending, h.contexts = true, waitq.Set[*heldContext]{}
	h.mu.Unlock()
	if !first {
		<-h.done
		return
	}
	defer close(h.done)
	driver.EndAll(contexts.InOrder(), why)
}

// endsSoon reports whether endContexts takes a moment only. The caller holds mu.
func (h *severalHold) endsSoon() bool {
	select {
	case <-h.done:
		return true
	default:
		return !h.ending && h.contexts.Len() <= driver.FewContexts
	}
}

// extend returns when the locks of a MultiLock have an answer, or when a majority of a QuorumLock has done so; else the
// error joins theirs.
func (h *severalHold) extend(ctx context.Context, d time.Duration) error {
	if h.Policy == quorum.All {
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
	patience, stop := h.eng.world.After(wait)
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
	h.mu.Lock()
	votes := h.Votes()
	h.mu.Unlock()
	return h.extendAt(ctx, votes, d)
}

// extendAt extends the hold where it has these votes: none, if Unlock has just taken them.
func (h *severalHold) extendAt(ctx context.Context, votes []*quorum.Vote, d time.Duration) error {
	for _, v := range votes {
		if err := voteOf(v).hold.MayExtend(ctx, d); err != nil {
			return err // nothing was sent
		}
	}
	// The rest is not waited for: what was sent may still succeed.
	ectx, cancel := context.WithCancel(ctx)
	defer cancel()
	world := &h.eng.world
	results, ready := make(chan error, len(votes)), make(chan struct{}, len(votes))
	for _, v := range votes {
		world.Go(func() {
			err := ofName(voteOf(v).hold.Name, voteOf(v).hold.ExtendBy(ectx, d))
			if lost, isLost := err.(*LostError); isLost {
				err = lossAt(lost.Reason)
			}
			if err != nil {
				err = &serverError{h.all.locks[v.Member].home.serverName(), err}
			}
			results <- err
			ready <- struct{}{}
		})
	}
	count := quorum.Count{Members: len(votes), Need: h.Need()}
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
