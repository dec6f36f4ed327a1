package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
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
func (m *multiHold) owner() string           { return "" }
func (m *multiHold) token() int64            { return 0 }
func (m *multiHold) permitIDs() []string     { return nil }
func (m *multiHold) describe() string        { return namesOf(m.of) }
func (m *multiHold) home() *Engine           { return m.of[0].home }
func (m *multiHold) locks() []*lockHold      { return m.holds }
func (m *multiHold) parts() []*lockHold      { return m.holds }
func (m *multiHold) patience() time.Duration { return releaseTimeout(m.of) }
func (m *multiHold) ended() <-chan struct{}  { return m.done }

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

func (m *multiHold) detach(c *heldContext) { m.forget(c) }

func (m *multiHold) unlock(ctx context.Context) error {
	return unlockGroup(ctx, m, m.unlockAll)
}

func (m *multiHold) unlockAsync(byUser bool) *Future[struct{}] {
	if byUser {
		return unlockGroupAsync(m, m.unlockAll)
	}
	return &m.unlockAll(false).fut
}

func (m *multiHold) unlockAll(byUser bool) *groupUnlock {
	u := newGroupUnlock(m.home(), m.holds, len(m.holds), joined)
	soon := byUser && m.endsSoon()
	if m.err() == nil { // not lost by the clock
		m.settle(ErrReleased)
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
	all := make([]oneExtend, len(m.holds))
	for i, h := range m.holds {
		x := driver.NewExtension(d)
		ahead, err := h.StartExtend(x)
		all[i] = oneExtend{h, x, ahead, err}
	}
	for again := true; again; {
		again = false
		for i := range all {
			again = all[i].follow(ctx, patience) || again
		}
	}
	errs := make([]error, len(m.holds))
	for i, one := range all {
		errs[i] = withName(one.h.Name, one.h.AwaitExtend(ctx, one.x, one.ahead, one.err, patience))
	}
	return joined(errs)
}

// oneExtend is the part of one lock in an Extend of several.
type oneExtend struct {
	h        *lockHold
	x, ahead *driver.Extension
	err      error
}

// follow has x sent when the Extend ahead of it is done, without waiting for the answer: one
// lock after the other would take a round trip each. It reports whether yet another was faster.
func (o *oneExtend) follow(ctx context.Context, patience <-chan struct{}) bool {
	if o.ahead == nil {
		return false
	}
	if o.h.home().world.Wait(o.ahead.Done(), ctx.Done(), patience) != 0 {
		return false
	}
	o.ahead, o.err = o.h.StartExtend(o.x)
	return o.ahead != nil
}
