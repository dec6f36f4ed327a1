package clock

import (
	"sync/atomic"
	"time"
)

var system = newSystemClock()

// systemClock adds the time asleep to Go's monotonic clock.
//
// Invariant: asleep only grows, so Stamp (which may use an old value) is never
// ahead of Now.
type systemClock struct {
	base   time.Time
	boot   time.Duration // bootTime() at base
	asleep atomic.Int64  // nanoseconds asleep since base, as last seen
}

// origin keeps the first Instants away from zero, which means "none".
const origin = time.Hour

func newSystemClock() *systemClock {
	return &systemClock{base: time.Now(), boot: bootTime()}
}

func (c *systemClock) Now() Instant {
	// The boot clock is read first: a suspend between the two reads is then
	// counted by neither, and the next call sees it.
	boot := bootTime()
	mono := time.Since(c.base)
	if boot > 0 {
		slept := int64(boot - c.boot - mono)
		for {
			old := c.asleep.Load()
			if slept <= old || c.asleep.CompareAndSwap(old, slept) {
				break
			}
		}
	}
	return Instant(origin + mono + time.Duration(c.asleep.Load()))
}

func (c *systemClock) Stamp() Instant {
	return Instant(origin + time.Since(c.base) + time.Duration(c.asleep.Load()))
}

func (c *systemClock) Wall() time.Time { return time.Now() }
