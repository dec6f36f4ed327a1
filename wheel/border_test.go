package wheel

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// armed is a timer of the model: what it is armed for, and what it did wrong.
type armed struct {
	Timer
	due   clock.Instant // when it is to fire; 0: it is not armed
	moved clock.Instant // when it was armed
	fires int
	wrong string
	grain time.Duration
}

func (a *armed) Fire(_ *Timer, now clock.Instant) {
	late := now.Sub(max(a.due, a.moved))
	switch {
	case a.due == 0:
		a.wrong = "it fired, and was not armed"
	case now < a.due:
		a.wrong = "it fired early"
	case late >= a.grain:
		a.wrong = "it fired " + late.String() + " late"
	}
	a.due = 0
	a.fires++
}

// Time is virtual, and one goroutine arms, moves and cancels timers at the borders of grains,
// ticks, slots and of the near ring, while the library does what it likes. Each fires once, at
// the end of its grain at the latest.
func TestTimersAtEveryBorderAgreeWithAModel(t *testing.T) {
	t.Parallel()
	rounds := 6_000
	if testing.Short() || raceEnabled {
		rounds = 300
	}
	for name, fault := range map[string]labFault{
		"sound": sound, "never fires": mute, "hangs": hung, "fires at once": eager, "fires twice": double, "fires late": late,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := seeded(t)
			synctest.Test(t, func(t *testing.T) {
				lib := &lab{fault: func(int64) labFault { return fault }, release: make(chan struct{})}
				w := New(Config{newLibrary: lib.new})
				timers := make([]*armed, 200)
				for i := range timers {
					timers[i] = &armed{grain: time.Duration(w.grain)}
					timers[i].Init(timers[i])
				}
				// The distances, in grains, at which something else happens to a timer.
				borders := []int64{
					0, 1, tickGrains, 63, 64, 65, slotLead, minDelay, nearSpan, nearSpan - tickGrains,
					nearSize - tickGrains, nearSize, 2 * nearSize, w.hop, w.hop + nearSpan, 2 * w.hop,
				}
				expected := 0
				for range rounds {
					now := w.clock.Now()
					a := timers[rng.IntN(len(timers))]
					switch n := rng.IntN(10); {
					case n < 6:
						grains := borders[rng.IntN(len(borders))] + rng.Int64N(5) - 2
						at := clock.Instant((int64(now)/w.grain + grains) * w.grain)
						switch rng.IntN(6) {
						case 0:
							at = now.Add(time.Duration(grains * w.grain)) // not at a border of the ring
						case 1: // of a tick
							at = clock.Instant(int64(at) / int64(w.tick) * int64(w.tick))
						}
						at += clock.Instant(rng.IntN(3) - 1)
						switch rng.IntN(200) {
						case 0:
							at = math.MaxInt64 - clock.Instant(rng.IntN(2))
						case 1:
							at = math.MinInt64 + clock.Instant(rng.IntN(2))
						}
						if a.due == 0 {
							expected++
						}
						a.due, a.moved = at, now
						w.Schedule(&a.Timer, at)
					case n < 8:
						if got := w.Cancel(&a.Timer); got != (a.due != 0) {
							t.Fatalf("Cancel = %v, armed for %d", got, a.due)
						} else if got {
							a.due = 0
							expected--
						}
					default:
						steps := borders[rng.IntN(len(borders)-4)]
						time.Sleep(time.Duration(rng.Int64N(steps*w.grain + 2)))
					}
					synctest.Wait()
				}
				for _, a := range timers { // the end of time does not come
					if a.due > w.clock.Now().Add(time.Hour) && w.Cancel(&a.Timer) {
						a.due = 0
						expected--
					}
				}
				_ = w.Stats() // takes the lock: what was read here comes before the Fires
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				fires := 0
				for i, a := range timers {
					fires += a.fires
					if a.wrong != "" {
						t.Errorf("timer %d: %s", i, a.wrong)
					}
				}
				if s := w.Stats(); fires != expected || s.Armed != 0 {
					t.Errorf("%d fires, want %d; stats %+v", fires, expected, s)
				}
				close(lib.release)
				w.Close()
			})
		})
	}
}
