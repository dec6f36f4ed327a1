package wheel

import (
	"context"
	rpprof "runtime/pprof"
	"time"

	"github.com/RussellLuo/timingwheel"

	"github.com/pawl-lock/pawl/internal/clock"
)

// library is what the wheel uses of timingwheel.TimingWheel. All three may hang.
type library interface {
	Start()
	// After runs f in a goroutine of its own after d, perhaps a tick early.
	After(d time.Duration, f func())
	Stop()
}

type timingWheel struct{ *timingwheel.TimingWheel }

func (l timingWheel) After(d time.Duration, f func()) { l.AfterFunc(d, f) }

func newLibrary(tick time.Duration, size int64) library {
	return timingWheel{timingwheel.NewTimingWheel(tick, size)}
}

const (
	// canaryPeriod keeps the library's idea of time recent, which also keeps it
	// from building overflow wheels, and shows that it lives.
	canaryPeriod = 500 * time.Millisecond
	// stopTimeout is how long Close waits for libraries to stop.
	stopTimeout = time.Second
)

// era is the life of one library wheel, and the driver that sets its timers.
type era struct {
	wheel  *Wheel
	lib    library
	kick   chan struct{} // queue is not empty
	quit   chan struct{}
	done   chan struct{} // the driver has ended
	gone   chan struct{} // so has the library
	canary alarm

	// Guarded by Wheel.mu.
	queue  []*alarm // for the driver to set
	beats  uint64   // of the canary
	broken bool     // fired early by more than the library's rounding
}

// newEra makes an era that knows of no slot yet. Its driver is started once it
// is the current one.
func (w *Wheel) newEra() *era {
	e := &era{
		wheel: w,
		lib:   w.cfg.newLibrary(w.tick, w.cfg.Size),
		kick:  make(chan struct{}, 1),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
		gone:  make(chan struct{}),
	}
	e.queueLocked(&e.canary) // nobody else knows e yet
	return e
}

func (e *era) queueLocked(a *alarm) {
	e.queue = append(e.queue, a)
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// drive sets the library's timers, until quit; or hangs with the library, which
// the watcher finds out by the missing canary.
func (e *era) drive() {
	defer close(e.done)
	// The library's goroutines inherit the label.
	rpprof.SetGoroutineLabels(rpprof.WithLabels(context.Background(), rpprof.Labels("role", "wheel-library")))
	e.lib.Start()
	for {
		select {
		case <-e.quit:
			return
		case <-e.kick:
		}
		for e.setNext() {
		}
	}
}

// setNext sets the next alarm of the queue, and reports whether there was one.
func (e *era) setNext() bool {
	w := e.wheel
	now := w.clock.Stamp()
	machine := clock.System().Stamp()

	w.mu.Lock()
	if w.mu.closing || w.mu.era != e || len(e.queue) == 0 {
		w.mu.Unlock()
		return false
	}
	a := e.queue[0]
	e.queue = e.queue[1:]
	if len(e.queue) == 0 {
		e.queue = nil
	}
	delay := canaryPeriod
	if s := a.slot; s != nil {
		w.advanceLocked(now)
		lead := w.leadLocked(s)
		if lead < minDelay {
			// The driver was late, or the clock jumped.
			w.mu.Unlock()
			w.drain(s)
			return true
		}
		delay = time.Duration(min(lead, w.hop) * w.grain)
	}
	a.generation++
	generation := a.generation
	a.set, a.delay = machine, delay
	w.mu.Unlock()

	e.lib.After(delay, func() { e.fired(a, generation) })
	return true
}

// fired is the callback of the library, in a goroutine that the library starts.
// It may come early, late, twice, or from a library long replaced.
func (e *era) fired(a *alarm, generation uint64) {
	w := e.wheel
	now := w.clock.Now()
	machine := clock.System().Stamp()

	w.mu.Lock()
	if w.mu.closing || w.mu.era != e || a.generation != generation {
		w.mu.Unlock()
		return
	}
	a.generation++ // a second fire is stale
	// Up to one tick early is how the library rounds. More is a library whose time
	// runs ahead, and it would fire whatever it is given at once.
	if machine.Sub(a.set) < a.delay-2*w.tick {
		w.mu.early++
		e.broken = true
		w.mu.Unlock()
		w.alert()
		return
	}
	w.advanceLocked(now)
	s := a.slot
	switch {
	case s == nil:
		e.beats++
		e.queueLocked(a)
	case w.mu.slots[s.number] != s:
	case !w.nearbyLocked(s):
		e.queueLocked(a) // Clock is slower than the machine: a test's
	default:
		w.tasks.Add(1)
		w.mu.Unlock()
		defer w.tasks.Done()
		w.drain(s)
		return
	}
	w.mu.Unlock()
}

// retire stops an era that is no longer current, without waiting for it.
func (w *Wheel) retire(e *era) {
	w.mu.Lock()
	w.mu.retired = append(w.mu.retired, e)
	w.mu.Unlock()
	close(e.quit)
	go func() {
		<-e.done
		e.lib.Stop()
		close(e.gone)
	}()
}

// abandonedLocked counts the libraries that have not stopped yet, and forgets
// those that have.
func (w *Wheel) abandonedLocked() int {
	kept := w.mu.retired[:0]
	for _, e := range w.mu.retired {
		select {
		case <-e.gone:
		default:
			kept = append(kept, e)
		}
	}
	clear(w.mu.retired[len(kept):])
	w.mu.retired = kept
	return len(kept)
}

// awaitRetired waits until all retired eras are gone, but at most for timeout.
func (w *Wheel) awaitRetired(timeout time.Duration) {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	w.mu.Lock()
	eras := append([]*era(nil), w.mu.retired...)
	w.mu.Unlock()
	for _, e := range eras {
		select {
		case <-e.gone:
		case <-limit.C:
			return
		}
	}
}
