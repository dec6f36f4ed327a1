package wheel

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

func TestSlowFireHoldsUpNothing(t *testing.T) {
	t.Parallel()
	w := newWheel(t, Config{Workers: 3})
	release, open := gate(t)
	slow := newProbes(2)
	for _, p := range slow {
		p.fn = func(clock.Instant) { <-release }
		p.scheduleIn(w, 0)
	}
	probes := newProbes(500)
	for i, p := range probes {
		p.scheduleIn(w, time.Duration(i)*time.Millisecond/2)
	}
	awaitFires(t, probes, 1)
	open()
}

func TestScheduleAndCancelGoOnWhileAllWorkersAreStuck(t *testing.T) {
	t.Parallel()
	w := newWheel(t, Config{Workers: 2})
	release, open := gate(t)
	for _, p := range newProbes(2) {
		p.fn = func(clock.Instant) { <-release }
		p.scheduleIn(w, 0)
	}
	eventually(t, "both workers stuck", func() bool { return w.Stats().Fired == 2 })
	waiting := newProbes(100)
	for _, p := range waiting {
		p.scheduleIn(w, 0)
	}
	// Due, but no worker has taken them: they can still be moved and cancelled.
	for _, p := range waiting[:50] {
		if !w.Cancel(&p.Timer) {
			t.Fatal("not cancelled")
		}
	}
	waiting[50].scheduleIn(w, 100*time.Millisecond)
	open()
	awaitFires(t, waiting[50:], 1)
	awaitFires(t, waiting[:50], 0)
}

func TestGoexitInFireCostsNoWorker(t *testing.T) {
	t.Parallel()
	f := clock.NewFake()
	w := newWheel(t, Config{Clock: f, Workers: 1})
	probes := newProbes(50)
	for i, p := range probes {
		if i%2 == 0 {
			p.fn = func(clock.Instant) { runtime.Goexit() }
		}
		p.scheduleIn(w, time.Millisecond)
	}
	f.Advance(time.Millisecond) // and nothing else happens
	awaitFires(t, probes, 1)
	settle(t, w)
}

func TestAFullSlotIsOneLibraryTimerAndFewWorkers(t *testing.T) {
	t.Parallel()
	n := 1_000_000
	if testing.Short() || raceEnabled {
		n = 30_000
	}
	lib := new(lab)
	const workers = 3
	w := newWheel(t, Config{Workers: workers, newLibrary: lib.new})
	due := w.clock.Now().Add(2 * time.Second)
	task := &crowd{want: due}
	timers := make([]Timer, n)
	for i := range timers {
		timers[i].Init(task)
		w.Schedule(&timers[i], due)
	}
	if s := w.Stats(); s.Armed+int(s.Fired) != n || s.Slots > 1 {
		t.Errorf("stats %+v", s)
	}
	eventually(t, "all fired", func() bool { return task.fired.Load() == int64(n) })
	if m := task.most.Load(); m > workers {
		t.Errorf("%d at once, want at most %d", m, workers)
	}
	if task.early.Load() != 0 {
		t.Errorf("%d early", task.early.Load())
	}
	if c := lib.slotTimers.Load(); c > 1 {
		t.Errorf("%d timers of the library", c)
	}
	t.Logf("stats %+v", w.Stats())
}

type crowd struct {
	want                       clock.Instant
	fired, early, inside, most atomic.Int64
}

func (c *crowd) Fire(_ *Timer, now clock.Instant) {
	in := c.inside.Add(1)
	for m := c.most.Load(); in > m && !c.most.CompareAndSwap(m, in); m = c.most.Load() {
	}
	if now < c.want {
		c.early.Add(1)
	}
	c.inside.Add(-1)
	c.fired.Add(1)
}

func TestNoMoreWorkersThanAllowed(t *testing.T) {
	t.Parallel()
	const workers = 3
	w := newWheel(t, Config{Workers: workers})
	release, open := gate(t)
	probes := newProbes(20)
	for _, p := range probes {
		p.fn = func(clock.Instant) { <-release }
		p.scheduleIn(w, -1)
	}
	w.mu.Lock()
	started := w.mu.workers
	w.mu.Unlock()
	if started != workers {
		t.Errorf("%d workers for %d timers, want %d", started, len(probes), workers)
	}
	open()
	awaitFires(t, probes, 1)
	settle(t, w)
}

func TestTimersDueTogetherDoNotWaitForASlowOne(t *testing.T) {
	t.Parallel()
	f := clock.NewFake()
	w := newWheel(t, Config{Clock: f, Workers: 3})
	release, open := gate(t)
	slow, quick := newProbes(2), newProbes(50)
	for _, p := range slow {
		p.fn = func(clock.Instant) { <-release }
		p.scheduleIn(w, time.Millisecond)
	}
	for _, p := range quick {
		p.scheduleIn(w, time.Millisecond)
	}
	f.Advance(time.Millisecond) // and nothing else happens
	awaitFires(t, quick, 1)
	open()
}
