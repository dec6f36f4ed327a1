package engine

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/multilock"
	"github.com/pawl-lock/pawl/internal/clock"
)

// multiLockAcquisition is the acquisition of many locks as one. What it does next is decided by its
// Acquisition; it tells that what happens, and does what that says.
//
// Invariants:
//
//  1. Who was told of a step does it, and nobody else touches the holds until then: so one
//     does at a time. See multilock.Acquisition.
//  2. parts[i].hold is set while lock i is held for it, and until the result.
//  3. mu is taken without any other lock, and no other lock is taken under it. Results come
//     from event loops, so nobody blocks under it, and no user's code runs.
type multiLockAcquisition struct {
	pendingOp
	fut   Future[*Hold]
	locks []Mutex
	opts  options
	once  bool // TryLock
	seen  *observation
	pause taskTimer

	mu    sync.Mutex
	all   multilock.Acquisition
	parts []part
	began clock.Instant // the round under way; 0: none
}

// part is what a multiLockAcquisition knows of one of its locks.
type part struct {
	parent  *lockHold    // the lock is re-entered under it
	pending *acquisition // without a result yet
	hold    *Hold
}

// startMultiLockAcquisition starts to take the locks. It does not block.
func startMultiLockAcquisition(ctx context.Context, locks []Mutex, o options, parents []*lockHold, once, async bool, seen *observation) *multiLockAcquisition {
	g := &multiLockAcquisition{locks: locks, opts: o, once: once, seen: seen, parts: make([]part, len(locks))}
	g.all = multilock.New(&locks[0].home.world, len(locks), once, async)
	g.fut.source = g
	g.pause.init(g.pauseOver)
	for i, h := range parents {
		g.parts[i].parent = h
	}
	g.begin(ctx, g, locks, len(locks), o, async)        // from here on it may be given up
	g.opts.waitGiven, g.opts.outageGiven = false, false // they bound the whole
	g.after((*multilock.Acquisition).Start)
	return g
}

// after tells what has happened, and does what that leaves.
func (g *multiLockAcquisition) after(event func(*multilock.Acquisition) multilock.Ready) {
	g.mu.Lock()
	s := event(&g.all)
	g.mu.Unlock()
	g.do(s)
}

// do does a step, and those that follow from it.
func (g *multiLockAcquisition) do(s multilock.Ready) {
	switch s.Do {
	case multilock.CheckServers:
		away, why := g.away()
		g.after(func(all *multilock.Acquisition) multilock.Ready { return all.ServersChecked(away, why) })
	case multilock.Try:
		g.began = g.home.clock.Stamp()
		// Once the last one is asked for, the holds are not for this goroutine any more.
		for i := 0; s.Count > 0; i++ {
			if g.parts[i].hold == nil {
				s.Count--
				g.ask(i, s)
			}
		}
	case multilock.Wait:
		g.began = 0
		g.ask(s.At, s)
	case multilock.Decide:
		g.soon(s.Count, (*multiLockAcquisition).decide)
	case multilock.GiveBack:
		g.giveBack()
		var round time.Duration
		if g.began != 0 {
			round = g.home.clock.Stamp().Sub(g.began)
		}
		g.after(func(all *multilock.Acquisition) multilock.Ready { return all.GivenBack(round) })
	case multilock.Pause:
		switch {
		case !g.list():
			g.cancel(lockerr.Cancel{Cause: ErrClosed})
		case s.For == 0:
			g.pauseOver()
		default:
			g.home.table.Timers.Schedule(&g.pause.timer, g.home.clock.Now().Add(s.For))
			if g.over() { // it was canceled before the timer was there
				g.home.table.Timers.Cancel(&g.pause.timer)
			}
		}
	case multilock.Bind:
		g.bind()
	case multilock.CancelTries:
		g.cancelTries()
	case multilock.Fail:
		g.giveBack()
		g.finish()
		g.resolve(nil, notAcquired(g.locks[s.At].name, s.Why))
	}
}

// away returns a lock that is not held yet and whose server has no connection, and why; -1 if
// there is none.
func (g *multiLockAcquisition) away() (int, error) {
	for i, m := range g.locks {
		if e := m.home; g.parts[i].hold == nil && !e.table.Client.LaneOf(m.route).Up() {
			return i, e.unavailable(m.route, nil)
		}
	}
	return -1, nil
}

// ask asks for one of the locks.
func (g *multiLockAcquisition) ask(i int, s multilock.Ready) {
	m := g.locks[i]
	e := m.home
	a := e.newAcquisition(m, g.opts, true, m.observePart(kindMulti, s.Do == multilock.Try))
	a.Try, a.MayQueue = s.Do == multilock.Try, s.Patient
	if a.Try && !g.once {
		a.More().AnyRefusal = true
	}
	a.attachParent(g.parts[i].parent)
	g.mu.Lock()
	g.parts[i].pending = a
	stop := g.all.View().Stop
	g.mu.Unlock()
	if stop != nil {
		a.cancel(*stop) // enqueue finds it ended
	}
	a.fut.onComplete(func(h *Hold, err error) { g.onResult(i, h, err) })
	a.observed().startPart(g.seen)
	e.enqueue(a, m, g.opts)
}

// onResult is called with the result of one lock.
func (g *multiLockAcquisition) onResult(i int, h *Hold, err error) {
	var why error
	if err != nil {
		why = err.(*NotAcquiredError).Err
	}
	g.mu.Lock()
	g.parts[i].pending, g.parts[i].hold = nil, h
	s := g.all.OnResult(i, why)
	g.mu.Unlock()
	g.do(s)
}

// fewLocks is how many locks are given back, or asked for, on an event loop.
const fewLocks = 16

// soon runs a step for n locks, on a goroutine if it is a long one. Most that wait have none,
// so the end of a context that many share costs no goroutine for each.
func (g *multiLockAcquisition) soon(n int, step func(*multiLockAcquisition)) {
	if n > fewLocks {
		g.home.exec.Spawn(func() { step(g) })
		return
	}
	step(g)
}

func (g *multiLockAcquisition) decide()    { g.after((*multilock.Acquisition).Decide) }
func (g *multiLockAcquisition) pauseOver() { g.after((*multilock.Acquisition).PauseOver) }

// giveBack releases what was granted.
func (g *multiLockAcquisition) giveBack() {
	for i := range g.parts {
		if h := g.parts[i].hold; h != nil {
			g.parts[i].hold = nil
			h.h.unlockAsync(false)
		}
	}
}

// bind makes one hold of all, unless one was lost meanwhile.
func (g *multiLockAcquisition) bind() {
	holds := make([]*lockHold, len(g.parts))
	for i := range g.parts {
		holds[i] = g.parts[i].hold.h.(*lockHold)
	}
	m, lost := newMultiHold(g.locks, holds)
	if lost != nil {
		why := endedBefore(g.locks[lost.at].name, lost.why).Err
		g.after(func(all *multilock.Acquisition) multilock.Ready { return all.Lost(lost.at, why) })
		return
	}
	g.mu.Lock()
	g.all.Bound()
	g.mu.Unlock()
	g.finish()
	m.group.observe(g.seen)
	g.resolve(m.newHold(m, g.opts.lease == 0), nil)
}

// resolve tells the caller, and before that the Observer of a future.
func (g *multiLockAcquisition) resolve(h *Hold, err error) {
	g.seen.finishAsync(err)
	g.fut.resolve(h, err)
}

// cancelTries gives up what is asked for.
func (g *multiLockAcquisition) cancelTries() {
	g.mu.Lock()
	stop := g.all.View().Stop
	var asked []*acquisition
	for i := range g.parts {
		if a := g.parts[i].pending; a != nil {
			asked = append(asked, a)
		}
	}
	g.mu.Unlock()
	for _, a := range asked {
		a.cancel(*stop)
	}
}

// cancel implements pendingOwner.
func (g *multiLockAcquisition) cancel(stop lockerr.Cancel) bool {
	g.mu.Lock()
	s := g.all.Cancel(stop)
	g.mu.Unlock()
	if s.Do == multilock.Fail { // it paused
		g.home.table.Timers.Cancel(&g.pause.timer)
	}
	g.do(s)
	return s.Do != multilock.Nothing
}

// waitOver implements pendingOwner.
func (g *multiLockAcquisition) waitOver() {
	g.mu.Lock()
	n := g.all.View().Out
	g.mu.Unlock()
	g.soon(n, func(g *multiLockAcquisition) { g.cancel(lockerr.Cancel{Cause: lockerr.ErrWaited, TimedOut: true}) })
}

// over implements pendingOwner.
func (g *multiLockAcquisition) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all.View().Stage == multilock.Over
}

// The methods below make a multiLockAcquisition the source of its future.

func (g *multiLockAcquisition) abandon() { g.cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}) }

func (g *multiLockAcquisition) drop(h *Hold) { h.h.unlockAsync(false) }
