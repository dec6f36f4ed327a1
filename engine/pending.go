package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/ctxwatch"
	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// pendingOp is what an acquisition of several locks, a query and an operation on a count have in common: what may end
// them before they have their result.
type pendingOp struct {
	of    pendingOwner
	home  *Engine   // of the first lock: its wheel and executor serve all of them
	on    []*Engine // all of them, each once
	watch ctxwatch.Slot[*pendingOp]
	limit taskTimer     // of Wait
	since clock.Instant // it was refused first: it is listed

	outages []*driver.Outage // of the engines; nil without Outage
}

type pendingOwner interface {
	// cancel gives it up unless it has ended or was given up before; it reports whether it
	// did.
	cancel(s lockerr.Cancel) bool
	over() bool
	// waitOver is told by the wheel that Wait is over.
	waitOver()
}

// begin arranges for what may end it; the engines are not told before list. need of the locks are
// enough.
func (t *pendingOp) begin(ctx context.Context, of pendingOwner, locks []Mutex, need int, o options, async bool) {
	t.of, t.home = of, locks[0].home
	for _, m := range locks {
		if e := m.home; !slices.Contains(t.on, e) {
			t.on = append(t.on, e)
		}
	}
	t.limit.init(of.waitOver)
	if async {
		t.home.pending.watches.Join(ctx, t)
	}
	if o.waitGiven {
		t.home.table.Timers.Schedule(&t.limit.timer, t.home.clock.Now().Add(o.wait))
		if of.over() { // meanwhile, by its context: finish was here first
			t.home.table.Timers.Cancel(&t.limit.timer)
		}
	}
	if o.outageGiven {
		t.boundOutage(locks, need, o.outage)
	}
}

// boundOutage ends it when fewer of the servers than it needs have had a connection for d.
func (t *pendingOp) boundOutage(locks []Mutex, need int, d time.Duration) {
	sites := make([]driver.Site, len(locks))
	for i, m := range locks {
		sites[i] = driver.Site{Client: m.home.table.Client, Route: m.route}
	}
	end := func(why error) { t.of.cancel(lockerr.Cancel{Away: why, TimedOut: true}) }
	for range t.on {
		t.outages = append(t.outages, &driver.Outage{Sites: sites, Need: need, Most: d, End: end})
	}
	for i, e := range t.on {
		e.table.Outages.Add(t.outages[i])
	}
	if why := t.outages[0].Late(t.home.clock.Now()); why != nil {
		end(why)
	}
	if t.of.over() { // meanwhile: finish may have been here first
		t.unbindOutage()
	}
}

func (t *pendingOp) unbindOutage() {
	for i, o := range t.outages {
		t.on[i].table.Outages.Remove(o)
	}
}

// finish takes it out of everything.
func (t *pendingOp) finish() {
	t.unlist()
	t.watch.Leave(t)
	t.unbindOutage()
	t.home.table.Timers.Cancel(&t.limit.timer)
}

// WatchSlot and GiveUp implement ctxwatch.Waiter.
func (t *pendingOp) WatchSlot() *ctxwatch.Slot[*pendingOp] { return &t.watch }
func (t *pendingOp) GiveUp(s lockerr.Cancel) bool          { return t.of.cancel(s) }

// executor is half of what makes it the source of a future.
func (t *pendingOp) executor() *executor.Executor { return &t.home.exec }

// taskTimer is a timer that calls a function.
type taskTimer struct {
	timer wheel.Timer
	fire  func()
}

func (t *taskTimer) init(fire func()) {
	t.fire = fire
	t.timer.Init(t)
}

// Fire implements wheel.Task.
func (t *taskTimer) Fire(*wheel.Timer, clock.Instant) { t.fire() }

// pending acquisitions are an engine's, and its acquisitions of RedLocks: those that were refused once, and the
// contexts of all that are futures. One that pauses, or waits for a lock of another engine,
// would not hear otherwise that this one is closing; and its timers are on the wheel of one
// of them.
type pendingOps struct {
	watches ctxwatch.Watches[*pendingOp]

	mu     sync.Mutex
	closed bool
	listed waitq.Set[*pendingOp]
}

// add lists one, unless the engine is closing.
func (all *pendingOps) add(t *pendingOp) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if !all.closed {
		all.listed.Add(t)
	}
	return !all.closed
}

// inOrder are those that are listed, in the order in which they came.
func (all *pendingOps) inOrder() []*pendingOp {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.listed.InOrder()
}

// redLocks are the RedLocks that are listed.
func (all *pendingOps) redLocks() (list []*severalAcquisition) {
	for _, t := range all.inOrder() {
		if q, is := t.of.(*severalAcquisition); is && q.Policy == quorum.Majority {
			list = append(list, q)
		}
	}
	return list
}

func (all *pendingOps) remove(t *pendingOp) {
	all.mu.Lock()
	all.listed.Remove(t)
	all.mu.Unlock()
}

// close fails those that are listed, and all that are to be from now on.
func (all *pendingOps) close() {
	all.mu.Lock()
	all.closed = true
	all.mu.Unlock()
	for _, t := range all.inOrder() {
		t.GiveUp(lockerr.Cancel{Cause: ErrClosed})
	}
}

// list lets all of its engines end it; it reports whether none has closed. The lock that it
// waits for hears of one engine only.
func (t *pendingOp) list() bool {
	open := true
	if t.since == 0 {
		t.since = t.home.clock.Stamp()
	}
	for _, e := range t.on {
		open = e.pending.add(t) && open
	}
	if t.of.over() { // cancelled meanwhile: finish may have been here first
		t.unlist()
	}
	return open
}

func (t *pendingOp) unlist() {
	for _, e := range t.on {
		e.pending.remove(t)
	}
}

// await is the synchronous half: it waits for the end or for the context.
func (t *pendingOp) await(ctx context.Context, done, ended <-chan struct{}, abandon func()) {
	if t.home.world.Wait(ended, done, nil) == 0 {
		return
	}
	t.GiveUp(ctxwatch.CancelOrPanic(ctx, func() {
		abandon()
		t.home.world.Wait(ended, nil, nil)
	}))
	t.home.world.Wait(ended, nil, nil)
}
