package engine

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
)

// MultiHold is several locks that are held as one. All methods may be called from any
// goroutine. You must unlock it, also when one of the locks was lost: the others stay held
// until then.
type MultiHold struct {
	locks []Mutex
	holds []*Hold
	fate  *fate

	mu    sync.Mutex
	index map[multiKey]*Hold // made by the first re-entry
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

// newMultiHold binds the holds together, unless one of them has ended.
func newMultiHold(locks []Mutex, holds []*Hold) (*MultiHold, *lostMeanwhile) {
	m := &MultiHold{locks: locks, holds: holds, fate: &fate{done: make(chan struct{})}}
	for i, l := range holds {
		if err := l.h.bind(m.fate); err != nil {
			return nil, &lostMeanwhile{i, err}
		}
	}
	return m, nil
}

// find returns the hold of a name, nil if there is none.
func (m *MultiHold) find(e *Engine, k drive.Key) *Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.index == nil {
		m.index = make(map[multiKey]*Hold, len(m.holds))
		for i, one := range m.locks {
			m.index[multiKey{one.engine(), one.key.Name}] = m.holds[i]
		}
	}
	return m.index[multiKey{e, k.Name}]
}

// Names returns the names of the locks, as you gave them, in their order.
func (m *MultiHold) Names() []string {
	names := make([]string, len(m.holds))
	for i, l := range m.holds {
		names[i] = l.Name()
	}
	return names
}

// ValidUntil returns the instant until which all the locks are certainly yours if nothing
// renews them any more: that of the lock that ends first. See Hold.ValidUntil.
func (m *MultiHold) ValidUntil() time.Time {
	first := m.holds[0].ValidUntil()
	for _, l := range m.holds[1:] {
		if at := l.ValidUntil(); at.Before(first) {
			first = at
		}
	}
	return first
}

// Acked returns how many replicas have acknowledged each of the locks at least; see
// Hold.Acked.
func (m *MultiHold) Acked() int {
	least := m.holds[0].Acked()
	for _, l := range m.holds[1:] {
		least = min(least, l.Acked())
	}
	return least
}

// Done returns a channel that is closed when the first of the locks ends, for any reason,
// and before anybody else can have that lock. By then the contexts have ended.
func (m *MultiHold) Done() <-chan struct{} { return m.fate.done }

// Err returns nil while all the locks are held, ErrReleased after Unlock was called, and the
// *LostError of the first lock that was lost, which has its name. It looks at the clock, as
// Hold.Err does.
func (m *MultiHold) Err() error {
	why := m.fate.settle(nil)
	for _, l := range m.holds {
		if why != nil {
			break
		}
		why = l.h.Look()
	}
	return m.fate.settle(why)
}

// Context returns a context that ends with parent or with the first of the locks, whichever
// comes first. It carries all the locks: acquiring any of them under it re-enters. See
// Hold.Context.
func (m *MultiHold) Context(parent context.Context) context.Context {
	return contextOf(m, parent)
}

func (m *MultiHold) shared() *fate { return m.fate }
func (m *MultiHold) home() *Engine { return m.locks[0].engine() }
func (m *MultiHold) all() []*Hold  { return m.holds }

// Unlock releases all the locks, at the same time. The contexts end first. The error joins
// those of the locks; see Hold.Unlock, also for what ctx means.
func (m *MultiHold) Unlock(ctx context.Context) error { return m.unlockAll(true).wait(ctx, m) }

// UnlockAsync is Unlock without the waiting.
func (m *MultiHold) UnlockAsync() *Future[struct{}] { return &m.unlockAll(true).fut }

func (m *MultiHold) unlockAll(byUser bool) *unlockingAll {
	u := newUnlockingAll(m.holds[0].h.engine(), m.holds, len(m.holds), joined)
	soon := byUser && m.fate.endsSoon()
	if m.Err() == nil { // not lost by the clock
		m.fate.settle(ErrReleased)
	}
	u.begin(m.fate, soon)
	return u
}

// Extend makes the fixed leases of all the locks last d from now, at the same time; see
// Hold.Extend. The error joins those of the locks that it did not succeed for; the others
// are extended.
func (m *MultiHold) Extend(ctx context.Context, d time.Duration) error {
	var wait time.Duration
	for _, l := range m.holds {
		if err := l.h.MayExtend(ctx, d); err != nil {
			return about(l.h.Name, err) // nothing was sent
		}
		wait = max(wait, l.h.ExtendPatience())
	}
	patience, stop := m.holds[0].h.engine().world.After(wait)
	defer stop()
	all := make([]oneExtend, len(m.holds))
	for i, l := range m.holds {
		x := drive.NewExtension(d)
		ahead, err := l.h.StartExtend(x)
		all[i] = oneExtend{l.h, x, ahead, err}
	}
	for again := true; again; {
		again = false
		for i := range all {
			again = all[i].follow(ctx, patience) || again
		}
	}
	errs := make([]error, len(m.holds))
	for i, one := range all {
		errs[i] = about(one.h.Name, one.h.AwaitExtend(ctx, one.x, one.ahead, one.err, patience))
	}
	return joined(errs)
}

// oneExtend is the part of one lock in an Extend of several.
type oneExtend struct {
	h        *holding
	x, ahead *drive.Extension
	err      error
}

// follow has x sent when the Extend ahead of it is done, without waiting for the answer: one
// lock after the other would take a round trip each. It reports whether yet another was faster.
func (o *oneExtend) follow(ctx context.Context, patience <-chan struct{}) bool {
	if o.ahead == nil {
		return false
	}
	if o.h.engine().world.Wait(o.ahead.Done(), ctx.Done(), patience) != 0 {
		return false
	}
	o.ahead, o.err = o.h.StartExtend(o.x)
	return o.ahead != nil
}
