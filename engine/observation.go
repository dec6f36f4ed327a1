package engine

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

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
//  1. AcquireEnd comes before HoldEnd. A hold may be lost before its Lock has returned. Then Lock
//     reports the end:
//
//     the caller                       an event loop
//     Lock: waits                      the grant
//     .                                the lease is over: not reported here
//     AcquireEnd
//     HoldEnd
//
//  2. The Unlock that ends a hold reports that, and its own result. It claims the end under the lock
//     under which the hold ends (that of the shard, or of the group), so no other Unlock reports it:
//
//     Unlock                           another Unlock
//     claims, ends the hold
//     .                                it has ended: reports nothing, whatever it returns
//     sends, HoldEnd
//     the answer: ReleaseEnd
//
//  3. If queued, every call goes through Engine.calls, which keeps the order. So does an end that neither
//     Lock nor Unlock reports.
//
//  4. What its result is, is written by the goroutine that has it, before finish; gone and lost by the one that ends the
//     hold, before state is hasEnded. Acquisition never changes.
//
// Each acquisition has one, so it is small, and no text of it is made before somebody asks.
type observation struct {
	Acquisition
	home *Engine

	// ctx is what AcquireStart returned. That of a part is for the goroutine of Engine.calls alone; it is nil if there
	// was no AcquireStart, which did not fit into the queue, or panicked: then nothing else is reported.
	ctx context.Context

	asked, granted, gone clock.Instant // gone: when the hold has ended

	hold     *lockHold // that was granted; nil of several, and of permits of a Semaphore
	rare     rareHold  // of hold
	token    int64
	attempts uint16

	queued         bool // a future's, or a part's: no goroutine of the caller's makes the calls
	failed         bool
	local, reentry bool       // see AcquireEnd.HandedOver
	releasedAtOnce bool       // the release needed no answer
	lost           LostReason // why, if it was lost
	state          atomic.Uint32
}

// The states of an observation: who reports the end of the hold.
const (
	endClaimed   uint32 = iota // Lock, which has no result yet, or an Unlock
	endUnclaimed               // whoever ends it, to the queue
	hasEnded                   // it has ended
)

// acquisition is what an Observer is told of it.
func (m Mutex) acquisition(once bool) Acquisition {
	return Acquisition{Kind: m.key.Kind.String(), Name: m.name, Permits: m.permits, Try: once}
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
	o := &observation{Acquisition: a, home: e, queued: async}
	o.start(ctx)
	o.asked = e.clock.Stamp()
	if ctx == nil { // which is an error, soon
		return nil, o
	}
	return o.ctx, o
}

func (o *observation) start(ctx context.Context) {
	if ctx == nil {
		ctx = context.Background()
	}
	o.ctx = cmp.Or(o.home.observer.AcquireStart(ctx, o.Acquisition), ctx)
}

// observePart is what an Observer will be told of one of several locks, once startPart is called.
func (m Mutex) observePart(whole string, once bool) *observation {
	if m.home.observer == nil {
		return nil
	}
	o := &observation{Acquisition: m.acquisition(once), home: m.home, queued: true}
	o.PartOf = whole
	return o
}

// startPart tells the Observer that the acquisition of a part begins. It blocks nobody. o may be nil, and so may
// the observation of the whole, which may be of another engine.
func (o *observation) startPart(whole *observation) {
	if o != nil {
		o.home.report(func() { o.start(whole.context()) })
	}
}

// context is what AcquireStart has returned; nil if nobody observes.
func (o *observation) context() context.Context {
	if o == nil {
		return nil
	}
	return o.ctx
}

// onResult notes the result of a request; granted is nil if it failed. The caller holds the shard's lock.
func (o *observation) onResult(a *lock.Request, granted *lock.Hold) {
	x := a.Extra()
	o.attempts, o.asked, o.granted = a.Attempts, x.Asked, x.Granted
	if granted == nil {
		return
	}
	h := holdOf(granted)
	o.rare.observed, h.rare = o, &o.rare
	o.hold, o.token = h, h.Hold.Token()
	o.local, o.reentry = h.Local(), h.Parent != nil
}

// wallReading is a reading of both clocks. The instant of an event is known. To read the wall clock, too, takes as long as
// all the rest of the event, so that is read once a second.
type wallReading struct {
	at    clock.Instant
	ahead int64 // of an instant, in nanoseconds of Unix
}

// timeOf is an instant as a time of the wall clock.
func (e *Engine) timeOf(i clock.Instant) time.Time {
	r := e.wall.Load()
	if r == nil || i > r.at.Add(time.Second) {
		now := e.clock.Stamp()
		r = &wallReading{now, e.clock.Wall().UnixNano() - int64(now)}
		e.wall.Store(r)
	}
	return time.Unix(0, int64(i)+r.ahead)
}

// finish tells the Observer the result, which the caller gets next. o may be nil.
func (o *observation) finish(err error) {
	if o == nil {
		return
	}
	if err != nil || o.granted == 0 {
		o.granted = o.home.clock.Stamp() // of the failure
	}
	if o.asked == 0 {
		o.asked = o.granted // it failed before it was admitted
	}
	o.failed = err != nil
	defer func() { // even if the Observer panics
		if !o.state.CompareAndSwap(endClaimed, endUnclaimed) && err == nil {
			o.reportHoldEnd() // it was lost meanwhile
		}
	}()
	if o.queued {
		o.home.report(func() { o.acquireEnd(err) })
	} else {
		o.acquireEnd(err)
	}
}

func (o *observation) acquireEnd(err error) {
	if o.ctx == nil {
		return
	}
	o.home.observer.AcquireEnd(o.ctx, o.Acquisition, AcquireEnd{
		Outcome: outcomeOf(o.ctx, err), Err: err, Time: o.home.timeOf(o.granted), Wait: o.wait(), Attempts: int(o.attempts),
		HandedOver: o.local, Reentry: o.reentry, Token: o.token, hold: o.hold,
	})
}

func (o *observation) wait() time.Duration { return o.granted.Sub(o.asked) }

// finishAsync is finish for the future of a caller who does not wait.
func (o *observation) finishAsync(err error) {
	if o != nil && o.queued {
		o.finish(err)
	}
}

// finishSync is finish for a caller who waits, deferred: also if the context is the user's, and has
// panicked. If the Observer panics, nobody gets what was granted, so it is given back.
func finishSync[T any](o *observation, granted **T, err *error) {
	through := false
	defer func() {
		if !through && *granted != nil {
			drop(*granted)
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

// over notes that the hold has ended, and reports it unless Lock or an Unlock does. Nothing is reported of what
// failed and was granted anyway. at is 0 if the time is not known. o may be nil, and any lock may be held.
func (o *observation) over(why LostReason, at clock.Instant) {
	if o == nil {
		return
	}
	if o.gone, o.lost = at, why; at == 0 {
		o.gone = o.home.clock.Stamp()
	}
	if o.state.Swap(hasEnded) == endUnclaimed && !o.failed {
		o.home.report(o.holdEnd)
	}
}

// claim reports whether the hold is held still. Then the caller ends it, under the lock that it has now, and calls
// reportHoldEnd after that. o may be nil.
func (o *observation) claim() bool {
	return o != nil && o.state.CompareAndSwap(endUnclaimed, endClaimed)
}

// reportHoldEnd reports the end of the hold, on the goroutine of a caller. o may be nil.
func (o *observation) reportHoldEnd() {
	switch {
	case o == nil:
	case o.queued:
		o.home.report(o.holdEnd)
	default:
		o.holdEnd()
	}
}

func (o *observation) holdEnd() {
	if o.ctx == nil {
		return
	}
	at := max(o.gone, o.granted) // a lease may be cut to an end before its grant
	o.home.observer.HoldEnd(o.ctx, o.Acquisition, HoldEnd{
		Reason: o.lost, Time: o.home.timeOf(at), Wait: o.wait(), Held: at.Sub(o.granted), Reentry: o.reentry, Token: o.token, hold: o.hold,
	})
}

// released reports the result of the Unlock that has ended the hold. If that has waited for it, this is its
// goroutine. o may be nil.
func (o *observation) released(err error, waited bool) {
	if o == nil || o.lost != 0 { // it found that the hold was lost
		return
	}
	now := o.gone
	if !o.releasedAtOnce {
		now = o.home.clock.Stamp()
	}
	end := ReleaseEnd{Err: err, Time: o.home.timeOf(now), Took: now.Sub(o.gone)}
	if waited && !o.queued {
		o.home.observer.ReleaseEnd(o.ctx, o.Acquisition, end)
		return
	}
	o.home.report(func() { o.home.observer.ReleaseEnd(o.ctx, o.Acquisition, end) })
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
	if e.background == nil {
		return
	}
	end := RenewEnd{Server: e.table.Client.AddrOf(uint64(r.Slot)), Holds: r.Holds, Lag: r.Lag, RTT: r.RTT, Err: r.Err}
	e.report(func() { e.background.RenewEnd(end) })
}

func (e *Engine) connChanged(s resp.State) {
	if e.background == nil {
		return
	}
	change := ConnChange{Addr: s.Addr, Role: s.Role.String(), Lane: s.Lane, Up: s.Up, Err: s.Err}
	e.report(func() { e.background.ConnChange(change) })
}
