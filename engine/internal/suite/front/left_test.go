package front

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A waiter that leaves gives its place up at once, whether it is in the front or behind it, and the others are
// served.
func TestMutex_WaiterLeaves_PlaceIsGivenUp(t *testing.T) {
	t.Parallel()
	cancel := func(w *waiter) error { w.cancel(); return nil }
	closes := func(w *waiter) error { return w.Close() }
	shuts := func(w *waiter) error { return w.Shutdown(context.Background()) }
	for name, x := range map[string]struct {
		leave   func(w *waiter) error
		want    error
		leaving []int // by their places
	}{
		"cancelled, the whole front":    {cancel, context.Canceled, []int{0, 1, 2, 3}},
		"cancelled, behind the front":   {cancel, context.Canceled, []int{6, 4}},
		"cancelled, all but one behind": {cancel, context.Canceled, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		"Close, in the front":           {closes, engine.ErrClosed, []int{1}},
		"Close, all but one behind":     {closes, engine.ErrClosed, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		"Shutdown, the whole front":     {shuts, engine.ErrClosed, []int{0, 1, 2, 3}},
		"Shutdown, behind the front":    {shuts, engine.ErrClosed, []int{9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContest(t, single(t))
			h := testkit.MustLock(t, c.lock(c.open(1)[0]))
			list := c.line(c.open(10)...)
			c.awaitAsleep()
			var stay []*waiter
			for i, w := range list {
				if !slices.Contains(x.leaving, i) {
					stay = append(stay, w)
					continue
				}
				if err := x.leave(w); err != nil {
					t.Error(err)
				}
				if err := <-w.served; !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, x.want) {
					t.Errorf("waiter %d: %v", i, err)
				}
				c.awaitGone(w.Engine)
			}
			c.awaitAsleep() // whoever has come into the front listens
			testkit.MustUnlock(t, h)
			c.wantServed(stay...)
			c.at.Clean(t)
		})
	}
}

// The place is that of the engine, as long as a goroutine of it waits.
func TestMutex_OneOfSeveralLocalWaitersLeaves_PlaceIsKept(t *testing.T) {
	t.Parallel()
	c := newContest(t, single(t))
	h := testkit.MustLock(t, c.lock(c.open(1)[0]))
	engines := c.open(6)
	list := c.line(engines...)
	order := c.queue()
	var second []*waiter
	for _, e := range engines {
		second = append(second, c.wait(e))
	}
	testkit.Eventually(t, "two of each wait", func() bool {
		return !slices.ContainsFunc(engines, func(e *engine.Engine) bool { return e.Stats().Waiting != 2 })
	})
	for i, w := range list {
		w.cancel()
		if err := <-w.served; !errors.Is(err, context.Canceled) {
			t.Errorf("waiter %d: %v", i, err)
		}
	}
	c.awaitAsleep()
	if now := c.queue(); !slices.Equal(now, order) {
		t.Errorf("the queue was %v, and is %v", order, now)
	}
	testkit.MustUnlock(t, h)
	c.wantServed(second...)
	c.at.Clean(t)
}

// The first has died. Two engines take turns past it, and the one that waits is always the last of the queue.
func TestMutex_FirstDied_TwoOthersDoNotPassItForEver(t *testing.T) {
	t.Parallel()
	c := newContest(t, single(t))
	all := c.open(2)
	c.at.Do(queue, "ZADD", queue, "1", "dead")
	c.at.Do(queue, "PEXPIRE", queue, "60000")
	testkit.Eventually(t, "the first loses its place", func() bool {
		c.loop(5, all...)
		return !slices.Contains(c.queue(), "dead")
	})
	c.at.Clean(t)
}

// A TryLock has no place in the queue. It may overtake, and harms nobody.
func TestMutex_TryLockBesideWaiters_NobodyIsLost(t *testing.T) {
	t.Parallel()
	c := newContest(t, single(t))
	h := testkit.MustLock(t, c.lock(c.open(1)[0]))
	list := c.line(c.open(8)...)
	tries := c.open(2)
	before := c.queue()
	if _, err := c.lock(tries[0]).TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("TryLock: %v", err)
	}
	if _, err := c.lock(list[7].Engine).TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("TryLock of an engine that waits: %v", err)
	}
	if now := c.queue(); !slices.Equal(now, before) {
		t.Errorf("the queue was %v, and is %v", before, now)
	}
	over := make(chan struct{})
	granted := make(chan int)
	for _, e := range append(tries, list[0].Engine, list[7].Engine) {
		go func() {
			n := 0
			for testkit.Pause(over, time.Millisecond) {
				switch h, err := c.lock(e).TryLock(testkit.Ctx(t)); {
				case err == nil:
					n++
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, engine.ErrHeld):
					t.Error(err)
				}
			}
			granted <- n
		}()
	}
	testkit.MustUnlock(t, h)
	c.wantServed(list...)
	close(over)
	for range 4 {
		t.Logf("a TryLock was granted %d times", <-granted)
	}
	c.at.Clean(t)
}
