package engine

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kind"
	"github.com/pawl-lock/pawl/engine/internal/queue"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
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
	fut   Future[*Hold] // what LockAsync returns; its value and err are the verdict of all
	ready chan struct{} // what Lock waits on: one token, capacity 1

	sh     *shard
	res    *resource // nil until it is enqueued
	parent *holding  // re-entry under this hold
	place  queue.Elem[*acquisition]

	lease time.Duration // 0: watchdog
	until clock.Instant // when the holder's lease ends, if a knows; see tried
	rare  *rare         // what most do not need
	watch watchPlace[*acquisition]

	attempts   uint32
	want       resp.Acks // replicas that must have the grant
	kind       kind.Kind
	late       uint8
	future     bool // LockAsync: the result goes to fut
	once       bool // TryLock: one attempt
	trying     bool
	ended      bool
	listed     bool // by an effects; listedNext is its next one
	ackedGiven bool // want was: Acked
	patient    bool // a command of it waits its turn on a full lane, though it is a future's

	listedNext *acquisition
}

// rare is what most acquisitions do not need.
type rare struct {
	maxHold, minHold time.Duration
	name             string        // as the caller gave it; set if a NameMapper changed it, or for a hook
	start            clock.Instant // when it was asked for, if a hook wants it
	deadline         *deadline     // of Wait, or of a TryLock without a connection
	refusal          error         // why the server has not answered; see tried
	quorum           *quorum       // that asks this server and others
}

func (a *acquisition) more() *rare {
	if a.rare == nil {
		a.rare = new(rare)
	}
	return a.rare
}

// name is the lock's name as the caller gave it. The caller holds the shard's lock.
func (a *acquisition) name() string {
	if a.rare != nil && a.rare.name != "" {
		return a.rare.name
	}
	return a.res.name
}

func newPooledAcquisition() any {
	a := &acquisition{ready: make(chan struct{}, 1)}
	a.place.Value = a
	return a
}

// newAcquisition makes a request. Those of synchronous calls come from a pool and
// go back to it: nobody but the caller and the resource ever sees them.
func (e *Engine) newAcquisition(m Mutex, o options, future bool) *acquisition {
	var a *acquisition
	if future {
		a = &acquisition{future: true}
		a.place.Value = a
		a.fut.source = a
	} else {
		a = e.acquisitions.Get().(*acquisition)
	}
	a.sh = e.table.shard(m.route)
	a.kind, a.lease = m.key.kind, o.lease
	a.want, a.ackedGiven = resp.Acks(o.acked), o.ackedGiven
	if o.maxHold != 0 || o.minHold != 0 {
		a.more().maxHold, a.rare.minHold = o.maxHold, o.minHold
	}
	if m.name != m.key.name {
		a.more().name = m.name
	}
	if e.hooks.acquired {
		a.more().start, a.rare.name = e.clock.Stamp(), m.name
	}
	return a
}

// free gives a synchronous acquisition back to the pool.
func (a *acquisition) free() {
	ready, e := a.ready, a.sh.eng
	*a = acquisition{ready: ready}
	a.place.Value = a
	e.acquisitions.Put(a)
}

// firstLease is what the server is asked for.
func (a *acquisition) firstLease() time.Duration {
	if a.lease != 0 {
		return a.lease
	}
	lease := a.sh.eng.cfg.Lease
	if a.rare != nil && a.rare.maxHold != 0 {
		lease = min(lease, a.rare.maxHold+a.sh.eng.margin(lease))
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
			a.passOn(&x.children)
		}
	case a.once:
		r.tries.Remove(&a.place)
		a.passOn(r.tries)
	default:
		r.waiters.Remove(&a.place)
		a.passOn(&r.waiters)
	}
	if r.cmd.acq == a {
		r.cmd.acq = nil // an orphan now
	}
	a.trying = false
	if a.rare != nil && a.rare.deadline != nil {
		d := a.rare.deadline
		d.acq, a.rare.deadline = nil, nil
		a.sh.eng.wheel.Cancel(&d.timer)
	}
	a.sh.count.pending--
}

// Because ends the acquisition with a NotAcquiredError for the given reason.
func (a *acquisition) fail(why error, fx *effects) {
	a.endLocked()
	err := notAcquired(a.name(), why)
	a.fut.err = err
	a.sh.count.refused(err)
	fx.finish(a)
}

// grant ends the acquisition with a hold.
func (a *acquisition) grant(h *holding, fx *effects) {
	a.endLocked()
	a.fut.value = h.handle
	a.sh.count.acquired++
	fx.finish(a)
}

// refuseLocal refuses a TryLock because this process holds the lock.
func (a *acquisition) refuseLocal(h *holding, fx *effects) {
	left := h.until().Sub(a.sh.eng.clock.Stamp())
	a.fail(&reason.Held{TTL: max(left, 0), Here: true}, fx)
}

// deliver wakes the caller, or completes the future. No lock is held.
func (a *acquisition) deliver() {
	if a.future {
		a.watch.leave(a)
		a.fut.settle(a.fut.value, a.fut.err)
		return
	}
	a.ready <- struct{}{}
}

// cancel gives the acquisition up unless it has ended; it reports whether it did.
func (a *acquisition) cancel(s reason.Stop) bool {
	var fx effects
	a.sh.mu.Lock()
	if a.ended {
		a.sh.mu.Unlock()
		return false
	}
	r := a.res
	if r == nil { // not enqueued yet: enqueue finds it ended
		a.ended, a.fut.err = true, s.Cause
		a.sh.mu.Unlock()
		return true
	}
	a.fail(a.gaveUp(s), &fx)
	r.next(&fx)
	r.settled()
	a.sh.mu.Unlock()
	fx.run(a.sh.eng)
	return true
}

// wait is the synchronous half: it waits for the verdict or for the context, whose Done
// is done, and frees the acquisition.
func (a *acquisition) wait(ctx context.Context, done <-chan struct{}) (*Hold, error) {
	select {
	case <-a.ready:
	default:
		select {
		case <-a.ready:
		case <-done:
			// If the verdict came first it stands; otherwise cancel delivers ours.
			a.cancel(a.whyStop(ctx))
			<-a.ready
		}
	}
	h, err := a.fut.value, a.fut.err
	a.free()
	return h, err
}

// whyStop is stopOf. The context may be the user's own, and panic. Then the acquisition is
// given up, because its caller is gone.
func (a *acquisition) whyStop(ctx context.Context) reason.Stop {
	asked := false
	defer func() {
		if asked {
			return
		}
		a.cancel(reason.Stop{Cause: reason.ErrAbandoned})
		<-a.ready
		if h := a.fut.value; h != nil {
			a.drop(h)
		}
		a.free()
	}()
	s := stopOf(ctx)
	asked = true
	return s
}

// deadline ends an acquisition whose Wait is over, or that found no connection in
// time. It is an object of its own because it may fire after the acquisition went
// back to its pool.
type deadline struct {
	timer wheel.Timer
	sh    *shard
	acq   *acquisition // nil when the acquisition has ended; guarded by sh.mu
	cause error        // see stop

	behind int64 // the id of the command that was out when it was armed
}

// endAt arms the deadline.
func (a *acquisition) endAt(at clock.Instant, cause error) {
	d := a.more().deadline
	if d == nil {
		d = &deadline{sh: a.sh, acq: a}
		d.timer.Init(d)
		a.rare.deadline = d
	}
	d.cause = cause
	a.sh.eng.wheel.Schedule(&d.timer, at)
}

// patience is how long a TryLock waits for a connection, and for replicas.
func (a *acquisition) patience() time.Duration {
	cfg := &a.sh.eng.cfg
	if a.want != 0 {
		return cfg.CommandTimeout + cfg.AckTimeout
	}
	return cfg.CommandTimeout
}

// giveUpAt bounds how long a TryLock waits for a connection, or for its turn.
func (a *acquisition) giveUpAt(at clock.Instant) {
	if a.more().deadline == nil {
		a.endAt(at, nil)
		a.rare.deadline.behind = a.res.cmd.id
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
	r, e := a.res, a.sh.eng
	var fx effects
	a.fail(a.gaveUp(reason.Stop{Cause: d.cause, Late: true}), &fx)
	r.next(&fx)
	r.settled()
	d.sh.mu.Unlock()
	fx.run(e)
}

//lint:ignore U1000 watches calls it, through its constraint
func (a *acquisition) watchPlace() *watchPlace[*acquisition] { return &a.watch }

// The methods below make an acquisition the source of its future.

func (a *acquisition) executor() *executor { return &a.sh.eng.exec }

func (a *acquisition) abandon() { a.cancel(reason.Stop{Cause: reason.ErrAbandoned}) }

func (a *acquisition) drop(h *Hold) { h.unlockAsync(false) } // perhaps on an event loop
