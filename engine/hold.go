package engine

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// Hold is a lock that is held. All methods may be called from any goroutine: a hold
// belongs to the code that has it, not to the goroutine that took it.
//
// You must unlock a Hold. If you drop it, the lock stays held, and is renewed until the
// engine is closed. Such a hold is reported to Config.Logger and counted in
// Stats.Leaked once it has been renewed and the garbage collector has found it. A
// context of Hold.Context that is in use keeps the Hold in use too.
type Hold struct{ h *holding }

// Name returns the lock's name as you gave it.
func (l *Hold) Name() string { return l.h.Name }

// Owner returns the owner, as the lock's hash on the server has it.
func (l *Hold) Owner() string { return drive.OwnerOf(l.h.Res, l.h.ID).String() }

// ValidUntil returns the instant until which the lock is certainly yours if nothing
// renews it any more. It is authoritative: Done may follow a little later. The margin
// (Config.Margin) is already subtracted. Once the hold has ended, for whatever reason,
// ValidUntil is in the past.
func (l *Hold) ValidUntil() time.Time {
	h := l.h
	// Told as a distance from now: time.Time's monotonic reading stops in suspend,
	// the engine's clock does not.
	return h.engine().clock.Wall().Add(h.Until().Sub(h.Shard.Now()))
}

// Acked returns how many replicas had acknowledged the command from which ValidUntil
// counts: the grant, or the latest renewal or Extend. It is 0 if none were asked; see
// the option Acked.
func (l *Hold) Acked() int {
	h := l.h
	h.Shard.Lock()
	defer h.Shard.Unlock()
	return h.Hold.Acked()
}

// Done returns a channel that is closed when the hold ends, for any reason: Unlock was
// called, or the hold was lost. By then the contexts of the hold and of its re-entries
// have ended; the lock is released after that. Err and ValidUntil may say earlier that
// the hold has ended.
func (l *Hold) Done() <-chan struct{} {
	h := l.h
	h.Shard.Lock()
	defer h.Shard.Unlock()
	if h.done == nil {
		h.done = make(chan struct{})
		if h.IsTold() {
			close(h.done)
		}
	}
	return h.done
}

// Err returns nil while the lock is held, ErrReleased after Unlock was called, and a
// *LostError if the hold was lost. It looks at the clock, so it is right even
// immediately after the process was paused.
func (l *Hold) Err() error {
	h := l.h
	var fx machine.Effects
	h.Shard.Lock()
	err := h.Check(h.Shard.Now(), &fx)
	h.Shard.Unlock()
	h.Shard.Table.RunForUser(&fx)
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
// The hold's own Context ends when Unlock is called, and so do contexts made from it. You may
// pass one of them nevertheless: then the context that the hold's Context was made from
// bounds the waiting, and so does the deadline. A context that context.WithoutCancel made
// does not end, and bounds nothing.
func (l *Hold) Unlock(ctx context.Context) error {
	if ctx == nil { // then nothing bounds the waiting; and a lock must not stay for that
		l.UnlockAsync()
		return about(l.h.Name, reason.Because(ErrOutcomeUnknown, errNoContext))
	}
	u := l.h.engine().newUnlocking(false)
	l.h.unlock(u, true)
	return u.wait(ctx, l.h)
}

// UnlockAsync is Unlock without the waiting. It never blocks.
func (l *Hold) UnlockAsync() *Future[struct{}] { return l.unlockAsync(true) }

func (l *Hold) unlockAsync(byUser bool) *Future[struct{}] {
	u := l.h.engine().newUnlocking(true)
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
	return about(l.h.Name, l.h.extendBy(ctx, d))
}
