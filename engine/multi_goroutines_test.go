package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"testing"
)

// Not parallel: it counts the goroutines of the whole process.
//
// However many wait for many locks, and while their common context is cancelled, they cost no
// goroutine each, and with few locks not even one that ends at once.
// manyLocks is how many locks are given back, or asked for, on an event loop: see fewLocks in gathering.go.
const manyLocks = 16

func TestPendingMultiLocksCostNoGoroutines(t *testing.T) {
	for _, c := range []struct {
		what     string
		n, names int
		held     func(i int) string // the lock that number i waits for
	}{
		{"for one lock", 3_000, 10, func(int) string { return "held" }},
		{"for a lock each", 3_000, 10, func(i int) string { return fmt.Sprint("held", i) }},
		{"of many names", 500, 3 * manyLocks, func(int) string { return "held" }},
	} {
		t.Run(c.what, func(t *testing.T) { pendingCostNoGoroutines(t, c.n, c.names, c.held) })
	}
}

func pendingCostNoGoroutines(t *testing.T, n, each int, heldBy func(i int) string) {
	const few = 20
	s := server(t)
	a, e := open(t, s.URL()), open(t, s.URL())
	busy := make([]string, n)
	for i := range busy {
		busy[i] = heldBy(i)
	}
	held := mustLockMany(t, a, busy)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	idle, before, peak := runtime.NumGoroutine(), goroutinesCreated(), 0
	look := func(when string) {
		t.Helper()
		peak = max(peak, runtime.NumGoroutine()-idle)
		if peak > few {
			t.Fatalf("%d goroutines more %s", peak, when)
		}
	}
	futures := make([]*Future[*Hold], n)
	for i := range futures {
		names := []string{busy[i]}
		for j := range each - 1 {
			names = append(names, fmt.Sprint("own", i, "/", j))
		}
		futures[i] = e.Many(names...).LockAsync(ctx)
		if each <= manyLocks {
			look("while they begin")
		}
		if i%(1000/each) == 0 {
			eventually(t, "the server keeps up", func() bool { return e.Stats().InFlight < 1000 })
		}
	}
	// Their tries of one name go one after another, so their number alone says nothing.
	eventually(t, "each waits for the lock that is held, and has no other", func() bool {
		return e.Stats().Waiting == n && e.Stats().InFlight == 0 && s.Do("DBSIZE") == int64(len(held.Parts()))
	})
	peak = 0
	look("while they wait")
	cancel()
	for _, f := range futures {
		look("while they are cancelled")
		if _, err := f.Await(ctxT(t)); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
	}
	created := goroutinesCreated() - before
	t.Logf("%d goroutines were created", created)
	if each <= manyLocks && created > uint64(n/2) { // timers create some, those of this test as well
		t.Errorf("%d goroutines were created for %d that take %d locks each", created, n, each)
	}
	if err := held.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	clean(t, s, a, e)
}

// goroutinesCreated is how many there have been in this process.
func goroutinesCreated() uint64 {
	sample := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
