package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/internal/clock"
)

// severalAcquisition is a MultiLock or a QuorumLock that somebody wants, and then has: the machine that
// decides, and what is not pure about it.
//
// mu is taken without any other lock, and under it only those that say whether a server has a connection:
// what is to be done is noted in a Ready, and done after it. It leads to no Hold: one that was dropped can be
// noticed.
type severalAcquisition struct {
	driver.Pending
	home    *Engine // of the first lock: its wheel and executor serve all of them
	all     *several
	locks   []Mutex
	opts    options
	parents []*lockHold               // the lock is re-entered under them, or asked for beside them; nil: nowhere
	held    weak.Pointer[heldContext] // where they were found, and those that join later are
	whole   severalHold               // what its Hold leads to
	fut     *Future[*Hold]            // until it is settled
	seen    *observation
	timer   driver.TaskTimer // of Machine.Due
	votes   []vote           // the first of each member

	mu sync.Mutex
	quorum.Machine
	unlocked *groupUnlock // by Unlock
}

// start starts to ask for the locks. It does not block. parents are those that held carries.
func (all *several) start(ctx context.Context, o options, held *heldContext, parents []*lockHold, once, async bool, seen *observation) (*severalAcquisition, *Future[*Hold]) {
	ends := 1
	if all.policy == quorum.All { // each ends the whole
		ends = len(all.locks)
	}
	q := &severalAcquisition{home: all.locks[0].home, all: all, locks: all.locks, opts: o, seen: seen, votes: make([]vote, len(all.locks))}
	q.whole.q, q.whole.done, q.whole.left = q, make(chan struct{}), ends
	cfg := quorum.Config{Policy: all.policy, Order: all.order, Once: once}
	if o.lease == 0 {
		cfg.Renewal = all.locks[0].home.cfg.Lease / 3
	}
	q.Init(q, len(all.locks), cfg)
	fut := &Future[*Hold]{source: q}
	q.fut = fut
	q.timer.Init(q.tick)
	q.opts.waitGiven, q.opts.outageGiven = false, false // they bound the whole
	if slices.ContainsFunc(parents, func(h *lockHold) bool { return h != nil }) {
		q.parents, q.held = parents, weak.Make(held)
	}
	var do quorum.Ready
	q.Machine.Begin(&do)
	bounds := driver.Bounds{Late: lockerr.ErrWaited, HasOutage: o.outageGiven, Outage: o.outage, Need: q.Need()}
	if o.waitGiven {
		bounds.Wait = o.wait
	}
	q.Pending.Begin(ctx, q, all.tables, bounds, async) // from here on it may be given up
	q.run(&do, async)
	return q, fut
}

// tables are those of the locks, with the routes of their names.
func (all *several) tables(yield func(*driver.Table, uint64) bool) {
	for _, m := range all.locks {
		if !yield(&m.home.table, m.route) {
			return
		}
	}
}

// The methods below implement quorum.Port.

func (q *severalAcquisition) Now() clock.Instant                 { return q.locks[0].home.clock.Now() }
func (q *severalAcquisition) Stamp(i int) clock.Instant          { return q.locks[i].home.clock.Stamp() }
func (q *severalAcquisition) Draw(d time.Duration) time.Duration { return q.home.world.Draw(d) }

func (q *severalAcquisition) RoundTrip(i int) time.Duration {
	return time.Duration(q.locks[i].home.roundTrip.Load())
}

func (q *severalAcquisition) SetRoundTrip(i int, d time.Duration) {
	q.locks[i].home.roundTrip.Store(int64(d))
}

func (q *severalAcquisition) NewTry(i int, waits bool) quorum.Try {
	m := q.locks[i]
	a := m.home.newAcquisition(m, q.opts, true, m.observePart(q.all.kind(), !waits))
	if q.Policy == quorum.Majority {
		a.More().Quorum = true
	}
	switch {
	case waits:
	case q.Once:
		a.Persists = lock.UntilAnswered
	default:
		a.Persists = lock.UntilRefused
	}
	return a
}

func (q *severalAcquisition) Away(i int) error {
	m := q.locks[i]
	if m.home.table.Client.LaneOf(m.route).Up() {
		return nil
	}
	return m.home.unavailable(m.route, nil)
}

// carried is what the context carries at a server now, if the lock may re-enter it or stand beside it; nil
// if nothing. It may have joined there since the lock was asked for. The context lives as long as that,
// unless it was ended.
func (q *severalAcquisition) carried(i int) *lockHold {
	if q.parents == nil {
		return nil
	}
	m, h := q.locks[i], q.parents[i]
	if c := q.held.Value(); c != nil {
		h = c.carried(m.home, m.key)
	} else if h != nil && !h.entered() {
		h = nil
	}
	if m.reenters(h, q.opts) != nil {
		return nil
	}
	return h
}

// entered reports whether the hold, or one that it re-enters, is one still.
func (h *lockHold) entered() bool { return underLock(h, (*lock.Hold).InnermostLive) != nil }

// fewLocks is how many locks are given back, or asked for, on an event loop.
const fewLocks = 16

// soon does what a transition has left to be done, on a goroutine if that is much. Most that wait have little,
// so the end of a context that many share costs no goroutine for each.
func (q *severalAcquisition) soon(do *quorum.Ready) {
	if len(do.Give)+len(do.Cancel)+len(do.Ask) <= fewLocks {
		q.run(do, false)
		return
	}
	much := *do
	q.home.exec.Spawn(func() { q.run(&much, false) })
}

// run does what a transition has left to be done. In the first attempt of a future, mayOverflow: its caller can try
// again later.
func (q *severalAcquisition) run(do *quorum.Ready, mayOverflow bool) {
	if do.Lost != nil {
		q.home.log(slog.LevelWarn, "pawl: a RedLock was lost", "err", do.Lost.Error())
	}
	for _, v := range do.Give {
		v := voteOf(v)
		v.hold.unbind(v) // or its release would wait for v.End, on a goroutine
		v.hold.unlockAsync(false)
	}
	if do.Withdraw {
		var next quorum.Ready
		q.mu.Lock()
		q.GivenBack(&next)
		q.mu.Unlock()
		defer q.soon(&next)
	}
	for _, a := range do.Cancel {
		a.(*acquisition).cancel(do.Why)
	}
	if do.Won || do.Failed != nil {
		q.settle(do)
	}
	if do.Join != nil && do.Last != 0 {
		voteOf(do.Join).hold.endBy(do.Last)
	}
	for _, v := range do.LookAt {
		holdOf(voteOf(v).hold.Root()).VerifyNow()
	}
	for _, one := range do.Ask {
		q.enqueue(one.Member, one.Try.(*acquisition), mayOverflow)
	}
	if do.Timer {
		q.setTimer()
	}
	if do.List && !q.List() {
		q.Cancel(lockerr.Cancel{Cause: ErrClosed})
	}
}

// settle tells the caller what became of it.
func (q *severalAcquisition) settle(do *quorum.Ready) {
	fut := q.fut
	q.fut = nil
	q.Finish()
	if do.Won {
		q.whole.observe(q.seen)
	}
	q.seen.finishAsync(do.Failed)
	if do.Won {
		fut.resolve(q.whole.newHold(&q.whole, q.opts.lease == 0), nil)
	} else {
		fut.resolve(nil, do.Failed)
	}
}

func (q *severalAcquisition) enqueue(i int, a *acquisition, mayOverflow bool) {
	q.mu.Lock()
	s := q.Stopped()
	q.mu.Unlock()
	if h := q.carried(i); h != nil {
		a.Shard.Lock()
		a.attachParent(h)
		a.Shard.Unlock()
	}
	if s != nil {
		a.cancel(*s) // enqueue finds it ended
	}
	a.fut.onComplete(func(h *Hold, err error) { q.onResult(i, h, err) })
	a.observed().startPart(q.seen)
	q.locks[i].home.enqueue(a, q.locks[i], q.opts, mayOverflow && a.Try())
}

// onResult is called with the result of one server.
func (q *severalAcquisition) onResult(i int, h *Hold, err error) {
	var v *quorum.Vote
	var refusal quorum.Refusal
	if h == nil {
		refusal = quorum.RefusalOf(err.(*NotAcquiredError).Err)
	} else if v, err = q.bind(i, h); v == nil {
		refusal = quorum.EndedBefore(endOf(i, err))
		h.h.unlockAsync(false)
	}
	var do quorum.Ready
	q.mu.Lock()
	q.Reply(i, v, refusal, &do)
	q.mu.Unlock()
	q.soon(&do)
}

// setTimer has tick called when it is due. Two transitions may be here at the same time: the later Due
// is what both end with.
func (q *severalAcquisition) setTimer() {
	for due := q.due(); ; {
		if due == 0 {
			q.home.table.Timers.Cancel(&q.timer.Timer)
		} else {
			q.home.table.Timers.Schedule(&q.timer.Timer, due)
		}
		again := q.due()
		if again == due {
			return
		}
		due = again
	}
}

func (q *severalAcquisition) due() clock.Instant {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.Due
}

// tick goes on when the time of the stage is over.
func (q *severalAcquisition) tick() {
	var do quorum.Ready
	q.mu.Lock()
	q.Tick(&do)
	q.mu.Unlock()
	q.soon(&do)
}

// vote is a hold of one of the servers.
type vote struct {
	quorum.Vote
	of   *severalAcquisition
	hold *lockHold
}

func voteOf(v *quorum.Vote) *vote { return v.Port.(*vote) }

// bind makes a vote of a hold, or returns why it has ended.
func (q *severalAcquisition) bind(i int, l *Hold) (*quorum.Vote, error) {
	h := l.h.(*lockHold)
	v := &q.votes[i]
	if v.of != nil { // somebody may know that one still
		v = new(vote)
	}
	v.of, v.hold, v.Port, v.Member = q, h, v, i
	if why := h.bind(v); why != nil {
		return nil, why
	}
	h.Shard().Lock()
	v.MaxEnd, v.Reenters = h.MaxEnd(), h.Parent != nil
	h.Shard().Unlock()
	return &v.Vote, nil
}

// InTime and Until implement quorum.VotePort.
func (v *vote) InTime() bool         { return v.hold.InTime() }
func (v *vote) Until() clock.Instant { return v.hold.Until() }

// End implements lock.Context: the hold of the vote has ended.
func (v *vote) End(why error) {
	there := underLock(v.hold, (*lock.Hold).LastConfirmed)
	var do quorum.Ready
	q := v.of
	q.mu.Lock()
	q.Leave(&v.Vote, endOf(v.Member, why), there, &do)
	ending := q.Ending
	q.mu.Unlock()
	defer q.soon(&do) // even if a context of the user's panics
	if ending != nil {
		q.whole.End(ending) // or waits for it
	}
}

// endOf is why the hold at a server has ended.
func endOf(i int, why error) quorum.End {
	e := quorum.End{Member: i, Why: why, There: why}
	if lost, yes := why.(*LostError); yes {
		e.Loss, e.There = lock.Loss(lost.Reason), cmp.Or(lost.Err, error(lossAt(lost.Reason)))
	}
	return e
}

// endBy has a hold that joins others end with them.
func (h *lockHold) endBy(at clock.Instant) {
	h.Shard().Lock()
	defer h.Shard().Unlock()
	h.EndBy(at)
}

// Cancel implements driver.PendingOwner.
func (q *severalAcquisition) Cancel(s lockerr.Cancel) bool {
	var do quorum.Ready
	q.mu.Lock()
	did := q.Machine.Cancel(s, &do)
	q.mu.Unlock()
	q.soon(&do)
	return did
}

func (q *severalAcquisition) Over() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.Decided()
}

// The methods below make it the source of its future.

func (q *severalAcquisition) executor() *executor.Executor { return &q.home.exec }

func (q *severalAcquisition) abandon()     { q.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}) }
func (q *severalAcquisition) drop(h *Hold) { h.h.unlockAsync(false) }
