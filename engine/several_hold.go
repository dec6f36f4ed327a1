package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
)

// multiHold is several locks that are held as one.
type multiHold struct {
	*group
	of    []Mutex
	holds []*lockHold

	mu    sync.Mutex
	index map[multiKey]*lockHold // made by the first re-entry
}

type multiKey struct {
	engine *Engine
	name   string // as it stands on the server
}

// lostMeanwhile is a lock that was lost while others were awaited.
type lostMeanwhile struct {
	at  int
	why error
}

// newMultiHold binds the locks together, unless one of them has ended.
func newMultiHold(of []Mutex, holds []*lockHold) (*multiHold, *lostMeanwhile) {
	m := &multiHold{of: of, holds: holds, group: newGroup(len(holds))}
	for i, h := range holds {
		if err := h.bind(m.group); err != nil {
			return nil, &lostMeanwhile{i, err}
		}
	}
	return m, nil
}

func (m *multiHold) find(e *Engine, k driver.Key) *lockHold {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.index == nil {
		m.index = make(map[multiKey]*lockHold, len(m.holds))
		for i, one := range m.of {
			m.index[multiKey{one.home, one.key.Name}] = m.holds[i]
		}
	}
	return m.index[multiKey{e, k.Name}]
}

func (m *multiHold) name() string            { return nameOf(m.of) }
func (m *multiHold) describe() string        { return namesOf(m.of) }
func (m *multiHold) home() *Engine           { return m.of[0].home }
func (m *multiHold) locks() []*lockHold      { return m.holds }
func (m *multiHold) parts() []*lockHold      { return m.holds }
func (m *multiHold) patience() time.Duration { return releaseTimeout(m.of) }

func (m *multiHold) servers() []string {
	var all []string
	for _, h := range m.holds {
		for _, one := range h.servers() {
			if !slices.Contains(all, one) {
				all = append(all, one)
			}
		}
	}
	return all
}

func (m *multiHold) validUntil() time.Time {
	first := m.holds[0].validUntil()
	for _, h := range m.holds[1:] {
		if at := h.validUntil(); at.Before(first) {
			first = at
		}
	}
	return first
}

func (m *multiHold) acked() int {
	least := m.holds[0].acked()
	for _, h := range m.holds[1:] {
		least = min(least, h.acked())
	}
	return least
}

func (m *multiHold) err() error {
	why := m.settle(nil)
	for _, h := range m.holds {
		if why != nil {
			break
		}
		why = h.Look()
	}
	return m.settle(why)
}

func (m *multiHold) attach(c *heldContext) error {
	if why := m.err(); why != nil {
		return why
	}
	return m.add(c)
}

func (m *multiHold) unlock(ctx context.Context) error {
	return unlockGroup(ctx, m, m.unlockAll(true))
}

func (m *multiHold) unlockAsync(byUser bool) *Future[struct{}] {
	if byUser {
		return unlockGroupAsync(m, m.unlockAll(true))
	}
	return &m.unlockAll(false).fut
}

func (m *multiHold) unlockAll(byUser bool) *groupUnlock {
	u := newGroupUnlock(m.home(), m.holds, len(m.holds), joined)
	soon := byUser && m.endsSoon()
	if m.err() == nil { // not lost by the clock
		u.ends = m.release(byUser)
	}
	u.begin(m.group, soon)
	return u
}

// extend extends all of them at the same time.
func (m *multiHold) extend(ctx context.Context, d time.Duration) error {
	var wait time.Duration
	for _, h := range m.holds {
		if err := h.MayExtend(ctx, d); err != nil {
			return withName(h.Name, err) // nothing was sent
		}
		wait = max(wait, h.ExtendPatience())
	}
	patience, stop := m.home().world.After(wait)
	defer stop()
	all := make([]*driver.Extension, len(m.holds))
	for i, h := range m.holds {
		all[i] = h.StartExtend(d)
	}
	// One lock after the other would take a round trip each.
	for again := true; again; {
		again = false
		for _, x := range all {
			again = x.Follow(ctx, patience) || again
		}
	}
	errs := make([]error, len(m.holds))
	for i, h := range m.holds {
		errs[i] = withName(h.Name, all[i].Await(ctx, patience))
	}
	return joined(errs)
}

// quorumHold is a QuorumLock that is held: by a majority of its servers at least.
type quorumHold struct {
	*group
	q *redLockAcquisition
}

func (h *quorumHold) name() string            { return h.q.locks[0].name }
func (h *quorumHold) describe() string        { return quorumText(h.q.locks) }
func (h *quorumHold) home() *Engine           { return h.q.home }
func (h *quorumHold) parts() []*lockHold      { return h.locks() }
func (h *quorumHold) patience() time.Duration { return releaseTimeout(h.q.locks) }

func (h *quorumHold) locks() (all []*lockHold) {
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	for i := range h.q.Members {
		if v := h.q.Members[i].Vote; v != nil {
			all = append(all, voteOf(v).hold)
		}
	}
	return all
}

func (h *quorumHold) find(e *Engine, k driver.Key) *lockHold {
	h.q.mu.Lock()
	defer h.q.mu.Unlock()
	for i, m := range h.q.locks {
		if v := h.q.Members[i].Vote; v != nil && m.key.Name == k.Name && m.home == e {
			return voteOf(v).hold
		}
	}
	return nil
}

func (h *quorumHold) servers() []string {
	q := h.q
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []string
	for i := range q.Members {
		if v := q.Members[i].Vote; v != nil && v.Port.InTime() {
			all = append(all, q.locks[i].home.serverName())
		}
	}
	return all
}

func (h *quorumHold) validUntil() time.Time {
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

func (h *quorumHold) acked() int {
	acked := make([]int, len(h.q.locks))
	for i, one := range h.locks() {
		acked[i] = one.acked()
	}
	return quorum.OfMajority(acked)
}

// err is a *LostError if too few servers are left: the text says what became of which. What is
// left then is given back.
func (h *quorumHold) err() error {
	q := h.q
	if why := q.group.settle(nil); why != nil {
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
				ends = append(ends, endOf(v.Server, err))
			}
		}
		if len(ends) == 0 { // they joined or left meanwhile
			return q.group.settle(nil)
		}
		q.mu.Lock()
		why = q.Expired(ends)
		q.mu.Unlock()
	}
	return q.group.settle(why)
}

// A re-entry does not follow to servers that join later, or that lost the lock and grant it
// again. So it may be lost sooner than the hold that it re-enters.
func (h *quorumHold) attach(c *heldContext) error {
	if why := h.err(); why != nil {
		return why
	}
	return h.add(c)
}

// unlock returns when a majority of the servers has released it, as nobody needs more; the
// releases at the others go on in the background.
func (h *quorumHold) unlock(ctx context.Context) error {
	return unlockGroup(ctx, h, h.unlockAll(true))
}

func (h *quorumHold) unlockAsync(byUser bool) *Future[struct{}] {
	if byUser {
		return unlockGroupAsync(h, h.unlockAll(true))
	}
	return &h.unlockAll(false).fut
}

func (h *quorumHold) unlockAll(byUser bool) *groupUnlock {
	q := h.q
	soon := byUser && q.group.endsSoon()
	why := h.err() // also by the clock
	var do quorum.Ready
	q.mu.Lock()
	votes, why := q.Release(why, &do)
	earlier := q.unlocked
	q.mu.Unlock()
	if len(votes) == 0 || earlier != nil && earlier.done() { // lost, or released before
		verdict := why
		if why == ErrReleased {
			verdict = withName(h.name(), ErrNotHeld)
		}
		u := newGroupUnlock(q.home, nil, 1, func([]error) error { return verdict })
		q.home.exec.Spawn(func() {
			defer u.fut.resolve(struct{}{}, verdict) // when the contexts have ended
			defer q.run(&do, false)                  // even if one of the user's ends the goroutine
			q.group.End(why)
		})
		return u
	}
	ends := q.group.release(byUser)
	q.run(&do, false)
	of := make([]*lockHold, len(votes))
	for i, v := range votes {
		of[i] = voteOf(v).hold
	}
	u := newGroupUnlock(q.home, of, q.Majority(), func(errs []error) error { return q.unreleased(votes, errs) })
	u.ends = ends
	q.mu.Lock()
	q.unlocked = cmp.Or(q.unlocked, u)
	q.mu.Unlock()
	u.begin(q.group, soon)
	return u
}

// extend returns when a majority has done so, else the error joins those of the servers.
func (h *quorumHold) extend(ctx context.Context, d time.Duration) error {
	return withName(h.name(), h.extendBy(ctx, d))
}

func (h *quorumHold) extendBy(ctx context.Context, d time.Duration) error {
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
func (h *quorumHold) extendAt(ctx context.Context, votes []*quorum.Vote, d time.Duration) error {
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
				err = &serverError{q.locks[v.Server].home.serverName(), err}
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
	switch why := h.err(); why {
	case nil:
		return joined(errs)
	case ErrReleased:
		return ErrNotHeld
	default:
		return why
	}
}
