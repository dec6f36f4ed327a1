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

// While a slot is migrated, its new node has the lock and may have the queue or not. What is held
// is renewed and can be released at once, nobody gets the lock, and when the move has ended all
// are served in the order in which they came.
func TestAFairLockOutlivesTheMigrationOfItsSlot(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name  string
		moved []string // keys that go before the release
	}{
		{"no key has gone", nil},
		{"the hash has gone", []string{"x"}},
		{"the queue has gone", []string{"redisson_lock_queue:{x}", "redisson_lock_timeout:{x}"}},
		{"half of the queue has gone", []string{"redisson_lock_queue:{x}"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(t testing.TB) {
				cluster := redistest.StartCluster(t, false, redistest.Needs(redistest.ShardedChannels))
				at := testkit.Clustered(cluster)
				a, b := at.Open(t, testkit.LeaseOf(3*time.Second)), at.Open(t, testkit.LeaseOf(3*time.Second))
				h := testkit.MustLock(t, a.FairMutex("x"))
				slot := cluster.Slot("x")
				from := cluster.AwaitOwner(slot)
				var waits []*engine.Future[*engine.Hold]
				for i, e := range []*engine.Engine{b, a, b} {
					waits = append(waits, e.FairMutex("x").LockAsync(t.Context()))
					testkit.Eventually(t, "it is queued", func() bool { return from.Do("LLEN", "redisson_lock_queue:{x}") == int64(i+1) })
				}
				to := cluster.Primaries()[0]
				if to == from {
					to = cluster.Primaries()[1]
				}
				cluster.BeginMove(slot, from, to)
				host, port, _ := net.SplitHostPort(to.Addr())
				for _, key := range x.moved {
					if v := from.Do("MIGRATE", host, port, key, "0", "5000"); v != "OK" {
						t.Fatalf("MIGRATE of %s: %v", key, v)
					}
				}
				stayApart(t)
				if h.Err() != nil {
					t.Fatalf("lost: %v", h.Err())
				}
				unlocked := h.UnlockAsync()
				for i, f := range waits {
					if _, err := f.Result(); len(x.moved) > 0 && !errors.Is(err, engine.ErrPending) {
						t.Errorf("waiter %d, while the queue is apart: %v", i, err)
					}
				}
				cluster.EndMove(slot, from, to)
				if _, err := unlocked.Await(testkit.Ctx(t)); err != nil {
					t.Error(err)
				}
				for i, f := range waits {
					h, err := f.Await(testkit.Ctx(t))
					if err != nil {
						t.Fatal(err)
					}
					for _, later := range waits[i+1:] {
						if _, err := later.Result(); !errors.Is(err, engine.ErrPending) {
							t.Errorf("one who came after waiter %d: %v", i, err)
						}
					}
					testkit.MustUnlock(t, h)
				}
				at.Clean(t)
			})
		})
	}
}
