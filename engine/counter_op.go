package engine

import (
	"context"
	"math"

	"github.com/pawl-lock/pawl/engine/internal/counter"
	"github.com/pawl-lock/pawl/engine/internal/ctxwatch"
	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// counterHandle names a semaphore or a latch: what both values have.
type counterHandle struct {
	home  *Engine
	key   driver.CounterKey
	route uint64
	name  string
	err   error // the name is not usable
}

func (e *Engine) counter(name string, k counter.Kind) counterHandle {
	m := e.Mutex(name) // the names of locks are as good
	c := counterHandle{home: e, key: driver.CounterKey{Name: m.key.Name, Kind: k}, route: m.route, name: name, err: m.err}
	if e.table.Client.Clustered() && c.err == nil {
		c.err = c.key.ValidInCluster()
	}
	return c
}

// what is its kind, for people.
func (c counterHandle) what() string { return [counter.Kinds]string{"semaphore", "latch"}[c.key.Kind] }

// about is an error with the name.
func (c counterHandle) about(err error) error { return lockerr.WithName(c.what(), c.name, err) }

// maxCount is the highest count that Redisson can read.
const maxCount = math.MaxInt32

// counterSpec is what is asked for.
type counterSpec[T any] struct {
	what    counter.OpKind
	n       int
	once    bool // an acquire that makes one attempt
	options []Option
	free    bool // nothing bounds it but its context
	// verdict makes a result of the answer, and of permits that were granted.
	verdict func(p *permits, answer int64, why error) (T, error)
	seen    *observation
}

// counterOp is one operation of a caller on a count, and its future.
type counterOp[T any] struct {
	driver.CounterOp
	driver.Pending
	counterSpec[T]
	count   counterHandle
	eng     *Engine
	fut     Future[T]
	permits *permits // that it was granted
}

func newCounterOp[T any](c counterHandle, r counterSpec[T]) *counterOp[T] {
	a := &counterOp[T]{counterSpec: r, count: c}
	a.fut.source = a
	if a.eng = c.home; a.eng == nil {
		a.eng = noEngine() // for its executor
	}
	a.Init(a, r.what, int64(r.n))
	a.Shard, a.Try = a.eng.table.Shard(c.route), r.once
	return a
}

// startCounterOp begins an operation. If nobody waits for it, its context cancels it; a caller who
// waits looks at that himself.
func startCounterOp[T any](ctx context.Context, c counterHandle, r counterSpec[T], waits bool) *counterOp[T] {
	a := newCounterOp(c, r)
	bounds, err := a.check(ctx)
	var rd counter.Ready
	if err != nil {
		a.Shard.Lock()
		a.Refuse(err, &rd)
		a.Shard.UnlockCount(&rd)
		return a
	}
	e := a.eng
	a.Since = e.clock.Stamp()
	a.Shard.Lock()
	if !a.decidedLocked(&rd) { // what needs no server fails for none
		a.Shard.Unlock()
		a.Begin(ctx, &a.CounterOp, e.table.At(c.route), bounds, !waits) // from here on it may be given up
		a.Shard.Lock()
		if !a.decidedLocked(&rd) {
			a.Admit(c.key, c.route, &rd)
		}
	}
	a.Shard.UnlockCount(&rd)
	return a
}

// decidedLocked gives the operation its verdict if no server is needed for it; it may have one already, as it may
// be given up from Begin on.
func (a *counterOp[T]) decidedLocked(rd *counter.Ready) bool {
	table := &a.eng.table
	switch {
	case a.Completed():
	case table.Closing() && (a.what != counter.CountDown || table.Closed()):
		a.Refuse(ErrClosed, rd)
	case !a.Shard.FitsCount(a.count.key):
		a.Refuse(errKindConflict(a.Shard, a.count.key.Name), rd)
	case a.what == counter.Acquire && a.n == 0:
		a.Granted()
		a.Refuse(nil, rd)
	default:
		return false
	}
	return true
}

// look asks how many there are.
func (c counterHandle) look(ctx context.Context) (int, error) {
	return startCounterOp(ctx, c, counterSpec[int]{what: counter.Get, verdict: c.number}, true).await(ctx)
}

// check checks everything before anything is asked. It returns what may end the operation.
func (a *counterOp[T]) check(ctx context.Context) (b driver.Bounds, err error) {
	switch c := a.count; {
	case c.home == nil:
		return b, lockerr.Invalid("the zero Semaphore or Latch: get one from the Engine")
	case ctx == nil:
		return b, lockerr.ErrNoContext
	case ctx.Err() != nil:
		return b, ctxwatch.CancelOf(ctx).NotAskedErr()
	case c.err != nil:
		return b, c.err
	case a.n > maxCount || a.n < -maxCount:
		return b, lockerr.Invalid("a count must be within 31 bits, as in Redisson, not %d", a.n)
	case a.n < 0 && a.what != counter.Add:
		return b, lockerr.Invalid("a count must not be negative (%d)", a.n)
	}
	o, err := a.eng.resolve(a.options, a.once, Mutex{})
	if err != nil {
		return b, err
	}
	if b = o.bounds(1); b.Wait == 0 && !a.free {
		b.Wait, b.Late = a.eng.cfg.CommandTimeout, nil
	}
	o.wait, o.waitGiven, o.outage, o.outageGiven = 0, false, 0, false
	if o != (options{}) {
		return b, lockerr.Invalid("a %s has no options but Wait and Outage: it has no lease and no holder", a.count.what())
	}
	return b, nil
}

// await is the synchronous half: it waits for the verdict or for the context.
func (a *counterOp[T]) await(ctx context.Context) (T, error) { return a.fut.await(ctx, &a.Pending) }

// The methods below implement counter.OpPort.

func (a *counterOp[T]) Granted() *counter.Permits {
	a.permits = newPermits(a.count)
	a.permits.seen = a.seen
	return &a.permits.Permits
}

func (a *counterOp[T]) Complete(answer int64, why error) {
	a.Finish()
	value, err := a.verdict(a.permits, answer, why)
	a.seen.finishAsync(err)
	a.fut.resolve(value, err)
}

// The methods below make an operation the source of its future.

func (a *counterOp[T]) executor() *executor.Executor { return &a.eng.exec }

// abandon cancels who waits. What changes the count goes on: it cannot be taken back.
func (a *counterOp[T]) abandon() {
	if a.what == counter.Acquire || a.what == counter.Await {
		a.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned})
	}
}

// The verdicts that have no more to say than the answer.

func (c counterHandle) number(_ *permits, answer int64, why error) (int, error) {
	return int(answer), c.about(why)
}

func (c counterHandle) yes(_ *permits, answer int64, why error) (bool, error) {
	return answer == 1, c.about(why)
}

func (c counterHandle) nothing(_ *permits, _ int64, why error) (struct{}, error) {
	return struct{}{}, c.about(why)
}
