package topology

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/internal/pace"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The MinHold of a writer that was unlocked before its reader is over when the reader goes. While the
// slot moves nobody can see that, and what was left of the MinHold stayed as long as the reader's lease.
func TestAReaderLeavesNothingOfAMinHoldWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	for _, moved := range []bool{false, true} {
		name := map[bool]string{false: "the lock is still there", true: "the lock is there already"}[moved]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, false)
			at := kit.Clustered(cluster)
			e, other := at.Open(t), at.Open(t)
			const minHold = 100 * time.Millisecond
			w := kit.MustLock(t, e.RWMutex("x").Writer(), engine.MinHold(minHold))
			began := pace.Now()
			r, err := e.RWMutex("x").Reader().Lock(w.Context(kit.Ctx(t)), engine.Lease(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			kit.MustUnlock(t, w)
			kit.Eventually(t, "the MinHold is over", func() bool { return began.Elapsed() > 2*minHold })

			slot := cluster.Slot("x")
			from := cluster.AwaitOwner(slot)
			to := cluster.Primaries()[0]
			if to == from {
				to = cluster.Primaries()[1]
			}
			cluster.BeginMove(slot, from, to)
			if moved {
				cluster.MoveKeys(slot, from, to)
			}
			unlock := r.UnlockAsync()
			waits := other.RWMutex("x").Writer().LockAsync(kit.Ctx(t))
			kit.Pause(nil, 500*time.Millisecond)
			cluster.EndMove(slot, from, to)
			start := pace.Now()
			if _, err := unlock.Await(kit.Ctx(t)); err != nil {
				t.Error(err)
			}
			next, err := waits.Await(kit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := start.Elapsed(); d > 3*time.Second {
				t.Errorf("granted %v after the move", d)
			}
			kit.MustUnlock(t, next)
			at.Clean(t)
		})
	}
}
