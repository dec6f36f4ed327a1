// Package clock is the one source of time of the module.
//
// Leases are counted on a clock that goes on while the machine sleeps: Go's
// monotonic clock stops in suspend, the server's does not, so a lease measured
// with time.Since would outlive the server's after a laptop lid or a paused VM.
// On Linux that clock is CLOCK_BOOTTIME, on macOS CLOCK_MONOTONIC_RAW (Go reads
// mach_absolute_time there, which stops). Windows' interrupt time, which Go reads,
// goes on in sleep. Elsewhere the monotonic clock has to do.
package clock

import "time"

// Instant is a point in time: nanoseconds since an arbitrary start of this
// process, on a clock that counts time asleep. The zero Instant means "none".
type Instant int64

// Add returns t + d.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Before reports whether t is earlier than u.
func (t Instant) Before(u Instant) bool { return t < u }

// Clock tells the time. Implementations are safe for any goroutine.
type Clock interface {
	// Now is exact, time asleep included.
	Now() Instant
	// Stamp is cheaper than Now and never ahead of it: it lags by a suspend that
	// no call of Now has seen yet. It is for the instants that leases count from,
	// where too early is safe.
	Stamp() Instant
	// Wall is the wall clock, for noticing that it stepped; no deadline uses it.
	Wall() time.Time
}

// System is the machine's clock. All its users share one origin. Called in a bubble
// of testing/synctest it is the clock of the bubble's time.
func System() Clock {
	if virtual(time.Now()) {
		return virtualClock{}
	}
	return system
}
