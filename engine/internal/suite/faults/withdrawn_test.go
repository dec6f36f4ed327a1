package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A right that is withdrawn for some names must not cost the holds of others, though one
// script renews them together.
func TestRightWithdrawnForOneNameCostsNoOtherHold(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), testkit.LeaseOf(2*time.Second))
		denied := testkit.MustLock(t, e.Mutex("other"))
		var allowed []*engine.Hold
		for i := range 20 {
			allowed = append(allowed, testkit.MustLock(t, e.Mutex(fmt.Sprint("mine", i))))
		}
		testkit.RenewAll(e)
		testkit.Eventually(t, "they are renewed together", func() bool { return e.Stats().Renewed > 20 })
		testkit.RenewAll(e) // nobody of them is due for a while: the next round is theirs, too
		s.Do("ACL", "SETUSER", "default", "resetkeys", "~mine*")
		testkit.Receive(t, denied.Done())
		testkit.WantLost(t, "the one that may not be renewed", denied.Err(), engine.NotRenewed)
		before := e.Stats().Renewed
		testkit.Eventually(t, "the others are renewed twice more, or one is lost", func() bool {
			st := e.Stats()
			return st.Renewed >= before+uint64(2*len(allowed)) || st.Held < len(allowed)
		})
		for _, h := range allowed {
			if err := h.Err(); err != nil {
				t.Errorf("%s: %v", h.Name(), err)
			}
		}
		s.Do("ACL", "SETUSER", "default", "~*")
	})
}
