package wheel

import (
	"runtime"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// Config of a Wheel. The zero value is complete.
type Config struct {
	// Clock counts the deadlines; nil is clock.System().
	Clock clock.Clock
	// Tick is the width of a slot, from 1 ms to 1 s: 20 ms by default. Timers are
	// exact to a thirty-second of it. With less than 17 ms they may be up to a quarter
	// of a second late if the library fails or the wall clock steps.
	Tick time.Duration
	// Size is the number of buckets of the library's wheel: 8192 by default, at least
	// 128, and enough to span ten seconds.
	Size int64
	// Workers bounds the goroutines that run Fire: at least 4 by default, more on
	// machines with more processors. They exist only while there is work.
	Workers int
	// OnRebuild is told, after the fact, that the library's wheel was replaced and
	// why: one of the Rebuild constants. After RebuildClockStepped the caller may
	// want to look at what depends on the wall clock elsewhere. It runs on the
	// wheel's watcher: it must not block and must not call Close.
	OnRebuild func(reason string)

	// newLibrary replaces the library in tests.
	newLibrary func(tick time.Duration, size int64) library
}

// Time is counted in grains, 32 to a tick. A timer belongs to the grain that ends
// at or after its deadline, so it is never early and at most one grain (0.6 ms by
// default) late, plus what the scheduler adds.
const (
	tickGrains = 32
	// slotLead is how long before its first grain a slot comes back from the library: see
	// watchPeriod.
	slotLead = 16 * tickGrains
	// Timers due within nearSpan skip the library: slotLead, a tick by which the library
	// rounds down, and minDelay.
	nearSpan = slotLead + tickGrains + minDelay
	// minDelay is the shortest delay that the library is given.
	minDelay = 3 * tickGrains
	// hop is the longest delay that the library is given; timers further away go
	// through several slots. The library's wheel must span twice this plus a minute
	// of stall, or timers one revolution apart meet in one of its buckets, which is
	// what dead-locks it.
	hop         = 50 * time.Second
	minInterval = 10 * time.Second
	// minSize keeps a hop well above nearSpan: a timer that hops must not come back
	// to the slot it leaves.
	minSize = 128
)

// complete fills in what was left to the wheel.
func (cfg Config) complete() Config {
	if cfg.Clock == nil {
		cfg.Clock = clock.System()
	}
	if cfg.Tick == 0 {
		cfg.Tick = 20 * time.Millisecond
	}
	cfg.Tick = min(max(cfg.Tick, time.Millisecond), time.Second).Truncate(time.Millisecond)
	if cfg.Size <= 0 {
		cfg.Size = 8192
	}
	cfg.Size = max(cfg.Size, minSize, int64(minInterval/cfg.Tick))
	if cfg.Workers <= 0 {
		cfg.Workers = max(4, runtime.GOMAXPROCS(0))
	}
	if cfg.newLibrary == nil {
		cfg.newLibrary = newLibrary
	}
	return cfg
}
