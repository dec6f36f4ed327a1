package memory

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// Not parallel: it counts the goroutines of the whole process.
//
// However many wait for many locks, and while their common context is cancelled, they cost no
// goroutine each, and with few locks not even one that ends at once.
func TestMultiLock_Pending_CostsNoGoroutines(t *testing.T) {
	for _, c := range []struct {
		what     string
		n, names int
		held     func(i int) string // the lock that number i waits for
	}{
		{"for one lock", 1_500, 10, func(int) string { return "held" }},
		{"for a lock each", 1_500, 10, func(i int) string { return fmt.Sprint("held", i) }},
		{"of many names", 200, 3 * testkit.ManyLocks, func(int) string { return "held" }},
	} {
		t.Run(c.what, func(t *testing.T) {
			testkit.Steady(t, func(t testing.TB) {
				// Each timer that fires is a goroutine, some 200 a second: on a busy machine not the first time.
				for left := 2; ; left-- {
					created := pendingGoroutines(t, c.n, c.names, c.held)
					if c.names > testkit.ManyLocks || created < uint64(c.n) {
						return
					}
					if left == 0 {
						t.Fatalf("%d goroutines were created for %d that take %d locks each", created, c.n, c.names)
					}
				}
			})
		})
	}
}

// pendingGoroutines has n wait for locks, each for so many, and then give up. It returns how many goroutines were created.
func pendingGoroutines(t testing.TB, n, each int, heldBy func(i int) string) (created uint64) {
	const few = 20
	s := testkit.Server(t)
	a, e := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	busy := make([]string, n)
	for i := range busy {
		busy[i] = heldBy(i)
	}
	held := testkit.MustLockMany(t, a, busy)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	idle, before, peak := runtime.NumGoroutine(), testkit.GoroutinesCreated(), 0
	look := func(when string) {
		t.Helper()
		peak = max(peak, runtime.NumGoroutine()-idle)
		if peak > few {
			t.Fatalf("%d goroutines more %s", peak, when)
		}
	}
	futures := make([]*engine.Future[*engine.Hold], n)
	for i := range futures {
		names := []string{busy[i]}
		for j := range each - 1 {
			names = append(names, fmt.Sprint("own", i, "/", j))
		}
		futures[i] = e.Many(names...).LockAsync(ctx)
		if each <= testkit.ManyLocks {
			look("while they begin")
		}
		if i%(1000/each) == 0 {
			testkit.Eventually(t, "the server keeps up", func() bool { return e.Stats().InFlight < 1000 })
		}
	}
	// Their tries of one name go one after another, so their number alone says nothing.
	testkit.Eventually(t, "each waits for the lock that is held, and has no other", func() bool {
		return e.Stats().Waiting == n && e.Stats().InFlight == 0 && testkit.LockCount(s) == len(held.Parts())
	})
	peak = 0
	look("while they wait")
	cancel()
	for _, f := range futures {
		look("while they are cancelled")
		if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, context.Canceled) || !errors.Is(err, engine.ErrHeld) {
			t.Fatal(err)
		}
	}
	created = testkit.GoroutinesCreated() - before
	t.Logf("%d goroutines were created", created)
	if err := held.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	testkit.Clean(t, s, a, e)
	return created
}
