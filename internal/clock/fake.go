package clock

import (
	"sync/atomic"
	"time"
)

// Fake is a Clock that moves only when told to. Its zero value starts at
// Instant 0 and wall time zero; use NewFake for one that starts somewhere sane.
type Fake struct {
	now  atomic.Int64
	wall atomic.Int64 // unix nanoseconds
}

// NewFake returns a Fake at one hour, its wall clock at 2026-01-01.
func NewFake() *Fake {
	f := new(Fake)
	f.now.Store(int64(origin))
	f.wall.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return f
}

// Now returns the current fake instant.
func (f *Fake) Now() Instant { return Instant(f.now.Load()) }

// Stamp returns the same as Now.
func (f *Fake) Stamp() Instant { return f.Now() }

// Wall returns the current fake wall time.
func (f *Fake) Wall() time.Time { return time.Unix(0, f.wall.Load()) }

// Advance moves both clocks by d.
func (f *Fake) Advance(d time.Duration) {
	f.now.Add(int64(d))
	f.wall.Add(int64(d))
}

// Step moves the wall clock alone, as an administrator or NTP does.
func (f *Fake) Step(d time.Duration) { f.wall.Add(int64(d)) }
