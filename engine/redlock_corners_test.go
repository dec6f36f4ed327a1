package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/pace"
)

// through puts a proxy before the server at i.
func (s *independents) through(i int, v voters, change ...func(*Config)) *faultproxy.Proxy {
	s.t.Helper()
	p := faultproxy.New(s.t, "tcp", s.servers[i].Addr())
	v[i] = open(s.t, "redis://"+p.Addr(), change...)
	return p
}

// One server answers after 1.2 s, two are down: it is needed, and waited for.
func TestRedLockAndASlowServer(t *testing.T) {
	t.Parallel()
	s := independent(t, 5)
	v := s.open()
	p := s.through(0, v)
	p.Delay(faultproxy.All, 600*time.Millisecond, 600*time.Millisecond)
	began := pace.Now()
	h := mustRedLock(t, v.lock("x"))
	mustRelease(t, h)
	if d := began.Elapsed(); d > 1100*time.Millisecond { // it answers after 1200
		t.Errorf("a slow minority cost %v", d)
	}
	s.servers[1].Kill()
	s.servers[2].Kill()
	start := time.Now()
	h = mustRedLock(t, v.lock("y"))
	if d := time.Since(start); d < 1100*time.Millisecond || d > 4*time.Second {
		t.Errorf("granted after %v", d)
	}
	mustRelease(t, h)
	if h, err := v.lock("z").TryLock(ctxT(t)); err != nil {
		t.Error(err)
	} else {
		mustRelease(t, h)
	}
	p.Delay(faultproxy.All, 0, 0)
	s.clean(v)
}

// Somebody has the lock at one server, the first in order, and keeps it. The others are far away, one of the
// two or both, and one of them farther: it takes a few round trips.
func TestRedLockOfAFarMajority(t *testing.T) {
	t.Parallel()
	const away = 800 * time.Millisecond
	for name, c := range map[string]struct {
		far    int
		uneven time.Duration // the last is farther
	}{
		"one":                   {far: 1},
		"both":                  {far: 2},
		"both, a little uneven": {far: 2, uneven: 100 * time.Millisecond},
		"both, uneven":          {far: 2, uneven: 200 * time.Millisecond},
		"both, very uneven":     {far: 2, uneven: 400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steady(t, func(t testing.TB) {
				s := independent(t, 3)
				other, v := s.open(), s.open()
				proxies := make([]*faultproxy.Proxy, len(v))
				for i := range v {
					proxies[i] = s.through(i, v)
				}
				l := v.lock("x")
				held := mustLock(t, other[l.all.order[0]].Mutex("x"))
				for _, i := range l.all.order[3-c.far:] {
					proxies[i].Delay(faultproxy.All, away/2, away/2)
				}
				proxies[l.all.order[2]].Delay(faultproxy.All, away/2, away/2+c.uneven)
				h, err := l.Lock(ctxT(t), Wait(10*(away+c.uneven)))
				if err != nil {
					t.Fatal(err)
				}
				if err := h.Unlock(ctxT(t)); err != nil {
					t.Error(err)
				}
				mustUnlock(t, held)
				s.clean(other, v)
			})
		})
	}
}

// Every grant comes after its lease.
func TestRedLockWhoseLeaseIsTooShort(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	for i := range v {
		s.through(i, v).Delay(faultproxy.Carried("EVALSHA"), 150*time.Millisecond, 150*time.Millisecond)
	}
	if _, err := v.lock("x").Lock(ctxT(t), Lease(100*time.Millisecond)); !errors.Is(err, ErrLate) || errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) {
		t.Errorf("Lock: %v", err)
	}
	if _, err := v.lock("x").TryLock(ctxT(t), Lease(100*time.Millisecond)); !errors.Is(err, ErrLate) {
		t.Errorf("TryLock: %v", err)
	}
	s.clean(v)
}

// What a server refuses for good fails the whole only if no majority is left.
func TestRedLockAndKeysOfAnotherType(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	s.servers[0].Do("SET", "x", "string")
	h := mustRedLock(t, v.lock("x"))
	if got := h.Servers(); len(got) != 2 {
		t.Errorf("held at %v", got)
	}
	mustRelease(t, h)
	s.servers[1].Do("SET", "x", "string")
	for _, lock := range []func(context.Context, ...Option) (*Hold, error){v.lock("x").Lock, v.lock("x").TryLock} {
		if _, err := lock(ctxT(t)); !errors.Is(err, ErrWrongType) || errors.Is(err, ErrUnavailable) || !hasText(err, s.servers[1].Addr()) {
			t.Errorf("%v", err)
		}
	}
	s.servers[0].Do("DEL", "x")
	s.servers[1].Do("DEL", "x")
	s.clean(v)
}

// It waits at one server, which hangs or dies before the lock is released. After two waits in vain it
// asks all servers at once.
func TestWaiterIsNotHeldUpByTheServerThatItWaitsAt(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill ", kill), func(t *testing.T) {
			t.Parallel()
			s := independent(t, 5)
			a, b := s.open(), s.open()
			h := mustRedLock(t, a.lock("x"))
			eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
			f := b.lock("x").LockAsync(ctxT(t))
			q := f.source.(*redLockAcquisition)
			at := -1
			eventually(t, "it waits at a server", func() bool {
				q.mu.Lock()
				defer q.mu.Unlock()
				at = slices.IndexFunc(q.Members, func(p quorum.Member) bool { return p.Asked != nil })
				return q.Stage == quorum.Waiting && at >= 0 && b[at].Stats().Waiting == 1 && b[at].Stats().InFlight == 0
			})
			if kill {
				s.servers[at].Kill()
			} else {
				s.servers[at].Stop()
				defer func() { _ = s.servers[at].Process.Cont() }()
			}
			start := time.Now()
			mustRelease(t, h)
			h2, err := f.Await(ctxT(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("granted %v after the release", time.Since(start))
			if d := time.Since(start); d > 3*quorum.LongestWait {
				t.Errorf("granted %v after the release", d)
			}
			mustRelease(t, h2)
			if kill {
				s.servers[at].Restart()
			} else {
				s.servers[at].Cont()
			}
			s.clean(a, b)
		})
	}
}

// A server joins, and soon after another loses its data: two of three have had it all the time.
func TestServerThatJoinsCountsSoon(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open(leaseOf(5 * time.Minute)) // no renewal comes by itself
	h := mustRedLock(t, v.lock("x"))
	for i := range 2 {
		eventually(t, "all three have it", func() bool { return len(h.Servers()) == 3 })
		if i == 1 { // the others were looked at
			eventually(t, "it counts", func() bool {
				q := h.h.(quorumHold).q
				q.mu.Lock()
				defer q.mu.Unlock()
				last := q.Members[1].Vote.Port.(*vote).hold
				last.Shard().Lock()
				defer last.Shard().Unlock()
				return last.There() > q.Members[0].Vote.Joined
			})
		}
		s.servers[i].Do("DEL", "x")
		eventually(t, "that is noticed", func() bool {
			renewAll(v[i]) // again, if one was out that the server had answered before
			return v[i].Stats().Lost[GoneOnServer] == 1
		})
	}
	eventually(t, "all three have it again", func() bool { return len(h.Servers()) == 3 })
	if err := h.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, h)
	s.clean(v)
}

// Nobody gets a majority while a context of the hold is alive, however it ends.
func TestQuorumHoldIsToldBeforeOthersGetAMajority(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts []Option
		end  func(t *testing.T, v voters, h *Hold)
	}{
		"Unlock":      {nil, func(t *testing.T, _ voters, h *Hold) { _ = h.Unlock(ctxT(t)) }},
		"UnlockAsync": {nil, func(t *testing.T, _ voters, h *Hold) { h.UnlockAsync() }},
		"MaxHold":     {[]Option{MaxHold(1500 * time.Millisecond)}, func(*testing.T, voters, *Hold) {}},
		"Lease":       {[]Option{Lease(1500 * time.Millisecond)}, func(*testing.T, voters, *Hold) {}},
		"Close": {nil, func(t *testing.T, v voters, _ *Hold) {
			for _, e := range v {
				_ = e.Close()
			}
		}},
	} {
		for _, contexts := range []int{3, 500} {
			t.Run(fmt.Sprint(name, ", ", contexts, " contexts"), func(t *testing.T) {
				t.Parallel()
				s := independent(t, 3)
				a, b := s.open(func(c *Config) { c.Margin = time.Second }), s.open()
				h := mustRedLock(t, a.lock("x"), c.opts...)
				ctxs := make([]context.Context, contexts)
				for i := range ctxs {
					ctxs[i] = h.Context(context.Background())
				}
				next := b.lock("x").LockAsync(ctxT(t))
				c.end(t, a, h)
				got, err := next.Await(ctxT(t))
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
				mustRelease(t, got)
				_ = h.Unlock(ctxT(t))
			})
		}
	}
}

// With three of five hanging nobody knows whether the lock is free: Unlock says so, and goes on.
func TestUnlockOfARedLockWithoutAMajority(t *testing.T) {
	t.Parallel()
	s := independent(t, 5)
	v := s.open()
	h := mustRedLock(t, v.lock("x"))
	eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
	for _, one := range s.servers[:3] {
		one.Stop()
		defer func() { _ = one.Process.Cont() }()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	err := h.Unlock(ctx)
	if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || !hasText(err, s.servers[1].Addr()) || hasText(err, s.servers[4].Addr()) {
		t.Errorf("Unlock: %v", err)
	}
	second := h.UnlockAsync()
	for _, one := range s.servers[:3] {
		one.Cont()
	}
	if _, err := second.Await(ctxT(t)); err != nil && !errors.Is(err, ErrNotHeld) {
		t.Errorf("the second Unlock: %v", err)
	}
	s.clean(v)
}

// A hold that was dropped is counted once, though it has five locks.
func TestDroppedQuorumHoldIsReportedOnce(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open(leaseOf(3 * time.Second))
	func() { _ = mustRedLock(t, v.lock("x")) }()
	leaked := func() (n uint64) {
		for _, e := range v {
			n += e.Stats().Leaked
		}
		return n
	}
	eventually(t, "it is noticed", func() bool { runtime.GC(); return leaked() == 1 })
	eventually(t, "it is renewed still", func() bool { runtime.GC(); return v[0].Stats().Renewed > 3 })
	if leaked() != 1 {
		t.Errorf("counted %d times", leaked())
	}
	h := mustRedLock(t, v.lock("y"))
	ctx := h.Context(context.Background())
	h = nil
	eventually(t, "a while", func() bool { runtime.GC(); return v[0].Stats().Renewed > 9 })
	if leaked() != 1 || ctx.Err() != nil {
		t.Errorf("counted %d times", leaked())
	}
}

// Pending, and while their context is cancelled, they cost no goroutine each.
func TestPendingRedLocksCostNoGoroutines(t *testing.T) {
	const n = 1000
	s := independent(t, 3)
	a, b := s.open(), s.open()
	held := mustRedLock(t, a.lock("x"))
	eventually(t, "all three join", func() bool { return len(held.Servers()) == 3 })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	idle := runtime.NumGoroutine()
	futures := make([]*Future[*Hold], n)
	for i := range futures {
		futures[i] = b.lock("x").LockAsync(ctx)
	}
	asked := 0
	eventually(t, "a majority has refused each", func() bool {
		for ; asked < n; asked++ {
			q := futures[asked].source.(*redLockAcquisition)
			q.mu.Lock()
			failed := q.Stage == quorum.Waiting
			q.mu.Unlock()
			if !failed {
				return false
			}
		}
		return true
	})
	if more := runtime.NumGoroutine() - idle; more > 20 {
		t.Errorf("%d goroutines more", more)
	}
	cancel()
	peak := 0
	for _, f := range futures {
		peak = max(peak, runtime.NumGoroutine()-idle)
		if _, err := f.Await(ctxT(t)); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
	}
	if peak > 20 {
		t.Errorf("%d goroutines more while they are cancelled", peak)
	}
	mustRelease(t, held)
	s.clean(a, b)
}

// Engines on three servers want a few locks while contexts end, futures are abandoned, locks
// are removed, connections cut and an engine closed. Everybody gets an answer, two are not
// inside unless locks were removed, and nothing is left.
func TestRedLocksUnderEverything(t *testing.T) {
	t.Parallel()
	const names, processes, workers, rounds = 3, 3, 4, 25
	seed := rand.Uint64()
	s := independent(t, 3)
	var inside [names]atomic.Pointer[context.Context]
	var force atomic.Bool
	var wg sync.WaitGroup
	var all []voters
	var cuts []*faultproxy.Proxy
	for process := range processes {
		short := func(c *Config) { c.CommandTimeout = 200 * time.Millisecond }
		v := s.open(short)
		cuts = append(cuts, s.through(process, v, short))
		all = append(all, v)
		for w := range workers {
			rng := rand.New(rand.NewPCG(seed, uint64(10*process+w)))
			wg.Go(func() {
				for range rounds {
					k := rng.IntN(names)
					ctx, cancel := context.WithTimeout(ctxT(t), limit)
					if rng.IntN(3) == 0 {
						cancel()
						ctx, cancel = context.WithTimeout(ctxT(t), time.Duration(rng.IntN(5000))*time.Microsecond)
					}
					var opts []Option
					if rng.IntN(3) == 0 {
						opts = append(opts, Wait(time.Duration(1+rng.IntN(20))*time.Millisecond))
					}
					l := v.lock(fmt.Sprint("n", k))
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
					h, err := f.Await(ctxT(t))
					cancel()
					if err != nil {
						if !errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrHeld) && errors.Is(err, ErrUnavailable) {
							t.Errorf("seed %d: %v", seed, err)
						}
						if errors.Is(err, ErrClosed) {
							return
						}
						continue
					}
					c := h.Context(context.Background())
					if before := inside[k].Swap(&c); before != nil && (*before).Err() == nil && c.Err() == nil && !force.Load() {
						t.Errorf("seed %d: two are inside %d", seed, k)
					}
					if rng.IntN(6) == 0 {
						if inner, err := l.LockAsync(c).Await(ctxT(t)); err == nil {
							_ = inner.Context(c)
							inner.UnlockAsync()
						}
					}
					if rng.IntN(2) == 0 {
						h.UnlockAsync()
					}
					_ = h.Unlock(ctxT(t))
					if c.Err() == nil || h.Err() == nil {
						t.Errorf("seed %d: alive after Unlock", seed)
					}
					receive(t, h.Done())
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
				_, _ = all[1][rng.IntN(3)].Mutex(fmt.Sprint("n", rng.IntN(names))).ForceUnlock(ctxT(t))
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-troubled
	for _, v := range all {
		for i, e := range v {
			eventually(t, fmt.Sprintf("seed %d: engine %d has nothing left", seed, i), func() bool {
				st, in := e.Stats(), inspect(e)
				return st.Held == 0 && st.Waiting == 0 && in.Many+in.Watched == 0
			})
		}
	}
	s.clean(all...)
}

// A server is silent while another loses the lock and grants it again; then it turns out to have
// lost it, too. Perhaps it did so first, and then only one of three had it for a time.
func TestVoteThatJoinedDoesNotReplaceOneThatWasMissingBefore(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	h := mustRedLock(t, v.lock("x"))
	eventually(t, "all three join", func() bool { return len(h.Servers()) == 3 })
	s.servers[1].Stop()
	s.servers[0].Do("DEL", "x")
	renewAll(v[0])
	eventually(t, "it is granted there again", func() bool { return len(fields(t, s.servers[0], "x")) == 1 && len(h.Servers()) == 3 })
	if err := h.Err(); err != nil {
		t.Fatal(err)
	}
	s.servers[1].Kill()
	s.servers[1].Restart()
	receive(t, h.Done())
	var lost *LostError
	if err := h.Err(); !errors.As(err, &lost) || lost.Reason != GoneOnServer ||
		!hasText(err, "1 of 3") || !hasText(err, s.servers[0].Addr()+": it was granted there again") || !hasText(err, s.servers[1].Addr()+": the server does not have it") {
		t.Errorf("Err: %v", err)
	}
	s.clean(v)
}

// A context that takes long to end keeps the majority taken.
func TestLossOfARedLockWaitsForItsContexts(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	h := mustRedLock(t, v.lock("x"))
	eventually(t, "all three join", func() bool { return len(h.Servers()) == 3 })
	slow, gate := newSlowContext(), make(chan struct{})
	_ = h.Context(slow)
	slow.listenedTo(t)
	closed := make(chan error, 2)
	go func() { closed <- v[0].Close() }()
	eventually(t, "the first server is left", func() bool { return len(fields(t, s.servers[0], "x")) == 0 })
	slow.slow <- gate
	go func() { closed <- v[1].Close() }()
	eventually(t, "the loss is known", func() bool { return errors.Is(h.Err(), ErrLost) })
	for range 50 {
		if len(fields(t, s.servers[1], "x")) == 0 || len(fields(t, s.servers[2], "x")) == 0 {
			t.Fatal("another may have a majority while a context is alive")
		}
		select {
		case <-h.Done():
			t.Fatal("Done is closed while a context is alive")
		case <-time.After(2 * time.Millisecond):
		}
	}
	close(gate)
	receive(t, h.Done())
	for range 2 {
		if err := receive(t, closed); err != nil {
			t.Error(err)
		}
	}
	s.clean(v)
}
