package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
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
	key    key
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
func (m *MultiHold) find(e *Engine, k key) *Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.index == nil {
		m.index = make(map[multiKey]*Hold, len(m.holds))
		for i, one := range m.locks {
			m.index[multiKey{one.engine(), one.key}] = m.holds[i]
		}
	}
	return m.index[multiKey{e, k}]
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
		why = l.h.look()
	}
	return m.fate.settle(why)
}

// look is Hold.Err that never ends contexts itself.
func (h *holding) look() error {
	if h.inTime() {
		return nil
	}
	var fx effects
	h.sh.mu.Lock()
	h.check(h.eng.clock.Now(), &fx)
	if h.ending != nil {
		h.res.goOnAfter(&fx)
	}
	err := h.ending
	h.sh.mu.Unlock()
	fx.run(h.eng)
	return err
}

// inTime reports whether the hold's time is not over yet. It takes no lock.
func (h *holding) inTime() bool { return h.eng.clock.Now() < h.until() }

// Context returns a context that ends with parent or with the first of the locks, whichever
// comes first. It carries all the locks: acquiring any of them under it re-enters. See
// Hold.Context.
func (m *MultiHold) Context(parent context.Context) context.Context {
	if parent == nil {
		return endedContext()
	}
	c := &heldContext{multi: m, parent: parent}
	inner := c.make()
	why := m.Err()
	if why == nil {
		why = m.fate.add(c)
	}
	if why != nil {
		c.end(why)
	}
	return inner
}

// Unlock releases all the locks, at the same time. The contexts end first. The error joins
// those of the locks; see Hold.Unlock, also for what ctx means.
func (m *MultiHold) Unlock(ctx context.Context) error {
	u := m.unlockAll(true)
	if ctx == nil {
		return fail(ErrOutcomeUnknown, errNoContext)
	}
	select {
	case <-u.fut.Done():
		return u.result(nil)
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	if cause == ErrReleased {
		outer, cancel := outsideOf(ctx, m.covers)
		if outer != nil {
			defer cancel()
			select {
			case <-u.fut.Done():
				return u.result(nil)
			case <-outer.Done():
				cause = context.Cause(outer)
			}
		}
	}
	return u.result(cause)
}

// covers reports whether c is a context of m, or of a re-entry under it.
func (m *MultiHold) covers(c *heldContext) bool {
	for _, l := range c.holds() {
		for up := l.h; up != nil; up = up.parent {
			if slices.ContainsFunc(m.holds, func(l *Hold) bool { return l.h == up }) {
				return true
			}
		}
	}
	return c.multi == m
}

// UnlockAsync is Unlock without the waiting.
func (m *MultiHold) UnlockAsync() *Future[struct{}] { return &m.unlockAll(true).fut }

// unlockingAll waits for the releases of a MultiHold.
type unlockingAll struct {
	fut  Future[struct{}]
	eng  *Engine
	of   []*Hold
	each []*unlocking
	left atomic.Int64
}

func (u *unlockingAll) executor() *executor { return &u.eng.exec }
func (u *unlockingAll) abandon()            {} // a release is never taken back
func (u *unlockingAll) drop(struct{})       {}

func (m *MultiHold) unlockAll(byUser bool) *unlockingAll {
	u := &unlockingAll{eng: m.holds[0].h.eng, of: m.holds, each: make([]*unlocking, len(m.holds))}
	u.fut.source = u
	u.left.Store(int64(len(m.holds)))
	for i, l := range m.holds {
		u.each[i] = l.h.eng.newUnlocking(true)
		u.each[i].eng = l.h.eng
		u.each[i].fut.hearDirectly(u.oneEnded)
	}
	soon := byUser && m.fate.endsSoon()
	if m.Err() == nil { // not lost by the clock
		m.fate.settle(ErrReleased)
	}
	if soon {
		u.release(m.fate)
	} else {
		u.eng.exec.spawn(func() { u.release(m.fate) })
	}
	return u
}

// release ends what was made from the MultiHold, and then releases the locks. If a context of
// the user's panics, its own or that of a re-entry, the panic goes on after that.
func (u *unlockingAll) release(f *fate) {
	defer u.releaseFrom(0)
	f.end(ErrReleased)
}

func (u *unlockingAll) releaseFrom(i int) {
	through := false
	defer func() {
		if !through {
			u.releaseFrom(i)
		}
	}()
	for i < len(u.of) {
		i++ // it is released even if this panics
		u.of[i-1].h.unlock(u.each[i-1], true)
	}
	through = true
}

func (u *unlockingAll) oneEnded(struct{}, error) {
	if u.left.Add(-1) == 0 {
		u.fut.settle(struct{}{}, u.result(nil))
	}
}

// result joins the errors of the locks. Those whose release goes on are unsettled, for a
// caller who stops waiting, for that cause.
func (u *unlockingAll) result(cause error) error {
	errs := make([]error, len(u.of))
	for i, one := range u.each {
		h := u.of[i].h
		h.sh.mu.Lock()
		switch {
		case one.told:
			errs[i] = one.err
		case h.state == over: // lost: its release has not been asked for yet
			errs[i] = h.verdict()
		default:
			h.unlocks.Remove(&one.place)
			h.sh.count.unknown++
			errs[i] = about(h.name, h.unsettled(cause))
		}
		h.sh.mu.Unlock()
	}
	return joined(errs)
}

// joined joins the errors of several locks: nil if there is none.
func joined(errs []error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &failures{all}
}

// failures are the errors of several locks; the text has the first few.
type failures struct{ is []error }

func (e *failures) Unwrap() []error { return e.is }

func (e *failures) Error() string {
	const most = 3
	text := e.is[0].Error()
	for _, err := range e.is[1:min(most, len(e.is))] {
		text += "; " + said(err)
	}
	if more := len(e.is) - most; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
