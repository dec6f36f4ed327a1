package engine

import (
	"context"
	"time"
)

// Hold is a lock that is held. All methods may be called from any goroutine; a
// hold belongs to whoever has it, not to the goroutine that took it.
//
// A Hold must be unlocked. One that is dropped stays held, renewed, until the
// engine is closed; it is reported to Config.Logger and counted in Stats.Leaked, once
// it has been renewed and the garbage collector has found it. A context of
// Hold.Context that is in use keeps the Hold in use, too.
type Hold struct{ h *holding }

// Name returns the lock's name as it was given.
func (l *Hold) Name() string { return l.h.name }

// Owner returns the owner as it stands in the lock's hash on the server.
func (l *Hold) Owner() string { return l.h.res.owner(l.h.id).String() }

// ValidUntil returns the instant until which the lock is certainly ours, if
// nothing renews it any more. It is authoritative: Done may follow a little later.
// The margin (Config.Margin) is taken off already. In the past once the hold has
// ended.
func (l *Hold) ValidUntil() time.Time {
	h := l.h
	// Told as a distance from now: time.Time's monotonic reading stops in suspend,
	// the engine's clock does not.
	return h.eng.clock.Wall().Add(h.until().Sub(h.eng.clock.Now()))
}

// Acked returns how many replicas had acknowledged what ValidUntil counts from: the
// grant, or the latest renewal or Extend. It is 0 if nobody was asked to; see Acked,
// the option.
func (l *Hold) Acked() int {
	h := l.h
	h.sh.mu.Lock()
	defer h.sh.mu.Unlock()
	if h.extra == nil {
		return 0
	}
	return h.extra.acked
}

// Done returns a channel that is closed when the hold ends, for any reason: Unlock
// was called, or the hold was lost.
func (l *Hold) Done() <-chan struct{} {
	h := l.h
	h.sh.mu.Lock()
	defer h.sh.mu.Unlock()
	if h.done == nil {
		h.done = make(chan struct{})
		if h.ending != nil {
			close(h.done)
		}
	}
	return h.done
}

// Err returns nil while the lock is held, ErrReleased after Unlock was called, and
// a *LostError if the hold was lost. It looks at the clock: after a pause of the
// process it tells the truth at once.
func (l *Hold) Err() error {
	h := l.h
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

// Unlock releases the lock, from any goroutine. Renewal stops when it is called.
//
// ctx bounds the waiting, never whether the release is sent: if ctx ends first the
// error Is ErrOutcomeUnknown, with the cause, and the release goes on in the
// background until the lease is over. Calling again joins what is under way.
// ErrNotHeld: it was unlocked before. ErrLost: the hold was lost before Unlock was
// called, or the server did not have it any more.
//
// The hold's own Context ends the moment Unlock is called. It may be given all the
// same: then what it was made from bounds the waiting, and its deadline.
func (l *Hold) Unlock(ctx context.Context) error {
	ctx, cancel := l.h.outside(ctx)
	defer cancel()
	u := l.h.eng.newUnlocking(false)
	l.h.unlock(u)
	return u.wait(ctx, l.h)
}

// UnlockAsync is Unlock without the waiting. It never blocks.
func (l *Hold) UnlockAsync() *Future[struct{}] {
	u := l.h.eng.newUnlocking(true)
	u.eng = l.h.eng
	l.h.unlock(u)
	return &u.fut
}

// Extend makes a fixed lease last d from now, if that is longer than what it has
// left; a lease is never shortened. It waits for the server's answer as long as
// ctx lives, at most Config.CommandTimeout while there is no connection. A hold
// under the watchdog needs no Extend: ErrInvalid.
func (l *Hold) Extend(ctx context.Context, d time.Duration) error {
	return l.h.extendBy(ctx, d)
}
