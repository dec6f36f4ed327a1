package engine

import (
	"context"

	"github.com/pawl-lock/pawl/engine/internal/ctxwatch"
	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// acquisition is one Lock, TryLock or LockAsync: the core's request for it, and the caller
// who waits, or the future. It belongs to the receiver of the result once it has ended; until
// then it is guarded by the shard's lock.
type acquisition struct {
	driver.Request
	fut   Future[*Hold] // what LockAsync returns; its value and err are the verdict of all
	watch ctxwatch.Slot[*acquisition]
}

// home is the engine that the acquisition is of.
func (a *acquisition) home() *Engine { return engineOf(a.Shard) }

func newPooledAcquisition() any {
	a := new(acquisition)
	a.Init(a)
	// Of a synchronous call nobody sees the future. Lock waits on its channel, for one token.
	a.fut.done.c = make(chan struct{}, 1)
	return a
}

// newAcquisition makes a request. Those of synchronous calls come from a pool and
// go back to it: only the caller and the entry ever see them.
func (e *Engine) newAcquisition(m Mutex, o options, future bool, seen *observation) *acquisition {
	var a *acquisition
	if future {
		a = new(acquisition)
		a.Init(a)
		a.fut.source = a
	} else {
		a = e.acquisitions.Get().(*acquisition)
	}
	if seen != nil {
		a.More().Observed = seen
	}
	a.Shard = e.table.Shard(m.route)
	a.Lease, a.Kind = o.lease, uint8(m.key.Kind)
	if m.permits > 0 {
		a.Permits = uint8(m.permits - 1)
	}
	if o.ackedGiven {
		a.Acks = lock.Acks(o.acked)
	}
	if o.maxHold != 0 || o.minHold != 0 {
		x := a.More()
		x.MaxHold, x.MinHold = o.maxHold, o.minHold
	}
	if o.backoffGiven {
		a.More().Backoff = lock.Backoff(o.backoff)
	}
	if o.origin != nil {
		a.More().Origin = o.origin
	}
	if m.name != m.key.Name {
		a.More().Name = m.name
	}
	return a
}

// free gives a synchronous acquisition back to the pool.
func (a *acquisition) free() {
	ready, extra, e := a.fut.done.c, a.Extra(), a.home()
	*a = acquisition{}
	a.Init(a)
	a.fut.done.c = ready
	if extra != nil && extra.Observed != nil { // the next one needs it, too
		*extra = lock.Extra{}
		a.Keep(extra)
	}
	e.acquisitions.Put(a)
}

// enqueue puts a into its queue and sends what can be sent. a already watches its
// context: if that has ended, so has a. If it mayOverflow, it fails on a full connection.
func (e *Engine) enqueue(a *acquisition, m Mutex, o options, mayOverflow bool) {
	var rd lock.Ready
	sh := a.Shard
	sh.Lock()
	var r *lock.Entry
	ok := true
	if a.Parent.InnermostLive() != nil {
		r = a.Parent.Entry
	} else { // it re-enters nothing any more, if ever
		r, ok = sh.Get(m.key, m.route, &a.Request.Request)
	}
	switch {
	case a.Ended():
		r.Refuse(&a.Request.Request, a.fut.err, &rd)
	case !ok:
		r.Refuse(&a.Request.Request, errKindConflict(sh, m.key.Name), &rd)
	case e.table.Closing():
		r.Refuse(&a.Request.Request, ErrClosed, &rd)
	default:
		if o.outageGiven {
			if why := a.Outage(m.route, o.outage); why != nil {
				r.Refuse(&a.Request.Request, lockerr.Wrap(ErrUnavailable, why), &rd)
				break
			}
		}
		if o.waitGiven {
			a.Request.Wait(o.wait)
		}
		if mayOverflow {
			r.AdmitAsync(&a.Request.Request, &rd)
		} else {
			r.Admit(&a.Request.Request, &rd)
		}
	}
	sh.Unlock()
	e.table.Apply(&rd)
}

// lock begins every form of acquiring. It returns the acquisition, enqueued, or the error
// because of which it could not begin.
func (e *Engine) lock(ctx context.Context, m Mutex, opts []Option, once, future bool, seen *observation) (*acquisition, error) {
	if ctx == nil {
		return nil, e.failEarly(m, lockerr.ErrNoContext)
	}
	if ctx.Err() != nil {
		return nil, e.failEarly(m, ctxwatch.CancelOf(ctx).NotAskedErr())
	}
	o, err := e.resolve(opts, once, m)
	if err != nil {
		return nil, e.failEarly(m, err)
	}
	if m.err != nil {
		return nil, e.failEarly(m, m.err)
	}
	carries := heldIn(ctx)
	parent := carries.carried(e, m.key)
	if err := m.reenters(parent, o); err != nil {
		return nil, e.failEarly(m, err)
	}
	if o.origin = e.originOf(carries); parent != nil {
		o.origin = nil
	}
	a := e.newAcquisition(m, o, future, seen)
	if once {
		a.Persists = lock.UntilAnswered
	}
	a.attachParent(parent)
	if future {
		e.watches.Join(ctx, a)
	}
	e.enqueue(a, m, o, future)
	return a, nil
}

// attachParent has a re-enter a hold of its name that its context carries, or be granted beside it. It
// may be nil.
func (a *acquisition) attachParent(carried *lockHold) {
	switch {
	case carried == nil:
	case kind.Kind(a.Kind).Reenters(kind.Kind(carried.Kind)):
		a.Parent = carried.inner()
	default:
		a.More().Writer = carried.inner()
	}
}

// failEarly counts an acquisition that ends before it begins, and returns its error.
func (e *Engine) failEarly(m Mutex, why error) error {
	err := notAcquiredA(m.key.Kind.What(), m.name, why)
	sh := e.table.Shard(m.route)
	sh.Lock()
	sh.Locks.Count.NotAcquired++
	sh.Unlock()
	return err
}

// failEarly is the same for one of several locks, which may be the zero Mutex.
func (m Mutex) failEarly(why error) error {
	if m.home == nil {
		return notAcquired(m.name, why)
	}
	return m.home.failEarly(m, why)
}

// observed is what an Observer is told of it; nil if nobody observes.
func (a *acquisition) observed() *observation {
	if x := a.Extra(); x != nil {
		o, _ := x.Observed.(*observation)
		return o
	}
	return nil
}

// OnResult implements driver.Caller.
func (a *acquisition) OnResult(h *lock.Hold, why error) {
	if h == nil {
		if held := lockerr.HeldIn(why); held != nil && held.ID != 0 {
			held.Owner = kind.Kind(held.Kind).Owner(a.home().table.ID, held.ID).String()
		}
		a.fut.err = notAcquiredA(kind.Kind(a.Kind).What(), a.Name(), why)
	} else {
		a.fut.value, a.fut.err = holdOf(h).handle, nil
		a.noteOrigin(h)
	}
	if seen := a.observed(); seen != nil {
		seen.onResult(&a.Request.Request, h)
	}
}

// Deliver implements driver.Caller: it wakes the caller, or completes the future. No
// lock is held.
func (a *acquisition) Deliver() {
	if a.fut.source != nil { // it is a future
		a.watch.Leave(a)
		a.observed().finish(a.fut.err)
		a.fut.resolve(a.fut.value, a.fut.err)
		return
	}
	a.fut.done.c <- struct{}{}
}

// cancel gives the acquisition up unless it has ended; it reports whether it did.
func (a *acquisition) cancel(s lockerr.Cancel) bool {
	var rd lock.Ready
	a.Shard.Lock()
	if a.Ended() {
		a.Shard.Unlock()
		return false
	}
	if a.Entry() == nil { // not enqueued yet: enqueue finds it ended
		a.Drop()
		a.fut.err = s.NotAskedErr()
		a.Shard.Unlock()
		return true
	}
	a.Cancel(s, &rd)
	a.Shard.Unlock()
	a.Shard.Table.Apply(&rd)
	return true
}

// wait is the synchronous half: it waits for the verdict or for the context, whose Done
// is done, and frees the acquisition.
func (a *acquisition) wait(ctx context.Context, done <-chan struct{}) (*Hold, error) {
	ready := a.fut.done.c
	select {
	case <-ready:
	default:
		if a.home().world.Wait(ready, done, nil) != 0 {
			// If the verdict came first it stands; otherwise cancel delivers ours.
			a.cancel(ctxwatch.CancelOrPanic(ctx, a.callerGone))
			a.home().world.Wait(ready, nil, nil)
		}
	}
	h, err := a.fut.value, a.fut.err
	a.free()
	return h, err
}

// callerGone gives the acquisition up when the context of its caller has panicked.
func (a *acquisition) callerGone() {
	a.abandon()
	a.home().world.Wait(a.fut.done.c, nil, nil)
	if h := a.fut.value; h != nil {
		h.giveBack()
	}
	a.free()
}

// WatchSlot and GiveUp implement ctxwatch.Waiter.
func (a *acquisition) WatchSlot() *ctxwatch.Slot[*acquisition] { return &a.watch }
func (a *acquisition) GiveUp(s lockerr.Cancel) bool            { return a.cancel(s) }

// The methods below make an acquisition the source of its future.

func (a *acquisition) executor() *executor.Executor { return &a.home().exec }

func (a *acquisition) abandon() { a.cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}) }
