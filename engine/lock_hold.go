package engine

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/ctxwatch"
	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// lockHold is the hold of one lock: the core's, and what drives it. The user has a
// Hold, which points here. (Two objects, so that a Hold that the user dropped can be noticed.)
// The shard's lock guards its fields.
type lockHold struct {
	driver.TimedHold
	handle *Hold            // keeps the user's Hold alive until the first renewal; nil for a part of several
	unless *runtime.Cleanup // leaked is called, from then on
	rare   *rareHold
}

// rareHold is what most holds do not need. If the engine has an Observer, each hold has that of its observation from its
// grant on; else the first Done makes one.
type rareHold struct {
	done     doneChan // guarded by the shard's lock
	observed *observation
}

func (h *lockHold) name() string  { return h.Name }
func (h *lockHold) home() *Engine { return engineOf(h.Shard()) }

// ofPermits reports whether the owner is a number of permits, each with an id of its own.
func (h *lockHold) ofPermits() bool { return kind.Kind(h.Kind) == kind.Permit }

func (h *lockHold) owner() string {
	if h == nil || h.ofPermits() {
		return ""
	}
	return h.Owner().String()
}

// underLock is what the core says of the hold under the shard's lock.
func underLock[T any](h *lockHold, ask func(*lock.Hold) T) T {
	h.Shard().Lock()
	defer h.Shard().Unlock()
	return ask(&h.Hold)
}

func (h *lockHold) token() int64 { return underLock(h, (*lock.Hold).Token) }
func (h *lockHold) acked() int   { return underLock(h, (*lock.Hold).Acked) }
func (h *lockHold) live() bool   { return underLock(h, (*lock.Hold).IsLive) }

func (h *lockHold) permitIDs() []string {
	if !h.ofPermits() {
		return nil
	}
	var ids []string
	for _, id := range h.Owner().Permits() {
		ids = append(ids, hex.EncodeToString(id[:]))
	}
	return ids
}

func (h *lockHold) servers() []string {
	if !h.InTime() {
		return nil
	}
	return []string{h.home().serverName()}
}

func (h *lockHold) validUntil() time.Time {
	// Told as a distance from now: time.Time's monotonic reading stops in suspend,
	// the engine's clock does not.
	return h.home().clock.Wall().Add(h.Until().Sub(h.Shard().Now()))
}

// err also ends the hold if its time is over.
func (h *lockHold) err() error { return h.ifLive(func() {}) }

// ifLive does something under the shard's lock if the hold has not ended, by the clock too: no timer may have run
// since the machine slept. Else it returns why it has ended.
func (h *lockHold) ifLive(do func()) error {
	var rd lock.Ready
	h.Shard().Lock()
	why := h.Check(h.Shard().Now(), &rd)
	if why == nil {
		do()
	}
	h.Shard().Unlock()
	h.Shard().Table.ApplyForUser(&rd)
	return why
}

func (h *lockHold) unlock(ctx context.Context) error {
	if ctx == nil { // then nothing bounds the waiting; and a lock must not stay for that
		h.unlockAsync(true)
		return h.about(lockerr.Wrap(ErrOutcomeUnknown, lockerr.ErrNoContext))
	}
	u := h.home().newUnlocking(false)
	ends := h.release(u, true)
	err := u.wait(ctx, h)
	if ends {
		h.observed().released(err, true)
	}
	return err
}

func (h *lockHold) unlockAsync(byUser bool) *Future[struct{}] {
	u := h.home().newUnlocking(true)
	if h.release(u, byUser) {
		u.fut.onComplete(func(_ struct{}, err error) { h.observed().released(err, false) })
	}
	return &u.fut
}

func (h *lockHold) extend(ctx context.Context, d time.Duration) error {
	return h.about(h.ExtendBy(ctx, d))
}

func (h *lockHold) about(err error) error { return withKind(kind.Kind(h.Kind).What(), h.Name, err) }

func (h *lockHold) patience() time.Duration { return h.home().cfg.CommandTimeout }
func (h *lockHold) parts() []*lockHold      { return nil }
func (h *lockHold) locks() []*lockHold      { return []*lockHold{h} }

// observed is nil without an Observer. With one, rare does not change after the grant.
func (h *lockHold) observed() *observation {
	if h.home().observer == nil || h.rare == nil {
		return nil
	}
	return h.rare.observed
}

func (h *lockHold) find(e *Engine, _ driver.Key) *lockHold {
	if h.home() != e {
		return nil
	}
	return h
}

func (h *lockHold) attach(c *heldContext) error {
	return h.ifLive(func() {
		if !c.over {
			h.Bind(c)
		}
	})
}

func (h *lockHold) detach(c *heldContext) {
	h.Shard().Lock()
	c.over = true
	h.Unbind(c)
	h.Shard().Unlock()
}

func (h *lockHold) describe() string {
	if h.ofPermits() {
		return fmt.Sprintf("%d of %q", len(h.Owner().Permits()), lockerr.Shorten(h.Name))
	}
	return fmt.Sprintf("%q of %v", lockerr.Shorten(h.Name), h.Owner())
}

// grantWithHold is a grant with its first hold, which mostly is the only one: one allocation.
type grantWithHold struct {
	first lockHold
	grant driver.Grant
}

// NewHold implements driver.Caller.
func (a *acquisition) NewHold(r *lock.Entry, of *lock.Hold) *lock.Hold {
	if of == nil {
		t := new(grantWithHold)
		t.first.Init(&t.first, &t.grant, r)
		return t.first.new()
	}
	h := new(lockHold)
	h.InitBeside(h, of)
	return h.new()
}

func (h *lockHold) new() *lock.Hold {
	h.handle = &Hold{h: h}
	return &h.Hold
}

// holdOf is the engine's side of a hold.
func holdOf(h *lock.Hold) *lockHold { return h.Handle.(*lockHold) }

// inner is the core's side; nil of nil.
func (h *lockHold) inner() *lock.Hold {
	if h == nil {
		return nil
	}
	return &h.Hold
}

// The methods below are the half of driver.HoldObserver that is told.

func (h *lockHold) Ended(why lock.Loss) {
	h.observed().over(LostReason(why), h.OwnUntil())
	h.Shard().Forget(&h.Hold)
	h.unwatch()
}

// unwatch ends the watch over the user's Hold. What the garbage collector is to call, it keeps; and
// with that the engine, its Observer, and all that they know: perhaps the user's Hold, which then never
// becomes garbage. The caller holds the shard's lock.
func (h *lockHold) unwatch() {
	h.handle = nil
	if h.unless != nil {
		h.unless.Stop()
		h.unless = nil
	}
}

func (h *lockHold) Lost(why lock.Loss) { h.home().logLost(h, LostReason(why)) }

func (h *lockHold) ended() <-chan struct{} {
	h.Shard().Lock()
	defer h.Shard().Unlock()
	if h.rare == nil {
		h.rare = new(rareHold)
	}
	return h.rare.done.get(h.IsAnnounced())
}

func (h *lockHold) CloseDone() {
	if h.rare != nil {
		h.rare.done.close()
	}
}

// Confirmed lets go of the user's Hold at its first renewal: if nobody else has
// it, the garbage collector will tell. Holds that are over before cost nothing.
func (h *lockHold) Confirmed() {
	if h.handle == nil {
		return
	}
	leakCheck := runtime.AddCleanup(h.handle, (*lockHold).leaked, h)
	h.handle, h.unless = nil, &leakCheck
}

// leaked runs when the user's Hold is garbage. If the hold is live nobody can
// unlock it any more. It is counted and reported, never released: the work under
// it may still be going on.
func (h *lockHold) leaked() {
	if h.live() {
		reportLeak(h, h)
	}
}

// reportLeak counts and logs a hold that was dropped; its first lock is one of the engine of h.
func reportLeak(of hold, h *lockHold) {
	h.Shard().Lock()
	h.Shard().Locks.Count.Leaked++
	h.Shard().Unlock()
	of.home().log(slog.LevelError, "pawl: a hold was dropped without Unlock; the lock stays held until the engine is closed",
		"lock", lockerr.Shorten(of.name()))
}

// unlocking is one call of Unlock or UnlockAsync that waits for the release.
type unlocking struct {
	lock.Unlock
	fut   Future[struct{}] // what UnlockAsync returns
	ready chan struct{}    // what Unlock waits on: one token; nil for UnlockAsync
}

func newPooledUnlocking() any {
	u := &unlocking{ready: make(chan struct{}, 1)}
	u.Handle = u
	return u
}

func (e *Engine) newUnlocking(async bool) *unlocking {
	if !async {
		return e.unlockings.Get().(*unlocking)
	}
	u := &unlocking{fut: Future[struct{}]{source: e}}
	u.Handle = u
	return u
}

// Deliver implements driver.Unlocker.
func (u *unlocking) Deliver() {
	if u.ready == nil {
		u.fut.resolve(struct{}{}, u.Err)
		return
	}
	u.ready <- struct{}{}
}

// release starts the release of h, or joins the one under way; u gets the outcome. The
// caller is a goroutine of the user's, unless byUser is false. It reports whether an Observer is to be told of
// this release, because it has ended the hold.
func (h *lockHold) release(u *unlocking, byUser bool) (ends bool) {
	var rd lock.Ready
	o := h.observed()
	h.Shard().Lock()
	if ends = byUser && o.claim(); byUser {
		h.Unlock(&u.Unlock, &rd)
	} else {
		h.GiveBack(&u.Unlock, &rd)
	}
	if ends {
		o.releasedAtOnce = u.Decided()
		defer o.reportHoldEnd() // when the release was sent, even if a context of the user's panics
	}
	h.Shard().Unlock()
	if byUser {
		h.Shard().Table.ApplyForUser(&rd)
	} else {
		h.Shard().Table.Apply(&rd)
	}
	return ends
}

// wait is the synchronous half. It gives u back to its pool.
func (u *unlocking) wait(ctx context.Context, h *lockHold) error {
	select {
	case <-u.ready:
	default:
		if cause := h.home().awaitRelease(ctx, u.ready, h, []*lockHold{h}); cause != nil {
			u.giveUp(cause, h)
		}
	}
	err := u.Err
	u.Unlock = lock.Unlock{Handle: u}
	h.home().unlockings.Put(u)
	return err
}

// giveUp ends the waiting, for that cause.
func (u *unlocking) giveUp(cause error, h *lockHold) {
	h.Shard().Lock()
	waiting := !u.Decided()
	if waiting {
		u.Err = h.StopAwaiting(&u.Unlock, cause)
	}
	h.Shard().Unlock()
	if !waiting {
		h.Shard().Table.World.Wait(u.ready, nil, nil) // the verdict is on its way
	}
}

// awaitRelease waits for the release of the whole, whose locks are those, as long as ctx lives. If it returns a cause
// nobody waits any more. If ctx has ended only with the hold, as one does that was made from its Context, the
// context that this was made from bounds the waiting, and so does ctx's deadline. Contexts of re-entries
// are the hold's, too.
func (e *Engine) awaitRelease(ctx context.Context, released <-chan struct{}, whole hold, locks []*lockHold) (cause error) {
	if e.world.Wait(released, ctx.Done(), nil) == 0 {
		return nil
	}
	if cause = ctxwatch.CancelOf(ctx).Cause; cause != ErrReleased { // without a lock: it may be the user's context
		return cause
	}
	var outermost *heldContext
	for c := heldIn(ctx); c != nil; c = c.outer {
		if c.isOf(whole, locks) {
			outermost = c
		}
	}
	if outermost == nil {
		return cause
	}
	outside := outermost.parent
	if at, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		outside, cancel = context.WithDeadline(outside, at)
		defer cancel()
	}
	if e.world.Wait(released, outside.Done(), nil) == 0 {
		return nil
	}
	return ctxwatch.CancelOf(outside).Cause
}
