package engine

import (
	"errors"
	"testing"
	"time"
)

// shortLease gives the watchdog a lease that tests can wait for. The margin is
// small: a hold is renewed after a third, and the rest is for machines under load.
func shortLease(d time.Duration) func(*Config) {
	return func(c *Config) { c.Lease, c.Margin = d, 10*time.Millisecond }
}

func mustReenter(t testing.TB, m Mutex, h *Hold, opts ...Option) *Hold {
	t.Helper()
	child, err := m.Lock(h.Context(ctxT(t)), opts...)
	if err != nil {
		t.Fatalf("re-entry of %s: %v", m.Name(), err)
	}
	if child.Owner() != h.Owner() {
		t.Fatalf("%s was taken afresh, not re-entered", m.Name())
	}
	return child
}

func wantLost(t testing.TB, what string, err error, reason LostReason) {
	t.Helper()
	var lost *LostError
	if !errors.As(err, &lost) || !errors.Is(err, ErrLost) || lost.Reason != reason {
		t.Errorf("%s: %v, want a LostError: %v", what, err, reason)
	}
}

func TestFixedLeaseUnderAWatchdogEndsAlone(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		m := open(t, s.URL(), shortLease(time.Second)).Mutex("x")
		parent := mustLock(t, m)
		child := mustReenter(t, m, parent, Lease(300*time.Millisecond))
		receive(t, child.Done())
		wantLost(t, "child", child.Err(), LeaseEnded)
		wantLost(t, "child's Unlock", child.Unlock(ctxT(t)), LeaseEnded)
		if err := parent.Err(); err != nil {
			t.Fatalf("the parent ended with its child: %v", err)
		}
		// The next sibling comes in, and the watchdog goes on.
		next := mustReenter(t, m, parent)
		until := parent.ValidUntil()
		renewedAfter(t, parent, until)
		if err := next.Err(); err != nil {
			t.Errorf("the child did not follow the renewals: %v", err)
		}
		mustUnlock(t, next)
		mustUnlock(t, parent)
		clean(t, s)
	})
}

// A child with a longer lease than its parent's watchdog: the parent is renewed
// beneath it all the while.
func TestFixedLeaseOutlastsManyRenewalsOfItsParent(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		m := open(t, s.URL(), shortLease(800*time.Millisecond)).Mutex("x")
		parent := mustLock(t, m)
		start := time.Now() // the lease counts from before the answer
		child := mustReenter(t, m, parent, Lease(2500*time.Millisecond))
		receive(t, child.Done())
		wantLost(t, "child", child.Err(), LeaseEnded)
		if d := time.Since(start); d < 2300*time.Millisecond {
			t.Errorf("the child ended after %v", d)
		}
		if err := parent.Err(); err != nil {
			t.Errorf("parent: %v", err)
		}
		mustUnlock(t, parent)
		clean(t, s)
	})
}

func TestWatchdogUnderAFixedLeaseEndsWithIt(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		m := open(t, s.URL()).Mutex("x")
		parent := mustLock(t, m, Lease(1500*time.Millisecond))
		child := mustReenter(t, m, parent)
		if p, c := parent.ValidUntil(), child.ValidUntil(); c.Sub(p).Abs() > 20*time.Millisecond {
			t.Errorf("parent ends at %v, child at %v", p, c)
		}
		receive(t, child.Done())
		wantLost(t, "child", child.Err(), LeaseEnded)
		wantLost(t, "parent", parent.Err(), LeaseEnded)
		// The re-entry had raised the key's expiry to the watchdog's; the loss releases it.
		eventually(t, "the lock is free", func() bool { return len(fields(t, s, "x")) == 0 })
	})
}

func TestMaxHoldOfAReentryEndsItAlone(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		m := open(t, s.URL(), shortLease(time.Second)).Mutex("x")
		parent := mustLock(t, m)
		child := mustReenter(t, m, parent, MaxHold(200*time.Millisecond))
		receive(t, child.Done())
		wantLost(t, "child", child.Err(), MaxHoldReached)
		if err := parent.Err(); err != nil {
			t.Errorf("parent: %v", err)
		}
		mustUnlock(t, mustReenter(t, m, parent))
		mustUnlock(t, parent)
		clean(t, s)
	})
}

func TestReentryNeverShortensTheLease(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	parent := mustLock(t, m, Lease(20*time.Second))
	child := mustReenter(t, m, parent, Lease(10*time.Second))
	if ttl := s.Do("PTTL", "x").(int64); ttl < 15000 {
		t.Errorf("PTTL is %d after a re-entry with a short lease", ttl)
	}
	mustUnlock(t, child)
	if ttl := s.Do("PTTL", "x").(int64); ttl < 15000 {
		t.Errorf("PTTL is %d after the re-entry ended", ttl)
	}
	mustUnlock(t, parent)
	clean(t, s)
}

// A function that asks for a MinHold may be called under a hold of the name without knowing:
// the lock stays taken until the latest that was asked for, when the last hold is given
// back.
func TestMinHoldOfAReentryOutlastsTheHoldThatItReenters(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	m := e.Mutex("x")
	parent := mustLock(t, m, MinHold(time.Second))
	child := mustReenter(t, m, parent, MinHold(time.Minute))
	mustUnlock(t, mustReenter(t, m, child, MinHold(2*time.Second)))
	mustUnlock(t, child)
	mustUnlock(t, parent)
	if left := pttl(t, s, "x"); left < 50*time.Second || left > time.Minute {
		t.Errorf("the key has %v left", left)
	}
	if _, err := other.Mutex("x").TryLock(ctxT(t)); !errors.As(err, new(*NotAcquiredError)) {
		t.Errorf("TryLock during the rest: %v", err)
	}
}

// A re-entry that nobody was granted keeps nothing.
func TestMinHoldOfAReentryThatWasNotGrantedCountsNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	parent := mustLock(t, m)
	child := mustReenter(t, m, parent)
	if _, err := m.Lock(parent.Context(ctxT(t)), Wait(20*time.Millisecond), MinHold(time.Minute)); !errors.Is(err, ErrNotAcquired) {
		t.Fatalf("a second re-entry: %v", err)
	}
	mustUnlock(t, child)
	mustUnlock(t, parent)
	if left := fields(t, s, "x"); len(left) != 0 {
		t.Errorf("left on the server: %v", left)
	}
}
