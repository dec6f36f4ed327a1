package topology

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// While a slot is migrated, the number of a semaphore's permits may be at one node and their ids
// at the other. Permits are renewed anyway; what is given back, or asked for, waits.
func TestPermitsOutliveTheMigrationOfTheirSlot(t *testing.T) {
	t.Parallel()
	const ids, others = "{x}:timeout", "w{x}:timeout"
	for _, x := range []struct {
		name  string
		moved []string // the others stay
		back  error    // what a release of x finds meanwhile
	}{
		{"the ids go first", []string{ids}, engine.ErrOutcomeUnknown},
		{"the numbers go first", []string{"x", "w{x}"}, engine.ErrOutcomeUnknown},
		{"one semaphore goes first", []string{"x", ids}, nil},
		{"all are at the new node", []string{"x", ids, "w{x}", others}, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(t testing.TB) {
				cluster := redistest.StartCluster(t, false)
				at := testkit.Clustered(cluster)
				lease := testkit.LeaseOf(2 * time.Second)
				a, b := at.Open(t, lease), at.Open(t, lease)
				var held []*engine.Hold
				for _, e := range []*engine.Engine{a, b} {
					for _, name := range []string{"x", "w{x}"} {
						s := e.PermitSemaphore(name)
						if err := s.SetPermits(testkit.Ctx(t), 6); err != nil {
							t.Fatal(err)
						}
						for n := 1; n < 3; n++ {
							h, err := s.Acquire(testkit.Ctx(t), n)
							if err != nil {
								t.Fatal(err)
							}
							held = append(held, h)
						}
					}
				}
				waits := b.PermitSemaphore("x").AcquireAsync(t.Context(), 2)

				slot := cluster.Slot("x")
				from := cluster.AwaitOwner(slot)
				to := cluster.Primaries()[0]
				if to == from {
					to = cluster.Primaries()[1]
				}
				cluster.BeginMove(slot, from, to)
				host, port, err := net.SplitHostPort(to.Addr())
				if err != nil {
					t.Fatal(err)
				}
				for _, key := range x.moved {
					if v := from.Do("MIGRATE", host, port, key, "0", "5000"); v != "OK" {
						t.Fatalf("MIGRATE of %s: %v", key, v)
					}
				}
				back := held[0].UnlockAsync()
				stayApart(t)
				for i, h := range held[1:] {
					if h.Err() != nil {
						t.Errorf("hold %d: %v", i+1, h.Err())
					}
				}
				if _, err := waits.Result(); !errors.Is(err, engine.ErrPending) {
					t.Errorf("one who waits: %v", err)
				}
				// While the keys are apart it is repeated, for a lease; then it is owed.
				if _, err := back.Await(testkit.Ctx(t)); !errors.Is(err, x.back) {
					t.Errorf("the release during the move: %v, want %v", err, x.back)
				}
				cluster.EndMove(slot, from, to)
				if err := held[1].Unlock(testkit.Ctx(t)); err != nil {
					t.Error(err)
				}
				got, err := waits.Await(testkit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				for _, h := range append(held[2:], got) {
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
				}
				for _, name := range []string{"x", "w{x}"} {
					s := a.PermitSemaphore(name)
					testkit.Eventually(t, "all permits of "+name+" are back", func() bool {
						n, err := s.Available(testkit.Ctx(t))
						return err == nil && n == 6
					})
				}
			})
		})
	}
}
