package engine

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// Hold is a lock that is held. All methods may be called from any goroutine: a hold
// belongs to the code that has it, not to the goroutine that took it.
//
// You must unlock a Hold. If you drop it, the lock stays held, and is renewed until the
// engine is closed. Such a hold is reported to Config.Logger and counted in
// Stats.Leaked once it has been renewed and the garbage collector has found it. A
// context of Hold.Context keeps the Hold in use until the context that it was made from has
// ended. Do not copy a Hold: only its pointer is watched. (go vet finds copies.)
type Hold struct {
	_ noCopy
	h *holding
}

// noCopy has go vet report that a value is copied, as it does of a sync.Mutex. It is the first field
// of what has it: as the last one it would take room.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Name returns the lock's name as you gave it.
func (l *Hold) Name() string { return l.h.Name }

// Owner returns the owner, as the lock's hash on the server has it. Holds that hand the lock
// over to each other (see Config.HandOver) have the same one, one after the other. The plain readers of
// a process have the same one, and so do a hold and its re-entries.
func (l *Hold) Owner() string { return l.h.Owner().String() }

// ValidUntil returns the instant until which the lock is certainly yours if nothing
// renews it any more. It is authoritative: Done may follow a little later. The margin
// (Config.Margin) is already subtracted. Once the hold has ended, for whatever reason,
// ValidUntil is in the past.
func (l *Hold) ValidUntil() time.Time {
	h := l.h
	// Told as a distance from now: time.Time's monotonic reading stops in suspend,
	// the engine's clock does not.
	return h.engine().clock.Wall().Add(h.Until().Sub(h.Shard().Now()))
}

// Acked returns how many replicas had acknowledged the command from which ValidUntil
// counts: the grant, or the latest renewal or Extend. It is 0 if none were asked; see
// the option Acked.
func (l *Hold) Acked() int {
	h := l.h
	h.Shard().Lock()
	defer h.Shard().Unlock()
	return h.Hold.Acked()
}

// Done returns a channel that is closed when the hold ends, for any reason: Unlock was
// called, or the hold was lost. By then the contexts of the hold and of its re-entries
// have ended; the lock is released after that. Err and ValidUntil may say earlier that
// the hold has ended.
func (l *Hold) Done() <-chan struct{} { return l.h.Done() }

// Err returns nil while the lock is held, ErrReleased after Unlock was called, and a
// *LostError if the hold was lost. It looks at the clock, so it is right even
// immediately after the process was paused.
func (l *Hold) Err() error {
	h := l.h
	var fx machine.Effects
	h.Shard().Lock()
	err := h.Check(h.Shard().Now(), &fx)
	h.Shard().Unlock()
	h.Shard().Table.RunForUser(&fx)
	return err
}

// Unlock releases the lock, from any goroutine. Renewal stops when it is called.
//
// ctx bounds the waiting, never whether the release is sent. If ctx ends first, the
// error Is ErrOutcomeUnknown and has the cause, and the release goes on in the
// background until the lease ends. A second call joins a release that is under way.
// ErrNotHeld: the lock was unlocked before. ErrLost: the hold was lost before Unlock
// was called, or the server no longer had it.
//
// If others of this process wait, Unlock may hand the lock over to the first of them (see
// Config.HandOver). Then it returns nil without asking the server. If the key was deleted
// meanwhile, the next holder gets ErrLost; this Unlock still returns nil.
//
// The hold's own Context ends when Unlock is called, and so do contexts made from it. You may
// pass one of them anyway: then the context that the hold's Context was made from
// bounds the waiting, and so does the deadline. A context that context.WithoutCancel made
// does not end, and bounds nothing.
func (l *Hold) Unlock(ctx context.Context) error {
	if ctx == nil { // then nothing bounds the waiting; and a lock must not stay for that
		l.UnlockAsync()
		return aboutA(kind.Kind(l.h.Kind).What(), l.h.Name, reason.Because(ErrOutcomeUnknown, reason.ErrNoContext))
	}
	u := l.h.engine().newUnlocking(false)
	l.h.unlock(u, true)
	return u.wait(ctx, l.h)
}

// UnlockAsync is Unlock without the waiting. It never blocks.
func (l *Hold) UnlockAsync() *Future[struct{}] { return l.unlockAsync(true) }

func (l *Hold) unlockAsync(byUser bool) *Future[struct{}] {
	u := l.h.engine().newUnlocking(true)
	u.ByNobody = !byUser
	l.h.unlock(u, byUser)
	return &u.fut
}

// Extend makes a fixed lease last d from now, if that is longer than what is left of
// it: it never shortens a lease. It waits for the server's answer as long as ctx lives,
// but at most Config.CommandTimeout, and Config.AckTimeout on top of that if replicas must
// acknowledge. After that the error Is ErrOutcomeUnknown. It returns ErrInvalid for a
// hold under the watchdog, which needs no Extend, and for a re-entry without a Lease of
// its own, which lasts as long as the hold that it re-enters.
func (l *Hold) Extend(ctx context.Context, d time.Duration) error {
	return aboutA(kind.Kind(l.h.Kind).What(), l.h.Name, l.h.ExtendBy(ctx, d))
}

// holding is what the engine has of a hold: the machine's, and what drives it. The user has a
// Hold, which points here. (Two objects, so that a Hold that the
// user dropped can be noticed.) The shard's lock guards its fields.
type holding struct {
	drive.Holding
	handle *Hold            // keeps the user's Hold alive until the first renewal
	unless *runtime.Cleanup // leaked is called, from then on
	done   chan struct{}
}

// tenure is a tenure with its first hold: mostly the only one.
type tenure struct {
	first  holding
	tenure drive.Tenure
}

// NewTenure and NewHold implement drive.Engine.
func (f *front) NewTenure(r *machine.Resource) *machine.Hold {
	t := new(tenure)
	t.first.Init(&t.first, &t.tenure, r)
	return t.first.new()
}

func (f *front) NewHold(of *machine.Hold) *machine.Hold {
	h := new(holding)
	h.InitBeside(h, of)
	return h.new()
}

func (h *holding) new() *machine.Hold {
	h.handle = &Hold{h: h}
	return &h.Hold
}

// holdingOf is the engine's side of a hold.
func holdingOf(h *machine.Hold) *holding { return h.Port.(*holding) }

// engine is the engine that the hold is of.
func (h *holding) engine() *Engine { return engineOf(h.Shard()) }

// inner is the machine's side; nil of nil.
func (h *holding) inner() *machine.Hold {
	if h == nil {
		return nil
	}
	return &h.Hold
}

// The methods below are the half of drive.Hold that is told.

func (h *holding) Ended(why machine.Loss) {
	if why == 0 {
		h.engine().hookReleased(h)
	} else {
		h.engine().hookLost(h, LostReason(why))
	}
	h.handle = nil
	if h.unless != nil {
		// What the garbage collector is to call, it keeps; and with that the engine, its hooks, and
		// all that they know: perhaps the user's Hold, which then never becomes garbage.
		h.unless.Stop()
		h.unless = nil
	}
}

func (h *holding) Lost(why machine.Loss) { h.engine().logLost(h, LostReason(why)) }

func (h *holding) Done() <-chan struct{} {
	h.Shard().Lock()
	defer h.Shard().Unlock()
	if h.done == nil {
		h.done = make(chan struct{})
		if h.IsTold() {
			close(h.done)
		}
	}
	return h.done
}

func (h *holding) Told() {
	if h.done != nil {
		close(h.done)
	}
}

// Confirmed lets go of the user's Hold at its first renewal: if nobody else has
// it, the garbage collector will tell. Holds that are over before cost nothing.
func (h *holding) Confirmed() {
	if h.handle == nil {
		return
	}
	told := runtime.AddCleanup(h.handle, (*holding).leaked, h)
	h.handle, h.unless = nil, &told
}

// leaked runs when the user's Hold is garbage. If the hold is live nobody can
// unlock it any more. It is counted and reported, never released: the work under
// it may still be going on.
func (h *holding) leaked() {
	h.Shard().Lock()
	yes := h.IsLive()
	if yes {
		h.Shard().Counters().Leaked++
	}
	h.Shard().Unlock()
	if yes {
		h.engine().log(slog.LevelError, "pawl: a hold was dropped without Unlock; the lock stays held until the engine is closed",
			"lock", reason.Shorten(h.Name))
	}
}

// unlocking is one call of Unlock or UnlockAsync that waits for the release.
type unlocking struct {
	machine.Unlock
	fut   Future[struct{}] // what UnlockAsync returns
	ready chan struct{}    // what Unlock waits on: one token; nil for UnlockAsync
	eng   *Engine
}

func newPooledUnlocking() any {
	u := &unlocking{ready: make(chan struct{}, 1)}
	u.Port = u
	return u
}

func (e *Engine) newUnlocking(async bool) *unlocking {
	if !async {
		return e.unlockings.Get().(*unlocking)
	}
	u := &unlocking{eng: e}
	u.Port, u.fut.source = u, u
	return u
}

func (u *unlocking) executor() *executor.Executor { return &u.eng.exec }
func (u *unlocking) abandon()                     {} // a release is never taken back
func (u *unlocking) drop(struct{})                {}

// Deliver implements machine.UnlockPort.
func (u *unlocking) Deliver() {
	if u.ready == nil {
		u.fut.settle(struct{}{}, u.Err)
		return
	}
	u.ready <- struct{}{}
}

// unlock starts the release of h, or joins the one under way, and has u told. The
// caller is a goroutine of the user's, unless byUser is false.
func (h *holding) unlock(u *unlocking, byUser bool) {
	var fx machine.Effects
	h.Shard().Lock()
	h.Unlock(&u.Unlock, &fx)
	h.Shard().Unlock()
	if byUser {
		h.Shard().Table.RunForUser(&fx)
		return
	}
	h.Shard().Table.Run(&fx)
}

// wait is the synchronous half. It gives u back to its pool.
func (u *unlocking) wait(ctx context.Context, h *holding) error {
	select {
	case <-u.ready:
	default:
		if h.engine().world.Wait(u.ready, ctx.Done(), nil) != 0 {
			u.ctxEnded(ctx, h)
		}
	}
	err := u.Err
	u.Unlock = machine.Unlock{Port: u}
	h.engine().unlockings.Put(u)
	return err
}

// ctxEnded goes on waiting if ctx has ended only with the hold, as one does that was made
// from its Context; else nobody waits for the release any more.
func (u *unlocking) ctxEnded(ctx context.Context, h *holding) {
	cause := context.Cause(ctx) // without a lock: it may be the user's context
	if cause == ErrReleased {
		if outer, cancel := h.outside(ctx); outer != nil {
			defer cancel()
			if h.engine().world.Wait(u.ready, outer.Done(), nil) == 0 {
				return
			}
			cause = context.Cause(outer)
		}
	}
	h.Shard().Lock()
	waiting := !u.Told
	if waiting {
		u.Err = h.StopAwaiting(&u.Unlock, cause)
	}
	h.Shard().Unlock()
	if !waiting {
		h.Shard().Table.World.Wait(u.ready, nil, nil) // the verdict is on its way
	}
}
