package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/resp"
)

// Two of one process wait at a server that hangs. The second is not held up for longer than the first.
func TestRedLock_SecondWaiterOfAProcess_IsNotHeldUpByTheServerThatItWaitsAt(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill ", kill), func(t *testing.T) {
			t.Parallel()
			steady(t, func(t testing.TB) {
				s := independent(t, 3)
				a, b := s.open(), s.open()
				held := mustRedLock(t, a.lock("x"))
				eventually(t, "all three join", func() bool { return len(held.Servers()) == 3 })
				l := b.lock("x")
				at := l.all.order[0]
				first, second := l.LockAsync(ctxT(t)), l.LockAsync(ctxT(t))
				for _, f := range []*Future[*Hold]{first, second} {
					q := f.source.(*severalHold)
					eventually(t, "it waits at the first server", func() bool {
						q.mu.Lock()
						defer q.mu.Unlock()
						return q.Stage == quorum.Waiting && slices.IndexFunc(q.Members, func(p quorum.Member) bool { return p.Asked != nil }) == at
					})
				}
				if kill {
					s.servers[at].Kill()
				} else {
					s.servers[at].Stop()
					defer func() { _ = s.servers[at].Process.Cont() }()
				}
				mustUnlock(t, held)
				for range 2 {
					free := time.Now()
					var h *Hold
					var err error
					select {
					case <-first.Done():
						h, err = first.Result()
						first = second
					case <-second.Done():
						h, err = second.Result()
						second = first
					case <-ctxT(t).Done():
						t.Fatal("nobody gets it")
					}
					if err != nil {
						t.Fatal(err)
					}
					if d := time.Since(free); d > 3*quorum.LongestWait {
						t.Errorf("granted %v after it was free", d)
					}
					mustUnlock(t, h)
				}
				if kill {
					s.servers[at].Restart()
				} else {
					s.servers[at].Cont()
				}
				s.clean(a, b)
			})
		})
	}
}

// Somebody has the lock at one server, the first in order, and keeps it. The others are far away, one of the
// two or both, and one of them farther: it takes a few round trips.
func TestRedLock_FarMajority_TakesAFewRoundTrips(t *testing.T) {
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

// It waits at one server, which hangs or dies before the lock is released. After two waits in vain it
// asks all servers at once.
func TestRedLock_Waiter_IsNotHeldUpByTheServerItWaitsAt(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill ", kill), func(t *testing.T) {
			t.Parallel()
			steady(t, func(t testing.TB) {
				s := independent(t, 5)
				a, b := s.open(), s.open()
				h := mustRedLock(t, a.lock("x"))
				eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
				f := b.lock("x").LockAsync(ctxT(t))
				q := f.source.(*severalHold)
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
				mustUnlock(t, h)
				h2, err := f.Await(ctxT(t))
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("granted %v after the release", time.Since(start))
				if d := time.Since(start); d > 3*quorum.LongestWait {
					t.Errorf("granted %v after the release", d)
				}
				mustUnlock(t, h2)
				if kill {
					s.servers[at].Restart()
				} else {
					s.servers[at].Cont()
				}
				s.clean(a, b)
			})
		})
	}
}

// Pending, and while their context is cancelled, they cost no goroutine each.
func TestRedLock_Pending_CostsNoGoroutines(t *testing.T) {
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
			q := futures[asked].source.(*severalHold)
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
	peak, refused := 0, 0
	for _, f := range futures {
		peak = max(peak, runtime.NumGoroutine()-idle)
		_, err := f.Await(ctxT(t))
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if errors.Is(err, ErrHeld) { // else it has begun to ask again, and has no majority of answers yet
			refused++
		}
	}
	if refused == 0 {
		t.Error("none says that another has it")
	}
	if peak > 20 {
		t.Errorf("%d goroutines more while they are cancelled", peak)
	}
	mustUnlock(t, held)
	s.clean(a, b)
}

// The context is gone, and the hold that it carried has ended: nothing is re-entered.
func TestRedLock_ContextOfAnEndedHold_CarriesNothing(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	m := e.Mutex("x")
	h := mustLock(t, m)
	q := &severalHold{all: &several{locks: []Mutex{m}}, parents: []*lockHold{oneOf(h)}}
	if q.carried(0) != oneOf(h) {
		t.Error("a live hold is not carried")
	}
	if q.opts.nonReentrant = true; q.carried(0) != nil {
		t.Error("carried, though it may not be re-entered")
	}
	q.opts.nonReentrant = false
	mustUnlock(t, h)
	if q.carried(0) != nil {
		t.Error("an ended hold is carried")
	}
}

// Without a majority nothing is granted, and the error has the servers.
func TestRedLock_ThreeOfFiveDown_IsNotGranted(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := independent(t, 5)
		a, b := s.open(func(c *Config) { c.CommandTimeout = time.Second }), s.open()
		for i, one := range s.servers[2:] {
			one.Kill()
			// Else the loss of three commands may come before the answers of the two.
			eventually(t, "the lane is down", func() bool { return !connected(a[2+i]).Up(resp.RoleLane, 0) })
		}
		_, err := a.lock("x").TryLock(ctxT(t))
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) || !hasText(err, "granted by 2 of 5 servers, 3 are needed") || !hasText(err, s.servers[4].Addr()) {
			t.Errorf("TryLock: %v", err)
		}
		_, err = a.lock("x").Lock(ctxT(t), Wait(400*time.Millisecond))
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Lock: %v", err)
		}
		t.Log(err)
		f := a.lock("x").LockAsync(ctxT(t))
		eventually(t, "it does not keep a minority", func() bool {
			q := f.source.(*severalHold)
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.Stage == quorum.Waiting && len(q.Votes()) == 0
		})
		// Two who have a part each refuse each other; here the other has too few, too.
		h1, h2 := mustLock(t, b[0].Mutex("y")), mustLock(t, b[1].Mutex("y"))
		if _, err := a.lock("y").TryLock(ctxT(t)); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrHeld) {
			t.Errorf("two of five held, three down: %v", err)
		}
		mustUnlock(t, h1)
		mustUnlock(t, h2)
		s.servers[2].Restart()
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
		for _, one := range s.servers[3:] {
			one.Restart()
		}
		s.clean(a, b)
	})
}

func TestRedLock_BadArguments_AreRefused(t *testing.T) {
	t.Parallel()
	s := independent(t, 2)
	v := s.open()
	again := open(t, s.servers[0].URL())
	x, y := v[0].Mutex("x"), v[1].Mutex("x")
	var many []Mutex
	for range maxServers + 1 {
		many = append(many, x)
	}
	for what, c := range map[string]struct {
		l    QuorumLock
		opts []Option
	}{
		"no locks":               {l: RedLock()},
		"zero QuorumLock":        {},
		"zero Mutex":             {l: RedLock(x, Mutex{})},
		"an Engine twice":        {l: RedLock(x, v[0].Mutex("y"))},
		"the server 127.0.0.1:":  {l: RedLock(x, again.Mutex("x"))},
		"kinds mutex and spin":   {l: RedLock(x, v[1].SpinMutex("x"))},
		"kinds fenced and mutex": {l: RedLock(v[0].FencedMutex("x"), y)},
		"must not be empty":      {l: RedLock(x, v[1].Mutex(""))},
		"at most 100":            {l: RedLock(many...)},
		"MinHold":                {l: RedLock(x, y), opts: []Option{MinHold(time.Second)}},
		"Lease and MaxHold":      {l: RedLock(x, y), opts: []Option{Lease(time.Second), MaxHold(time.Second)}},
	} {
		if _, err := c.l.Lock(ctxT(t), c.opts...); !errors.Is(err, ErrInvalid) || !errors.Is(err, ErrNotAcquired) || !hasText(err, what) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := c.l.TryLockAsync(ctxT(t), c.opts...).Await(ctxT(t)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: async: %v", what, err)
		}
	}
	var none context.Context
	if _, err := RedLock(x, y).Lock(none); !errors.Is(err, ErrInvalid) {
		t.Errorf("nil context: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := RedLock(x, y).Lock(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
	for i, one := range s.servers {
		if one.Do("DBSIZE") != int64(0) {
			t.Errorf("something was taken at %d", i)
		}
	}
}

// The same sentinels may watch several primaries.
func TestRedLock_PrimariesOfTheSameSentinels_AreDifferent(t *testing.T) {
	t.Parallel()
	of := func(master string, addrs ...string) Mutex {
		e := &Engine{&core{cfg: Config{Topology: "sentinel", Master: master, Addrs: addrs}}}
		return Mutex{home: e, name: "x"}
	}
	a, b, c := of("a", "s1:26379", "s2:26379"), of("b", "s1:26379", "s2:26379"), of("c", "s2:26379")
	if err := RedLock(a, b, c).all.err; err != nil {
		t.Error(err)
	}
	if err := RedLock(a, b, of("a", "s2:26379")).all.err; !errors.Is(err, ErrInvalid) || !hasText(err, "the server a@s2:26379 twice") {
		t.Errorf("the same primary twice: %v", err)
	}
}

// One of three servers refuses for good, another one is held. A caller that stops waiting is told both.
func TestRedLock_ServerRefusesForGood_WaiterNamesIt(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) { // or the answers come after the wait
		s := independent(t, 3)
		other, v := s.open(), s.open()
		locks := v.lock("x")
		locks.all.order = []int{0, 1, 2}
		held := mustLock(t, other[0].Mutex("x"))
		s.servers[2].Do("SET", "x", "string")
		mustUnlock(t, mustRedLock(t, v.lock("warm"))) // connections and scripts
		_, err := locks.Lock(ctxT(t), Wait(quorum.LongestWait/2-50*time.Millisecond))
		if !errors.Is(err, ErrHeld) || errors.Is(err, ErrWrongType) || !hasText(err, s.servers[2].Addr()+": "+partText(ErrWrongType)) {
			t.Errorf("told %v", err)
		}
		s.servers[2].Do("DEL", "x")
		mustUnlock(t, held)
		s.clean(other, v)
	})
}
