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
	// canaryPeriod is the delay of the canary, a timer of the library that belongs to
	// no slot. It shows that the library lives, and keeps its idea of time recent,
	// which keeps it from building overflow wheels.
	canaryPeriod = 500 * time.Millisecond
	// canary stands for it in an era's queue, among the numbers of slots.
	canary = -1
	// stopTimeout is how long Close waits for libraries to stop.
	stopTimeout = time.Second
)

// era is the life of one library wheel. Only its driver calls the library: any
// call may hang, and AfterFunc and Stop may block each other for ever. The
// library's timers are never stopped, for its answer to that may be a lie.
type era struct {
	wheel *Wheel
	lib   library
	// queue holds what the driver is to set. It is full only if the driver hangs; a slot
	// that finds no room is left to the watcher.
	queue chan int64

	// Guarded by Wheel.mu.
	beat  bool // the canary came, since the last look
	early bool // it came too early
}

// newEra makes an era that knows of no slot yet. Its driver is started once it
// is the current one.
func (w *Wheel) newEra() *era {
	e := &era{wheel: w, lib: w.cfg.newLibrary(w.tick, w.cfg.Size), queue: make(chan int64, w.cfg.Size/2)}
	e.queue <- canary
	return e
}

func (e *era) queueLocked(number int64) {
	select {
	case e.queue <- number:
	default:
	}
}

// drive sets the library's timers until the era is retired; or it hangs with the
// library, which the watcher finds out by the missing canary.
func (e *era) drive() {
	// The library's goroutines inherit the label.
	rpprof.SetGoroutineLabels(rpprof.WithLabels(context.Background(), rpprof.Labels("role", "wheel-library")))
	e.lib.Start()
	for number := range e.queue {
		if number == canary {
			e.setCanary()
		} else {
			e.setSlot(number)
		}
	}
	e.lib.Stop()
	e.wheel.stopped()
}

// setSlot has the library tell when a slot comes near.
func (e *era) setSlot(number int64) {
	w := e.wheel
	start := clock.Instant(number * tickGrains * w.grain)
	lead := int64(start.Sub(w.clock.Stamp()))/w.grain - slotLead
	if lead < minDelay {
		w.drain(number) // the driver was late, or the clock jumped
		return
	}
	e.lib.After(time.Duration(lead*w.grain), func() { w.drain(number) })
}

// setCanary has the library show how it keeps time, by the clock that it runs on. Up
// to one tick early is how it rounds. More is a library whose time runs ahead: it
// would fire whatever it is given at once.
func (e *era) setCanary() {
	w, set := e.wheel, clock.System().Stamp()
	e.lib.After(canaryPeriod, func() {
		early := clock.System().Stamp().Sub(set) < canaryPeriod-2*w.tick
		w.mu.Lock()
		defer w.mu.Unlock()
		if early {
			e.early = true
		} else {
			e.beat = true
		}
	})
}

// hear tells whether the canary came since the last look, and has another set: so one
// is always on its way.
func (w *Wheel) hear() (beat, early bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.mu.era
	beat, early = e.beat, e.early
	e.beat = false
	if !w.mu.closing {
		e.queueLocked(canary)
	}
	return beat, early
}

// retireLocked has the current era end, or be left behind if its library is dead.
func (w *Wheel) retireLocked() {
	w.mu.abandoned++
	close(w.mu.era.queue)
}

// stopped notes that the library of a retired era has stopped.
func (w *Wheel) stopped() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.abandoned--
	if w.mu.closing && w.mu.abandoned == 0 {
		close(w.gone)
	}
}
