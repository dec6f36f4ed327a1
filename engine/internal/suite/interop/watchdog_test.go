package interop

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// quick has watchdogs that renew once a second.
var quick = settings{lease: 3 * time.Second}

// Each has a lock and renews it for several leases, and the other never gets it.
func TestBothWatchdogsRenew(t *testing.T) {
	t.Parallel()
	onEachStageWithReaders(t, quick, every, func(t *testing.T, s *stage, k kind) {
		t.Parallel()
		java, pawl := s.subject(t, k, "renewed by Java"), s.subject(t, k, "renewed by Pawl")
		java.ask("a", "lock", -1).want(t)
		h := pawl.mustLock(t)
		var renewals [2]int
		var before [2]time.Duration
		for began, n := cputime.Now(), 0; began.Elapsed() < 3*quick.lease; n++ {
			for i, x := range []*subject{java, pawl} {
				left := x.ttl(t)
				if left <= 0 {
					t.Fatalf("%s is free", x.names[0])
				}
				if left > before[i] {
					renewals[i]++
				}
				before[i] = left
			}
			if n%10 == 0 {
				if _, err := java.rival().try(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) && !k.composed || err == nil {
					t.Fatalf("Pawl, of Java's: %v", err)
				}
				if got := pawl.rival().ask("b", "try", 0, -1).want(t); got != "false" {
					t.Fatal("Java has Pawl's")
				}
			}
			testkit.Pause(nil, 20*time.Millisecond)
		}
		if err := h.Err(); err != nil {
			t.Error(err)
		}
		// The grant looks like a renewal, too. 9 s have 8 of them if nothing is late.
		if min(renewals[0], renewals[1]) < 5 {
			t.Errorf("Java renewed %d times, Pawl %d", renewals[0], renewals[1])
		}
		t.Logf("in %v Java renewed %d times, Pawl %d", 3*quick.lease, renewals[0]-1, renewals[1]-1)
		java.ask("a", "unlock").want(t)
		unlock(t, h)
		unlock(t, java.rival().mustLock(t))
		pawl.rival().ask("b", "lock", -1).want(t)
		pawl.rival().ask("b", "unlock").want(t)
	})
}

// ttl is what the server has left of the lease, of the first lock if there are several.
func (x *subject) ttl(t testing.TB) time.Duration {
	t.Helper()
	v, _ := x.stage.sites[0].do(t, x.names[0], "PTTL", x.names[0]).(int64)
	return time.Duration(v) * time.Millisecond
}
