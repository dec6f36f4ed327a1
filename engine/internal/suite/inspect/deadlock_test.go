package inspect

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// ring makes n engines, each of which holds a lock and waits for that of the next one, under the context of
// its hold. The returned function ends the wait of the first.
func ring(t testing.TB, url string, n int, name func(i int) string) (engines []*engine.Engine, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	first, endFirst := context.WithCancel(ctx)
	var holds []*engine.Hold
	for i := range n {
		e := testkit.Open(t, url, inspected, func(c *engine.Config) { c.Service, c.CallSites = fmt.Sprint("service", i), true })
		engines = append(engines, e)
		holds = append(holds, testkit.MustLock(t, e.Mutex(name(i))))
	}
	for i, e := range engines {
		parent := ctx
		if i == 0 {
			parent = first
		}
		e.Mutex(name((i + 1) % n)).LockAsync(holds[i].Context(parent))
	}
	return engines, endFirst
}

func TestDeadlocks_Rings_AreFoundWhileTheyLast(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			engines, end := ring(t, s.URL(), n, func(i int) string { return fmt.Sprint("lock", i) })
			wantRing(t, testkit.Open(t, s.URL(), inspected), engines, end)
		})
	}
}

func TestDeadlocks_InACluster_AreFound(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false)
	engines, end := ring(t, c.URL(), 3, func(i int) string { return fmt.Sprint("lock", i) })
	wantRing(t, testkit.Open(t, c.URL(), inspected), engines, end)
}

// wantRing finds the deadlock, and then none.
func wantRing(t *testing.T, looks *engine.Engine, engines []*engine.Engine, end func()) {
	t.Helper()
	find := func() []engine.Cycle {
		cycles, err := looks.Deadlocks(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		return cycles
	}
	var found []engine.Cycle
	testkit.Eventually(t, "the deadlock is found", func() bool { found = find(); return len(found) > 0 })
	if len(found) != 1 || len(found[0].Waits) != len(engines) || found[0].Possible {
		t.Fatalf("%d found: %+v", len(found), found)
	}
	waits := found[0].Waits
	for at, u := range waits {
		i := slices.IndexFunc(engines, func(e *engine.Engine) bool { return e.ID() == u.Engine.ID })
		next := slices.IndexFunc(engines, func(e *engine.Engine) bool { return e.ID() == waits[(at+1)%len(engines)].Engine.ID })
		if i < 0 || next != (i+1)%len(engines) || u.Name != fmt.Sprint("lock", next) || !slices.Equal(u.Under, []string{fmt.Sprint("lock", i)}) ||
			u.Engine.Service != fmt.Sprint("service", i) || u.Site == "" {
			t.Errorf("%d of the cycle is %+v of %+v", at, u, u.Engine)
		}
	}
	end()
	testkit.Eventually(t, "it is over", func() bool { return len(find()) == 0 })
}

// Locks that are held and waited for without contexts, and waits that lead nowhere, are no deadlock.
func TestDeadlocks_Chains_AreNone(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), inspected)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a, b := testkit.MustLock(t, e.Mutex("a")), testkit.MustLock(t, e.Mutex("b"))
	e.Mutex("b").LockAsync(a.Context(ctx))
	e.Mutex("a").LockAsync(ctx)
	e.Mutex("a").LockAsync(engine.Detach(b.Context(ctx)))
	e.Many("a", "c").LockAsync(ctx)
	testkit.Eventually(t, "all wait", func() bool {
		info, err := e.Inspect(testkit.Ctx(t), "a")
		return err == nil && info.Waiting == 3
	})
	if cycles, err := e.Deadlocks(testkit.Ctx(t)); err != nil || len(cycles) != 0 {
		t.Errorf("%v, %v", cycles, err)
	}
}

// LockMany under a hold is a wait for the lock that it does not get.
func TestDeadlocks_LockMany_IsFound(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	a, b := testkit.Open(t, s.URL(), inspected), testkit.Open(t, s.URL(), inspected)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	both := testkit.MustLockMany(t, a, []string{"a", "b"})
	c := testkit.MustLock(t, b.Mutex("c"))
	a.Mutex("c").LockAsync(both.Context(ctx))
	b.Many("x", "b").LockAsync(c.Context(ctx))
	testkit.Eventually(t, "the deadlock is found", func() bool {
		cycles, err := a.Deadlocks(testkit.Ctx(t))
		return err == nil && isDeadlock(cycles, 2)
	})
}

// isDeadlock reports whether one deadlock of so many waits was found, and nothing else.
func isDeadlock(cycles []engine.Cycle, waits int) bool {
	return len(cycles) == 1 && len(cycles[0].Waits) == waits && !cycles[0].Possible
}
