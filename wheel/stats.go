package wheel

import "time"

// Stats is a snapshot of a Wheel.
type Stats struct {
	Armed int // timers armed, those waiting for a worker included
	Slots int // timers set in the library, the canary aside

	Fired uint64 // Fires begun

	LastLag time.Duration // from a deadline to its Fire, the latest
	MaxLag  time.Duration // the longest since New

	Rebuilds Rebuilds
	// Abandoned is the number of replaced libraries that have not stopped: each
	// that stays is dead-locked and keeps a few goroutines.
	Abandoned int
}

// Rebuilds counts how often the library's wheel was replaced, by reason.
type Rebuilds struct {
	Stalled, ClockStepped, FiredEarly uint64
}

// Total is the sum over all reasons.
func (r Rebuilds) Total() uint64 { return r.Stalled + r.ClockStepped + r.FiredEarly }

func (r *Rebuilds) add(reason string) {
	switch reason {
	case RebuildStalled:
		r.Stalled++
	case RebuildClockStepped:
		r.ClockStepped++
	case RebuildFiredEarly:
		r.FiredEarly++
	}
}

// Stats may be called by any goroutine, under any lock.
func (w *Wheel) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Stats{
		Armed:     w.mu.armed,
		Slots:     len(w.mu.slots),
		Fired:     w.mu.fired,
		LastLag:   time.Duration(w.lastLag.Load()),
		MaxLag:    time.Duration(w.maxLag.Load()),
		Rebuilds:  w.mu.rebuilds,
		Abandoned: w.mu.abandoned,
	}
}
