package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/internal/pace"
)

func TestRedLockReentersThroughContexts(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	outer := mustRedLock(t, v.lock("x"))
	eventually(t, "all three join", func() bool { return len(outer.Servers()) == 3 })
	ctx := outer.Context(ctxT(t))
	inner, err := v.lock("x").TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is entered twice", func() bool {
		for i, l := range outer.h.locks() {
			if fields(t, s.servers[i], "x")[l.owner()] != "2" {
				return false
			}
		}
		return true
	})
	if _, err := v.lock("x").TryLock(Detach(ctx)); !errors.Is(err, ErrHeld) {
		t.Errorf("after Detach: %v", err)
	}
	if _, err := v.lock("x").Lock(ctx, NonReentrant()); !errors.Is(err, ErrReentry) {
		t.Errorf("NonReentrant: %v", err)
	}
	ictx := inner.Context(ctx)
	if err := inner.Unlock(ictx); err != nil {
		t.Error(err)
	}
	if err := outer.Err(); err != nil {
		t.Error(err)
	}
	inner = errlessRedLock(t, v.lock("x"), ctx)
	if err := outer.Unlock(inner.Context(ctx)); err != nil {
		t.Error(err)
	}
	receive(t, inner.Done())
	if err := inner.Err(); err != ErrReleased {
		t.Errorf("the inner one, after the outer: %v", err)
	}
	if err := inner.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("Unlock of the inner one: %v", err)
	}
	s.clean(v)
}

func errlessRedLock(t testing.TB, l QuorumLock, ctx context.Context) *Hold {
	t.Helper()
	h, err := l.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDoUnderARedLock(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	err := v.lock("x").Do(ctxT(t), func(ctx context.Context, h *Hold) error {
		if ran, err := v.lock("x").TryDo(Detach(ctx), nil); ran || err != nil {
			t.Errorf("TryDo inside: %v, %v", ran, err)
		}
		return ctx.Err()
	})
	if err != nil {
		t.Error(err)
	}
	err = v.lock("x").Do(ctxT(t), func(ctx context.Context, h *Hold) error {
		for _, one := range s.servers {
			one.Do("FLUSHALL")
		}
		return nil
	})
	var lost *LostError
	if !errors.As(err, &lost) || errors.Is(err, ErrNotRun) {
		t.Errorf("lost meanwhile: %v", err)
	}
	s.clean(v)
}

// A fixed lease is not renewed, so no server is asked again. Extend needs a majority only.
func TestFixedLeaseOfARedLock(t *testing.T) {
	t.Parallel()
	s := independent(t, 5)
	v := s.open()
	s.servers[4].Kill()
	h := mustRedLock(t, v.lock("x"), Lease(20*time.Second))
	until := h.ValidUntil()
	if left := time.Until(until); left < 15*time.Second || left > 18*time.Second {
		t.Errorf("valid for %v", left)
	}
	eventually(t, "four have it", func() bool { return len(h.Servers()) == 4 })
	s.servers[0].Stop()
	defer func() { _ = s.servers[0].Process.Cont() }()
	start := pace.Now()
	if err := h.Extend(ctxT(t), time.Minute); err != nil || start.Elapsed() > 2*time.Second {
		t.Errorf("Extend: %v, after %v", err, start.Elapsed())
	}
	if left := time.Until(h.ValidUntil()); left < 50*time.Second {
		t.Errorf("valid for %v", left)
	}
	for _, one := range s.servers[1:3] {
		one.Do("DEL", "x")
	}
	if err := h.Extend(ctxT(t), 2*time.Minute); !errors.Is(err, ErrLost) {
		t.Errorf("Extend: %v", err)
	}
	s.servers[0].Cont()
	_ = h.Unlock(ctxT(t))
	if err := h.Extend(ctxT(t), time.Minute); !errors.Is(err, ErrLost) {
		t.Errorf("Extend after the end: %v", err)
	}
	watched := mustRedLock(t, v.lock("y"))
	if err := watched.Extend(ctxT(t), time.Minute); !errors.Is(err, ErrInvalid) {
		t.Errorf("Extend under the watchdog: %v", err)
	}
	mustRelease(t, watched)
	s.clean(v)
}

// Unlock may take the votes after Extend has looked whether it is held.
func TestExtendOfARedLockThatUnlockOvertakesIsNotHeld(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	h := mustRedLock(t, v.lock("x"), Lease(time.Minute))
	mustRelease(t, h)
	if err := h.h.(quorumHold).extendAt(ctxT(t), nil, time.Hour); !errors.Is(err, ErrNotHeld) || errors.Is(err, ErrReleased) {
		t.Errorf("Extend: %v", err)
	}
	s.clean(v)
}

// The drift of the published algorithm is subtracted where the margin is less.
func TestRedLockSubtractsTheDrift(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open(func(c *Config) { c.Margin = time.Millisecond })
	lease := 100 * time.Second
	start := time.Now()
	h := mustRedLock(t, v.lock("x"), Lease(lease))
	if left, d := time.Until(h.ValidUntil()), h.ValidUntil().Sub(start); left > lease-drift(lease) || d < lease-drift(lease)-100*time.Millisecond {
		t.Errorf("valid for %v of %v, %v after it was asked for", left, lease, d)
	}
	mustRelease(t, h)
	watched := mustRedLock(t, v.lock("x"))
	if left := time.Until(watched.ValidUntil()); left > 30*time.Second-drift(30*time.Second) {
		t.Errorf("under the watchdog: valid for %v", left)
	}
	mustRelease(t, watched)
	start = time.Now()
	alone := mustLock(t, v[0].Mutex("x"), Lease(lease))
	if d := alone.ValidUntil().Sub(start); d < lease-100*time.Millisecond {
		t.Errorf("a lock alone: valid for %v", d)
	}
	mustUnlock(t, alone)
	if _, err := v.lock("x").Lock(ctxT(t), Lease(2*time.Millisecond)); !errors.Is(err, ErrInvalid) {
		t.Errorf("a lease shorter than the drift: %v", err)
	}
	s.clean(v)
}

// MaxHold counts for the whole, also for servers that join later.
func TestMaxHoldOfARedLock(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open(leaseOf(2*time.Second), func(c *Config) { c.Margin = 100 * time.Millisecond })
	s.servers[2].Kill()
	start, used := time.Now(), pace.Now()
	h := mustRedLock(t, v.lock("x"), MaxHold(3*time.Second))
	s.servers[2].Restart()
	eventually(t, "the third joins", func() bool { return len(h.Servers()) == 3 })
	receive(t, h.Done())
	var lost *LostError
	if err := h.Err(); !errors.As(err, &lost) || lost.Reason != MaxHoldReached {
		t.Errorf("%v", err)
	}
	if d := time.Since(start); d < 2900*time.Millisecond || used.Elapsed() > 3500*time.Millisecond {
		t.Errorf("ended after %v", d)
	}
	_ = h.Unlock(ctxT(t))
	s.clean(v)
}

// One of its engines is closed: it cannot be taken any more, but a majority stands.
func TestRedLockAndAnEngineThatIsClosed(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v, other := s.open(), s.open()
	h := mustRedLock(t, v.lock("x"))
	eventually(t, "all three join", func() bool { return len(h.Servers()) == 3 })
	held := mustRedLock(t, other.lock("y"))
	waiting := v.lock("y").LockAsync(context.Background())
	limited := v.lock("y").LockAsync(context.Background(), Wait(time.Hour))
	if err := v[0].Close(); err != nil {
		t.Error(err)
	}
	for _, f := range []*Future[*Hold]{waiting, limited} {
		if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrClosed) {
			t.Errorf("one that waits: %v", err)
		}
	}
	if _, err := v.lock("z").Lock(ctxT(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("Lock: %v", err)
	}
	if err := h.Err(); err != nil || len(h.Servers()) != 2 {
		t.Errorf("%v, held at %v", err, h.Servers())
	}
	if err := v[1].Close(); err != nil {
		t.Error(err)
	}
	receive(t, h.Done())
	var lost *LostError
	if err := h.Err(); !errors.As(err, &lost) || lost.Reason != EngineClosed {
		t.Errorf("%v", err)
	}
	mustRelease(t, held)
	s.clean(v, other)
}

// Abandoned or cancelled at any time, nothing stays.
func TestAbandonedRedLocksLeaveNothing(t *testing.T) {
	t.Parallel()
	s := independent(t, 5)
	v := s.open()
	for i := range 200 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*5*time.Microsecond)
		f := v.lock("x").LockAsync(ctx)
		if i%3 == 0 {
			f.Abandon()
		} else if h, err := f.Await(ctxT(t)); err == nil {
			h.UnlockAsync()
		} else if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrHeld) && errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		cancel()
	}
	eventually(t, "nothing is listed or watched", func() bool {
		for _, e := range v {
			in := inspect(e)
			if st := e.Stats(); in.Many+in.Watched != 0 || st.Held != 0 || st.Waiting != 0 {
				return false
			}
		}
		return true
	})
	s.clean(v)
}

// One command to take it at each server, and one to release it there.
func TestRedLockCostsTwoCommandsAtEachServer(t *testing.T) {
	t.Parallel()
	s := independent(t, 5)
	v := s.open()
	count := func() (all []int64) {
		for _, one := range s.servers {
			all = append(all, one.CommandStats()["evalsha"])
		}
		return all
	}
	h := mustRedLock(t, v.lock("warm"))
	mustRelease(t, h)
	s.clean(v)
	before := count()
	for i := range 10 {
		h := mustRedLock(t, v.lock(fmt.Sprint("x", i)))
		eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
		mustRelease(t, h)
	}
	s.clean(v)
	for i, n := range count() {
		if n-before[i] != 20 {
			t.Errorf("%d commands at server %d", n-before[i], i)
		}
	}
}

func TestMajorityOfValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []int
		want   int
	}{{[]int{7}, 7}, {[]int{7, 5}, 5}, {[]int{1, 9, 5}, 5}, {[]int{4, 1, 3, 2}, 2}, {[]int{5, 1, 4, 2, 3}, 3}} {
		if got := quorum.OfMajority(slices.Clone(c.values)); got != c.want {
			t.Errorf("%v: %d", c.values, got)
		}
	}
}
