package wheel

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

func TestCloseWaitsForRunningFires(t *testing.T) {
	t.Parallel()
	w := New(Config{})
	p := newProbe()
	entered, release := make(chan struct{}), make(chan struct{})
	var left atomic.Bool
	p.fn = func(clock.Instant) {
		close(entered)
		<-release
		left.Store(true)
	}
	p.scheduleIn(w, 0)
	<-entered
	closed := make(chan struct{})
	for range 3 { // all callers wait
		go func() {
			w.Close()
			if !left.Load() {
				t.Error("Close returned while a Fire ran")
			}
			closed <- struct{}{}
		}()
	}
	awaitClosing(t, w)
	select {
	case <-closed:
		t.Error("Close did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	for range 3 {
		<-closed
	}
}

func TestCloseWaitsForOnRebuild(t *testing.T) {
	t.Parallel()
	lib := &lab{fault: firstOnly(eager)}
	entered, release := make(chan struct{}), make(chan struct{})
	var left atomic.Bool
	w := New(Config{newLibrary: lib.new, OnRebuild: func(string) {
		close(entered)
		<-release
		left.Store(true)
	}})
	<-entered
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		w.Close()
		if !left.Load() {
			t.Error("Close returned while OnRebuild ran")
		}
	}()
	select {
	case <-closed:
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	<-closed
}

func TestDueTimersDoNotFireOnceClosing(t *testing.T) {
	t.Parallel()
	w := New(Config{Workers: 1})
	entered, release := make(chan struct{}), make(chan struct{})
	slow := newProbe()
	slow.fn = func(clock.Instant) {
		close(entered)
		<-release
	}
	slow.scheduleIn(w, 0)
	<-entered
	due := newProbes(10)
	for _, p := range due {
		p.scheduleIn(w, -1)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		w.Close()
	}()
	awaitClosing(t, w)
	close(release)
	<-closed
	awaitFires(t, due, 0)
}

func awaitClosing(t *testing.T, w *Wheel) {
	t.Helper()
	eventually(t, "closing", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.mu.closing
	})
}

// hookClock counts who listens to it.
type hookClock struct {
	*clock.Fake
	hooks atomic.Int64
}

func (c *hookClock) OnMove(f func()) (cancel func()) {
	c.hooks.Add(1)
	unhook := c.Fake.OnMove(f)
	return func() {
		unhook()
		c.hooks.Add(-1)
	}
}

func TestCloseLetsGoOfTheClock(t *testing.T) {
	t.Parallel()
	c := &hookClock{Fake: clock.NewFake()}
	w := New(Config{Clock: c})
	if c.hooks.Load() != 1 {
		t.Error("the wheel does not listen")
	}
	w.Close()
	if c.hooks.Load() != 0 {
		t.Error("the wheel still listens")
	}
}

func TestNothingFiresAfterClose(t *testing.T) {
	t.Parallel()
	f := clock.NewFake()
	w := New(Config{Clock: f})
	probes := newProbes(100)
	for i, p := range probes {
		p.scheduleIn(w, time.Duration(i+1)*20*time.Millisecond)
	}
	probes[99].scheduleIn(w, 3*time.Hour) // more slots on its way
	w.Close()
	for _, p := range probes[:50] {
		w.Schedule(&p.Timer, 0)
	}
	w.turn() // as a runtime timer that is late
	if w.wake.Stop() {
		t.Error("the near ring turns on after Close")
	}
	f.Advance(time.Hour)
	w.catchUp() // as a watcher or a library that is late
	w.turn()
	if w.rebuild(RebuildStalled) {
		t.Error("a new library after Close")
	}
	for i, p := range probes {
		if !w.Cancel(&p.Timer) {
			t.Fatalf("timer %d was armed and has not fired, but Cancel says no", i)
		}
	}
	fresh := newProbe()
	w.Schedule(&fresh.Timer, 0)
	if w.Cancel(&fresh.Timer) {
		t.Error("armed after Close")
	}
	settle(t, w)
	awaitFires(t, append(probes, fresh), 0)
}

func TestCloseRacesWithEverything(t *testing.T) {
	t.Parallel()
	for range 30 {
		var closed atomic.Bool
		var late atomic.Int64
		w := New(Config{Tick: time.Millisecond, Workers: 2})
		var stop atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			rng := seeded(t)
			wg.Go(func() {
				probes := newProbes(50)
				for _, p := range probes {
					p.fn = func(clock.Instant) {
						runtime.Gosched()
						if closed.Load() {
							late.Add(1)
						}
					}
				}
				for !stop.Load() {
					p := probes[rng.IntN(len(probes))]
					p.scheduleIn(w, upTo(rng, 15*time.Millisecond))
					w.Cancel(&probes[rng.IntN(len(probes))].Timer)
					runtime.Gosched()
				}
			})
		}
		eventually(t, "some fires", func() bool { return w.Stats().Fired > 20 })
		for range 2 {
			wg.Go(func() {
				w.Close()
				closed.Store(true)
			})
		}
		eventually(t, "closed", closed.Load)
		stop.Store(true)
		wg.Wait()
		settle(t, w)
		if late.Load() != 0 {
			t.Fatalf("%d fires after Close", late.Load())
		}
		if s := w.Stats(); s.Abandoned != 0 {
			t.Fatalf("stats %+v", s)
		}
	}
}

func TestCloseRacesWithRebuild(t *testing.T) {
	t.Parallel()
	for range 10 {
		lib := &lab{fault: func(int64) labFault { return eager }}
		w := New(Config{newLibrary: lib.new})
		for i, p := range newProbes(20) {
			p.scheduleIn(w, time.Duration(i)*100*time.Millisecond)
		}
		made := lib.made.Load()
		eventually(t, "rebuild", func() bool { return lib.made.Load() > made })
		w.Close()
		if s := w.Stats(); s.Abandoned != 0 {
			t.Fatalf("stats %+v", s)
		}
	}
}
