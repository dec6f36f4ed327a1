package driver

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/ctxwatch"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// Pending is what an acquisition of several locks, an operation on a count and a query have in common: what may
// end them before they have their result.
type Pending struct {
	Done   <-chan struct{} // of the context of a caller who waits; nil: that is not asked
	of     PendingOwner    // nil before Begin
	on     []*Table        // of all servers, each once; the wheel of the first serves all of them
	one    [1]*Table       // room for on: most have one
	watch  ctxwatch.Slot[*Pending]
	bounds Bounds
	limit  deadline     // of Bounds.Wait
	since  atomic.Int64 // a clock.Instant: it was refused first, and may be listed; 0: it never was

	outages []Outage // of the tables; nil without Outage
}

// PendingOwner is an operation that is pending.
type PendingOwner interface {
	canceller
	Over() bool
}

// Bounds are what ends an operation beside its context.
type Bounds struct {
	Wait time.Duration // 0: as long as its context lives
	Late error         // the cause when Wait is over
	// HasOutage: it ends when fewer than Need of its servers have had a connection for Outage.
	HasOutage bool
	Outage    time.Duration
	Need      int
}

// At is the server of one name, for Begin.
func (t *Table) At(route uint64) iter.Seq2[*Table, uint64] {
	return func(yield func(*Table, uint64) bool) { yield(t, route) }
}

// Begin arranges for what may end it; the tables are not told before List. If nobody waits for it, its
// context ends it; a caller who waits calls Await. ctx may be the user's own, and panic.
func (t *Pending) Begin(ctx context.Context, of PendingOwner, at iter.Seq2[*Table, uint64], b Bounds, async bool) {
	t.of, t.bounds, t.on = of, b, t.one[:0]
	var sites []site
	for table, route := range at {
		if b.HasOutage {
			sites = append(sites, site{table.Client, route})
		}
		if !slices.Contains(t.on, table) {
			t.on = append(t.on, table)
		}
	}
	if b.HasOutage {
		t.outages = make([]Outage, len(t.on))
		for i := range t.outages {
			t.outages[i] = Outage{of: of, sites: sites, need: b.Need, most: b.Outage}
		}
	}
	t.limit.init(of, b.Late)
	home := t.on[0]
	if async { // from here on it may end at any time
		home.Pending.watches.Join(ctx, t)
	} else {
		t.Done = ctx.Done()
	}
	if b.Wait != 0 {
		home.Timers.Schedule(&t.limit.timer, home.World.Clock.Now().Add(b.Wait))
	}
	for i := range t.outages {
		if why := t.on[i].Outages.add(&t.outages[i]); why != nil {
			of.Cancel(lockerr.Cancel{Away: why, TimedOut: true})
			break
		}
	}
	t.finishIfOver()
}

// finishIfOver is called when something was arranged for: the end may have been there first.
func (t *Pending) finishIfOver() {
	if t.of.Over() {
		t.Finish()
	}
}

// Finish takes it out of everything, if it has begun.
func (t *Pending) Finish() {
	t.Unlist()
	t.watch.Leave(t)
	for i := range t.outages {
		t.on[i].Outages.remove(&t.outages[i])
	}
	if t.bounds.Wait != 0 {
		t.on[0].Timers.Cancel(&t.limit.timer)
	}
}

// WatchSlot and GiveUp implement ctxwatch.Waiter.
func (t *Pending) WatchSlot() *ctxwatch.Slot[*Pending] { return &t.watch }
func (t *Pending) GiveUp(s lockerr.Cancel) bool        { return t.of.Cancel(s) }

// List lets all of its tables end it, which one that has closed does at once. The lock that it
// waits for hears of one only.
func (t *Pending) List() {
	open := true
	t.since.CompareAndSwap(0, int64(t.on[0].World.Clock.Stamp()))
	for _, table := range t.on {
		open = table.Pending.add(t) && open
	}
	if !open {
		t.GiveUp(lockerr.Cancel{Cause: lockerr.ErrClosed})
	}
	t.finishIfOver()
}

// Unlist undoes List.
func (t *Pending) Unlist() {
	if t.since.Load() == 0 {
		return // List looks for the end after it has listed t
	}
	for _, table := range t.on {
		table.Pending.remove(t)
	}
}

// ListedFor is how long ago it was listed first.
func (t *Pending) ListedFor() time.Duration {
	return t.on[0].World.Clock.Now().Sub(clock.Instant(t.since.Load()))
}

// Await is the synchronous half: it waits for the end or for the context.
func (t *Pending) Await(ctx context.Context, ended <-chan struct{}, abandon func()) {
	wait := t.on[0].World.Wait
	if wait(ended, t.Done, nil) == 0 {
		return
	}
	t.GiveUp(ctxwatch.CancelOrPanic(ctx, func() {
		abandon()
		wait(ended, nil, nil)
	}))
	wait(ended, nil, nil)
}

// TaskTimer is a timer that calls a function.
type TaskTimer struct {
	Timer wheel.Timer
	fire  func()
}

// Init sets the function.
func (t *TaskTimer) Init(fire func()) {
	t.fire = fire
	t.Timer.Init(t)
}

// Fire implements wheel.Task.
func (t *TaskTimer) Fire(*wheel.Timer, clock.Instant) { t.fire() }

// PendingOps are the pending operations of a table: those that were refused once, and the
// contexts of all that are futures. One that pauses, or waits for a lock of another engine,
// would not hear otherwise that this one is closing; and its timers are on the wheel of one
// of them.
type PendingOps struct {
	watches ctxwatch.Watches[*Pending]

	mu     sync.Mutex
	closed bool
	listed waitq.Set[*Pending]
}

// add lists one, unless the engine is closing.
func (all *PendingOps) add(t *Pending) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if !all.closed {
		all.listed.Add(t)
	}
	return !all.closed
}

func (all *PendingOps) remove(t *Pending) {
	all.mu.Lock()
	all.listed.Remove(t)
	all.mu.Unlock()
}

func (all *PendingOps) inOrder() []*Pending {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.listed.InOrder()
}

// Listed are those that are listed, in the order in which they came.
func (all *PendingOps) Listed() (owners []PendingOwner) {
	for _, t := range all.inOrder() {
		owners = append(owners, t.of)
	}
	return owners
}

// Watched is how many groups of contexts there are.
func (all *PendingOps) Watched() int { return all.watches.Len() }

// Close fails those that are listed, and all that are to be from now on.
func (all *PendingOps) Close() {
	all.mu.Lock()
	all.closed = true
	all.mu.Unlock()
	for _, t := range all.inOrder() {
		t.GiveUp(lockerr.Cancel{Cause: lockerr.ErrClosed})
	}
}
