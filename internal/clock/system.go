package clock

import (
	"sync/atomic"
	"time"
)

var system = newSystemClock()

// systemClock adds the time asleep to Go's monotonic clock.
//
// Reading the boot clock is a system call (about 400 ns on Linux), so Now does it only when
// the wall clock, which also runs in suspend and comes with the monotonic one for
// free, has moved against it. A step of the wall clock makes Now look as well, and
// find nothing.
//
// Invariants: asleep only grows, so Stamp (which may use an old value) is never
// ahead of Now; asleep is stored before ahead, so a reader that sees that a suspend was
// noticed also sees its length.
type systemClock struct {
	base   time.Time
	boot   time.Duration // bootTime() at base
	asleep atomic.Int64  // nanoseconds asleep since base, as last seen
	ahead  atomic.Int64  // wall minus monotonic clock when asleep was last measured
}

// origin keeps the first Instants away from zero, which means "none".
const origin = time.Hour

// unnoticed is how far the two clocks may part before Now looks: far below the
// smallest safety margin of a lease (5 ms), far above the noise of reading them.
const unnoticed = int64(time.Millisecond)

func newSystemClock() *systemClock {
	c := &systemClock{base: time.Now(), boot: bootTime()}
	c.look()
	return c
}

func (c *systemClock) Now() Instant {
	now := time.Now()
	mono := now.Sub(c.base)
	parted := now.UnixNano() - int64(mono) - c.ahead.Load()
	if parted > unnoticed || parted < -unnoticed {
		return c.look()
	}
	return Instant(origin + mono + time.Duration(c.asleep.Load()))
}

// look measures the time asleep.
func (c *systemClock) look() Instant {
	before := c.read()
	boot := bootTime()
	after := c.read()
	c.note(before, boot, after)
	return Instant(origin + after.mono + time.Duration(c.asleep.Load()))
}

// reading is what time.Now says: two clocks read at once.
type reading struct {
	wall int64         // Unix nanoseconds
	mono time.Duration // since base
}

func (c *systemClock) read() reading {
	now := time.Now()
	return reading{now.UnixNano(), now.Sub(c.base)}
}

// note keeps what a look found. The boot clock was read between the other two readings,
// and the machine may have slept between any two of the three:
//
//	before, sleep, boot, after    asleep has it; ahead does not, so Now looks again
//	before, boot, sleep, after    neither has it, so Now looks again
//
// With ahead from the later reading, the second sleep would never be noticed. And asleep
// is never too large, for the monotonic clock is read after the boot clock.
func (c *systemClock) note(before reading, boot time.Duration, after reading) {
	if boot > 0 {
		slept := int64(boot - c.boot - after.mono)
		for {
			old := c.asleep.Load()
			if slept <= old || c.asleep.CompareAndSwap(old, slept) {
				break
			}
		}
	}
	c.ahead.Store(before.wall - int64(before.mono))
}

func (c *systemClock) Stamp() Instant {
	return Instant(origin + time.Since(c.base) + time.Duration(c.asleep.Load()))
}

func (c *systemClock) Wall() time.Time { return time.Now() }
