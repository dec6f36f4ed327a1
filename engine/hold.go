package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Hold is a lock that is held, several that are held as one (MultiLock), one on a majority of
// servers (QuorumLock), or permits of a PermitSemaphore. All methods may be called from any
// goroutine: a hold belongs to the code that has it, not to the goroutine that took it.
//
// You must unlock every Hold, even one of several locks that has lost one of them. If you drop it,
// the lock stays held, and is renewed until the engine is closed. A hold under the watchdog that is
// dropped is reported to Config.Logger and counted in Stats.Leaked once it has been renewed and the
// garbage collector has found it. A re-entry is not reported, because it ends with the hold that it
// re-enters. A context of Hold.Context keeps the Hold in use until the context that it was made
// from has ended. Do not copy a Hold: only its pointer is watched. (go vet finds copies.)
type Hold struct {
	_ noCopy
	h hold
}

// noCopy has go vet report that a value is copied, as it does of a sync.Mutex. It is the first field
// of what has it: as the last one it would take room.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// hold is what is behind a Hold: a *lockHold, a *severalHold, or a part of these.
// The methods are what those of Hold of the same name say.
type hold interface {
	name() string
	owner() string
	token() int64
	permitIDs() []string
	servers() []string
	acked() int
	validUntil() time.Time
	ended() <-chan struct{}
	err() error
	unlock(context.Context) error
	unlockAsync(byUser bool) *Future[struct{}]
	extend(context.Context, time.Duration) error
	parts() []*lockHold
	describe() string

	// home is the engine of the first lock.
	home() *Engine
	// observed is what an Observer is told of it, nil if there is none.
	observed() *observation
	// patience is how long a release is waited for that has no context of its own.
	patience() time.Duration
	// locks are the locks that are held.
	locks() []*lockHold
	// find returns the hold of a name at an engine, nil if there is none.
	find(*Engine, driver.Key) *lockHold
	// attach makes c end with the hold, or returns why that has ended.
	attach(c *heldContext) error
	// detach undoes it: c has ended.
	detach(c *heldContext)
}

// Name returns the lock's name as you gave it; for a MultiLock, the name of the first lock and how
// many more there are.
func (l *Hold) Name() string { return l.h.name() }

// Owner returns the owner, as the lock's hash on the server has it. Holds that hand the lock
// over to each other (see Config.HandOverTime) have the same one, one after the other. The plain readers of
// a process have the same one, and so do a hold and its re-entries. It is empty for a
// MultiLock and a QuorumLock, whose Parts have one each, and for permits; see PermitIDs.
func (l *Hold) Owner() string { return l.h.owner() }

// Token returns the fencing token of a hold of a FencedMutex, or of a re-entry of one, through
// whatever Mutex: at least 1, and higher than that of every earlier hold of the lock in any
// process. For every other hold it is 0; the Parts of a MultiLock have their own.
func (l *Hold) Token() int64 { return l.h.token() }

// PermitIDs returns the ids of the permits of a PermitSemaphore, as Redisson has them: 32
// hexadecimal digits each. For every other hold it is empty.
func (l *Hold) PermitIDs() []string { return l.h.permitIDs() }

// Servers returns the addresses, as configured, of the servers that certainly have the lock now.
// For a QuorumLock their number may change while it is held.
func (l *Hold) Servers() []string { return l.h.servers() }

// ValidUntil returns the instant until which the lock is certainly yours if nothing
// renews it any more. It is authoritative: Done may follow a little later. The margin
// (Config.Margin) is already subtracted. Once the hold has ended, for whatever reason,
// ValidUntil is in the past. For a MultiLock it is that of the lock that ends first, for a
// QuorumLock the instant until which a majority of the servers certainly has the lock.
func (l *Hold) ValidUntil() time.Time { return l.h.validUntil() }

// Acked returns how many replicas had acknowledged the command from which ValidUntil
// counts: the grant, or the latest renewal or Extend. It is 0 if none were asked; see
// the option Acked. For a MultiLock it is the least of its locks, for a QuorumLock the least of
// the best majority.
func (l *Hold) Acked() int { return l.h.acked() }

// Done returns a channel that is closed when the hold ends, for any reason: Unlock was
// called, or the hold was lost. By then the contexts of the hold and of its re-entries
// have ended; the lock is released after that. Err and ValidUntil may say earlier that
// the hold has ended. A MultiLock ends with the first of its locks, a QuorumLock when it can no
// longer prove that a majority of the servers has it.
func (l *Hold) Done() <-chan struct{} { return l.h.ended() }

// Err returns nil while the lock is held, ErrReleased after Unlock was called, and a
// *LostError if the hold was lost: that of the first lock of a MultiLock, with its name. It
// looks at the clock, so it is right even immediately after the process was paused.
func (l *Hold) Err() error { return l.h.err() }

// Unlock releases the lock, from any goroutine. Renewal stops when it is called.
//
// ctx bounds the waiting, never whether the release is sent. If ctx ends first, the error Is
// ErrOutcomeUnknown and has the cause, and the release continues in the background until the lease
// ends. A second call joins a release that is under way. ErrNotHeld: the lock was unlocked before.
// ErrLost: the hold was lost before Unlock was called, or the server no longer had it.
//
// If others of this process wait, Unlock may hand the lock over to the first of them (see
// Config.HandOverTime). Then it returns nil without asking the server. If the key was deleted
// meanwhile, the next holder gets ErrLost; this Unlock still returns nil.
//
// The locks of a MultiLock are released at the same time, and the error joins theirs. Unlock of
// a QuorumLock returns when a majority of the servers has released it; the others follow in the
// background.
//
// The hold's own Context ends when Unlock is called, and so do contexts made from it. You may
// pass one of them anyway: then the context that the hold's Context was made from
// bounds the waiting, and so does the deadline. A context from context.WithoutCancel never ends,
// so it sets no limit.
func (l *Hold) Unlock(ctx context.Context) error {
	err := l.h.unlock(ctx)
	runtime.KeepAlive(l) // or it is garbage, and reported, before its watch has ended
	return err
}

// UnlockAsync is Unlock without the waiting. It never blocks.
func (l *Hold) UnlockAsync() *Future[struct{}] {
	f := l.h.unlockAsync(true)
	runtime.KeepAlive(l)
	return f
}

func (l *Hold) giveBack() { l.h.unlockAsync(false) }

// Extend makes a fixed lease last d from now, if that is longer than what is left of
// it: it never shortens a lease. It waits for the server's answer as long as ctx lives,
// but at most Config.CommandTimeout, and Config.AckTimeout on top of that if replicas must
// acknowledge. After that the error Is ErrOutcomeUnknown. It returns ErrInvalid for a
// hold under the watchdog, which needs no Extend, and for a re-entry without a Lease of
// its own, which lasts as long as the hold that it re-enters.
//
// The locks of a MultiLock are extended at the same time; the error joins those of the locks
// that were not. For a QuorumLock it returns when a majority of the servers has done so. After
// an error the lease is what it was, or longer: see ValidUntil.
func (l *Hold) Extend(ctx context.Context, d time.Duration) error { return l.h.extend(ctx, d) }

// Parts returns the locks of a MultiLock in their order, or of a QuorumLock those that its servers
// have at this moment; nil for every other hold. Each describes one lock: its Owner, Token,
// ValidUntil and so on. Unlock and Extend of a part are ErrInvalid: use the whole.
func (l *Hold) Parts() []*Hold {
	all := l.h.parts()
	if all == nil {
		return nil
	}
	parts := make([]*Hold, len(all))
	for i, one := range all {
		parts[i] = &Hold{h: partHold{one, l.h}}
	}
	return parts
}

// String returns the name and the owner, or what the hold is of. It does not say whether it is
// still held.
func (l *Hold) String() string {
	if l == nil || l.h == nil {
		return "Hold(none)"
	}
	return "Hold(" + l.h.describe() + ")"
}

// holdsKey is where a context carries its holds.
type holdsKey struct{}

// heldContext is what Context adds to a context: a hold, and those that the parent
// context carried before. It keeps the Hold alive for as long as the context is.
type heldContext struct {
	hold   *Hold // nil: Detach, no lock is re-entered for what is further out
	outer  *heldContext
	parent context.Context
	cancel context.CancelCauseFunc
	stop   func() bool // of the AfterFunc that forgets it
	over   bool        // it ended by itself; guarded by the lock of the hold
}

// Context returns a context that ends with parent or with the hold, whichever is first.
// It carries the hold: acquiring the same name under it, on the same engine, re-enters.
// This replaces the identity of the thread in other languages. A re-entered hold has
// the same owner on the server and a count that is one higher; Unlock gives one back.
// The cause of the context's end is ErrReleased or a *LostError.
//
// However the hold ends, its contexts end first, and only then is the lock released. So
// the next holder finds no context of this hold alive, nor one that was made from it
// with package context. The goroutine that calls Unlock, or that finds with Err, Extend
// or Context that the hold is over, ends up to 64 contexts itself. A goroutine of the
// engine ends larger numbers, and the contexts of holds that end by themselves. So a
// large tree of contexts delays the release of its own lock and nothing else. So does a
// parent of your own type whose Done or Value blocks.
//
// The context of several locks carries each of them, and that of permits nothing.
//
// The hold keeps each of its contexts until that has ended. So for the many tasks of a long
// hold make one context, or give each task a parent that you cancel when the task is done.
//
// A hold has at most one live re-entry at a time: a second acquisition under the same
// context waits until the first is unlocked. So goroutines that share the context
// exclude each other. When a hold ends, its re-entries end. For work that should not
// re-enter, see Detach.
//
// A nil parent gives a context that ends with the hold alone. It carries this hold and no other, and it
// has the values of the context that the Observer's AcquireStart returned for it: of a trace, for
// instance.
func (l *Hold) Context(parent context.Context) context.Context {
	if parent == nil {
		parent = context.Background()
		if seen := l.h.observed().context(); seen != nil {
			parent = Detach(context.WithoutCancel(seen))
		}
	}
	c := &heldContext{hold: l, parent: parent}
	inner := c.make(&l.h.home().world)
	if why := l.h.attach(c); why != nil {
		c.End(why)
	}
	return inner
}

// make makes the context.
func (c *heldContext) make(w *env.Env) context.Context {
	c.outer = heldIn(c.parent)
	inner, cancel := context.WithCancelCause(context.WithValue(c.parent, holdsKey{}, c))
	c.cancel = cancel
	// A context that ends before its hold is forgotten, or a long hold would
	// gather them.
	c.stop = w.AfterFunc(inner, c.forget)
	return inner
}

// End implements lock.Context: it ends the context with its hold. When it returns, all
// contexts of the standard library that were made from it have ended, too.
func (c *heldContext) End(why error) {
	c.stop() // or each context would get a goroutine, to forget what is forgotten
	c.cancel(why)
}

// forget takes out a context that has ended before its hold: but only when the contexts
// made from it have ended too, since the hold's release no longer waits for them:
//
//	the parent's cancel            forget            Unlock
//	ends this one, starts forget
//	                               takes it out
//	                                                 no contexts: release
//	... goes on to its children
func (c *heldContext) forget() {
	c.cancel(nil) // waits for the cancel that is under way
	c.hold.h.detach(c)
}

// Detach returns a context without the holds that ctx carries. Use it for work that is
// started under a lock and should wait for that lock as any other caller does. A nil
// ctx gives a context that has already ended, with ErrInvalid as its cause.
func Detach(ctx context.Context) context.Context {
	if ctx == nil {
		return endedContext()
	}
	detached := &heldContext{outer: heldIn(ctx)}
	return context.WithValue(ctx, holdsKey{}, detached)
}

// endedContext takes the place of a nil context: its users fail, with the reason.
func endedContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(lockerr.ErrNoContext)
	return ctx
}

// reenters reports whether m may re-enter parent, which may be nil, with these options: why
// not, if not.
func (m Mutex) reenters(parent *lockHold, o options) error {
	switch {
	case parent == nil:
		return nil
	case o.nonReentrant:
		return ErrReentry
	case m.key.Kind == kind.Fenced && parent.token() == 0:
		return errNoToken
	case m.key.Kind == kind.Write && kind.Kind(parent.Kind) == kind.Read:
		return errUpgrade
	}
	return nil
}

var errNoToken = lockerr.Wrap(ErrKindConflict, errors.New("the context carries a hold of this lock that has no fencing token: take that with a FencedMutex, too"))

var errUpgrade = lockerr.Wrap(ErrReentry, errors.New("the context carries a read lock of this name, which the writer would wait for: unlock that first"))

// heldIn returns what ctx carries, nil if nothing. It runs code of the user, if ctx is one of the
// user's own types.
func heldIn(ctx context.Context) *heldContext {
	c, _ := ctx.Value(holdsKey{}).(*heldContext)
	return c
}

// carried returns the innermost live hold of that name that a lock of the kind re-enters. If there is
// none it returns another hold of the lock, and nil if there is none of that either. It runs no
// code of the user. c may be nil.
func (c *heldContext) carried(e *Engine, k driver.Key) *lockHold {
	var other *lockHold
	for ; c != nil && c.hold != nil; c = c.outer {
		h := c.hold.h.find(e, k)
		if h == nil {
			continue
		}
		h.Shard().Lock()
		found := h.InnermostLive()
		ok := found != nil && found.Entry.Name == k.Name
		h.Shard().Unlock()
		switch {
		case !ok:
		case k.Kind.Reenters(kind.Kind(found.Kind)):
			return holdOf(found)
		case other == nil && k.Kind.Family() == kind.Kind(found.Kind).Family() && k.Kind.Traits().Entries != lock.PerGrant:
			other = holdOf(found)
		}
	}
	return other
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

// carriedHere are the holds of this engine that c carries.
func (c *heldContext) carriedHere(e *Engine) (all []inspect.Carried) {
	for ; c != nil && c.hold != nil; c = c.outer {
		for _, h := range c.hold.h.locks() {
			h.Shard().Lock()
			live, name, owner := h.IsLive(), h.Entry.Name, h.Owner().String()
			h.Shard().Unlock()
			if live && h.home() == e {
				all = append(all, inspect.Carried{Name: []byte(name), Owner: owner, Kind: kind.Kind(h.Kind).String()})
			}
		}
	}
	return all
}
