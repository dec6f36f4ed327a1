package wheel

import (
	"context"
	rpprof "runtime/pprof"
	"time"
)

// Why the library's wheel was replaced.
const (
	// RebuildStalled: its canary was silent for two seconds.
	RebuildStalled = "stalled"
	// RebuildClockStepped: the wall clock, which it follows, was set.
	RebuildClockStepped = "clock stepped"
	// RebuildFiredEarly: its time ran ahead.
	RebuildFiredEarly = "fired early"
)

const (
	// watchPeriod is less than slotLead by more than a tick, so a slot that the library is
	// late with is found before it is due. A tick under 17 ms is too small for that: then it
	// is how late a timer may be.
	watchPeriod = 250 * time.Millisecond
	// stallLooks in a row without a beat of the canary mean a stall. Looks are
	// counted, not time, so that a process that was itself stopped blames nobody. A library
	// that was replaced in vain, as one that hangs wherever it runs, has twice the time of
	// the one before, at most mostDoublings times: what hangs is never given back.
	stallLooks    = 8
	mostDoublings = 8
	// stepSlack, beside a tick, is how far wall clock and Clock may part between two
	// looks. Slewing parts them by far less, and is no step however long it lasts.
	stepSlack = 250 * time.Millisecond
)

// watch looks after the library, on a runtime timer, until Close.
func (w *Wheel) watch() {
	rpprof.SetGoroutineLabels(rpprof.WithLabels(context.Background(), rpprof.Labels("role", "wheel-watch")))
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	v := view{offset: w.wallOffset()}
	for {
		select {
		case <-w.quit:
			return
		case <-ticker.C:
		}
		w.catchUp()
		beat, early := w.hear()
		if reason := v.judge(beat, early, v.stepped(w)); reason != "" && w.rebuild(reason) {
			v.replaced(reason)
			if w.cfg.OnRebuild != nil {
				w.cfg.OnRebuild(reason)
			}
		}
	}
}

// view is what the watcher remembers of the library between two looks.
type view struct {
	offset time.Duration // wall clock - Clock
	silent int           // looks without a beat of the canary
	vain   int           // libraries in a row that were replaced before they beat once
}

// judge returns why the library has to be replaced, or "".
func (v *view) judge(beat, early, stepped bool) (reason string) {
	if v.silent++; beat {
		v.silent, v.vain = 0, 0
	}
	stalled := v.silent >= stallLooks<<v.vain
	switch {
	case stepped: // before early: a step forward makes everything fire early
		return RebuildClockStepped
	case early && (stalled || v.vain == 0):
		return RebuildFiredEarly
	case stalled:
		return RebuildStalled
	}
	return ""
}

// replaced notes that the library was replaced.
func (v *view) replaced(reason string) {
	v.silent = 0
	if reason != RebuildClockStepped {
		v.vain = min(v.vain+1, mostDoublings)
	}
}

// stepped reports that the wall clock jumped since the last look.
func (v *view) stepped(w *Wheel) bool {
	before := v.offset
	v.offset = w.wallOffset()
	return (v.offset - before).Abs() > w.tick+stepSlack
}

// wallOffset returns the wall clock minus Clock. It reads again if this goroutine was
// interrupted between the readings.
func (w *Wheel) wallOffset() time.Duration {
	for {
		before := w.clock.Now()
		wall := w.clock.Wall().UnixNano()
		if w.clock.Now().Sub(before) < stepSlack/4 {
			return time.Duration(wall - int64(before))
		}
	}
}

// rebuild replaces the library and sets all slots anew, from our own deadlines.
// The old one is not waited for: it may be dead.
func (w *Wheel) rebuild(reason string) bool {
	e := w.newEra()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closing {
		return false
	}
	w.retireLocked()
	w.mu.era = e
	for number := range w.mu.slots {
		e.queueLocked(number)
	}
	w.mu.rebuilds.add(reason)
	go e.drive()
	return true
}
