package engine

import (
	"context"
	"sync"
	"time"

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
//     goroutine of the caller's is in Lock, or in Unlock, it is busy, and reports the end:
//
//     the caller                       an event loop
//     Lock: waits                      the grant
//     .                                the lease is over; busy, so that is all
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
	wall   time.Time     // then
	held   clock.Instant // when it was granted
	end    AcquireEnd

	extra lock.Extra // of the request: here it costs no allocation of its own

	ctx context.Context // what AcquireStart returned; of a part only the goroutine of Engine.calls has it

	mu    sync.Mutex
	busy  bool // see 1
	phase phase
	gone  clock.Instant // when the hold has ended
	lost  LostReason    // why, if it was lost
}

// phase is how far the end of a hold is reported.
type phase uint8

const (
	endsLater  phase = iota // it is held, or not granted yet
	toReport                // by leave
	isReported              // to the Observer, or to its queue
)

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
	o := &observation{Acquisition: a, home: e, queued: async, begun: e.clock.Stamp(), wall: e.clock.Wall(), busy: true}
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
	o := &observation{Acquisition: a, home: e, queued: true, begun: e.clock.Stamp(), wall: e.clock.Wall(), busy: true, ctx: context.Background()}
	if of != nil { // the whole may be of another engine, without an Observer
		o.ctx = of.ctx
	}
	e.report(func() {
		if next := e.observer.AcquireStart(o.ctx, a); next != nil {
			o.ctx = next
		}
	})
	return o
}

// context is what AcquireStart has returned; nil if nobody observes.
func (o *observation) context() context.Context {
	if o == nil {
		return nil
	}
	return o.ctx
}

// grantedTo notes what one lock was granted to; nil if it was not. The caller holds the shard's lock.
func (o *observation) grantedTo(granted *lock.Hold) {
	o.held = o.home.clock.Stamp()
	if granted == nil {
		return
	}
	h := holdOf(granted)
	h.rare = &rareHold{observed: o}
	o.end.HandedOver, o.end.Reentry = h.Local(), h.Parent != nil
	o.end.Owner, o.end.Token = h.owner(), h.Hold.Token()
}

// at is an instant as a time of the wall clock, which is read once: it takes as long as all the rest of an
// event.
func (o *observation) at(i clock.Instant) time.Time { return o.wall.Add(i.Sub(o.begun)) }

// finish tells the Observer the result, which the caller gets next. o may be nil.
func (o *observation) finish(err error) {
	if o == nil {
		return
	}
	if o.held == 0 {
		o.held = o.home.clock.Stamp()
	}
	o.end.Err, o.end.Wait, o.end.Time = err, o.held.Sub(o.begun), o.at(o.held)
	defer o.leave()
	if o.queued {
		o.home.report(o.acquireEnd)
	} else {
		o.acquireEnd()
	}
}

func (o *observation) acquireEnd() {
	end := o.end
	end.Outcome = outcomeOf(o.ctx, end.Err)
	o.home.observer.AcquireEnd(o.ctx, o.Acquisition, end)
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

// finishFuture is finish for a future that was not made, deferred: the context, which is the user's, has panicked.
func finishFuture[T any](o *observation, fut **Future[T]) {
	if *fut == nil && o != nil {
		o.finish(notAcquired(o.Name, lockerr.ErrAbandoned))
	}
}

func dropHold(h *Hold) { h.h.unlockAsync(false) }

// over notes that the hold has ended, and reports it unless a goroutine of the caller's will. o may be nil,
// and any lock may be held.
func (o *observation) over(why LostReason) {
	if o == nil {
		return
	}
	now := o.home.clock.Stamp()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone, o.lost, o.phase = now, why, toReport
	if !o.busy && o.reportsLocked() {
		o.home.report(o.holdEnd)
	}
}

// reportsLocked reports whether the end of the hold is to be reported now: once, and not of what failed
// and was granted anyway.
func (o *observation) reportsLocked() bool {
	if o.phase != toReport {
		return false
	}
	o.phase = isReported
	return o.end.Err == nil
}

// enter has an end of the hold wait for leave: a goroutine of the user's is in Unlock.
func (o *observation) enter() {
	o.mu.Lock()
	o.busy = true
	o.mu.Unlock()
}

// leave reports an end that has waited. It returns whether that was one by Unlock.
func (o *observation) leave() (unlocked bool) {
	o.mu.Lock()
	o.busy = false
	reports := o.reportsLocked()
	o.mu.Unlock()
	if !reports {
		return false
	}
	if o.queued {
		o.home.report(o.holdEnd)
	} else {
		o.holdEnd()
	}
	return o.lost == 0
}

func (o *observation) holdEnd() {
	o.home.observer.HoldEnd(o.ctx, o.Acquisition, HoldEnd{
		Reason: o.lost, Time: o.at(o.gone), Wait: o.end.Wait, Held: o.gone.Sub(o.held),
		Reentry: o.end.Reentry, Owner: o.end.Owner, Token: o.end.Token,
	})
}

// unlock runs an Unlock of the user's up to when the release is sent. It reports whether that has
// ended the hold: then released follows. If a context of the user's panics, the panic goes on.
func (o *observation) unlock(send func()) (unlocked bool) {
	o.enter()
	defer func() { unlocked = o.leave() }()
	send()
	return false
}

// released reports the result of an Unlock, on the goroutine of a caller who has waited for it.
func (o *observation) released(err error, waited bool) {
	now := o.home.clock.Stamp()
	end := ReleaseEnd{Err: err, Time: o.at(now), Took: now.Sub(o.gone)}
	if waited && !o.queued {
		o.home.observer.ReleaseEnd(o.ctx, o.Acquisition, end)
		return
	}
	o.home.report(func() { o.home.observer.ReleaseEnd(o.ctx, o.Acquisition, end) })
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
	e.report(func() { e.observer.RenewEnd(end) })
}

func (e *Engine) connChanged(s resp.State) {
	if e.observer == nil {
		return
	}
	change := ConnChange{Addr: s.Addr, Role: s.Role.String(), Lane: s.Lane, Up: s.Up, Err: s.Err}
	e.report(func() { e.observer.ConnChange(change) })
}
