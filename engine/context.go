package engine

import (
	"context"
	"errors"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

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

// awaitRelease waits for the release of the whole, whose locks are those, as long as ctx lives. If it returns a cause
// nobody waits any more. If ctx has ended only with the hold, as one does that was made from its Context, the
// context that this was made from bounds the waiting, and so does ctx's deadline. Contexts of re-entries
// are the hold's, too.
func (e *Engine) awaitRelease(ctx context.Context, released <-chan struct{}, whole hold, locks []*lockHold) (cause error) {
	if e.world.Wait(released, ctx.Done(), nil) == 0 {
		return nil
	}
	if cause = context.Cause(ctx); cause != ErrReleased { // without a lock: it may be the user's context
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
	return context.Cause(outside)
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
