package wheel

import (
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// TestRandomHistoriesAgreeWithAModel runs one random history of Schedule, Cancel
// and time passing, on a fake clock, against a plain map of deadlines.
func TestRandomHistoriesAgreeWithAModel(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	f := clock.NewFake()
	w := newWheel(t, Config{Clock: f})
	ops := 200_000
	if raceEnabled {
		ops = 20_000
	}
	const timers = 300
	probes := newProbes(timers)
	fires := make([]int64, timers) // expected
	due := make(map[int]clock.Instant)
	reach := []time.Duration{time.Millisecond, 50 * time.Millisecond, 130 * time.Millisecond, time.Second, 2 * hop, time.Hour}

	expire := func() {
		for i, at := range due {
			if at <= f.Now() {
				fires[i]++
				delete(due, i)
			}
		}
	}
	for range ops {
		i := rng.IntN(timers)
		switch p := probes[i]; rng.IntN(20) {
		case 0, 1, 2, 3, 4:
			_, armed := due[i]
			if got := w.Cancel(&p.Timer); got != armed {
				t.Fatalf("Cancel = %v, armed %v", got, armed)
			}
			delete(due, i)
		case 5:
			f.Advance(upTo(rng, reach[rng.IntN(len(reach))]))
			expire()
			settle(t, w)
			for i, p := range probes {
				if got := p.fires.Load(); got != fires[i] {
					t.Fatalf("timer %d fired %d times, want %d", i, got, fires[i])
				}
			}
		default:
			at := f.Now().Add(upTo(rng, reach[rng.IntN(len(reach))]))
			if rng.IntN(30) == 0 {
				at = f.Now() + 1 - clock.Instant(rng.Int64N(int64(time.Hour)))
			}
			p.due.Store(int64(at))
			w.Schedule(&p.Timer, at)
			due[i] = at
			if at <= f.Now() {
				expire()
				settle(t, w)
			}
		}
		if s := w.Stats(); s.Armed != len(due) {
			t.Fatalf("%d armed, want %d", s.Armed, len(due))
		}
	}
	var total int64
	for i, p := range probes {
		total += fires[i]
		if p.early.Load() != 0 {
			t.Errorf("timer %d fired early", i)
		}
	}
	t.Logf("%d fires, stats %+v", total, w.Stats())
}

// TestEveryArmEndsInOneFireOrOneCancel races Cancel and Schedule with Fire. Each
// timer has one goroutine that arms it, and cancels it about when it fires.
func TestEveryArmEndsInOneFireOrOneCancel(t *testing.T) {
	t.Parallel()
	rounds := 2000
	if raceEnabled {
		rounds = 400
	}
	w := newWheel(t, Config{Tick: time.Millisecond})
	var wg sync.WaitGroup
	probes := newProbes(32)
	for i, p := range probes {
		rng := seeded(t)
		wg.Go(func() {
			var arms, cancelled int64
			for range rounds {
				d := upTo(rng, 4*time.Millisecond)
				if i%2 == 0 {
					d = 0
				}
				p.scheduleIn(w, d)
				arms++
				if rng.IntN(4) == 0 {
					time.Sleep(upTo(rng, 4*time.Millisecond)) // when it is cancelled is the test's variable
				}
				if w.Cancel(&p.Timer) {
					cancelled++
					continue
				}
				// Its Fire has begun, or is about to.
				eventually(t, "fire", func() bool { return p.fires.Load()+cancelled == arms })
			}
			if got := p.fires.Load() + cancelled; got != arms {
				t.Errorf("timer %d: %d arms, %d fires and cancels", i, arms, got)
			}
		})
	}
	wg.Wait()
	for i, p := range probes {
		if p.early.Load() != 0 {
			t.Errorf("timer %d fired early", i)
		}
	}
}

// TestConcurrentUseLosesNothing lets many goroutines move the same timers; at the
// end each is armed once more and must fire.
func TestConcurrentUseLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWheel(t, Config{Tick: time.Millisecond})
	probes := newProbes(200)
	var wg sync.WaitGroup
	for range 8 {
		rng := seeded(t)
		wg.Go(func() {
			for range 20_000 {
				p := probes[rng.IntN(len(probes))]
				if rng.IntN(4) == 0 {
					w.Cancel(&p.Timer)
					continue
				}
				w.Schedule(&p.Timer, w.clock.Now().Add(upTo(rng, 30*time.Millisecond)))
			}
		})
	}
	wg.Wait()
	for _, p := range probes {
		w.Cancel(&p.Timer)
	}
	settle(t, w)
	for _, p := range probes {
		p.fires.Store(0)
		p.early.Store(0)
		p.scheduleIn(w, 20*time.Millisecond)
	}
	awaitFires(t, probes, 1)
	if s := w.Stats(); s.Armed != 0 {
		t.Errorf("stats %+v", s)
	}
}
