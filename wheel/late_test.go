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

// However the library fails, and each that replaces it, every timer fires once, none early, and
// none later than the watcher's next look. Virtual time makes this exact: there, nothing else
// makes a timer late.
func TestTimersAreALookLateAtWorstHoweverTheLibraryFails(t *testing.T) {
	t.Parallel()
	million := 1_000_000
	if testing.Short() || raceEnabled {
		million = 50_000
	}
	for name, c := range map[string]struct {
		fault    labFault
		timers   int
		replaced bool
	}{
		"never fires":   {mute, million, true},
		"hangs":         {hung, 20_000, true},
		"fires at once": {eager, 20_000, true},
		"fires late":    {late, 20_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lib := &lab{fault: func(int64) labFault { return c.fault }, release: make(chan struct{})}
				w := New(Config{newLibrary: lib.new})
				const span = 2 * time.Minute // more than two hops
				entries := make([]entry, c.timers)
				for i := range entries {
					e := &entries[i]
					e.Init(e)
					e.due = w.clock.Now().Add(span * time.Duration(i) / time.Duration(c.timers))
					w.Schedule(&e.Timer, e.due)
				}
				time.Sleep(span + time.Second)
				close(lib.release)
				w.Close()

				var worst time.Duration
				for i := range entries {
					e := &entries[i]
					if worst = max(worst, e.lag); e.fires != 1 || e.lag < 0 {
						t.Fatalf("timer %d fired %d times, %v after its deadline", i, e.fires, e.lag)
					}
				}
				s := w.Stats()
				t.Logf("at most %v late; %+v", worst, s)
				if worst > watchPeriod {
					t.Errorf("%v late", worst)
				}
				if worst < watchPeriod/2 || (s.Rebuilds.Total() > 0) != c.replaced {
					t.Errorf("%v late at most, stats %+v: is the library sound?", worst, s)
				}
			})
		})
	}
}
