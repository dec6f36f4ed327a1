package engine

import (
	"context"
	"sync"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/watchdog"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
)

// observation is one acquisition as an Observer is told of it, and the hold that it was granted. It
// is nil where nobody observes. Its methods that a nil one may be asked for say so.
//
// Invariants:
//
//  1. AcquireEnd comes before HoldEnd. A hold may be lost before its Lock has returned. So while a
//     goroutine of the caller's is in Lock, or in Unlock, an end waits for it in ended:
//
//     the caller                       an event loop
//     Lock: waits                      the grant
//     .                                the lease is over: ended, as busy
//     AcquireEnd
//     no longer busy: HoldEnd
//
//  2. If queued, every call goes through Engine.calls, which keeps the order.
//
//  3. mu is taken under any lock, and none is taken under it but that of Engine.calls.
//
//  4. end is written by the goroutine that has the result, before finish; begun and Acquisition never change.
type observation struct {
	Acquisition
	home   *Engine
	queued bool // a future's, or a part's: no goroutine of the caller's makes the calls
	begun  clock.Instant
	held   clock.Instant // when it was granted
	end    AcquireEnd

	mu     sync.Mutex
	ctx    context.Context // what AcquireStart returned
	busy   bool
	gone   clock.Instant // when the hold has ended
	failed bool          // it was told as failed: what is granted anyway is given back, and no hold
	ended  *HoldEnd
}

// acquisition is what an Observer is told of it.
func (m Mutex) acquisition(opts []Option, once bool) Acquisition {
	a := Acquisition{Kind: m.key.Kind.String(), Name: m.name, Try: once}
	if m.key.Kind == kind.Permit {
		var o options
		for _, one := range opts {
			if one != nil {
				one.apply(&o)
			}
		}
		a.Permits = o.permits
	}
	return a
}

// The kinds of a whole.
const (
	kindMulti   = "multilock"
	kindRedLock = "redlock"
)

// isObserved reports whether there is an Observer. e may be nil.
func (e *Engine) isObserved() bool { return e != nil && e.observer != nil }

// observe tells the Observer that an acquisition begins, on the goroutine of its
// caller. It returns the context to use. ctx may be nil.
func (e *Engine) observe(ctx context.Context, a Acquisition, async bool) (context.Context, *observation) {
	o := &observation{Acquisition: a, home: e, queued: async, begun: e.clock.Stamp(), busy: true}
	if o.ctx = ctx; ctx == nil {
		o.ctx = context.Background()
	}
	if next := e.observer.AcquireStart(o.ctx, a); next != nil {
		o.ctx = next
	}
	if ctx == nil { // which is an error, soon
		return nil, o
	}
	return o.ctx, o
}

// observePart is the same for one of several locks, whose whole is observed by of. It blocks nobody.
func (m Mutex) observePart(of *observation, whole string, once bool) *observation {
	e := m.home
	if e.observer == nil {
		return nil
	}
	a := m.acquisition(nil, once)
	a.PartOf = whole
	o := &observation{Acquisition: a, home: e, queued: true, begun: e.clock.Stamp(), busy: true, ctx: context.Background()}
	if of != nil { // the whole may be of another engine, without an Observer
		o.ctx = of.context()
	}
	e.calls.Push(func() {
		if next := e.observer.AcquireStart(o.context(), a); next != nil {
			o.mu.Lock()
			o.ctx = next
			o.mu.Unlock()
		}
	})
	return o
}

// context is what AcquireStart has returned; nil if nobody observes.
func (o *observation) context() context.Context {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ctx
}

// grantedTo notes what one lock was granted to; nil if it was not. The caller holds the shard's lock.
func (o *observation) grantedTo(granted *lock.Hold) {
	o.held = o.home.clock.Stamp()
	if granted == nil {
		return
	}
	h := holdOf(granted)
	h.seen = o
	o.end.HandedOver, o.end.Reentry = h.Local(), h.Parent != nil
	o.end.Owner, o.end.Token = h.owner(), h.Hold.Token()
}

// finish tells the Observer the result, which the caller gets next. o may be nil.
func (o *observation) finish(err error) {
	if o == nil {
		return
	}
	now := o.home.clock.Stamp()
	if o.held == 0 {
		o.held = now
	}
	o.end.Err, o.end.Wait, o.end.Time = err, o.held.Sub(o.begun), o.home.clock.Wall().Add(-now.Sub(o.held))
	o.mu.Lock()
	o.failed = err != nil
	o.mu.Unlock()
	defer o.leave()
	o.call(func() {
		ctx := o.context()
		end := o.end
		end.Outcome = outcomeOf(ctx, err)
		o.home.observer.AcquireEnd(ctx, o.Acquisition, end)
	})
}

// finishAsync is finish for the future of a caller who does not wait.
func (o *observation) finishAsync(err error) {
	if o != nil && o.queued {
		o.finish(err)
	}
}

// finishSync is finish for a caller who waits, deferred: also if the context is the user's, and has
// panicked. If the Observer panics, nobody gets what was granted, so it is given back.
func finishSync[T any](o *observation, granted **T, err *error, giveBack func(*T)) {
	through := false
	defer func() {
		if !through && *granted != nil {
			giveBack(*granted)
		}
	}()
	why := *err
	if why == nil && *granted == nil {
		why = notAcquired(o.Name, lockerr.ErrAbandoned)
	}
	o.finish(why)
	through = true
}

func dropHold(h *Hold) { h.h.unlockAsync(false) }

// over tells that the hold has ended. o may be nil, and any lock may be held.
func (o *observation) over(why LostReason) {
	if o == nil {
		return
	}
	now := o.home.clock.Stamp()
	end := &HoldEnd{
		Reason: why, Time: o.home.clock.Wall(), Wait: o.held.Sub(o.begun), Held: now.Sub(o.held),
		Reentry: o.end.Reentry, Owner: o.end.Owner, Token: o.end.Token,
	}
	o.mu.Lock()
	o.gone = now
	tell := !o.busy && !o.failed
	if o.busy {
		o.ended = end
	}
	o.mu.Unlock()
	if tell {
		o.home.calls.Push(func() { o.tellEnd(end) })
	}
}

// enter has an end of the hold wait for leave: a goroutine of the user's is in Unlock.
func (o *observation) enter() {
	o.mu.Lock()
	o.busy = true
	o.mu.Unlock()
}

// leave tells an end that has waited. It reports whether that was one by Unlock.
func (o *observation) leave() (unlocked bool) {
	o.mu.Lock()
	end, failed := o.ended, o.failed
	o.busy, o.ended = false, nil
	o.mu.Unlock()
	if end == nil || failed {
		return false
	}
	o.call(func() { o.tellEnd(end) })
	return end.Reason == 0
}

// unlock runs an Unlock of the user's up to when the release is sent. It reports whether that has
// ended the hold: then released follows. If a context of the user's panics, the panic goes on.
func (o *observation) unlock(send func()) (unlocked bool) {
	o.enter()
	defer func() { unlocked = o.leave() }()
	send()
	return false
}

// released tells the result of an Unlock, on the goroutine of a caller who has waited for it.
func (o *observation) released(err error, waited bool) {
	now := o.home.clock.Stamp()
	o.mu.Lock()
	end := ReleaseEnd{Err: err, Time: o.home.clock.Wall(), Took: now.Sub(o.gone)}
	o.mu.Unlock()
	tell := func() { o.home.observer.ReleaseEnd(o.context(), o.Acquisition, end) }
	if waited {
		o.call(tell)
	} else {
		o.home.calls.Push(tell)
	}
}

func (o *observation) tellEnd(end *HoldEnd) {
	o.home.observer.HoldEnd(o.context(), o.Acquisition, *end)
}

func (o *observation) call(f func()) {
	if o.queued {
		o.home.calls.Push(f)
		return
	}
	f()
}

// observe notes that several locks were granted, and has the end of the whole reported.
func (g *group) observe(o *observation) {
	if o == nil {
		return
	}
	o.held = o.home.clock.Stamp()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen = o; g.ending != nil {
		o.over(lossOf(g.ending))
	}
}

// unlockGroup is Unlock of several locks.
func unlockGroup(ctx context.Context, whole hold, unlockAll func(byUser bool) *groupUnlock) error {
	u, unlocked := unlockObserved(whole, unlockAll)
	err := u.wait(ctx, whole)
	if unlocked {
		whole.observed().released(err, true)
	}
	return err
}

// unlockGroupAsync is UnlockAsync of several locks.
func unlockGroupAsync(whole hold, unlockAll func(byUser bool) *groupUnlock) *Future[struct{}] {
	u, unlocked := unlockObserved(whole, unlockAll)
	if unlocked {
		u.fut.onComplete(func(_ struct{}, err error) { whole.observed().released(err, false) })
	}
	return &u.fut
}

func unlockObserved(whole hold, unlockAll func(byUser bool) *groupUnlock) (u *groupUnlock, unlocked bool) {
	o := whole.observed()
	if o == nil {
		return unlockAll(true), false
	}
	unlocked = o.unlock(func() { u = unlockAll(true) })
	return u, unlocked
}

// lossOf is the reason of a hold's end.
func lossOf(why error) LostReason {
	if lost, ok := why.(*LostError); ok {
		return lost.Reason
	}
	return 0
}

func (e *Engine) renewed(r watchdog.BatchResult) {
	if r.Err != nil {
		e.logNotRenewed(r)
	}
	if e.observer == nil {
		return
	}
	end := RenewEnd{Server: e.table.Client.AddrOf(uint64(r.Slot)), Holds: r.Holds, Lag: r.Lag, RTT: r.RTT, Err: r.Err}
	e.calls.Push(func() { e.observer.RenewEnd(end) })
}

func (e *Engine) connChanged(s resp.State) {
	if e.observer == nil {
		return
	}
	change := ConnChange{Addr: s.Addr, Role: s.Role.String(), Lane: s.Lane, Up: s.Up, Err: s.Err}
	e.calls.Push(func() { e.observer.ConnChange(change) })
}
