package engine

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// QuorumHold is a QuorumLock that is held: by a majority of its servers at least. All methods
// may be called from any goroutine. You must unlock it. One that was dropped is renewed until
// the engines are closed, and reported to Config.Logger of the first engine; see Hold.
type QuorumHold struct {
	_ noCopy
	q *redLockAcquisition
}

func newQuorumHold(q *redLockAcquisition) *QuorumHold {
	h := &QuorumHold{q: q}
	if q.opts.lease != 0 {
		return h
	}
	told := runtime.AddCleanup(h, (*redLockAcquisition).leaked, q)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.unless = &told; q.Ending != nil {
		q.calledOffLocked()
	}
	return h
}

// calledOffLocked has leaked not be called: see holding.Ended.
func (q *redLockAcquisition) calledOffLocked() {
	if q.unless != nil {
		q.unless.Stop()
		q.unless = nil
	}
}

// leaked runs when the user's QuorumHold is garbage.
func (q *redLockAcquisition) leaked() {
	q.mu.Lock()
	yes := q.Stage == quorum.Holding
	q.mu.Unlock()
	if !yes {
		return
	}
	sh := q.home.table.Shard(q.locks[0].route)
	sh.Lock()
	sh.Counters().Leaked++
	sh.Unlock()
	q.home.log(slog.LevelError, "pawl: a hold of a RedLock was dropped without Unlock; the lock stays held until the engines are closed",
		"lock", reason.Shorten(q.locks[0].name))
}

// Name returns the name of the first lock, as you gave it.
func (h *QuorumHold) Name() string { return h.q.locks[0].name }

// Servers returns the addresses of the servers where the lock is certainly held now, in the
// order of the locks. Their number may change while it is held.
func (h *QuorumHold) Servers() []string {
	q := h.q
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []string
	for i := range q.Members {
		if v := q.Members[i].Vote; v != nil && v.Port.InTime() {
			all = append(all, q.locks[i].serverOf())
		}
	}
	return all
}

// ValidUntil returns the instant until which a majority of the servers certainly has the lock
// for you if nothing renews it any more. See Hold.ValidUntil.
func (h *QuorumHold) ValidUntil() time.Time {
	q := h.q
	now := q.home.clock.Now()
	q.mu.Lock()
	at := q.Until()
	q.mu.Unlock()
	if h.Err() != nil {
		at = min(at, now)
	}
	return q.home.clock.Wall().Add(at.Sub(now))
}

// Acked returns how many replicas had acknowledged the lock at each server of a majority; see
// Hold.Acked.
func (h *QuorumHold) Acked() int {
	acked := make([]int, len(h.q.locks))
	for i, l := range h.all() {
		acked[i] = l.Acked()
	}
	return quorum.OfMajority(acked)
}

// Done returns a channel that is closed when the hold ends, for any reason, and before anybody
// else can have a majority. By then the contexts have ended.
func (h *QuorumHold) Done() <-chan struct{} { return h.q.fate.done }

// Err returns nil while a majority of the servers certainly has the lock, ErrReleased after
// Unlock was called, and a *LostError if too few were left: the text says what became of
// which. What is left then is given back. Err looks at the clock, as Hold.Err does.
func (h *QuorumHold) Err() error {
	q := h.q
	if why := q.fate.settle(nil); why != nil {
		return why
	}
	q.mu.Lock()
	why := q.Ending
	certain, expired := q.Check()
	q.mu.Unlock()
	if why == nil && certain {
		return nil
	}
	if why == nil {
		var ends []quorum.End
		for _, v := range expired {
			if err := voteOf(v).hold.h.Look(); err != nil { // vote.End follows, on a goroutine
				ends = append(ends, endOf(v.Server, err))
			}
		}
		if len(ends) == 0 { // they joined or left meanwhile
			return q.fate.settle(nil)
		}
		q.mu.Lock()
		why = q.Expired(ends)
		q.mu.Unlock()
	}
	return q.fate.settle(why)
}

// Context returns a context that ends with parent or with the hold, whichever comes first. It
// carries the locks that are held: acquiring one of them, or the whole, under it re-enters.
// A re-entry does not follow to servers that join later, or that lost the lock and grant it
// again. So it may be lost sooner than the hold that it re-enters. See Hold.Context.
func (h *QuorumHold) Context(parent context.Context) context.Context { return contextOf(h, parent) }

func (h *QuorumHold) shared() *fate { return h.q.fate }
func (h *QuorumHold) home() *Engine { return h.q.home }

func (h *QuorumHold) all() (holds []*Hold) {
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	for i := range h.q.Members {
		if v := h.q.Members[i].Vote; v != nil {
			holds = append(holds, voteOf(v).hold)
		}
	}
	return holds
}

func (h *QuorumHold) find(e *Engine, k drive.Key) *Hold {
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	for i, m := range h.q.locks {
		if v := h.q.Members[i].Vote; v != nil && m.key.Name == k.Name && m.engine() == e {
			return voteOf(v).hold
		}
	}
	return nil
}

// Unlock releases the lock at all servers, at the same time. The contexts end first. It
// returns when a majority of the servers has released it, as nobody needs more; the releases
// at the others go on in the background. Otherwise the error joins those of the servers; see
// Hold.Unlock, also for what ctx means.
func (h *QuorumHold) Unlock(ctx context.Context) error { return h.unlockAll(true).wait(ctx, h) }

// UnlockAsync is Unlock without the waiting.
func (h *QuorumHold) UnlockAsync() *Future[struct{}] { return &h.unlockAll(true).fut }

func (h *QuorumHold) unlockAll(byUser bool) *unlockingAll {
	q := h.q
	soon := byUser && q.fate.endsSoon()
	why := h.Err() // also by the clock
	var do quorum.Ready
	q.mu.Lock()
	votes, why := q.Release(why, &do)
	earlier := q.unlocked
	q.mu.Unlock()
	if len(votes) == 0 || earlier != nil && earlier.done() { // lost, or released before
		verdict := why
		if why == ErrReleased {
			verdict = about(h.Name(), ErrNotHeld)
		}
		u := newUnlockingAll(q.home, nil, 1, func([]error) error { return verdict })
		q.home.exec.Spawn(func() {
			defer u.fut.settle(struct{}{}, verdict) // when the contexts have ended
			defer q.run(&do, false)                 // even if one of the user's ends the goroutine
			q.fate.End(why)
		})
		return u
	}
	q.fate.settle(ErrReleased)
	q.run(&do, false)
	of := make([]*Hold, len(votes))
	for i, v := range votes {
		of[i] = voteOf(v).hold
	}
	u := newUnlockingAll(q.home, of, q.Majority(), func(errs []error) error { return q.unreleased(votes, errs) })
	q.mu.Lock()
	q.unlocked = cmp.Or(q.unlocked, u)
	q.mu.Unlock()
	u.begin(q.fate, soon)
	return u
}

// Extend makes the fixed lease last d from now, at all servers at the same time; see
// Hold.Extend. It returns when a majority has done so, else the error joins those of the
// servers. Then the lease is what it was, or longer; ValidUntil has it.
func (h *QuorumHold) Extend(ctx context.Context, d time.Duration) error {
	return about(h.Name(), h.extendBy(ctx, d))
}

func (h *QuorumHold) extendBy(ctx context.Context, d time.Duration) error {
	q := h.q
	switch why := h.Err(); {
	case ctx == nil:
		return reason.ErrNoContext
	case why == ErrReleased:
		return ErrNotHeld
	case why != nil:
		return why
	case d <= drift(d):
		return reason.Invalid("Extend (%v) must be longer than the drift of the clocks (%v)", d, drift(d))
	}
	q.mu.Lock()
	votes := q.Votes()
	q.mu.Unlock()
	return h.extendAt(ctx, votes, d)
}

// extendAt extends the hold where it has these votes: none, if Unlock has just taken them.
func (h *QuorumHold) extendAt(ctx context.Context, votes []*quorum.Vote, d time.Duration) error {
	q := h.q
	for _, v := range votes {
		if err := voteOf(v).hold.h.MayExtend(ctx, d); err != nil {
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
			err := voteOf(v).hold.h.ExtendBy(ectx, d)
			if lost, isLost := err.(*LostError); isLost {
				err = lossAt(lost.Reason)
			}
			if err != nil {
				err = &serverError{q.locks[v.Server].serverOf(), err}
			}
			results <- err
			ready <- struct{}{}
		})
	}
	extended := 0
	var errs []error
	for range votes {
		world.Wait(ready, nil, nil)
		if err := <-results; err != nil {
			errs = append(errs, err)
		} else {
			extended++
		}
		if extended == q.Majority() {
			return nil
		}
	}
	switch why := h.Err(); why {
	case nil:
		return joined(errs)
	case ErrReleased:
		return ErrNotHeld
	default:
		return why
	}
}
