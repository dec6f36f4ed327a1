package engine

import (
	"fmt"
	"testing"
	"time"
)

// A right that is withdrawn for some names must not cost the holds of others, though one
// script renews them together.
func TestRightWithdrawnForOneNameCostsNoOtherHold(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL(), leaseOf(2*time.Second))
	denied := mustLock(t, e.Mutex("other"))
	var allowed []*Hold
	for i := range 20 {
		allowed = append(allowed, mustLock(t, e.Mutex(fmt.Sprint("mine", i))))
	}
	e.table.Renewer.All()
	eventually(t, "they are renewed together", func() bool { return e.Stats().Renewed > 20 })
	e.table.Renewer.All() // nobody of them is due for a while: the next round is theirs, too
	s.Do("ACL", "SETUSER", "default", "resetkeys", "~mine*")
	receive(t, denied.Done())
	wantLost(t, "the one that may not be renewed", denied.Err(), NotRenewed)
	before := e.Stats().Renewed
	eventually(t, "the others are renewed twice more, or one is lost", func() bool {
		st := e.Stats()
		return st.Renewed >= before+uint64(2*len(allowed)) || st.Held < len(allowed)
	})
	for _, h := range allowed {
		if err := h.Err(); err != nil {
			t.Errorf("%s: %v", h.Name(), err)
		}
	}
	s.Do("ACL", "SETUSER", "default", "~*")
}
