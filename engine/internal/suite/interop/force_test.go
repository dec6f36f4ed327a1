package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// long is a lease that nobody waits for in a test.
const long = time.Hour

// group is the waiters for a lock that the other side takes away: one of each kind.
type group struct {
	java answer
	pawl chan error
	hold hold
}

// group has a thread of Java and another engine wait for the lock.
func (x *subject) group(t testing.TB) *group {
	t.Helper()
	c := &group{pawl: make(chan error, 1)}
	e := x.stage.engine(t, x.stage.sites[0])
	other := x.pawl([]*engine.Engine{e}, x.names)
	c.java = x.whileItWaits(t, func() answer { return x.ask("waiter", "lock", long.Milliseconds()) })
	go func() {
		h, err := other.lock(testkit.Within(t, patience), engine.Lease(long))
		c.hold = h
		c.pawl <- err
	}()
	testkit.Eventually(t, "Go waits", func() bool {
		// It tries, listens, and tries once more: only then a message must wake it.
		own := testkit.Client(e).Stats()
		return e.Stats().Waiting == 1 && (x.polls || own.ChannelsConfirmed == 1 && own.Commands > 1 && own.InFlight == 0)
	})
	return c
}

// served expects that both get the lock, one after the other, long before a lease ends.
func (x *subject) served(t testing.TB, c *group) {
	t.Helper()
	forced := cputime.Now()
	ctx := testkit.Ctx(t)
	for range 2 {
		select {
		case text := <-c.java.text:
			c.java.text <- text
			c.java.want(t)
			x.ask("waiter", "unlock").want(t)
		case err := <-c.pawl:
			if err != nil {
				t.Fatal(err)
			}
			unlock(t, c.hold)
		case <-ctx.Done():
			t.Fatal("the lock was taken away, and a waiter sleeps on")
		}
	}
	took := forced.Elapsed()
	t.Logf("both waiters had it %v after the force-unlock", took.Round(time.Microsecond))
	if took > 3*time.Second { // in a cluster Pawl looks again in up to ten
		t.Error("a waiter was not woken")
	}
}

func TestJavaTakesALockFromPawl(t *testing.T) {
	t.Parallel()
	onEachStageWithReaders(t, quick, simple, func(t *testing.T, s *stage, k kind) {
		t.Parallel()
		x := s.subject(t, k, "taken from Pawl")
		y := x.rival()
		fixed, err := x.lock(testkit.Ctx(t), engine.Lease(long))
		if err != nil {
			t.Fatal(err)
		}
		c := y.group(t)
		if got := x.ask("b", "force").want(t); got != "true" {
			t.Fatalf("Java's forceUnlock: %s", got)
		}
		y.served(t, c)
		if err := fixed.Unlock(testkit.Ctx(t)); err == nil {
			t.Error("Pawl unlocks what it has no more")
		}

		// A hold that is renewed notices at the next renewal, although another has the lock.
		watched := x.mustLock(t)
		if got := x.ask("b", "force").want(t); got != "true" {
			t.Fatalf("Java's forceUnlock: %s", got)
		}
		robbed := cputime.Now()
		y.ask("b", "lock", -1).want(t)
		testkit.Receive(t, watched.Done())
		testkit.WantLost(t, "the hold", watched.Err(), engine.RemovedOnServer)
		if took := robbed.Elapsed(); took > s.lease/3+s.lease/4 {
			t.Errorf("the hold noticed after %v; it is renewed every %v", took, s.lease/3)
		}
		y.wantJava(t, "b", true, true, 1)
		y.ask("b", "unlock").want(t)
	})
}

func TestPawlTakesALockFromJava(t *testing.T) {
	t.Parallel()
	onEachStageWithReaders(t, quick, simple, func(t *testing.T, s *stage, k kind) {
		t.Parallel()
		x := s.subject(t, k, "taken from Java")
		y := x.rival()
		force := func() {
			t.Helper()
			m := x.mutex()
			if k.polls {
				m = s.engines[0].SpinMutex(x.names[0])
			}
			if ok, err := m.ForceUnlock(testkit.Ctx(t)); !ok || err != nil {
				t.Fatalf("Pawl's ForceUnlock: %t, %v", ok, err)
			}
		}
		x.ask("a", "lock", long.Milliseconds()).want(t)
		c := y.group(t)
		force()
		y.served(t, c)

		// Redisson's watchdog finds another owner, and leaves the lock alone.
		x.ask("a", "lock", -1).want(t)
		force()
		h, err := y.lock(testkit.Ctx(t), engine.Lease(long))
		if err != nil {
			t.Fatal(err)
		}
		for began := cputime.Now(); began.Elapsed() < s.lease; {
			if left := x.ttl(t); left < long-time.Minute {
				t.Fatalf("after %v the lease is %v", began.Elapsed(), left)
			}
			testkit.Pause(nil, 20*time.Millisecond)
		}
		if _, err := x.ask("a", "unlock").result(t); err == nil || !strings.HasPrefix(err.Error(), "IllegalMonitorStateException") {
			t.Errorf("Java unlocks what it has no more: %v", err)
		}
		if err := h.Err(); err != nil {
			t.Error(err)
		}
		unlock(t, h)
	})
}
