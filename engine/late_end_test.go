package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/wheel"
)

// stuckTimer keeps the only worker of a wheel busy, as if the process had been suspended
// and its callers ran before its timers.
type stuckTimer struct {
	timer         wheel.Timer
	started, goOn chan struct{}
}

// Fire implements wheel.Task.
func (s *stuckTimer) Fire(*wheel.Timer, clock.Instant) { close(s.started); <-s.goOn }

// asleep lets d pass without any timer noticing, until wake is called.
func (f fakeTime) asleep(d time.Duration) (wake func()) {
	s := &stuckTimer{started: make(chan struct{}), goOn: make(chan struct{})}
	s.timer.Init(s)
	f.eng.table.Timers.Schedule(&s.timer, f.clock.Now())
	<-s.started
	f.clock.Advance(d)
	return func() { close(s.goOn) }
}

// A call that finds that the time of a hold is over goes on with its name, even if the call
// is about a re-entry that was given back long before.
func TestUnlockOfAFormerReentryGoesOnWithTheNameOfAHoldWhoseTimeIsOver(t *testing.T) {
	t.Parallel()
	s, _, e, clk := behindOn(t, patient)
	m := e.Mutex("x")
	h := mustLock(t, m, Lease(time.Hour))
	ctx, cancel := context.WithCancel(context.Background())
	child, err := m.Lock(h.Context(ctx))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, child)
	cancel()
	eventually(t, "the context is forgotten", func() bool { // else its end goes on with the name
		oneOf(h).Shard().Lock()
		defer oneOf(h).Shard().Unlock()
		return len(oneOf(h).Contexts()) == 0
	})
	waiter := m.LockAsync(ctxT(t))
	wake := clk.asleep(61 * time.Minute)
	if err := child.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("second Unlock of the re-entry: %v", err)
	}
	wake()
	next, err := waiter.Await(ctxT(t))
	if err != nil {
		t.Fatalf("%v; the hold: %v; on the server: %v", err, h.Err(), fields(t, s, "x"))
	}
	wantLost(t, "the hold", h.Err(), LeaseEnded)
	mustUnlock(t, next)
}

// A TryLock is refused because of a hold of this process only if that has time left.
func TestTryLockIsNotRefusedBecauseOfAHoldWhoseTimeIsOver(t *testing.T) {
	t.Parallel()
	for name, reentry := range map[string]bool{"a hold": false, "a re-entry": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, e, clk := behindOn(t, patient)
			m := e.Mutex("x")
			h, ctx := mustLock(t, m, Lease(2*time.Hour)), ctxT(t)
			old, d := h, 121*time.Minute
			if reentry {
				ctx = h.Context(ctx)
				old, d = mustReenter(t, m, h, Lease(time.Hour)), 61*time.Minute
			}
			wake := clk.asleep(d)
			next, err := m.TryLock(ctx)
			wake()
			if err != nil {
				t.Fatalf("%v; the hold: %v", err, old.Err())
			}
			wantLost(t, "the hold", old.Err(), LeaseEnded)
			mustUnlock(t, next)
		})
	}
}

// A Lock under the context of a hold whose time is over does not ask the server for a
// re-entry, whose answer would give the wrong reason for the loss.
func TestLockUnderAHoldWhoseTimeIsOverIsNoReentry(t *testing.T) {
	t.Parallel()
	s, _, e, clk := behindOn(t, patient)
	m := e.Mutex("x")
	h := mustLock(t, m, Lease(time.Hour))
	ctx := h.Context(ctxT(t))
	s.Do("DEL", "x") // the server has slept as long
	wake := clk.asleep(61 * time.Minute)
	defer wake()
	if next, err := m.Lock(ctx); err == nil { // else its context ended first
		mustUnlock(t, next)
	} else if !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	wantLost(t, "the hold", h.Err(), LeaseEnded)
}
