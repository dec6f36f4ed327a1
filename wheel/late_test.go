package wheel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// entry is one of very many timers.
type entry struct {
	Timer
	due   clock.Instant
	lag   time.Duration
	fires int
}

func (e *entry) Fire(_ *Timer, now clock.Instant) { e.lag, e.fires = now.Sub(e.due), e.fires+1 }

// lateness runs a wheel with n timers over two minutes, which is more than two hops, and
// returns how late one of them was at most. Each must fire once, and none early. Time is
// virtual: so the machine makes none of them late.
func lateness(t *testing.T, n int, cfg Config, release func()) (worst time.Duration, s Stats) {
	w := New(cfg)
	const span = 2 * time.Minute
	entries := make([]entry, n)
	for i := range entries {
		e := &entries[i]
		e.Init(e)
		e.due = w.clock.Now().Add(span * time.Duration(i) / time.Duration(n))
		w.Schedule(&e.Timer, e.due)
	}
	for w.Stats().Armed > 0 {
		time.Sleep(time.Second)
	}
	release()
	closing := time.Now()
	w.Close()
	if d := time.Since(closing); d >= stopTimeout {
		t.Errorf("Close took %v, though the library stopped", d)
	}
	for i := range entries {
		e := &entries[i]
		if worst = max(worst, e.lag); e.fires != 1 || e.lag < 0 {
			t.Fatalf("timer %d fired %d times, %v after its deadline", i, e.fires, e.lag)
		}
	}
	return worst, w.Stats()
}

// However the library fails, and each that replaces it, the watcher finds a slot before it is
// due. With a tick too small for that, no timer is later than the watcher's next look.
func TestTimersAreNotLateHoweverTheLibraryFails(t *testing.T) {
	t.Parallel()
	million := 1_000_000
	if testing.Short() || raceEnabled {
		million = 20_000
	}
	for name, c := range map[string]struct {
		fault    labFault
		timers   int
		size     int64
		replaced bool
	}{
		"never fires":   {mute, million, 0, true},
		"hangs":         {hung, some(), 1, true}, // and the queue is full
		"fires at once": {eager, some(), 0, true},
		"fires late":    {late, some(), 0, false}, // it lives
	} {
		run := func(t *testing.T, tick time.Duration) time.Duration {
			lib := &lab{fault: func(int64) labFault { return c.fault }, release: make(chan struct{})}
			cfg := Config{newLibrary: lib.new, Size: c.size, Tick: tick}
			worst, s := lateness(t, c.timers, cfg, func() { close(lib.release) })
			t.Logf("%d timers, %v late at most, %+v", c.timers, worst, s.Rebuilds)
			if (s.Rebuilds.Total() > 0) != c.replaced {
				t.Errorf("stats %+v: is the library sound?", s)
			}
			return worst
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if worst := run(t, 0); worst > 20*time.Millisecond/tickGrains {
					t.Errorf("%v late", worst)
				}
			})
		})
		t.Run(name+", small tick", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				worst := run(t, 5*time.Millisecond)
				if worst > watchPeriod {
					t.Errorf("%v late", worst)
				}
				if worst < watchPeriod/2 {
					t.Errorf("%v late at most: is the library sound?", worst)
				}
			})
		})
	}
}

// some is how many timers a test has that wants thousands.
func some() int {
	if raceEnabled {
		return 5_000
	}
	return 20_000
}

// The library goes by the wall clock, the timers do not. A small step is no reason to replace
// the library; it then is early or late for as long as a hop.
func TestNoStepOfTheWallClockMakesATimerLate(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{
		-time.Hour, -300 * time.Millisecond, -260 * time.Millisecond, -100 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond, 260 * time.Millisecond, time.Hour,
	} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lib := new(lab)
				stop := make(chan struct{})
				go func() { // two steps a minute, between two looks
					for {
						select {
						case <-stop:
							return
						case <-time.After(30*time.Second + 57*time.Millisecond):
							lib.offset.Add(int64(step))
						}
					}
				}()
				cfg := Config{Clock: stepClock{clock.System(), lib}, newLibrary: lib.new}
				worst, s := lateness(t, some(), cfg, func() { close(stop) })
				if grain := 20 * time.Millisecond / tickGrains; worst > grain {
					t.Errorf("%v late, want %v at most; stats %+v", worst, grain, s)
				}
			})
		})
	}
}

// With a sound library the watcher has nothing to do, and no timer is later than its grain.
func TestTimersAreAGrainLateAtWorstWithASoundLibrary(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(time.Duration, int64) library{
		"timingwheel": newLibrary,
		"fires twice": (&lab{fault: func(int64) labFault { return double }}).new,
		"another":     new(lab).new,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				worst, s := lateness(t, some(), Config{newLibrary: make}, func() {})
				if grain := 20 * time.Millisecond / tickGrains; worst > grain || s.Rebuilds.Total() > 0 {
					t.Errorf("%v late, want %v at most; stats %+v", worst, grain, s)
				}
			})
		})
	}
}
