package interop

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// counted is one semaphore or latch, as both see it.
type counted struct {
	*stage
	name string
}

// onEachCount runs a test where a count of Pawl meets that of Redisson.
func onEachCount(t *testing.T, test func(t *testing.T, c counted)) {
	for _, g := range permitGrounds {
		t.Run(g.name, func(t *testing.T) {
			test(t, counted{newStage(t, g, calm), "counted"})
		})
	}
}

// place is what it is for Java.
func (c counted) place() string { return c.clients[0] + "/" + c.name }

func (c counted) ask(thread, verb string, words ...any) answer {
	return c.jvm.ask(c.clients[0]+":"+thread, verb, append([]any{c.place()}, words...)...)
}

// want asks Java and compares the answer.
func (c counted) want(t testing.TB, want, verb string, words ...any) {
	t.Helper()
	if got := c.ask("main", verb, words...).want(t); got != want {
		t.Errorf("Java's %s %v: %s, want %s", verb, words, got, want)
	}
}

// named is the same stage with another name, to which nobody has listened.
func (c counted) named(name string) counted { return counted{c.stage, name} }

// soon fails the test if it has taken long since. Pawl's waiters look at a count every now and
// then, and those of Redisson never do.
func soon(t testing.TB, what string, since time.Time) {
	t.Helper()
	if took := time.Since(since); took > 3*time.Second {
		t.Errorf("%s took %v", what, took)
	}
}

// What one takes, gives back, adds and drains, the other counts; and both wake each other.
func TestSemaphoresAcross(t *testing.T) {
	t.Parallel()
	onEachCount(t, func(t *testing.T, c counted) {
		t.Parallel()
		e, ctx := c.engines[0], testkit.Within(t, patience)
		sem := e.Semaphore(c.name)
		here := func(want int) {
			t.Helper()
			if n, err := sem.Available(ctx); n != want || err != nil {
				t.Errorf("Pawl counts %d, %v; want %d", n, err, want)
			}
			c.want(t, fmt.Sprint(want), "semaphore-count")
		}
		if set, err := sem.TrySetPermits(ctx, 3); !set || err != nil {
			t.Fatalf("%v, %v", set, err)
		}
		c.want(t, "false", "semaphore-set", 7)
		two, err := sem.Acquire(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		here(1)
		c.want(t, "false", "semaphore-try", 2, 50)
		c.want(t, "true", "semaphore-try", 1, 0)
		here(0)
		if _, err := sem.TryAcquire(ctx, 1); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("TryAcquire of what Java has: %v", err)
		}
		if err := two.Release(ctx); err != nil {
			t.Error(err)
		}
		here(2)
		c.want(t, "", "semaphore-release", 1)
		c.want(t, "", "semaphore-add", 4)
		here(7)
		if err := sem.AddPermits(ctx, -2); err != nil {
			t.Error(err)
		}
		here(5)
		c.want(t, "5", "semaphore-drain")
		here(0)
		c.want(t, "", "semaphore-add", 2)
		if n, err := sem.Drain(ctx); n != 2 || err != nil {
			t.Errorf("Pawl drains %d, %v", n, err)
		}
		here(0)

		for n := range pick(10, 100) { // each way of giving back, with names that nobody listens to yet
			java, pawl := c.named(fmt.Sprint("to-java-", n, "-")), c.named(fmt.Sprint("to-go-", n, "-"))
			wakes := []answer{java.ask("a", "semaphore-acquire", 2), java.ask("b", "semaphore-try", 1, 60_000)}
			c.jvm.asleep(t, wakes...)
			began, sem := time.Now(), e.Semaphore(java.name)
			if err := sem.AddPermits(ctx, 3); err != nil {
				t.Fatal(err)
			}
			wakes[0].want(t)
			if got := wakes[1].want(t); got != "true" {
				t.Errorf("Java has nothing: %s", got)
			}
			soon(t, "Java's wake-up", began)
			if n, err := sem.Available(ctx); n != 0 || err != nil {
				t.Errorf("%d are left, %v", n, err)
			}

			sem = e.Semaphore(pawl.name)
			var first, second *engine.Future[*engine.Permits]
			c.asleep(t, c.engines[0], pawl.name, func() { first, second = sem.AcquireAsync(ctx, 2), sem.AcquireAsync(ctx, 1) })
			began = time.Now()
			if n%2 == 0 {
				pawl.want(t, "", "semaphore-release", 3)
			} else {
				pawl.want(t, "", "semaphore-add", 3)
			}
			_, err := first.Await(ctx)
			_, err2 := second.Await(ctx)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			soon(t, "Go's wake-up", began)
			pawl.want(t, "0", "semaphore-count")
		}
	})
}

// Both count one latch down, and the waiters on both sides go on when it opens.
func TestLatchesAcross(t *testing.T) {
	t.Parallel()
	onEachCount(t, func(t *testing.T, c counted) {
		t.Parallel()
		ctx := testkit.Within(t, patience)
		for n := range pick(10, 100) {
			l := c.named(fmt.Sprint("latch-", n, "-"))
			latch := c.engines[0].Latch(l.name)
			if n%2 == 0 {
				if set, err := latch.TrySetCount(ctx, 4); !set || err != nil {
					t.Fatalf("%v, %v", set, err)
				}
				l.want(t, "false", "latch-set", 9)
			} else {
				l.want(t, "true", "latch-set", 4)
				if set, err := latch.TrySetCount(ctx, 9); set || err != nil {
					t.Errorf("%v, %v", set, err)
				}
			}
			theirs := l.ask("waiter", "latch-await", 60_000)
			c.jvm.asleep(t, theirs)
			var ours *engine.Future[struct{}]
			c.asleep(t, c.engines[0], l.name, func() { ours = latch.AwaitAsync(ctx) })
			for left := 3; left > 0; left-- {
				if left%2 == 0 {
					l.want(t, "", "latch-down")
				} else if err := latch.CountDown(ctx); err != nil {
					t.Fatal(err)
				}
				if got, err := latch.Count(ctx); got != left || err != nil {
					t.Errorf("Pawl counts %d, %v; want %d", got, err, left)
				}
				l.want(t, fmt.Sprint(left), "latch-count")
			}
			if theirs.arrived() {
				t.Error("it opened too early")
			}
			began := time.Now()
			if n%4 < 2 {
				l.want(t, "", "latch-down")
			} else if err := latch.CountDown(ctx); err != nil {
				t.Fatal(err)
			}
			if got := theirs.want(t); got != "true" {
				t.Errorf("Java waited: %s", got)
			}
			if _, err := ours.Await(ctx); err != nil {
				t.Error(err)
			}
			soon(t, "opening", began)
			if err := latch.Await(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("an open latch: %v", err)
			}
			l.want(t, "0", "latch-count")
		}
	})
}
