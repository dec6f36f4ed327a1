package engine

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
)

// group is the end that several locks share. When it comes, package quorum decides: with the end of one of
// them, which has a vote among its contexts. So it comes before the release of that lock, and before others can
// have it.
//
// It leads to no Hold, so that one that was dropped can be noticed.
type group struct {
	mu       sync.Mutex
	ending   error
	begun    bool // somebody ends the contexts
	contexts waitq.Set[*heldContext]
	done     chan struct{}    // closed when the contexts have ended, too
	watched  *runtime.Cleanup // leakedGroup is called, until Unlock is called or all have ended
	left     int              // of its locks, or 1, whose end ends that watch
	seen     *observation     // nil: nobody observes, or it is not held yet
}

// newHold makes the user's Hold of the whole. If the watchdog renews its locks it is watched: one
// that is garbage, while one of its locks is held still, is reported.
func (g *group) newHold(whole hold, renewed bool) *Hold {
	l := &Hold{h: whole}
	if !renewed {
		return l
	}
	c := runtime.AddCleanup(l, leakedGroup, whole)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.watched = &c; g.left <= 0 {
		g.unwatchLocked()
	}
	return l
}

// unwatch ends the watch; see lockHold.unwatch.
func (g *group) unwatch() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unwatchLocked()
}

func (g *group) unwatchLocked() {
	if g.watched != nil {
		g.watched.Stop()
		g.watched = nil
	}
}

// leakedGroup runs when the user's Hold of several locks is garbage. Its re-entries end with what
// they re-enter, which is watched itself.
func leakedGroup(whole hold) {
	for _, h := range whole.locks() {
		if h.Parent == nil && h.live() {
			reportLeak(whole, h)
			return
		}
	}
}

// bind makes f end with h, or returns why h has ended. From then on h belongs to the whole,
// which is watched for leaks instead.
func (h *lockHold) bind(f lock.Context) error {
	var rd lock.Ready
	h.Shard().Lock()
	err := h.Check(h.Shard().Now(), &rd)
	if err == nil {
		h.Bind(f)
		h.unwatch()
	}
	h.Shard().Unlock()
	h.Shard().Table.Apply(&rd)
	return err
}

// unbind undoes bind, unless h has ended.
func (h *lockHold) unbind(f lock.Context) {
	h.Shard().Lock()
	h.Unbind(f)
	h.Shard().Unlock()
}

// End implements lock.Context. It returns when the contexts have ended, no matter which goroutine
// ends them.
func (g *group) End(why error) {
	g.mu.Lock()
	first := !g.begun
	if g.left--; g.left <= 0 {
		g.unwatchLocked()
	}
	var contexts waitq.Set[*heldContext]
	why = g.settleLocked(why)
	if first {
		g.begun, contexts, g.contexts = true, g.contexts, waitq.Set[*heldContext]{}
	}
	g.mu.Unlock()
	if !first {
		<-g.done
		return
	}
	defer close(g.done)
	driver.EndAll(contexts.InOrder(), why)
}

// The methods below are those of hold that are the same for all groups.

func (g *group) owner() string          { return "" }
func (g *group) token() int64           { return 0 }
func (g *group) permitIDs() []string    { return nil }
func (g *group) ended() <-chan struct{} { return g.done }

func (g *group) detach(c *heldContext) {
	g.mu.Lock()
	c.over = true
	g.contexts.Remove(c)
	g.mu.Unlock()
}

// add has the context end with the group, or returns why that has ended.
func (g *group) add(c *heldContext) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending == nil && !c.over {
		g.contexts.Add(c)
	}
	return g.ending
}

// settle makes why the end, if it is one and the first, and returns the end. The
// contexts may end later: the lock may have ended already, and the goroutine that is to end
// them may not have run yet.
func (g *group) settle(why error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.settleLocked(why)
}

func (g *group) settleLocked(why error) error {
	if g.ending == nil && why != nil {
		g.ending = why
		g.seen.over(lossOf(why), 0)
	}
	return g.ending
}

// release makes Unlock the end, unless there is one. It reports whether it is, and the Unlock is a user's.
func (g *group) release(byUser bool) (ends bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ends = byUser && g.ending == nil; ends {
		g.seen.claim()
	}
	g.settleLocked(ErrReleased)
	return ends
}

func (g *group) observed() *observation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen
}

// endsSoon reports whether end takes a moment only.
func (g *group) endsSoon() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.done:
		return true
	default:
		return !g.begun && g.contexts.Len() <= driver.FewContexts
	}
}

// isOf reports whether c is a context of the whole, whose locks are those, or of a re-entry under
// it.
func (c *heldContext) isOf(whole hold, locks []*lockHold) bool {
	if c.hold == nil {
		return false
	}
	for _, h := range c.hold.h.locks() {
		for up := &h.Hold; up != nil; up = up.Parent {
			if slices.ContainsFunc(locks, func(h *lockHold) bool { return &h.Hold == up }) {
				return true
			}
		}
	}
	return c.hold.h == whole
}

// groupUnlock is one Unlock of several locks, and waits for their releases: for all of them,
// or for as many as are needed.
type groupUnlock struct {
	fut   Future[struct{}]
	eng   *Engine
	of    []*lockHold
	each  []*unlocking
	ends  bool                // it has ended the whole, which no other Unlock has
	judge func([]error) error // makes one error of those of the locks

	mu      sync.Mutex
	count   quorum.Count // of the releases: with as many as it needs, the rest goes on by itself
	now     int          // released by this call, not by an earlier one
	settled bool
}

func (u *groupUnlock) executor() *executor.Executor { return &u.eng.exec }
func (u *groupUnlock) abandon()                     {} // a release is never taken back
func (u *groupUnlock) drop(struct{})                {}

func newGroupUnlock(e *Engine, of []*lockHold, need int, judge func([]error) error) *groupUnlock {
	u := &groupUnlock{
		eng: e, of: of, each: make([]*unlocking, len(of)),
		judge: judge, count: quorum.Count{Members: len(of), Need: need, Pending: len(of)},
	}
	u.fut.source = u
	for i, h := range of {
		u.each[i] = h.home().newUnlocking(true)
		u.each[i].fut.onComplete(u.oneEnded)
	}
	return u
}

// begin ends what was made of the locks, and then releases them: soon, or on a goroutine. Some
// are live for a moment more, though the user may have let go of the Hold.
func (u *groupUnlock) begin(g *group, soon bool) {
	if u.ends {
		defer g.observed().reportHoldEnd() // even if a context of the user's panics
	}
	g.unwatch()
	if soon {
		u.release(g)
		return
	}
	u.eng.exec.Spawn(func() { u.release(g) })
}

// release ends what was made of the locks, and then releases them. If a context of
// the user's panics, its own or that of a re-entry, the panic goes on after that.
func (u *groupUnlock) release(g *group) {
	defer u.releaseFrom(0)
	g.End(ErrReleased)
}

func (u *groupUnlock) releaseFrom(i int) {
	through := false
	defer func() {
		if !through {
			u.releaseFrom(i)
		}
	}()
	for i < len(u.of) {
		i++ // it is released even if this panics
		u.of[i-1].release(u.each[i-1], true)
	}
	through = true
}

// oneEnded settles the whole when all have an answer, or enough.
func (u *groupUnlock) oneEnded(_ struct{}, err error) {
	u.mu.Lock()
	u.count.Pending--
	if err == nil {
		u.now++
	}
	if err == nil || isNotHeld(err) {
		u.count.Granted++
	}
	settle := !u.settled && (u.count.Pending == 0 || u.count.Need < len(u.of) && u.count.Result() != quorum.Pending)
	u.settled = u.settled || settle
	u.mu.Unlock()
	if settle {
		u.fut.resolve(struct{}{}, u.result(nil))
	}
}

// done reports whether as many have been released as are needed, and the caller was told.
func (u *groupUnlock) done() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.settled && u.enough()
}

// enough reports whether as many have been released as are needed. The caller holds mu.
func (u *groupUnlock) enough() bool { return u.count.Result() == quorum.Won }

func (u *groupUnlock) wait(ctx context.Context, whole hold) error {
	if ctx == nil {
		return lockerr.Wrap(ErrOutcomeUnknown, lockerr.ErrNoContext)
	}
	return u.result(u.eng.awaitRelease(ctx, u.fut.Done(), whole, u.of))
}

// result is the error of the whole: none if enough were released. Locks whose release goes on
// are unsettled, for a caller who stops waiting, for that cause. The Unlock that has ended the whole does not
// depend on which Unlock has released its locks.
func (u *groupUnlock) result(cause error) error {
	u.mu.Lock()
	released := u.enough() && (u.now > 0 || u.ends)
	u.mu.Unlock()
	if released {
		return nil
	}
	errs := make([]error, len(u.of))
	for i, one := range u.each {
		h := u.of[i]
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
	return u.judge(errs)
}

// joined joins the errors of several locks: nil if there is none.
func joined(errs []error) error {
	switch all := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil }); len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	default:
		return &failures{all}
	}
}

// failures are the errors of several locks; the text has the first few.
type failures struct{ is []error }

func (e *failures) Unwrap() []error { return e.is }

func (e *failures) Error() string {
	return e.is[0].Error() + "; " + strings.Join(few(e.is[1:], 2, partText), "; ")
}

// few are the texts of the first ones, and how many more there are.
func few[T any](all []T, most int, text func(T) string) (texts []string) {
	for _, one := range all[:min(len(all), most)] {
		texts = append(texts, text(one))
	}
	if more := len(all) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return texts
}
