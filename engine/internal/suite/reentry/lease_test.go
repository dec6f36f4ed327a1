package reentry

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func TestReentry_FixedLeaseUnderAWatchdog_EndsAlone(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		m := testkit.Open(t, s.URL(), testkit.ShortLease(time.Second)).Mutex("x")
		parent := testkit.MustLock(t, m)
		child := testkit.MustReenter(t, m, parent, engine.Lease(300*time.Millisecond))
		testkit.Receive(t, child.Done())
		testkit.WantLost(t, "child", child.Err(), engine.LeaseEnded)
		testkit.WantLost(t, "child's Unlock", child.Unlock(testkit.Ctx(t)), engine.LeaseEnded)
		if err := parent.Err(); err != nil {
			t.Fatalf("the parent ended with its child: %v", err)
		}
		// The next sibling comes in, and the watchdog goes on.
		next := testkit.MustReenter(t, m, parent)
		until := parent.ValidUntil()
		testkit.RenewedAfter(t, parent, until)
		if err := next.Err(); err != nil {
			t.Errorf("the child did not follow the renewals: %v", err)
		}
		testkit.MustUnlock(t, next)
		testkit.MustUnlock(t, parent)
		testkit.Clean(t, s)
	})
}

// A child with a longer lease than its parent's watchdog: the parent is renewed
// beneath it all the while.
func TestReentry_FixedLease_OutlastsRenewalsOfItsParent(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		m := testkit.Open(t, s.URL(), testkit.ShortLease(800*time.Millisecond)).Mutex("x")
		parent := testkit.MustLock(t, m)
		start := time.Now() // the lease counts from before the answer
		child := testkit.MustReenter(t, m, parent, engine.Lease(2500*time.Millisecond))
		testkit.Receive(t, child.Done())
		testkit.WantLost(t, "child", child.Err(), engine.LeaseEnded)
		if d := time.Since(start); d < 2300*time.Millisecond {
			t.Errorf("the child ended after %v", d)
		}
		if err := parent.Err(); err != nil {
			t.Errorf("parent: %v", err)
		}
		testkit.MustUnlock(t, parent)
		testkit.Clean(t, s)
	})
}

func TestReentry_WatchdogUnderAFixedLease_EndsWithIt(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		m := testkit.Open(t, s.URL()).Mutex("x")
		parent := testkit.MustLock(t, m, engine.Lease(1500*time.Millisecond))
		child := testkit.MustReenter(t, m, parent)
		if p, c := parent.ValidUntil(), child.ValidUntil(); c.Sub(p).Abs() > 20*time.Millisecond {
			t.Errorf("parent ends at %v, child at %v", p, c)
		}
		testkit.Receive(t, child.Done())
		testkit.WantLost(t, "child", child.Err(), engine.LeaseEnded)
		testkit.WantLost(t, "parent", parent.Err(), engine.LeaseEnded)
		// The re-entry had raised the key's expiry to the watchdog's; the loss releases it.
		testkit.Eventually(t, "the lock is free", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
	})
}

func TestReentry_MaxHold_EndsItAlone(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		m := testkit.Open(t, s.URL(), testkit.ShortLease(time.Second)).Mutex("x")
		parent := testkit.MustLock(t, m)
		child := testkit.MustReenter(t, m, parent, engine.MaxHold(200*time.Millisecond))
		testkit.Receive(t, child.Done())
		testkit.WantLost(t, "child", child.Err(), engine.MaxHoldReached)
		if err := parent.Err(); err != nil {
			t.Errorf("parent: %v", err)
		}
		testkit.MustUnlock(t, testkit.MustReenter(t, m, parent))
		testkit.MustUnlock(t, parent)
		testkit.Clean(t, s)
	})
}

func TestReentry_ShorterLease_DoesNotShortenTheLease(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	parent := testkit.MustLock(t, m, engine.Lease(20*time.Second))
	child := testkit.MustReenter(t, m, parent, engine.Lease(10*time.Second))
	if ttl := s.Do("PTTL", "x").(int64); ttl < 15000 {
		t.Errorf("PTTL is %d after a re-entry with a short lease", ttl)
	}
	testkit.MustUnlock(t, child)
	if ttl := s.Do("PTTL", "x").(int64); ttl < 15000 {
		t.Errorf("PTTL is %d after the re-entry ended", ttl)
	}
	testkit.MustUnlock(t, parent)
	testkit.Clean(t, s)
}

// A function that asks for a MinHold may be called under a hold of the name without knowing:
// the lock stays taken until the latest that was asked for, when the last hold is given
// back.
func TestReentry_MinHold_OutlastsTheHoldThatItReenters(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	m := e.Mutex("x")
	parent := testkit.MustLock(t, m, engine.MinHold(time.Second))
	child := testkit.MustReenter(t, m, parent, engine.MinHold(time.Minute))
	testkit.MustUnlock(t, testkit.MustReenter(t, m, child, engine.MinHold(2*time.Second)))
	testkit.MustUnlock(t, child)
	testkit.MustUnlock(t, parent)
	if left := testkit.PTTL(t, s, "x"); left < 50*time.Second || left > time.Minute {
		t.Errorf("the key has %v left", left)
	}
	if _, err := other.Mutex("x").TryLock(testkit.Ctx(t)); !errors.As(err, new(*engine.NotAcquiredError)) {
		t.Errorf("TryLock during the rest: %v", err)
	}
}

// A re-entry that nobody was granted keeps nothing.
func TestReentry_MinHoldNotGranted_CountsNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	parent := testkit.MustLock(t, m)
	child := testkit.MustReenter(t, m, parent)
	if _, err := m.Lock(parent.Context(testkit.Ctx(t)), engine.Wait(20*time.Millisecond), engine.MinHold(time.Minute)); !errors.Is(err, engine.ErrNotAcquired) {
		t.Fatalf("a second re-entry: %v", err)
	}
	testkit.MustUnlock(t, child)
	testkit.MustUnlock(t, parent)
	if left := testkit.Fields(t, s, "x"); len(left) != 0 {
		t.Errorf("left on the server: %v", left)
	}
}
