package clock

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needsBootTime skips on platforms without a clock that counts time asleep. Linux and macOS have one.
func needsBootTime(t *testing.T) {
	t.Helper()
	switch has := runtime.GOOS == "linux" || runtime.GOOS == "darwin"; {
	case bootTime() != 0:
	case has:
		t.Fatal("the clock that counts time asleep is not read")
	default:
		t.Skip("this platform has no clock that counts time asleep")
	}
}

func TestSystem_NowAndStamp_OnlyGrow(t *testing.T) {
	t.Parallel()
	c := newSystemClock()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var last Instant
			for range 20_000 {
				stamp := c.Stamp()
				now := c.Now()
				again := c.Stamp()
				if stamp < last || now < stamp || again < now {
					t.Errorf("went back: %d, Stamp %d, Now %d, Stamp %d", last, stamp, now, again)
					return
				}
				last = again
			}
		})
	}
	wg.Wait()
}

func TestSystem_Asleep_IsCountedByNowAndStamp(t *testing.T) {
	t.Parallel()
	needsBootTime(t)
	c := newSystemClock()
	before := c.Now()
	c.sleep(time.Hour)
	if stamp := c.Stamp(); stamp.Sub(before) > time.Minute {
		t.Errorf("Stamp saw the sleep before any Now: %v", stamp.Sub(before))
	}
	if slept := c.Now().Sub(before); slept < time.Hour-time.Second || slept > time.Hour+time.Minute {
		t.Errorf("Now moved by %v over an hour of sleep", slept)
	}
	if slept := c.Stamp().Sub(before); slept < time.Hour-time.Second {
		t.Errorf("Stamp moved by %v after Now had seen an hour of sleep", slept)
	}
}

// sleep makes it look as if the machine had slept: the boot clock and the wall clock
// have moved, the monotonic one has not.
func (c *systemClock) sleep(d time.Duration) {
	c.boot -= d
	c.ahead.Add(-int64(d))
}

// A suspend may fall between any two of the readings of a look; the next Now counts it.
func TestSystem_SuspendDuringALook_IsNoticed(t *testing.T) {
	t.Parallel()
	needsBootTime(t)
	for when, counted := range map[string]bool{
		"before the boot clock was read": true,
		"after it":                       false,
	} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			c := newSystemClock()
			start := c.Now()
			before, boot, after := c.read(), bootTime(), c.read()
			// The machine has slept for an hour: what was read before it is an hour behind.
			c.boot -= time.Hour
			before.wall -= int64(time.Hour)
			if !counted {
				boot -= time.Hour
			}
			c.note(before, boot, after)
			if slept := c.Now().Sub(start); slept < time.Hour-time.Second || slept > time.Hour+time.Minute {
				t.Errorf("Now moved by %v over an hour of sleep", slept)
			}
		})
	}
}

func TestSystem_TimeAsleep_OnlyGrows(t *testing.T) {
	t.Parallel()
	needsBootTime(t)
	c := newSystemClock()
	c.sleep(time.Hour)
	before := c.Now()
	c.sleep(-time.Hour) // a boot clock that went back
	if after := c.Now(); after < before {
		t.Errorf("Now went back by %v", before.Sub(after))
	}
}

func TestSystem_Instants_StartAwayFromZero(t *testing.T) {
	t.Parallel()
	if now := System().Now(); now < Instant(origin) {
		t.Errorf("Now = %d: could be taken for none, or go below zero by a subtraction", now)
	}
}

func TestSystem_Wall_IsTheWallClock(t *testing.T) {
	t.Parallel()
	if d := time.Since(System().Wall()).Abs(); d > time.Minute {
		t.Errorf("Wall is %v off", d)
	}
}

func TestVirtual_Bubble_HasAClockOfItsOwn(t *testing.T) {
	t.Parallel()
	asleep, ahead := system.asleep.Load(), system.ahead.Load()
	synctest.Test(t, func(t *testing.T) {
		c := System()
		now, wall := c.Now(), c.Wall()
		if now < Instant(origin) {
			t.Errorf("Now = %d", now)
		}
		time.Sleep(time.Hour)
		if c.Now().Sub(now) != time.Hour || c.Stamp() != c.Now() || c.Wall().Sub(wall) != time.Hour {
			t.Errorf("after an hour: Now %v, Stamp %v, Wall %v later", c.Now().Sub(now), c.Stamp().Sub(now), c.Wall().Sub(wall))
		}
	})
	if System() != Clock(system) {
		t.Error("outside of bubbles System is not the machine's clock")
	}
	if system.asleep.Load()-asleep > int64(time.Minute) || system.ahead.Load()-ahead > int64(time.Minute) {
		t.Error("a bubble's time got into the machine's clock")
	}
}

func TestInstant_AddSubBefore_Agree(t *testing.T) {
	t.Parallel()
	a := Instant(5)
	b := a.Add(3)
	if b != 8 || b.Sub(a) != 3 || !a.Before(b) || b.Before(a) || a.Before(a) {
		t.Errorf("a = %d, b = %d", a, b)
	}
}

func TestFake_Advance_AloneMovesIt(t *testing.T) {
	t.Parallel()
	f := NewFake()
	now, wall := f.Now(), f.Wall()
	if f.Now() != now || f.Stamp() != now || !f.Wall().Equal(wall) {
		t.Fatal("moved by itself")
	}
	f.Advance(time.Second)
	if f.Now().Sub(now) != time.Second || f.Wall().Sub(wall) != time.Second {
		t.Errorf("Advance(1s) moved Now by %v, Wall by %v", f.Now().Sub(now), f.Wall().Sub(wall))
	}
	f.Step(-time.Hour)
	if f.Now().Sub(now) != time.Second || f.Wall().Sub(wall) != time.Second-time.Hour {
		t.Errorf("Step(-1h) left Now at %v, Wall at %v", f.Now().Sub(now), f.Wall().Sub(wall))
	}
}

func TestFake_ZeroValue_Works(t *testing.T) {
	t.Parallel()
	var f Fake
	f.Advance(time.Second)
	if f.Now() != Instant(time.Second) || !f.Wall().Equal(time.Unix(1, 0)) {
		t.Errorf("Now %d, Wall %v", f.Now(), f.Wall())
	}
}

func TestFake_Moves_AreNotifiedUntilCancelled(t *testing.T) {
	t.Parallel()
	f := NewFake()
	var seen []Instant
	cancel := f.OnMove(func() { seen = append(seen, f.Now()) })
	start := f.Now()
	f.Advance(time.Second)
	f.Step(time.Minute)
	cancel()
	f.Advance(time.Second)
	if len(seen) != 2 || seen[0] != start.Add(time.Second) || seen[1] != seen[0] {
		t.Errorf("told %v", seen)
	}
}
