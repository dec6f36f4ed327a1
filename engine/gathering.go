package engine

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// gathering takes many locks as one: all or none.
//
//	trying --all granted---------------------------------------> over: a MultiHold
//	  ^  |
//	  |  +--one refused: the others are given back--> pausing
//	  |                                                  |
//	  +--granted-- blocked, on the one that refused <----+  (or whose server is away)
//
//	any --context, Wait, Abandon, Close, a refusal for good----> over: all given back
//
// It waits, for a lock or for time, only while it has none of the others. So two that want
// the same locks in another order do not wait for each other. They may refuse each other,
// though, again and again; the pause, of random length, ends that.
//
// Invariants:
//
//  1. out counts the acquisitions of the current round that have no result. The goroutine
//     that brings it to 0 decides what comes next, so one does at a time.
//  2. parts[i].hold is set while lock i is held for the gathering, and until the result.
//  3. mu is taken without any other lock, and no other lock is taken under it. Results come
//     from event loops, so nobody blocks under it, and no user's code runs.
type gathering struct {
	many
	fut   Future[*MultiHold]
	locks []Mutex
	opts  options
	once  bool // TryLock: one round
	async bool

	mu      sync.Mutex
	stage   stage
	stop    *reason.Stop // it is given up
	parts   []part
	out     int
	refused int       // the lock that it blocks on
	refusal error     // of that one, the latest
	rounds  int       // that ended with a refusal
	late    int       // that ended with a lock that was lost meanwhile, or came too late
	pause   taskTimer // ends pausing
}

type stage uint8

const (
	stageTrying stage = iota
	stageBlocked
	stagePausing
	stageOver
)

// part is what a gathering knows of one of its locks.
type part struct {
	parent *holding     // the lock is re-entered under it
	asked  *acquisition // without a result yet
	hold   *Hold
	err    error
}

// startGathering starts to take the locks. It does not block.
func startGathering(ctx context.Context, locks []Mutex, o options, parents []*holding, once, async bool) *gathering {
	g := &gathering{
		locks: locks, opts: o, once: once, async: async,
		parts: make([]part, len(locks)), refused: -1,
	}
	g.fut.source = g
	g.pause.init(g.pauseOver)
	for i, h := range parents {
		g.parts[i].parent = h
	}
	g.begin(ctx, g, locks, o, async)
	g.opts.waitGiven = false // it bounds the whole
	g.tryOthers()
	return g
}

// tryOthers begins a round: every lock that is not held yet is tried once, all of them at
// the same time. But if the server of one is known to be away, it waits for that one first:
// others would be kept until it is given up.
func (g *gathering) tryOthers() {
	if i := g.away(); i >= 0 && !g.once {
		m := g.locks[i]
		g.mu.Lock()
		g.refused, g.refusal = i, notAcquired(m.name, m.engine().unavailable(m.route, nil))
		g.mu.Unlock()
		g.giveBack()
		g.rest()
		return
	}
	g.mu.Lock()
	g.stage = stageTrying
	var ask []int
	for i := range g.parts {
		if g.parts[i].hold == nil {
			ask = append(ask, i)
		}
	}
	g.out = len(ask)
	g.mu.Unlock()
	for _, i := range ask {
		g.ask(i, true)
	}
}

// ask asks for one of the locks. Its result is counted in out already.
func (g *gathering) ask(i int, once bool) {
	m := g.locks[i]
	e := m.engine()
	a := e.newAcquisition(m, g.opts, true)
	a.Once, a.Parent = once, g.parts[i].parent.inner()
	g.mu.Lock()
	// Only the first round may find a lane full: no caller could try later ones again.
	a.Patient = !g.async || g.rounds > 0 || g.stage != stageTrying
	g.parts[i].asked = a
	s := g.stop
	g.mu.Unlock()
	if s != nil {
		a.cancel(*s) // enqueue finds it ended
	}
	a.fut.hearDirectly(func(h *Hold, err error) { g.told(i, h, err) })
	e.enqueue(a, m, g.opts)
}

// told is called with the result of one lock.
func (g *gathering) told(i int, h *Hold, err error) {
	g.mu.Lock()
	p := &g.parts[i]
	p.asked, p.hold, p.err = nil, h, err
	g.out--
	last := g.out == 0
	work := 0
	if last {
		work = g.work()
	}
	g.mu.Unlock()
	if last {
		g.soon(work, g.decide)
	}
}

// work is how many locks decide gives back, binds or asks for. The caller holds mu.
func (g *gathering) work() (n int) {
	for i := range g.parts {
		if g.parts[i].hold != nil {
			n++
		}
	}
	if g.stage == stageBlocked && n > 0 && g.stop == nil { // the others are next
		n = len(g.parts)
	}
	return n
}

// fewLocks is how many locks are given back, or asked for, on an event loop.
const fewLocks = 16

// soon runs a step for n locks, on a goroutine if it is a long one. Most that wait have none,
// so the end of a context that many share costs no goroutine for each.
func (g *gathering) soon(n int, step func()) {
	if n > fewLocks {
		g.home.exec.Spawn(step)
		return
	}
	step()
}

// waitOver ends the gathering because its Wait is over.
func (g *gathering) waitOver() {
	g.mu.Lock()
	n := g.out
	g.mu.Unlock()
	g.soon(n, func() { g.cancel(reason.Stop{Cause: reason.ErrWaited, Late: true}) })
}

// decide goes on after a round.
func (g *gathering) decide() {
	g.mu.Lock()
	failed := g.worst()
	stage, stopped := g.stage, g.stop != nil
	g.mu.Unlock()
	switch {
	case failed >= 0:
		g.refusedBy(failed)
	case stage == stageBlocked && len(g.locks) > 1 && !stopped:
		g.tryOthers()
	case stage == stageBlocked && len(g.locks) > 1:
		g.fail(g.stoppedAt(g.refusal))
	default:
		g.succeed()
	}
}

// giveBack releases what was granted.
func (g *gathering) giveBack() {
	for i := range g.parts {
		g.mu.Lock()
		h := g.parts[i].hold
		g.parts[i].hold, g.parts[i].err = nil, nil
		g.mu.Unlock()
		if h != nil {
			h.unlockAsync(false)
		}
	}
}

// The pause before a gathering blocks: none after the first refusal, as most locks are
// held by an owner that does not want the others; then up to a bound that doubles.
const (
	firstPause = time.Millisecond
	longPause  = 64 * time.Millisecond
)

// rest pauses, and then blocks on the lock that refused.
func (g *gathering) rest() {
	g.mu.Lock()
	d := time.Duration(0)
	if g.rounds > 0 {
		d = g.home.world.Draw(min(firstPause<<min(g.rounds, 16), longPause))
	}
	g.rounds++
	stopped := g.stop != nil
	if !stopped {
		g.stage = stagePausing
	}
	g.mu.Unlock()
	switch {
	case stopped:
		g.fail(g.stoppedAt(g.refusal))
	case !g.list():
		g.cancel(reason.Stop{Cause: ErrClosed})
	case d == 0:
		g.pauseOver()
	default:
		g.home.table.Timers.Schedule(&g.pause.timer, g.home.clock.Now().Add(d))
	}
}

// pauseOver blocks on the lock that refused, unless the gathering was given up.
func (g *gathering) pauseOver() {
	g.mu.Lock()
	on := g.stage == stagePausing
	if on {
		g.stage, g.out = stageBlocked, 1
	}
	g.mu.Unlock()
	if on {
		g.ask(g.refused, false)
	}
}

// cancel gives the gathering up unless it has ended or was given up before; it reports
// whether it did.
func (g *gathering) cancel(s reason.Stop) bool {
	g.mu.Lock()
	if g.stage == stageOver || g.stop != nil {
		g.mu.Unlock()
		return false
	}
	g.stop = &s
	paused := g.stage == stagePausing
	if paused {
		g.stage = stageTrying // pauseOver does nothing now
	}
	var asked []*acquisition
	for i := range g.parts {
		if a := g.parts[i].asked; a != nil {
			asked = append(asked, a)
		}
	}
	g.mu.Unlock()
	if paused {
		g.home.table.Timers.Cancel(&g.pause.timer)
		g.fail(g.stoppedAt(g.refusal))
	}
	for _, a := range asked {
		a.cancel(s)
	}
	return true
}

// fail ends the gathering without the locks.
func (g *gathering) fail(err error) {
	g.giveBack()
	g.end()
	g.fut.settle(nil, err)
}

// end takes the gathering out of everything.
func (g *gathering) end() {
	g.mu.Lock()
	g.stage = stageOver
	g.mu.Unlock()
	g.finish()
}

// succeed ends the gathering with all locks, unless one was lost meanwhile.
func (g *gathering) succeed() {
	holds := make([]*Hold, len(g.parts))
	for i := range g.parts {
		holds[i] = g.parts[i].hold
	}
	m, lost := newMultiHold(g.locks, holds)
	if lost == nil {
		g.end()
		g.fut.settle(m, nil)
		return
	}
	why := endedBefore(g.locks[lost.at].name, lost.why)
	g.mu.Lock()
	g.late++
	again := !g.once && g.late < machine.MaxLate && g.stop == nil
	if again {
		g.refused, g.refusal = lost.at, why
	}
	g.mu.Unlock()
	if !again {
		g.fail(why)
		return
	}
	g.giveBack()
	g.rest()
}
