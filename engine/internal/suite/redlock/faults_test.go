package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// One server answers after 1.2 s, two are down: it is needed, and waited for.
func TestRedLock_SlowServer_IsWaitedForIfNeeded(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 5)
	v := s.Open()
	p := s.Through(0, v)
	p.Delay(faultproxy.All, 600*time.Millisecond, 600*time.Millisecond)
	began := cputime.Now()
	h := testkit.MustRedLock(t, v.Lock("x"))
	testkit.MustUnlock(t, h)
	if d := began.Elapsed(); d > 1100*time.Millisecond { // it answers after 1200
		t.Errorf("a slow minority cost %v", d)
	}
	s.Servers[1].Kill()
	s.Servers[2].Kill()
	start := time.Now()
	h = testkit.MustRedLock(t, v.Lock("y"))
	if d := time.Since(start); d < 1100*time.Millisecond || d > 4*time.Second {
		t.Errorf("granted after %v", d)
	}
	testkit.MustUnlock(t, h)
	if h, err := v.Lock("z").TryLock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	} else {
		testkit.MustUnlock(t, h)
	}
	p.Delay(faultproxy.All, 0, 0)
	s.Clean(v)
}

// Every grant comes after its lease.
func TestRedLock_LeaseTooShort_IsNotGranted(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open()
	for i := range v {
		s.Through(i, v).Delay(faultproxy.Carried("EVALSHA"), 150*time.Millisecond, 150*time.Millisecond)
	}
	if _, err := v.Lock("x").Lock(testkit.Ctx(t), engine.Lease(100*time.Millisecond)); !errors.Is(err, engine.ErrGrantTooLate) || errors.Is(err, engine.ErrHeld) || errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("Lock: %v", err)
	}
	if _, err := v.Lock("x").TryLock(testkit.Ctx(t), engine.Lease(100*time.Millisecond)); !errors.Is(err, engine.ErrGrantTooLate) {
		t.Errorf("TryLock: %v", err)
	}
	s.Clean(v)
}

// What a server refuses for good fails the whole only if no majority is left.
func TestRedLock_KeysOfAnotherType_FailOnlyWithoutAMajority(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open()
	s.Servers[0].Do("SET", "x", "string")
	h := testkit.MustRedLock(t, v.Lock("x"))
	if got := h.Servers(); len(got) != 2 {
		t.Errorf("held at %v", got)
	}
	testkit.MustUnlock(t, h)
	s.Servers[1].Do("SET", "x", "string")
	for _, lock := range []func(context.Context, ...engine.Option) (*engine.Hold, error){v.Lock("x").Lock, v.Lock("x").TryLock} {
		if _, err := lock(testkit.Ctx(t)); !errors.Is(err, engine.ErrWrongType) || errors.Is(err, engine.ErrUnavailable) || !testkit.HasText(err, s.Servers[1].Addr()) {
			t.Errorf("%v", err)
		}
	}
	s.Servers[0].Do("DEL", "x")
	s.Servers[1].Do("DEL", "x")
	s.Clean(v)
}

// Nobody gets a majority while a context of the hold is alive, however it ends.
func TestQuorumHold_MajorityLost_EndsBeforeOthersGetOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts []engine.Option
		end  func(t *testing.T, v testkit.Voters, h *engine.Hold)
	}{
		"Unlock":      {nil, func(t *testing.T, _ testkit.Voters, h *engine.Hold) { _ = h.Unlock(testkit.Ctx(t)) }},
		"UnlockAsync": {nil, func(t *testing.T, _ testkit.Voters, h *engine.Hold) { h.UnlockAsync() }},
		"MaxHold":     {[]engine.Option{engine.MaxHold(1500 * time.Millisecond)}, func(*testing.T, testkit.Voters, *engine.Hold) {}},
		"Lease":       {[]engine.Option{engine.Lease(1500 * time.Millisecond)}, func(*testing.T, testkit.Voters, *engine.Hold) {}},
		"Close": {nil, func(t *testing.T, v testkit.Voters, _ *engine.Hold) {
			for _, e := range v {
				_ = e.Close()
			}
		}},
	} {
		for _, contexts := range []int{3, 500} {
			t.Run(fmt.Sprint(name, ", ", contexts, " contexts"), func(t *testing.T) {
				t.Parallel()
				s := testkit.Independent(t, 3)
				a, b := s.Open(func(c *engine.Config) { c.Margin = time.Second }), s.Open()
				h := testkit.MustRedLock(t, a.Lock("x"), c.opts...)
				ctxs := make([]context.Context, contexts)
				for i := range ctxs {
					ctxs[i] = h.Context(context.Background())
				}
				next := b.Lock("x").LockAsync(testkit.Ctx(t))
				c.end(t, a, h)
				got, err := next.Await(testkit.Ctx(t))
				if err != nil {
					t.Fatal(err)
				}
				for _, ctx := range ctxs {
					if ctx.Err() == nil {
						t.Fatal("taken while a context is alive")
					}
				}
				select {
				case <-h.Done():
				default:
					t.Error("taken before Done")
				}
				if h.Err() == nil || h.ValidUntil().After(time.Now()) {
					t.Errorf("%v, valid until %v", h.Err(), h.ValidUntil())
				}
				testkit.MustUnlock(t, got)
				_ = h.Unlock(testkit.Ctx(t))
			})
		}
	}
}

// With three of five hanging nobody knows whether the lock is free: Unlock says so, and goes on.
func TestRedLock_UnlockWithoutAMajority_SaysSo(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) { // or those that work do not answer in time, either
		s := testkit.Independent(t, 5)
		v := s.Open()
		h := testkit.MustRedLock(t, v.Lock("x"))
		testkit.Eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
		for _, one := range s.Servers[:3] {
			one.Stop()
			defer func() { _ = one.Process.Cont() }()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		err := h.Unlock(ctx)
		if !errors.Is(err, engine.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || !testkit.HasText(err, s.Servers[1].Addr()) || testkit.HasText(err, s.Servers[4].Addr()) {
			t.Errorf("Unlock: %v", err)
		}
		second := h.UnlockAsync()
		for _, one := range s.Servers[:3] {
			one.Cont()
		}
		if _, err := second.Await(testkit.Ctx(t)); err != nil && !errors.Is(err, engine.ErrNotHeld) {
			t.Errorf("the second Unlock: %v", err)
		}
		s.Clean(v)
	})
}

// A hold that was dropped is counted once, though it has five locks.
func TestQuorumHold_Dropped_IsReportedOnce(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open(testkit.LeaseOf(3 * time.Second))
	func() { _ = testkit.MustRedLock(t, v.Lock("x")) }()
	leaked := func() (n uint64) {
		for _, e := range v {
			n += e.Stats().Leaked
		}
		return n
	}
	testkit.Eventually(t, "it is noticed", func() bool { runtime.GC(); return leaked() == 1 })
	testkit.Eventually(t, "it is renewed still", func() bool { runtime.GC(); return v[0].Stats().Renewed > 3 })
	if leaked() != 1 {
		t.Errorf("counted %d times", leaked())
	}
	h := testkit.MustRedLock(t, v.Lock("y"))
	ctx := h.Context(context.Background())
	h = nil
	testkit.Eventually(t, "a while", func() bool { runtime.GC(); return v[0].Stats().Renewed > 9 })
	if leaked() != 1 || ctx.Err() != nil {
		t.Errorf("counted %d times", leaked())
	}
}

// Engines on three servers want a few locks while contexts end, futures are abandoned, locks
// are removed, connections cut and an engine closed. Everybody gets an answer, two are not
// inside unless locks were removed, and nothing is left.
func TestRedLock_EverythingAtOnce_ExcludesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	const names, processes, workers, rounds = 3, 3, 4, 25
	seed := rand.Uint64()
	s := testkit.Independent(t, 3)
	var inside [names]atomic.Pointer[context.Context]
	var force atomic.Bool
	var wg sync.WaitGroup
	var all []testkit.Voters
	var cuts []*faultproxy.Proxy
	for process := range processes {
		short := func(c *engine.Config) { c.CommandTimeout = 200 * time.Millisecond }
		v := s.Open(short)
		cuts = append(cuts, s.Through(process, v, short))
		all = append(all, v)
		for w := range workers {
			rng := rand.New(rand.NewPCG(seed, uint64(10*process+w)))
			wg.Go(func() {
				for range rounds {
					k := rng.IntN(names)
					ctx, cancel := context.WithTimeout(testkit.Ctx(t), testkit.Limit)
					if rng.IntN(3) == 0 {
						cancel()
						ctx, cancel = context.WithTimeout(testkit.Ctx(t), time.Duration(rng.IntN(5000))*time.Microsecond)
					}
					var opts []engine.Option
					if rng.IntN(3) == 0 {
						opts = append(opts, engine.Wait(time.Duration(1+rng.IntN(20))*time.Millisecond))
					}
					l := v.Lock(fmt.Sprint("n", k))
					lock := l.LockAsync
					if rng.IntN(8) == 0 {
						lock, opts = l.TryLockAsync, nil
					}
					f := lock(ctx, opts...)
					if rng.IntN(8) == 0 {
						f.Abandon()
						cancel()
						continue
					}
					h, err := f.Await(testkit.Ctx(t))
					cancel()
					if err != nil {
						if !errors.Is(err, engine.ErrNotAcquired) || errors.Is(err, engine.ErrHeld) && errors.Is(err, engine.ErrUnavailable) {
							t.Errorf("seed %d: %v", seed, err)
						}
						if errors.Is(err, engine.ErrClosed) {
							return
						}
						continue
					}
					c := h.Context(context.Background())
					if before := inside[k].Swap(&c); before != nil && (*before).Err() == nil && c.Err() == nil && !force.Load() {
						t.Errorf("seed %d: two are inside %d", seed, k)
					}
					if rng.IntN(6) == 0 {
						if inner, err := l.LockAsync(c).Await(testkit.Ctx(t)); err == nil {
							_ = inner.Context(c)
							inner.UnlockAsync()
						}
					}
					if rng.IntN(2) == 0 {
						h.UnlockAsync()
					}
					_ = h.Unlock(testkit.Ctx(t))
					if c.Err() == nil || h.Err() == nil {
						t.Errorf("seed %d: alive after Unlock", seed)
					}
					testkit.Receive(t, h.Done())
				}
			})
		}
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	stop, troubled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(troubled)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rng.IntN(20)) * time.Millisecond): // trouble comes when it comes
			}
			switch {
			case i == 30:
				_ = all[0][1].Close()
			case i < 15 || rng.IntN(2) == 0:
				cuts[rng.IntN(len(cuts))].Cut(faultproxy.All)
			default:
				force.Store(true)
				_, _ = all[1][rng.IntN(3)].Mutex(fmt.Sprint("n", rng.IntN(names))).ForceUnlock(testkit.Ctx(t))
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-troubled
	for _, v := range all {
		for i, e := range v {
			testkit.Eventually(t, fmt.Sprintf("seed %d: engine %d has nothing left", seed, i), func() bool {
				st, in := e.Stats(), testkit.Inside(e)
				return st.Held == 0 && st.Waiting == 0 && in.Many+in.Watched == 0
			})
		}
	}
	s.Clean(all...)
}

// A server is silent while another loses the lock and grants it again; then it turns out to have
// lost it, too. Perhaps it did so first, and then only one of three had it for a time.
func TestRedLock_VoteThatJoined_DoesNotReplaceOneMissingBefore(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open()
	h := testkit.MustRedLock(t, v.Lock("x"))
	testkit.Eventually(t, "all three join", func() bool { return len(h.Servers()) == 3 })
	s.Servers[1].Stop()
	s.Servers[0].Do("DEL", "x")
	testkit.RenewAll(v[0])
	testkit.Eventually(t, "it is granted there again", func() bool { return len(testkit.Fields(t, s.Servers[0], "x")) == 1 && len(h.Servers()) == 3 })
	if err := h.Err(); err != nil {
		t.Fatal(err)
	}
	s.Servers[1].Kill()
	s.Servers[1].Restart()
	testkit.Receive(t, h.Done())
	var lost *engine.LostError
	if err := h.Err(); !errors.As(err, &lost) || lost.Reason != engine.RemovedOnServer ||
		!testkit.HasText(err, "1 of 3") || !testkit.HasText(err, s.Servers[0].Addr()+": it was granted there again") || !testkit.HasText(err, s.Servers[1].Addr()+": the server does not have it") {
		t.Errorf("Err: %v", err)
	}
	s.Clean(v)
}
