package wheel

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
)

// Wheel runs timers. It never fires one early, and normally within two
// milliseconds of the deadline.
//
// The library below it is never trusted and never waited for. All that it is asked
// for is to say when a slot should be looked at, and a look goes by our own clock.
// The watcher looks four times a second without being told, and a slot comes back a third
// of a second before it is due. So no library, and no step of the wall clock that it goes by,
// makes a timer late.
//
//	deadline near (20 ticks) ---------------> near ring --> due --> worker --> Fire
//	deadline far --> slot --> library --(~16 ticks before)--^
//	                    \---- watcher, if the library does not --^
//
// Invariants:
//
//  1. An armed timer is in exactly one list: a slot's, the near ring's, or due.
//     Taking it out, under mu, is what decides between Fire and Cancel.
//  2. Whatever the library does with a slot, the watcher empties it at the first
//     look at which it is overdue. With a tick of 17 ms or more that is before the
//     first deadline in it.
//  3. done, the last grain that has ended, only grows, and no faster than Clock. No
//     timer of a grain up to done is in near; due holds only what Clock has passed.
//  4. If near holds a timer, the runtime timer is set for its grain or an earlier
//     one, or its callback is about to run.
//  5. If due holds a timer and the wheel is open, a worker exists.
//  6. mu is a leaf: nothing of the library, no Task and no callback is called under
//     it. So Schedule and Cancel may be called under any lock of their caller.
type Wheel struct {
	cfg   Config
	clock clock.Clock
	grain int64 // nanoseconds
	tick  time.Duration
	hop   int64 // grains

	wake    *time.Timer // turns the near ring
	once    sync.Once   // Close
	quit    chan struct{}
	tasks   sync.WaitGroup // the watcher and the workers
	gone    chan struct{}  // closed after Close, once no library is left
	unhook  func()
	runWork func() // w.work, bound once: starting a worker costs no allocation

	lastLag, maxLag atomic.Int64

	mu struct {
		sync.Mutex
		closing bool
		done    int64 // grains
		wakeAt  int64 // grain the runtime timer is set for, 0: none
		near    nearRing
		slots   map[int64]*timerList // by number: see slotLocked
		due     timerList
		workers int

		era       *era
		abandoned int // libraries that were told to stop and have not

		armed    int
		fired    uint64
		rebuilds Rebuilds
	}
}

// New starts a wheel: two goroutines beside the library's two.
func New(cfg Config) *Wheel {
	cfg = cfg.complete()
	w := &Wheel{
		cfg:    cfg,
		clock:  cfg.Clock,
		grain:  int64(cfg.Tick) / tickGrains,
		tick:   cfg.Tick,
		quit:   make(chan struct{}),
		gone:   make(chan struct{}),
		unhook: func() {},
	}
	// The default wheel spans 164 s: 50 s are less than 5/16 of it.
	w.hop = int64(min(hop, time.Duration(cfg.Size)*cfg.Tick*5/16)) / w.grain
	w.runWork = w.work
	w.mu.done = int64(w.clock.Now()) / w.grain
	w.mu.near.reset()
	w.mu.due.reset()
	w.mu.slots = make(map[int64]*timerList)
	w.wake = time.AfterFunc(time.Hour, w.turn)
	w.wake.Stop()
	w.mu.era = w.newEra()
	go w.mu.era.drive()
	w.tasks.Go(w.watch)
	if m, ok := cfg.Clock.(movable); ok {
		w.unhook = m.OnMove(w.moved)
	}
	return w
}

// Schedule arms t for the given instant; an armed timer moves. An instant in the
// past fires at once, on a worker. After Close it does nothing. Any goroutine may
// call it, under any lock. It does not allocate, but for the first timer of a slot.
//
// A Fire that has already begun is not called back: it may run after Schedule
// returns, and then t fires again at the new instant.
func (w *Wheel) Schedule(t *Timer, at clock.Instant) {
	if t.task == nil {
		panic("BUG: wheel: Schedule of a Timer without Init")
	}
	now := w.clock.Stamp()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closing {
		return
	}
	w.advanceLocked(now)
	if t.linked() {
		t.unlink()
		w.mu.armed--
	}
	t.at = at
	w.mu.armed++
	w.placeLocked(t, now)
}

// Cancel disarms t. True: it was armed and will not fire. False: it was not
// armed, or its Fire has already begun. Any goroutine may call it, under any lock.
func (w *Wheel) Cancel(t *Timer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !t.linked() {
		return false
	}
	t.unlink()
	w.mu.armed--
	return true
}

// advanceLocked moves done to now and what has become due to the workers.
func (w *Wheel) advanceLocked(now clock.Instant) {
	to := int64(now) / w.grain
	if to <= w.mu.done {
		return
	}
	w.mu.near.turn(w.mu.done, to, &w.mu.due)
	w.mu.done = to
	w.startWorkerLocked()
}

// placeLocked puts t, in no list, into the one it belongs to. now may lag.
func (w *Wheel) placeLocked(t *Timer, now clock.Instant) {
	grain := int64(t.at-1)/w.grain + 1 // that ends at or after t.at
	switch ahead := grain - w.mu.done; {
	case ahead <= 0 || t.at <= now:
		w.mu.due.push(t)
		w.startWorkerLocked()
	case ahead < nearSpan:
		// Two grains in one bucket would fire the later one early.
		invariants.Check(grain > w.mu.done && ahead < nearSize, "wheel: a timer outside the near ring")
		w.mu.near.push(t, grain)
		w.wakeLocked(grain, now)
	default:
		w.slotLocked(w.mu.done + min(ahead, w.hop)).push(t)
	}
}

// wakeLocked makes sure that the runtime timer fires by the end of grain.
func (w *Wheel) wakeLocked(grain int64, now clock.Instant) {
	if w.mu.wakeAt != 0 && w.mu.wakeAt <= grain {
		return
	}
	w.mu.wakeAt = grain
	// At least a fraction of a grain: on a clock that stands still (a test's) it would
	// spin otherwise.
	w.wake.Reset(max(clock.Instant(grain*w.grain).Sub(now), time.Duration(w.grain/4)))
}

// turn is the runtime timer's callback.
func (w *Wheel) turn() {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closing {
		return
	}
	w.advanceLocked(now)
	w.mu.wakeAt = 0
	if grain, ok := w.mu.near.next(w.mu.done); ok {
		w.wakeLocked(grain, now)
	}
}

// Close stops the wheel. No Fire begins after it was called, and those that run
// have ended when it returns; so it must not be called from a Fire. Armed timers
// never fire. A library's wheel that does not stop is left behind after a second.
func (w *Wheel) Close() { w.once.Do(w.close) }

func (w *Wheel) close() {
	w.mu.Lock()
	w.mu.closing = true
	w.wake.Stop()
	w.retireLocked()
	w.mu.Unlock()

	w.unhook()
	close(w.quit)
	w.tasks.Wait()
	select {
	case <-w.gone:
	case <-time.NewTimer(stopTimeout).C:
	}
}
