package faults

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// The end of a SpinMutex is announced to nobody. So a waiter behind a hold of its own
// process has that hold looked at now and then. Otherwise a removal by force would leave it
// asleep until the lease ends, after an hour here.
func TestSpinWaiterBehindAHoldFindsThatItWasRemoved(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"after the waiter came": false, "before": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := testkit.Behind(t)
			other := testkit.Open(t, s.URL())
			m := e.SpinMutex("x")
			h := testkit.MustLock(t, m, engine.Lease(time.Hour))
			remove := func() {
				if was, err := other.SpinMutex("x").ForceUnlock(testkit.Ctx(t)); !was || err != nil {
					t.Fatalf("ForceUnlock: %v, %v", was, err)
				}
			}
			if first {
				remove()
			}
			looks := p.Watch(testkit.ScriptOn(script.Renew, "x"))
			waiter := m.LockAsync(testkit.Ctx(t))
			if !first {
				looks.Wait(2)
				remove()
			}
			testkit.WantServedAfterRemoval(t, h, waiter)
			testkit.Clean(t, s, e)
		})
	}
}
