package counters

import (
	"context"
	"errors"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The server has become a replica that lags behind. A latch that it does not know yet is not open for
// that, nor is its count zero: the new primary is asked.
func TestALatchIsNotOpenBecauseAReplicaDoesNotKnowIt(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or a call ends before the new primary is known
		r := redistest.StartReplicated(t, 1)
		site := testkit.Replicated(r)
		e := site.Open(t)
		l := e.Latch("l")
		if n, err := l.Count(testkit.Ctx(t)); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		r.AwaitInStep()
		a, b := r.Servers()[0], r.Servers()[1]
		b.Do("REPLICAOF", "NO", "ONE")
		b.Do("SET", "l", "1")
		a.Do("REPLICAOF", "127.0.0.1", "1")
		awaits := l.AwaitAsync(context.Background())
		if n, err := l.Count(testkit.Ctx(t)); n != 1 || err != nil {
			t.Errorf("the count is %d, %v", n, err)
		}
		if _, err := awaits.Result(); !errors.Is(err, engine.ErrPending) {
			t.Errorf("it is open: %v", err)
		}
		if err := l.CountDown(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
		if _, err := awaits.Await(testkit.Ctx(t)); err != nil {
			t.Error(err)
		}
	})
}

// The same with permits that have a lease: there are not too few because a replica does not know them.
func TestPermitsAreNotTooFewBecauseAReplicaDoesNotKnowThem(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		r := redistest.StartReplicated(t, 1)
		e := testkit.Replicated(r).Open(t)
		s := e.PermitSemaphore("s")
		if n, err := s.Available(testkit.Ctx(t)); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		r.AwaitInStep()
		a, b := r.Servers()[0], r.Servers()[1]
		b.Do("REPLICAOF", "NO", "ONE")
		b.Do("SET", "s", "3")
		a.Do("REPLICAOF", "127.0.0.1", "1")
		tried := s.TryAcquireAsync(testkit.Ctx(t), 1)
		n, err := s.Available(testkit.Ctx(t))
		fewest := 3
		if h, err := tried.Await(testkit.Ctx(t)); err == nil { // the new primary was known already, to it at least
			fewest = 2 // if the permit was taken before they were counted
			if err := h.Unlock(testkit.Ctx(t)); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrHeld) {
			t.Errorf("TryAcquire: %v", err)
		}
		if n < fewest || n > 3 || err != nil {
			t.Errorf("%d are to be had, %v", n, err)
		}
		if _, err := s.Acquire(testkit.Ctx(t), 3); err != nil {
			t.Error(err)
		}
	})
}
