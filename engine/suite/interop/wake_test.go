package interop

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/kit"
)

// A release of one wakes a waiter of the other. The lease is 30 s: a waiter that sleeps until
// its end fails the test. The figures hold the release's own round trip, and the pipe to Java.
func TestAReleaseWakesTheOther(t *testing.T) {
	onEachStage(t, calm, every, func(t *testing.T, s *stage, k kind) {
		rounds := pick(20, 200)
		var toJava, toGo, pings []time.Duration
		for n := range rounds { // with new names, which nobody listens to yet
			x, y := s.subject(t, k, fmt.Sprint("to Java ", n)), s.subject(t, k, fmt.Sprint("to Go ", n))
			began := time.Now()
			s.jvm.ask(x.thread("waiter"), "ping").want(t)
			if err := s.engines[0].Ping(kit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
			pings = append(pings, time.Since(began))

			h := x.mustLock(t)
			waiter := x.whileItWaits(t, func() answer { return x.ask("waiter", "lock", -1) })
			if waiter.arrived() {
				t.Fatal("both have the lock")
			}
			released := time.Now()
			if err := h.Unlock(kit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
			waiter.want(t)
			toJava = append(toJava, time.Since(released))
			x.ask("waiter", "unlock").want(t)

			y.ask("holder", "lock", -1).want(t)
			var woken time.Time
			granted := make(chan hold, 1)
			failed := y.awaited(t, func() error {
				h, err := y.lock(kit.Within(t, patience))
				woken = time.Now()
				granted <- h
				return err
			})
			if len(granted) > 0 {
				t.Fatal("both have the lock")
			}
			released = time.Now()
			y.ask("holder", "unlock").want(t)
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			toGo = append(toGo, woken.Sub(released))
			if late := s.lease / 3; toJava[n] > late || toGo[n] > late {
				t.Fatalf("Go woke Java after %v, Java Go after %v", toJava[n], toGo[n])
			}
			if err := (<-granted).Unlock(kit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
		}
		for _, way := range []struct {
			name  string
			times []time.Duration
		}{{"Go wakes Java", toJava}, {"Java wakes Go", toGo}, {"two pings", pings}} {
			slices.Sort(way.times)
			p50, worst := way.times[rounds/2], way.times[rounds-1]
			t.Logf("%s: p50 %v, longest %v", way.name, p50.Round(time.Microsecond), worst.Round(time.Microsecond))
			if p50 > k.wakes {
				t.Errorf("%s: p50 %v, want at most %v", way.name, p50, k.wakes)
			}
		}
	})
}

// mustLock locks as Pawl does.
func (x *subject) mustLock(t testing.TB) hold {
	t.Helper()
	h, err := x.lock(kit.Within(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// whileItWaits has Java do something, and returns when that waits for the lock.
func (x *subject) whileItWaits(t testing.TB, begin func() answer) (a answer) {
	t.Helper()
	x.waits(t, func() { a = begin() })
	return a
}

// awaited has Go do something, and returns when that waits for the lock.
func (x *subject) awaited(t testing.TB, f func() error) (failed <-chan error) {
	t.Helper()
	x.waits(t, func() { failed = kit.Background(f) })
	return failed
}

// waits begins something and returns when that waits for the lock, to which nobody has
// listened before: it listens, or has asked more than once.
func (x *subject) waits(t testing.TB, begin func()) {
	t.Helper()
	scripts := x.stage.scripts()
	begin()
	kit.Eventually(t, "it waits", func() bool {
		if x.polls {
			return x.stage.scripts() > scripts+1
		}
		return x.stage.listeners(x.about) > 0
	})
}
