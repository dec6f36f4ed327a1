package engine

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/executor"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/engine/internal/waitq"
	"github.com/pawl-lock/pawl/internal/clock"
)

// severalHold is a MultiLock or a QuorumLock that somebody wants, and then has: the machine that decides, and what is
// not pure about it. Its end comes with the end of one of its locks, which has a vote among its contexts. So it comes
// before the release of that lock, and before others can have it.
//
// mu is taken without any other lock, and under it only those of the timers and those that say whether a server has
// a connection: what is to be done is noted in a Ready, and done after it. It leads to no Hold: one that was dropped can be
// noticed.
type severalHold struct {
	driver.Pending
	eng     *Engine // of the first lock: its wheel and executor serve all of them
	all     *several
	opts    options
	parents []*lockHold               // the lock is re-entered under them, or asked for beside them; nil: nowhere
	held    weak.Pointer[heldContext] // where they were found, and those that join later are
	fut     *Future[*Hold]            // until it is settled
	seen    *observation              // nil: nobody observes
	timer   driver.TaskTimer          // of Machine.Due
	votes   []vote                    // the first of each member
	done    chan struct{}             // closed when it has ended, and its contexts, too

	mu sync.Mutex
	quorum.Machine
	contexts waitq.Set[*heldContext]
	ending   bool             // somebody ends them
	watched  *runtime.Cleanup // leaked is called, until Unlock is called or all have ended
	left     int              // of its locks, or 1, whose end ends that watch
	unlocked *severalUnlock   // by Unlock
}

// start starts to ask for the locks. It does not block.
func (h *severalHold) start(ctx context.Context, once, async bool) *Future[*Hold] {
	all, fut := h.all, &Future[*Hold]{source: h}
	h.fut, h.votes, h.done, h.left = fut, make([]vote, len(all.locks)), make(chan struct{}), 1
	if all.policy == quorum.All { // each ends the whole
		h.left = len(all.locks)
	}
	cfg := quorum.Config{Policy: all.policy, Order: all.order, Once: once}
	if h.opts.lease == 0 {
		cfg.Renewal = h.eng.cfg.Lease / 3
	}
	h.Init(h, len(all.locks), cfg)
	h.timer.Init(h.tick)
	bounds := h.opts.bounds(h.Need())
	h.opts.waitGiven, h.opts.outageGiven = false, false // they bound the whole
	var do quorum.Ready
	h.Machine.Begin(&do)
	h.Pending.Begin(ctx, h, all.tables, bounds, async) // from here on it may be given up
	h.run(&do, async)
	return fut
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

func (h *severalHold) Now() clock.Instant                 { return h.all.locks[0].home.clock.Now() }
func (h *severalHold) Stamp(i int) clock.Instant          { return h.all.locks[i].home.clock.Stamp() }
func (h *severalHold) Draw(d time.Duration) time.Duration { return h.eng.world.Draw(d) }

func (h *severalHold) RoundTrip(i int) time.Duration {
	return time.Duration(h.all.locks[i].home.roundTrip.Load())
}

func (h *severalHold) SetRoundTrip(i int, d time.Duration) {
	h.all.locks[i].home.roundTrip.Store(int64(d))
}

func (h *severalHold) NewTry(i int, waits bool) quorum.Try {
	m := h.all.locks[i]
	a := m.home.newAcquisition(m, h.opts, true, m.observePart(h.all.kind(), !waits))
	if h.Policy == quorum.Majority {
		a.More().Quorum = true
	}
	switch {
	case waits:
	case h.Once:
		a.Persists = lock.UntilAnswered
	default:
		a.Persists = lock.UntilRefused
	}
	return a
}

func (h *severalHold) Away(i int) error {
	m := h.all.locks[i]
	if m.home.table.Client.LaneOf(m.route).Up() {
		return nil
	}
	return m.home.unavailable(m.route, nil)
}

// carried is what the context carries at a server now, if the lock may re-enter it or stand beside it; nil
// if nothing. It may have joined there since the lock was asked for. The context lives as long as that,
// unless it was ended.
func (h *severalHold) carried(i int) *lockHold {
	if h.parents == nil {
		return nil
	}
	m, parent := h.all.locks[i], h.parents[i]
	if c := h.held.Value(); c != nil {
		parent = c.carried(m.home, m.key)
	} else if parent != nil && !parent.entered() {
		parent = nil
	}
	if m.reenters(parent, h.opts) != nil {
		return nil
	}
	return parent
}

// entered reports whether the hold, or one that it re-enters, is one still.
func (h *lockHold) entered() bool { return underLock(h, (*lock.Hold).InnermostLive) != nil }

// fewLocks is how many locks are given back, or asked for, on an event loop.
const fewLocks = 16

// soon does what a transition has left to be done, on a goroutine if that is much. Most that wait have little,
// so the end of a context that many share costs no goroutine for each.
func (h *severalHold) soon(do *quorum.Ready) {
	if len(do.Give)+len(do.Cancel)+len(do.Ask) <= fewLocks {
		h.run(do, false)
		return
	}
	much := *do
	h.eng.exec.Spawn(func() { h.run(&much, false) })
}

// apply gives the lock back, and does what a transition has left to be done.
func (h *severalHold) apply(do *quorum.Ready) {
	h.unlockMu(do)
	h.soon(do)
}

// unlockMu gives the lock back after a transition, with the timer as that wants it.
func (h *severalHold) unlockMu(do *quorum.Ready) {
	switch timers := h.eng.table.Timers; {
	case !do.Timer:
	case h.Due == 0:
		timers.Cancel(&h.timer.Timer)
	default:
		timers.Schedule(&h.timer.Timer, h.Due)
	}
	h.mu.Unlock()
}

// run does what a transition has left to be done. In the first attempt of a future, mayOverflow: its caller can try
// again later.
func (h *severalHold) run(do *quorum.Ready, mayOverflow bool) {
	if do.Lost != nil {
		h.eng.log(slog.LevelWarn, "pawl: a RedLock was lost", "err", do.Lost.Error())
	}
	for _, v := range do.Give {
		v := voteOf(v)
		v.hold.unbind(v) // or its release would wait for v.End, on a goroutine
		v.hold.unlockAsync(false)
	}
	for _, a := range do.Cancel {
		a.(*acquisition).cancel(do.Why)
	}
	if do.Won || do.Failed != nil {
		h.settle(do)
	}
	if do.Join != nil && do.Last != 0 {
		voteOf(do.Join).hold.endBy(do.Last)
	}
	for _, v := range do.LookAt {
		holdOf(voteOf(v).hold.Root()).VerifyNow()
	}
	for _, one := range do.Ask {
		h.enqueue(one.Member, one.Try.(*acquisition), mayOverflow)
	}
	if do.List {
		h.List()
	}
	if do.Withdraw {
		var next quorum.Ready
		h.mu.Lock()
		h.GivenBack(&next)
		h.apply(&next)
	}
}

// settle tells the caller what became of it.
func (h *severalHold) settle(do *quorum.Ready) {
	fut := h.fut
	h.fut = nil
	h.Finish()
	h.seen.finishAsync(do.Failed)
	if do.Won {
		fut.resolve(h.handle(), nil)
	} else {
		fut.resolve(nil, do.Failed)
	}
}

func (h *severalHold) enqueue(i int, a *acquisition, mayOverflow bool) {
	h.mu.Lock()
	stopped := h.Stopped()
	h.mu.Unlock()
	if parent := h.carried(i); parent != nil {
		a.Shard.Lock()
		a.attachParent(parent)
		a.Shard.Unlock()
	}
	if stopped != nil {
		a.cancel(*stopped) // enqueue finds it ended
	}
	a.fut.onComplete(func(l *Hold, err error) { h.onResult(i, l, err) })
	a.observed().startPart(h.seen)
	h.all.locks[i].home.enqueue(a, h.all.locks[i], h.opts, mayOverflow && a.Try())
}

// onResult is called with the result of one server.
func (h *severalHold) onResult(i int, l *Hold, err error) {
	var v *quorum.Vote
	var refusal quorum.Refusal
	if l == nil {
		refusal = quorum.RefusalOf(err.(*NotAcquiredError).Err)
	} else if v, err = h.bind(i, l); v == nil {
		refusal = quorum.EndedBefore(endOf(i, err))
		l.giveBack()
	}
	var do quorum.Ready
	h.mu.Lock()
	h.Reply(i, v, refusal, &do)
	h.apply(&do)
}

// tick goes on when the time of the stage is over.
func (h *severalHold) tick() {
	var do quorum.Ready
	h.mu.Lock()
	h.Tick(&do)
	h.apply(&do)
}

// vote is a hold of one of the servers.
type vote struct {
	quorum.Vote
	of   *severalHold
	hold *lockHold
}

func voteOf(v *quorum.Vote) *vote { return v.Port.(*vote) }

// bind makes a vote of a hold, or returns why it has ended.
func (h *severalHold) bind(i int, l *Hold) (*quorum.Vote, error) {
	one := l.h.(*lockHold)
	v := &h.votes[i]
	if v.of != nil { // somebody may know that one still
		v = new(vote)
	}
	v.of, v.hold, v.Port, v.Member = h, one, v, i
	if why := one.bind(v); why != nil {
		return nil, why
	}
	one.Shard().Lock()
	v.MaxEnd, v.Reenters = one.MaxEnd(), one.Parent != nil
	one.Shard().Unlock()
	return &v.Vote, nil
}

// bind makes f end with h, or returns why h has ended. From then on h belongs to the whole,
// which is watched for leaks instead.
func (h *lockHold) bind(f lock.Context) error {
	var rd lock.Ready
	h.Shard().Lock()
	err := h.Check(h.Shard().Now(), &rd)
	if err == nil {
		h.Bind(f)
		h.unwatch()
	}
	h.Shard().Unlock()
	h.Shard().Table.Apply(&rd)
	return err
}

// unbind undoes bind, unless h has ended.
func (h *lockHold) unbind(f lock.Context) {
	h.Shard().Lock()
	h.Unbind(f)
	h.Shard().Unlock()
}

// InTime and Until implement quorum.VotePort.
func (v *vote) InTime() bool         { return v.hold.InTime() }
func (v *vote) Until() clock.Instant { return v.hold.Until() }

// End implements lock.Context: the hold of the vote has ended.
func (v *vote) End(why error) {
	there := underLock(v.hold, (*lock.Hold).LastConfirmed)
	var do quorum.Ready
	h := v.of
	h.mu.Lock()
	before := h.Ending
	h.Leave(&v.Vote, endOf(v.Member, why), there, &do)
	h.noteEnd(before)
	ended := h.Ending != nil
	if ended {
		if h.left--; h.left <= 0 {
			h.unwatchLocked()
		}
	}
	h.unlockMu(&do)
	defer h.soon(&do) // even if a context of the user's panics
	if ended {
		h.endContexts() // or waits for it
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
func (h *severalHold) Cancel(why lockerr.Cancel) bool {
	var do quorum.Ready
	h.mu.Lock()
	did := h.Machine.Cancel(why, &do)
	h.apply(&do)
	return did
}

func (h *severalHold) Over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Decided()
}

// The methods below make it the source of its future.

func (h *severalHold) executor() *executor.Executor { return &h.eng.exec }

func (h *severalHold) abandon() { h.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}) }
