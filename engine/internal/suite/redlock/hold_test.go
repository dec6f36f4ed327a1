package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// The parts of a RedLock are those that its servers have.
func TestHold_PartsOfARedLock_AreItsServers(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open()
	h := testkit.MustRedLock(t, v.Lock("x"))
	testkit.Eventually(t, "all three join", func() bool { return len(h.Parts()) == 3 })
	for i, p := range h.Parts() {
		if !slices.Equal(p.Servers(), []string{s.Servers[i].Addr()}) || p.Owner() == "" {
			t.Errorf("%v: servers %v, owner %q", p, p.Servers(), p.Owner())
		}
		if err := p.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("Unlock of a part: %v", err)
		}
	}
	testkit.MustUnlock(t, h)
	s.Clean(v)
}

func TestRedLock_Do_RunsUnderTheLock(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open()
	err := v.Lock("x").Do(testkit.Ctx(t), func(ctx context.Context, h *engine.Hold) error {
		if ran, err := v.Lock("x").TryDo(engine.Detach(ctx), nil); ran || err != nil {
			t.Errorf("TryDo inside: %v, %v", ran, err)
		}
		return ctx.Err()
	})
	if err != nil {
		t.Error(err)
	}
	err = v.Lock("x").Do(testkit.Ctx(t), func(ctx context.Context, h *engine.Hold) error {
		for _, one := range s.Servers {
			one.Do("FLUSHALL")
		}
		return nil
	})
	var lost *engine.LostError
	if !errors.As(err, &lost) || errors.Is(err, engine.ErrNotRun) {
		t.Errorf("lost meanwhile: %v", err)
	}
	s.Clean(v)
}

// A fixed lease is not renewed, so no server is asked again. Extend needs a majority only.
func TestRedLock_FixedLease_Ends(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 5)
	v := s.Open()
	s.Servers[4].Kill()
	h := testkit.MustRedLock(t, v.Lock("x"), engine.Lease(20*time.Second))
	until := h.ValidUntil()
	if left := time.Until(until); left < 15*time.Second || left > 18*time.Second {
		t.Errorf("valid for %v", left)
	}
	testkit.Eventually(t, "four have it", func() bool { return len(h.Servers()) == 4 })
	s.Servers[0].Stop()
	defer func() { _ = s.Servers[0].Process.Cont() }()
	start := cputime.Now()
	if err := h.Extend(testkit.Ctx(t), time.Minute); err != nil || start.Elapsed() > 2*time.Second {
		t.Errorf("Extend: %v, after %v", err, start.Elapsed())
	}
	if left := time.Until(h.ValidUntil()); left < 50*time.Second {
		t.Errorf("valid for %v", left)
	}
	for _, one := range s.Servers[1:3] {
		one.Do("DEL", "x")
	}
	if err := h.Extend(testkit.Ctx(t), 2*time.Minute); !errors.Is(err, engine.ErrLost) {
		t.Errorf("Extend: %v", err)
	}
	s.Servers[0].Cont()
	_ = h.Unlock(testkit.Ctx(t))
	if err := h.Extend(testkit.Ctx(t), time.Minute); !errors.Is(err, engine.ErrLost) {
		t.Errorf("Extend after the end: %v", err)
	}
	watched := testkit.MustRedLock(t, v.Lock("y"))
	if err := watched.Extend(testkit.Ctx(t), time.Minute); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("Extend under the watchdog: %v", err)
	}
	testkit.MustUnlock(t, watched)
	s.Clean(v)
}

// MaxHold counts for the whole, also for servers that join later.
func TestRedLock_MaxHold_EndsIt(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or it is over before the third server has started
		s := testkit.Independent(t, 3)
		v := s.Open(testkit.LeaseOf(2*time.Second), func(c *engine.Config) { c.Margin = 100 * time.Millisecond })
		s.Servers[2].Kill()
		start, used := time.Now(), cputime.Now()
		h := testkit.MustRedLock(t, v.Lock("x"), engine.MaxHold(3*time.Second))
		s.Servers[2].Restart()
		testkit.Eventually(t, "the third joins", func() bool { return len(h.Servers()) == 3 })
		testkit.Receive(t, h.Done())
		var lost *engine.LostError
		if err := h.Err(); !errors.As(err, &lost) || lost.Reason != engine.MaxHoldReached {
			t.Errorf("%v", err)
		}
		if d := time.Since(start); d < 2900*time.Millisecond || used.Elapsed() > 3500*time.Millisecond {
			t.Errorf("ended after %v", d)
		}
		_ = h.Unlock(testkit.Ctx(t))
		s.Clean(v)
	})
}

// One of its engines is closed: it cannot be taken any more, but a majority stands.
func TestRedLock_OneEngineClosed_MajorityStands(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v, other := s.Open(), s.Open()
	h := testkit.MustRedLock(t, v.Lock("x"))
	testkit.Eventually(t, "all three join", func() bool { return len(h.Servers()) == 3 })
	held := testkit.MustRedLock(t, other.Lock("y"))
	waiting := v.Lock("y").LockAsync(context.Background())
	limited := v.Lock("y").LockAsync(context.Background(), engine.Wait(time.Hour))
	if err := v[0].Close(); err != nil {
		t.Error(err)
	}
	for _, f := range []*engine.Future[*engine.Hold]{waiting, limited} {
		if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("one that waits: %v", err)
		}
	}
	if _, err := v.Lock("z").Lock(testkit.Ctx(t)); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("Lock: %v", err)
	}
	if err := h.Err(); err != nil || len(h.Servers()) != 2 {
		t.Errorf("%v, held at %v", err, h.Servers())
	}
	if err := v[1].Close(); err != nil {
		t.Error(err)
	}
	testkit.Receive(t, h.Done())
	var lost *engine.LostError
	if err := h.Err(); !errors.As(err, &lost) || lost.Reason != engine.EngineClosed {
		t.Errorf("%v", err)
	}
	testkit.MustUnlock(t, held)
	s.Clean(v, other)
}

// Abandoned or cancelled at any time, nothing stays.
func TestRedLock_Abandoned_LeavesNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 5)
	v := s.Open()
	for i := range 200 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*5*time.Microsecond)
		f := v.Lock("x").LockAsync(ctx)
		if i%3 == 0 {
			f.Abandon()
		} else if h, err := f.Await(testkit.Ctx(t)); err == nil {
			h.UnlockAsync()
		} else if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, engine.ErrNotAcquired) || errors.Is(err, engine.ErrHeld) && errors.Is(err, engine.ErrUnavailable) {
			t.Error(err)
		}
		cancel()
	}
	testkit.Eventually(t, "nothing is listed or watched", func() bool {
		for _, e := range v {
			in := testkit.Inside(e)
			if st := e.Stats(); in.Many+in.Watched != 0 || st.Held != 0 || st.Waiting != 0 {
				return false
			}
		}
		return true
	})
	s.Clean(v)
}

// One command to take it at each server, and one to release it there.
func TestRedLock_Uncontended_CostsTwoCommandsAtEachServer(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 5)
	v := s.Open()
	count := func() (all []int64) {
		for _, one := range s.Servers {
			all = append(all, one.CommandStats()["evalsha"])
		}
		return all
	}
	h := testkit.MustRedLock(t, v.Lock("warm"))
	testkit.MustUnlock(t, h)
	s.Clean(v)
	before := count()
	for i := range 10 {
		h := testkit.MustRedLock(t, v.Lock(fmt.Sprint("x", i)))
		testkit.Eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
		testkit.MustUnlock(t, h)
	}
	s.Clean(v)
	for i, n := range count() {
		if n-before[i] != 20 {
			t.Errorf("%d commands at server %d", n-before[i], i)
		}
	}
}

func TestRedLock_MajorityOfValues_IsTheMiddle(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []int
		want   int
	}{{[]int{7}, 7}, {[]int{7, 5}, 5}, {[]int{1, 9, 5}, 5}, {[]int{4, 1, 3, 2}, 2}, {[]int{5, 1, 4, 2, 3}, 3}} {
		if got := quorum.Reached(slices.Clone(c.values), quorum.Majority.Need(len(c.values))); got != c.want {
			t.Errorf("%v: %d", c.values, got)
		}
	}
}
