package engine

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// acquisition is one request for a lock, from Lock or LockAsync until its verdict.
//
//	enqueued --front, lock free--> trying --granted--> ended
//	   ^                             |
//	   +------- refused: waits ------+       (TryLock: refused -> ended)
//	any --context, Wait, Abandon, Close--> ended
//
// A try that is out when its acquisition ends is an orphan: its reply finds no
// acquisition, and if the server granted it, the grant becomes a debt. Everything
// here is guarded by the shard's lock until ended, and belongs to the receiver of
// the result after that.
type acquisition struct {
	fut   Future[*Hold] // what LockAsync returns
	ready chan struct{} // what Lock waits on: one token, capacity 1

	eng    *Engine
	sh     *shard
	res    *resource
	name   string   // as the caller gave it
	parent *holding // re-entry under this hold
	place  queue.Elem[*acquisition]

	lease    time.Duration // 0: watchdog
	limits   *limits       // nil: neither MaxHold nor MinHold
	start    clock.Instant // when it was asked for; 0 unless a hook wants it
	deadline *deadline     // nil: no Wait
	watch    watchPlace

	attempts uint16
	kind     kind
	late     uint8
	future   bool // LockAsync: the result goes to fut
	once     bool // TryLock: one attempt
	trying   bool
	ended    bool
	listed   bool // by an effects; listedNext is its next one

	listedNext *acquisition

	hold *Hold
	err  error
}

type limits struct{ maxHold, minHold time.Duration }

var acquisitions = sync.Pool{New: func() any {
	a := &acquisition{ready: make(chan struct{}, 1)}
	a.place.Value = a
	return a
}}

// newAcquisition makes a request. Those of synchronous calls come from a pool and
// go back to it: nobody but the caller and the resource ever sees them.
func (e *Engine) newAcquisition(o options, future bool) *acquisition {
	var a *acquisition
	if future {
		a = &acquisition{future: true}
		a.place.Value = a
		a.fut.source = a
	} else {
		a = acquisitions.Get().(*acquisition)
	}
	a.eng = e
	a.lease = o.lease
	if o.maxHold != 0 || o.minHold != 0 {
		a.limits = &limits{o.maxHold, o.minHold}
	}
	if e.hooks.acquired {
		a.start = e.clock.Stamp()
	}
	return a
}

// free gives a synchronous acquisition back to the pool.
func (a *acquisition) free() {
	ready := a.ready
	*a = acquisition{ready: ready}
	a.place.Value = a
	acquisitions.Put(a)
}

// firstLease is what the server is asked for.
func (a *acquisition) firstLease() time.Duration {
	if a.lease != 0 {
		return a.lease
	}
	lease := a.eng.cfg.Lease
	if a.limits != nil && a.limits.maxHold != 0 {
		lease = min(lease, a.limits.maxHold+a.eng.margin(lease))
	}
	return lease
}

// endLocked takes the acquisition out of everything. The result follows by
// effects.finish.
func (a *acquisition) endLocked() {
	a.ended = true
	r := a.res
	switch {
	case a.parent != nil:
		if x := a.parent.extra; x != nil {
			x.children.Remove(&a.place)
		}
	case a.once:
		r.tries.Remove(&a.place)
	default:
		r.waiters.Remove(&a.place)
	}
	if r.cmd.acq == a {
		r.cmd.acq = nil // an orphan now
	}
	a.trying = false
	if d := a.deadline; d != nil {
		d.acq = nil
		a.deadline = nil
		a.eng.wheel.Cancel(&d.timer)
	}
	a.sh.count.pending--
}

// fail ends the acquisition with an error.
func (a *acquisition) fail(err error, fx *effects) {
	a.endLocked()
	a.err = err
	a.sh.count.refused(err)
	fx.finish(a)
}

// grant ends the acquisition with a hold.
func (a *acquisition) grant(h *holding, fx *effects) {
	a.endLocked()
	a.hold = h.handle
	a.sh.count.acquired++
	fx.finish(a)
}

// refuseLocal refuses a TryLock because this process holds the lock.
func (a *acquisition) refuseLocal(h *holding, fx *effects) {
	left := h.until().Sub(a.eng.clock.Stamp())
	a.fail(&NotAcquiredError{Name: a.name, TTL: max(left, 0)}, fx)
}

// deliver tells whoever waits. No lock is held.
func (a *acquisition) deliver() {
	a.eng.hookAcquired(a)
	if a.future {
		a.watch.leave()
		a.fut.settle(a.hold, a.err)
		return
	}
	a.ready <- struct{}{}
}

// cancel ends the acquisition with err unless it has ended; it reports whether it
// did.
func (a *acquisition) cancel(err error) bool {
	var fx effects
	a.sh.mu.Lock()
	if a.ended {
		a.sh.mu.Unlock()
		return false
	}
	r := a.res
	if r == nil { // not enqueued yet: enqueue finds it ended
		a.ended, a.err = true, err
		a.sh.mu.Unlock()
		return true
	}
	a.fail(err, &fx)
	r.next(&fx)
	r.settled()
	a.sh.mu.Unlock()
	fx.run(a.eng)
	return true
}

// wait is the synchronous half: it waits for the verdict or for the context, and
// frees the acquisition.
func (a *acquisition) wait(ctx context.Context) (*Hold, error) {
	select {
	case <-a.ready:
	default:
		select {
		case <-a.ready:
		case <-ctx.Done():
			// If the verdict came first it stands; otherwise cancel delivers ours.
			a.cancel(notAcquired(ctx))
			<-a.ready
		}
	}
	h, err := a.hold, a.err
	a.free()
	return h, err
}

// notAcquired is the error of a context that ended.
func notAcquired(ctx context.Context) error { return fail(ErrNotAcquired, context.Cause(ctx)) }

// deadline ends an acquisition whose Wait is over, or that found no connection in
// time. It is an object of its own because it may fire after the acquisition went
// back to its pool.
type deadline struct {
	timer wheel.Timer
	sh    *shard
	acq   *acquisition // nil when the acquisition has ended; guarded by sh.mu
	err   error
}

// endAt arms the deadline.
func (a *acquisition) endAt(at clock.Instant, err error) {
	d := a.deadline
	if d == nil {
		d = &deadline{sh: a.sh, acq: a}
		d.timer.Init(d)
		a.deadline = d
	}
	d.err = err
	a.eng.wheel.Schedule(&d.timer, at)
}

// giveUpAt bounds how long a TryLock waits for a connection.
func (a *acquisition) giveUpAt(at clock.Instant) {
	if a.deadline == nil {
		a.endAt(at, fail(ErrNotAcquired, ErrUnavailable))
	}
}

// Fire implements wheel.Task.
func (d *deadline) Fire(*wheel.Timer, clock.Instant) {
	d.sh.mu.Lock()
	a := d.acq
	if a == nil {
		d.sh.mu.Unlock()
		return
	}
	err := d.err
	if err == nil {
		err = &NotAcquiredError{Name: a.name, TTL: -1}
	}
	var fx effects
	r, e := a.res, a.eng
	a.fail(err, &fx)
	r.next(&fx)
	r.settled()
	d.sh.mu.Unlock()
	fx.run(e)
}

// The methods below make an acquisition the source of its future.

func (a *acquisition) executor() *executor { return &a.eng.exec }

func (a *acquisition) abandon() { a.cancel(fail(ErrNotAcquired, errAbandoned)) }

func (a *acquisition) drop(h *Hold) { h.UnlockAsync() }
