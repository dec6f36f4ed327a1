package topology

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Where a slot is moved at once, no key is ever elsewhere alone: the old node refuses writes for some
// milliseconds, and answers MOVED before the new one believes that the slot is its own. Nothing of
// that ends a hold, an attempt or a wait.
func TestLocks_SlotMigratedAtomically_NothingIsLost(t *testing.T) {
	t.Parallel()
	const steady = 200 * time.Millisecond // where this process waits for longer, so do nodes, which take each other for dead
	t.Run("valkey 9", func(t *testing.T) {
		t.Parallel()
		on := redistest.OnValkey9(t)
		cputime.Steady(t, steady, func(t testing.TB) { migrateUnderLoad(t, on) })
	})
	t.Run("redis-server", func(t *testing.T) { // from Redis 8.4 on, and Valkey 9.0
		t.Parallel()
		on := redistest.Needs(redistest.SlotMigration)
		cputime.Steady(t, steady, func(t testing.TB) { migrateUnderLoad(t, on) })
	})
}

func migrateUnderLoad(t testing.TB, on redistest.Option) {
	const migrations, holders, triers = 12, 40, 4
	cluster := redistest.StartCluster(t, false, on)
	at := testkit.Clustered(cluster)
	a, b := at.Open(t, testkit.LeaseOf(6*time.Second)), at.Open(t, testkit.LeaseOf(6*time.Second))

	// All names are in one slot: holds of each kind, and a waiter for each.
	var holds []*engine.Hold
	var waits []*engine.Future[*engine.Hold]
	wait := func(m engine.Mutex) { waits = append(waits, m.LockAsync(testkit.Ctx(t))) }
	for i := range holders {
		name := fmt.Sprintf("{x}:%d", i)
		switch i % 4 {
		case 0:
			holds = append(holds, testkit.MustLock(t, a.FairMutex(name)))
			wait(b.FairMutex(name))
		case 1:
			holds = append(holds, testkit.MustLock(t, a.RWMutex(name).Reader()))
			wait(b.RWMutex(name).Writer())
		default:
			holds = append(holds, testkit.MustLock(t, a.Mutex(name)))
			wait(b.Mutex(name))
		}
	}
	permits := a.PermitSemaphore("{x}:permits")
	if err := permits.SetPermits(testkit.Ctx(t), 3); err != nil {
		t.Fatal(err)
	}
	permit, err := permits.Acquire(testkit.Ctx(t), 2)
	if err != nil {
		t.Fatal(err)
	}

	// Meanwhile others try names of the slot: some free, one held.
	var group sync.WaitGroup
	var tried, refused atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	try := func(i int) {
		m := b.Mutex(fmt.Sprintf("{x}:free:%d", i))
		h, err := m.TryLock(testkit.Ctx(t))
		if tried.Add(1); err != nil {
			refused.Add(1)
			t.Errorf("TryLock of a free lock: %v", err)
			return
		}
		if err := h.Unlock(testkit.Ctx(t)); err != nil {
			t.Errorf("unlock: %v", err)
		}
		if _, err := b.Mutex("{x}:2").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("TryLock of a held lock: %v", err)
		}
	}
	for i := range triers {
		group.Go(func() {
			for ctx.Err() == nil && refused.Load() < 10 {
				try(i)
			}
		})
	}

	slot, primaries := cluster.Slot("{x}"), cluster.Primaries()
	began, renewed := cputime.Now(), a.Stats().Renewed
	for i := 0; i < migrations || began.Elapsed() < 7*time.Second; i++ { // each hold is renewed every two seconds
		before := tried.Load()
		cluster.Migrate(slot, primaries[i%len(primaries)])
		testkit.Eventually(t, "somebody tries", func() bool { return tried.Load() > before+2*triers || refused.Load() >= 10 })
	}
	stop()
	group.Wait()

	for _, h := range holds {
		if err := h.Err(); err != nil {
			t.Errorf("%s: %v", h.Name(), err)
		}
	}
	if err := permit.Err(); err != nil {
		t.Errorf("permits: %v", err)
	}
	if n := a.Stats().Renewed - renewed; n < 2*holders {
		t.Errorf("%d renewals", n)
	}
	for i, f := range waits {
		wantPending(t, holds[i].Name(), f)
		testkit.MustUnlock(t, holds[i])
		h, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatalf("%s: %v", holds[i].Name(), err)
		}
		testkit.MustUnlock(t, h)
	}
	if err := permit.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	t.Logf("%s: %d attempts, %d refused", cluster.Nodes()[0].Version(), tried.Load(), refused.Load())
}
