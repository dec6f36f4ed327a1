package inspect

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// Callers that keep their holds to themselves wait for each other: nobody knows that, but that their processes do.
func TestDeadlocks_ContextsWithoutHolds_ArePossible(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			s := testkit.Server(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var engines []*engine.Engine
			for i := range n {
				engines = append(engines, testkit.Open(t, s.URL(), inspected))
				testkit.MustLock(t, engines[i].Mutex(fmt.Sprint("lock", i)))
			}
			for i, e := range engines {
				e.Mutex(fmt.Sprint("lock", (i+1)%n)).LockAsync(ctx)
			}
			var cycles []engine.Cycle
			testkit.Eventually(t, "it is found", func() bool {
				var err error
				if cycles, err = engines[0].Deadlocks(testkit.Ctx(t)); err != nil {
					t.Fatal(err)
				}
				return len(cycles) > 0
			})
			if len(cycles) != 1 || !cycles[0].Possible || len(cycles[0].Waits) != n {
				t.Fatalf("%+v", cycles)
			}
			for i, u := range cycles[0].Waits {
				at := slices.IndexFunc(engines, func(e *engine.Engine) bool { return e.ID() == u.Engine.ID })
				next := cycles[0].Waits[(i+1)%n]
				if at < 0 || u.Name != fmt.Sprint("lock", (at+1)%n) || !slices.Equal(u.Under, []string{fmt.Sprint("lock", at)}) || next.Engine.ID != engines[(at+1)%n].ID() {
					t.Errorf("%d is %+v of %+v", i, u, u.Engine)
				}
			}
		})
	}
}

// One of two contexts carries its hold. A deadlock that is certain comes first.
func TestDeadlocks_OneContextWithoutAHold_IsPossible(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	x, y := testkit.Open(t, s.URL(), inspected), testkit.Open(t, s.URL(), inspected)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := testkit.MustLock(t, x.Mutex("a"))
	testkit.MustLock(t, y.Mutex("b"))
	x.Mutex("b").LockAsync(a.Context(ctx))
	y.Mutex("a").LockAsync(ctx)
	find := func() []engine.Cycle {
		cycles, err := x.Deadlocks(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		return cycles
	}
	testkit.Eventually(t, "it is found", func() bool {
		cycles := find()
		return len(cycles) == 1 && len(cycles[0].Waits) == 2 && cycles[0].Possible
	})
	ring(t, s.URL(), 2, func(i int) string { return fmt.Sprint("lock", i) })
	testkit.Eventually(t, "both are found", func() bool {
		cycles := find()
		return len(cycles) == 2 && !cycles[0].Possible && cycles[1].Possible
	})
}

// Locks that go round among processes are no deadlock, not even a possible one.
func TestDeadlocks_LocksInUse_AreNone(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	ctx, cancel := context.WithCancel(context.Background())
	looks := testkit.Open(t, s.URL(), inspected)
	done := make(chan struct{}, 16)
	for range 4 {
		e := testkit.Open(t, s.URL(), inspected)
		for range 4 {
			go func() {
				defer func() { done <- struct{}{} }()
				for ctx.Err() == nil {
					_ = e.Mutex("a").Do(ctx, func(context.Context, *engine.Hold) error {
						return e.Mutex("b").Do(ctx, func(context.Context, *engine.Hold) error { return nil })
					})
					_ = e.Mutex("c").Do(ctx, func(context.Context, *engine.Hold) error { return nil })
				}
			}()
		}
	}
	for began := time.Now(); time.Since(began) < 3*time.Second; {
		if cycles, err := looks.Deadlocks(testkit.Ctx(t)); err != nil || len(cycles) != 0 {
			t.Errorf("%+v, %v", cycles, err)
			break
		}
	}
	cancel()
	for range cap(done) {
		<-done
	}
}

// Of one process nobody can guess who waits for whom, and a lock that MinHold keeps taken is nobody's.
func TestDeadlocks_OneProcessOrNobody_IsNone(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x, y := testkit.Open(t, s.URL(), inspected), testkit.Open(t, s.URL(), inspected)
	testkit.MustLock(t, x.Mutex("a"))
	testkit.MustLock(t, x.Mutex("b"))
	x.Mutex("a").LockAsync(ctx)
	x.Mutex("b").LockAsync(ctx)
	testkit.MustUnlock(t, testkit.MustLock(t, y.Mutex("c"), engine.MinHold(time.Minute)))
	x.Mutex("c").LockAsync(ctx)
	y.Mutex("a").LockAsync(ctx)
	testkit.Eventually(t, "all wait", func() bool {
		a, err := x.Inspect(testkit.Ctx(t), "a")
		c, failed := y.Inspect(testkit.Ctx(t), "c")
		return err == nil && failed == nil && a.Waiting == 2 && c.Waiting == 1
	})
	if cycles, err := x.Deadlocks(testkit.Ctx(t)); err != nil || len(cycles) != 0 {
		t.Errorf("%+v, %v", cycles, err)
	}
}
