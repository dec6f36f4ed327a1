package wheel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// What TestTimersFireThoughTheLibraryDeadlocks leaves behind for good: the
		// library's goroutine, locked out by itself, and our Stop of it. All other
		// tests check through newWheel that nothing was abandoned.
		goleak.IgnoreAnyFunction("github.com/RussellLuo/timingwheel.(*bucket).Add"),
		goleak.IgnoreAnyFunction("github.com/RussellLuo/timingwheel.(*TimingWheel).Stop"),
	)
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	start := cputime.Now()
	for tries := 0; !cond(); tries++ {
		if start.Elapsed() > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
		if tries < 100 {
			runtime.Gosched()
		} else {
			time.Sleep(200 * time.Microsecond) // a poll, bounded above
		}
	}
}

// newWheel returns a wheel that the test's end closes, and which must then leave
// nothing behind.
func newWheel(t *testing.T, cfg Config) *Wheel {
	t.Helper()
	w := New(cfg)
	t.Cleanup(func() {
		w.Close()
		if n := w.Stats().Abandoned; n != 0 {
			t.Errorf("%d libraries did not stop", n)
		}
	})
	return w
}

// probe is a timer that notes its fires.
type probe struct {
	Timer
	due   atomic.Int64 // the instant scheduled last
	fires atomic.Int64
	early atomic.Int64
	lag   atomic.Int64 // of the latest fire
	fn    func(now clock.Instant)
}

func newProbe() *probe {
	p := new(probe)
	p.Init(p)
	return p
}

func newProbes(n int) []*probe {
	probes := make([]*probe, n)
	for i := range probes {
		probes[i] = newProbe()
	}
	return probes
}

func (p *probe) Fire(_ *Timer, now clock.Instant) {
	lag := int64(now) - p.due.Load()
	if lag < 0 {
		p.early.Add(1)
	}
	p.lag.Store(lag)
	p.fires.Add(1)
	if p.fn != nil {
		p.fn(now)
	}
}

func (p *probe) scheduleIn(w *Wheel, d time.Duration) {
	at := w.clock.Now().Add(d)
	p.due.Store(int64(at))
	w.Schedule(&p.Timer, at)
}

// awaitFires waits until every probe has fired n times, none of them early.
func awaitFires(t testing.TB, probes []*probe, n int64) {
	t.Helper()
	for i, p := range probes {
		eventually(t, fmt.Sprintf("fire %d of timer %d", n, i), func() bool { return p.fires.Load() >= n })
		if got := p.fires.Load(); got != n {
			t.Fatalf("timer %d fired %d times, want %d", i, got, n)
		}
		if p.early.Load() != 0 {
			t.Fatalf("timer %d fired early, by %v the last time", i, -time.Duration(p.lag.Load()))
		}
	}
}

func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

func TestTimersFireOnceAndNeverEarly(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{{}, {Tick: time.Millisecond, Size: 1}, {Tick: 7 * time.Millisecond}} {
		t.Run(fmt.Sprint(cfg.Tick), func(t *testing.T) {
			t.Parallel()
			rng := seeded(t)
			w := newWheel(t, cfg)
			probes := newProbes(2000)
			for _, p := range probes {
				p.scheduleIn(w, upTo(rng, 700*time.Millisecond))
			}
			awaitFires(t, probes, 1)
			s := w.Stats()
			if s.Armed != 0 || s.Fired != uint64(len(probes)) || s.MaxLag < s.LastLag || s.LastLag <= 0 {
				t.Errorf("stats %+v", s)
			}
			if s.Rebuilds.Total() != 0 {
				t.Errorf("a sound library was found fault with: %+v", s)
			}
		})
	}
}

// TestTimersAreExactThoughTicksAreNot looks at the better half of a few rounds:
// a busy machine makes some timers late, a wheel that misses its time all of them.
func TestTimersAreExactThoughTicksAreNot(t *testing.T) {
	t.Parallel()
	rng := seeded(t)
	const tick = 64 * time.Millisecond
	w := newWheel(t, Config{Tick: tick})
	for start := cputime.Now(); ; {
		probes := newProbes(40)
		for _, p := range probes {
			p.scheduleIn(w, upTo(rng, 8*tick)) // in any order: also before what is armed
		}
		awaitFires(t, probes, 1)
		lags := make([]time.Duration, len(probes))
		for i, p := range probes {
			lags[i] = time.Duration(p.lag.Load())
		}
		slices.Sort(lags)
		median := lags[len(lags)/2]
		if median < tick/8 { // a grain is 1/32 of a tick
			return
		}
		if start.Elapsed() > patience {
			t.Fatalf("half the timers are %v late, with a tick of %v", median, tick)
		}
	}
}

func TestASoonerTimerDoesNotWaitForALaterOne(t *testing.T) {
	t.Parallel()
	w := newWheel(t, Config{})
	const rounds = 10
	for start := cputime.Now(); ; {
		good := 0
		for range rounds {
			later, sooner := newProbe(), newProbe()
			later.scheduleIn(w, 100*time.Millisecond)
			sooner.scheduleIn(w, 5*time.Millisecond)
			awaitFires(t, []*probe{sooner, later}, 1)
			if sooner.lag.Load() < int64(50*time.Millisecond) {
				good++
			}
		}
		// The watcher, four times a second, would make two of them good.
		if good > rounds*6/10 {
			return
		}
		if start.Elapsed() > patience {
			t.Fatalf("%d of %d timers were late", rounds-good, rounds)
		}
	}
}

// gate returns a channel that open closes, at the test's end at the latest: a
// failed test must not hang in Close, so it is made after the wheel.
func gate(t *testing.T) (shut <-chan struct{}, open func()) {
	t.Helper()
	c := make(chan struct{})
	open = sync.OnceFunc(func() { close(c) })
	t.Cleanup(open)
	return c, open
}

func TestPastDeadlinesFireAtOnceAndNotInsideSchedule(t *testing.T) {
	t.Parallel()
	w := newWheel(t, Config{Clock: clock.NewFake()})
	p := newProbe()
	release := make(chan struct{})
	p.fn = func(clock.Instant) { <-release }
	for _, at := range []clock.Instant{0, -1, 1, w.clock.Now() - 1, w.clock.Now()} {
		before := p.fires.Load()
		w.Schedule(&p.Timer, at) // would hang here if it called Fire
		eventually(t, "fire", func() bool { return p.fires.Load() == before+1 })
		release <- struct{}{}
	}
}

func TestScheduleMovesAnArmedTimer(t *testing.T) {
	t.Parallel()
	f := clock.NewFake()
	w := newWheel(t, Config{Clock: f})
	distances := []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, time.Hour}
	for _, from := range distances {
		for _, to := range distances {
			p := newProbe()
			p.scheduleIn(w, from)
			p.scheduleIn(w, to)
			if n := w.Stats().Armed; n != 1 {
				t.Fatalf("%d timers armed, want 1", n)
			}
			f.Advance(to - 1)
			settle(t, w)
			if p.fires.Load() != 0 {
				t.Fatalf("moved from %v to %v: fired too early", from, to)
			}
			f.Advance(1)
			eventually(t, "fire", func() bool { return p.fires.Load() == 1 })
			f.Advance(2 * from)
			settle(t, w)
			if p.fires.Load() != 1 {
				t.Fatalf("moved from %v to %v: fired at both", from, to)
			}
		}
	}
}

// settle waits until no worker runs and nothing is due.
func settle(t *testing.T, w *Wheel) {
	t.Helper()
	eventually(t, "workers gone", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.mu.workers == 0 && (w.mu.closing || w.mu.due.empty())
	})
}

func TestCancelTellsWhetherTheTimerWasArmed(t *testing.T) {
	t.Parallel()
	f := clock.NewFake()
	w := newWheel(t, Config{Clock: f})
	p := newProbe()
	if w.Cancel(&p.Timer) {
		t.Error("cancelled a timer that was never armed")
	}
	for _, d := range []time.Duration{time.Millisecond, time.Second, time.Hour} {
		p.scheduleIn(w, d)
		if !w.Cancel(&p.Timer) || w.Cancel(&p.Timer) {
			t.Errorf("%v: want true, then false", d)
		}
		f.Advance(2 * d)
		settle(t, w)
	}
	if n := p.fires.Load(); n != 0 {
		t.Errorf("cancelled timers fired %d times", n)
	}
	p.scheduleIn(w, 0)
	eventually(t, "fire", func() bool { return p.fires.Load() == 1 })
	if w.Cancel(&p.Timer) {
		t.Error("cancelled a timer that had fired")
	}
}

func TestFireMayScheduleItselfAgain(t *testing.T) {
	t.Parallel()
	w := newWheel(t, Config{})
	p := newProbe()
	steps := []time.Duration{-time.Second, 0, time.Millisecond, 150 * time.Millisecond, 5 * time.Millisecond, 0}
	p.fn = func(clock.Instant) {
		if n := p.fires.Load(); int(n) <= len(steps) {
			p.scheduleIn(w, steps[n-1])
		}
	}
	p.scheduleIn(w, 0)
	awaitFires(t, []*probe{p}, int64(len(steps))+1)
}

func TestFarTimersHopAndFireOnTime(t *testing.T) {
	t.Parallel()
	f := clock.NewFake()
	w := newWheel(t, Config{Clock: f})
	p := newProbe()
	const far = 10 * time.Minute
	p.scheduleIn(w, far)
	end := f.Now().Add(far)
	for f.Now() < end {
		settle(t, w)
		if p.fires.Load() != 0 {
			t.Fatalf("fired %v early", end.Sub(f.Now()))
		}
		if n := w.Stats().Slots; n > 1 {
			t.Fatalf("one timer has %d slots", n)
		}
		f.Advance(7 * time.Second)
	}
	eventually(t, "fire", func() bool { return p.fires.Load() == 1 })
}

func TestSlotsOfCancelledTimersGoAway(t *testing.T) {
	t.Parallel()
	f := clock.NewFake()
	w := newWheel(t, Config{Clock: f})
	for i := range 10_000 {
		p := newProbe()
		p.scheduleIn(w, time.Duration(i)*time.Second)
		w.Cancel(&p.Timer)
	}
	if n := w.Stats().Slots; n > int(hop/w.tick)+1 {
		t.Errorf("%d slots, more than the ticks of a hop", n)
	}
	f.Advance(hop + time.Second)
	if s := w.Stats(); s.Slots != 0 || s.Armed != 0 {
		t.Errorf("after a hop: %+v", s)
	}
}

// hiddenFake is a Fake that does not tell when it moves, like a machine waking up.
type hiddenFake struct{ f *clock.Fake }

func (h hiddenFake) Now() clock.Instant   { return h.f.Now() }
func (h hiddenFake) Stamp() clock.Instant { return h.f.Stamp() }
func (h hiddenFake) Wall() time.Time      { return h.f.Wall() }

func TestOverdueTimersFirePromptlyAfterSuspend(t *testing.T) {
	t.Parallel()
	f := clock.NewFake()
	lib := new(lab)
	w := newWheel(t, Config{Clock: hiddenFake{f}, newLibrary: lib.new})
	probes := newProbes(100)
	for i, p := range probes {
		p.scheduleIn(w, 30*time.Second+time.Duration(i)*10*time.Second)
	}
	// Two slots in 30 s and 40 s, the others on their way in one a hop away.
	eventually(t, "slots set", func() bool { return lib.slotTimers.Load() == 3 })
	slept := time.Now()
	f.Advance(time.Hour)
	awaitFires(t, probes, 1)
	if d := time.Since(slept); d > 10*time.Second {
		t.Errorf("took %v", d)
	}
	if n := w.Stats().Rebuilds.Total(); n != 0 {
		t.Errorf("%d rebuilds: wall clock and Now moved together", n)
	}
}

func TestScheduleWithoutInitIsABug(t *testing.T) {
	t.Parallel()
	w := newWheel(t, Config{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	w.Schedule(new(Timer), 1)
}
