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
	watchPeriod = 250 * time.Millisecond
	// stallLooks in a row without a beat of the canary mean a stall. Looks are
	// counted, not time, so that a process that was itself stopped blames nobody. A library
	// that was replaced in vain, as one that hangs wherever it runs, has twice the time of
	// the one before, at most mostDoublings times: what hangs is never given back.
	stallLooks    = 8
	mostDoublings = 8
	// stepSlack, beside a tick, is how far wall clock and Clock may part between two
	// looks; slewLooks what is forgiven at each, eight times the fastest slewing of
	// Linux.
	stepSlack   = 250 * time.Millisecond
	slewPerLook = time.Millisecond
)

// watch looks after the library, on a runtime timer, until Close.
func (w *Wheel) watch() {
	rpprof.SetGoroutineLabels(rpprof.WithLabels(context.Background(), rpprof.Labels("role", "wheel-watch")))
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	var v view
	v.reset(w)
	alerts := w.kick
	for {
		select {
		case <-w.quit:
			return
		case <-ticker.C:
			alerts = w.kick
		case <-alerts:
			// A library that is always early must not have us rebuild in a loop.
			alerts = nil
		}
		w.catchUp()
		if reason := v.look(w); reason != "" && w.rebuild(reason) {
			v.replaced(w, reason)
			if w.cfg.OnRebuild != nil {
				w.cfg.OnRebuild(reason)
			}
		}
	}
}

// alert makes the watcher look now.
func (w *Wheel) alert() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// view is what the watcher remembers of the library between two looks.
type view struct {
	offset time.Duration // wall clock - Clock
	known  bool          // offset is
	beats  uint64
	silent int // looks without a beat
	vain   int // libraries in a row that were replaced before they beat once
}

func (v *view) reset(w *Wheel) {
	*v = view{vain: v.vain}
	v.offset, v.known = w.wallOffset()
}

// replaced notes that the library was replaced.
func (v *view) replaced(w *Wheel, reason string) {
	if reason != RebuildClockStepped {
		v.vain = min(v.vain+1, mostDoublings)
	}
	v.reset(w)
}

// look returns why the library has to be replaced, or "".
func (v *view) look(w *Wheel) (reason string) {
	w.mu.Lock()
	beats, broken := w.mu.era.beats, w.mu.era.broken
	w.mu.Unlock()
	return v.judge(beats, broken, v.stepped(w))
}

func (v *view) judge(beats uint64, broken, stepped bool) (reason string) {
	if v.silent++; beats != v.beats {
		v.beats, v.silent, v.vain = beats, 0, 0
	}
	patience := stallLooks << v.vain
	switch {
	case stepped: // before broken: a step forward makes everything fire early
		return RebuildClockStepped
	case broken && (v.vain == 0 || v.silent >= patience):
		return RebuildFiredEarly
	case v.silent >= patience:
		return RebuildStalled
	}
	return ""
}

// stepped reports that the wall clock jumped since the last look.
func (v *view) stepped(w *Wheel) bool {
	offset, known := w.wallOffset()
	if !known {
		return false
	}
	if !v.known {
		v.offset, v.known = offset, true
		return false
	}
	drift := offset - v.offset
	v.offset += max(-slewPerLook, min(drift, slewPerLook))
	return drift.Abs() > w.tick+stepSlack
}

// wallOffset returns the wall clock minus Clock. It is not known if this
// goroutine was interrupted between the readings.
func (w *Wheel) wallOffset() (offset time.Duration, known bool) {
	before := w.clock.Now()
	wall := w.clock.Wall().UnixNano()
	after := w.clock.Now()
	return time.Duration(wall - int64(before)), after.Sub(before) < stepSlack/4
}

// rebuild replaces the library and sets all slots anew, from our own deadlines.
// The old one is not waited for: it may be dead.
func (w *Wheel) rebuild(reason string) bool {
	e := w.newEra()
	w.mu.Lock()
	if w.mu.closing {
		w.mu.Unlock()
		return false
	}
	old := w.mu.era
	w.mu.era = e
	for _, s := range w.mu.slots {
		e.queueLocked(&s.alarm)
	}
	w.mu.rebuilds.add(reason)
	w.abandonedLocked() // forgets those that are gone
	w.mu.Unlock()
	go e.drive()
	w.retire(old)
	return true
}
