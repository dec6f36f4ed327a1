package inspect

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// sites is an engine that records where locks are asked for.
func sites(c *engine.Config) { c.NoInspect, c.CallSites = false, true }

// isHere reports whether a use was asked for in this file.
func isHere(u engine.Use) bool { return strings.Contains(u.Site, "several_test.go:") }

// A RedLock waits at one of its servers for a second, then at another one. Whoever asks any of them sees one wait, which gets
// older, and where both were asked for.
func TestInspect_RedLock_WaitsAtEachServerSinceItsRefusal(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	a, b, looks := s.Open(sites), s.Open(sites), s.Open(inspected)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	held, err := a.Lock("x").Lock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "all have it", func() bool { return len(held.Servers()) == 3 })
	began := time.Now()
	b.Lock("x").LockAsync(ctx)
	for _, e := range looks {
		testkit.Eventually(t, "it waits for long", func() bool {
			info, err := e.Inspect(testkit.Ctx(t), "x")
			if err != nil {
				t.Fatal(err)
			}
			if info.Waiting > 1 || len(info.Waiters) != info.Waiting {
				t.Fatalf("%d wait: %+v", info.Waiting, info.Waiters)
			}
			return info.Waiting == 1 && time.Since(info.Waiters[0].Since) > 3*time.Second && info.Waiters[0].Since.After(began.Add(-time.Second)) && isHere(info.Waiters[0]) &&
				len(info.Holders) == 1 && len(info.Holders[0].Uses) == 1 && isHere(info.Holders[0].Uses[0])
		})
		testkit.Eventually(t, "the list has the wait, too", func() bool {
			listed := 0
			for info, err := range e.List(testkit.Ctx(t), "*") {
				if err != nil {
					t.Fatal(err)
				}
				listed += info.Waiting
			}
			return listed == 1
		})
	}
	cancel()
	testkit.Eventually(t, "nobody waits", func() bool {
		info, err := looks[0].Inspect(testkit.Ctx(t), "x")
		return err == nil && info.Waiting == 0
	})
}

func TestDeadlocks_RedLocks_AreFoundAtEachLook(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, redLocksAreFoundAtEachLook)
}

func redLocksAreFoundAtEachLook(t testing.TB) {
	s := testkit.Independent(t, 3)
	a, b, looks := s.Open(sites), s.Open(sites), s.Open(inspected)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x, y := testkit.MustRedLock(t, a.Lock("x")), testkit.MustRedLock(t, b.Lock("y"))
	testkit.Eventually(t, "all have them", func() bool { return len(x.Servers()) == 3 && len(y.Servers()) == 3 })
	a.Lock("y").LockAsync(x.Context(ctx))
	b.Lock("x").LockAsync(y.Context(ctx))
	for _, e := range looks {
		find := func() bool {
			cycles, err := e.Deadlocks(testkit.Ctx(t))
			return err == nil && isDeadlock(cycles, 2) && isHere(cycles[0].Waits[0]) && isHere(cycles[0].Waits[1])
		}
		testkit.Eventually(t, "the deadlock is found", find)
		for range 5 {
			if !find() {
				t.Fatal("it is not found any more")
			}
		}
	}
}

// A RedLock and single locks of one of its servers wait for each other.
func TestDeadlocks_RedLockAndMutex_AreFound(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	a, b := s.Open(inspected), s.Open(inspected)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x, y := testkit.MustRedLock(t, a.Lock("x")), testkit.MustLock(t, b[1].Mutex("y"))
	testkit.Eventually(t, "all have it", func() bool { return len(x.Servers()) == 3 })
	a[1].Mutex("y").LockAsync(x.Context(ctx))
	b.Lock("x").LockAsync(y.Context(ctx))
	testkit.Eventually(t, "the deadlock is found", func() bool {
		cycles, err := a[1].Deadlocks(testkit.Ctx(t))
		return err == nil && isDeadlock(cycles, 2)
	})
}

// A MultiLock waits for the one lock that it does not get, and holds all.
func TestInspect_MultiLock_HasItsCallSites(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), sites)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	held, err := e.Many("a", "b").Lock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	defer testkit.MustUnlock(t, held)
	e.Many("b", "c").LockAsync(ctx)
	for name, waiting := range map[string]int{"a": 0, "b": 1} {
		testkit.Eventually(t, name+" is described", func() bool {
			info, err := e.Inspect(testkit.Ctx(t), name)
			return err == nil && info.Waiting == waiting && len(info.Holders) == 1 && len(info.Holders[0].Uses) == 1 && isHere(info.Holders[0].Uses[0]) &&
				(waiting == 0 || isHere(info.Waiters[0]))
		})
	}
}
