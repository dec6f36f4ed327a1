package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/quorum"
	"github.com/pawl-lock/pawl/internal/pace"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// independents are servers of which each has an engine, as one process sees them.
type independents struct {
	t       testing.TB
	servers []*redistest.Server
}

func independent(t testing.TB, n int) *independents {
	s := &independents{t: t}
	for range n {
		s.servers = append(s.servers, server(t))
	}
	return s
}

// voters are the engines of one process.
type voters []*Engine

func (s *independents) open(change ...func(*Config)) (v voters) {
	s.t.Helper()
	for _, one := range s.servers {
		v = append(v, open(s.t, one.URL(), change...))
	}
	return v
}

func (v voters) lock(name string) QuorumLock {
	locks := make([]Mutex, len(v))
	for i, e := range v {
		locks[i] = e.Mutex(name)
	}
	return RedLock(locks...)
}

// clean fails the test if a running server has anything left.
func (s *independents) clean(all ...voters) {
	s.t.Helper()
	for i, one := range s.servers {
		if one.Running() {
			var engines []*Engine
			for _, v := range all {
				engines = append(engines, v[i])
			}
			clean(s.t, one, engines...)
		}
	}
}

func mustRedLock(t testing.TB, l QuorumLock, opts ...Option) *Hold {
	t.Helper()
	h, err := l.Lock(ctxT(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func mustRelease(t testing.TB, h *Hold) {
	t.Helper()
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Fatal(err)
	}
}

func TestRedLockIsHeldByAMajority(t *testing.T) {
	t.Parallel()
	s := independent(t, 5)
	a, b := s.open(), s.open()
	h := mustRedLock(t, a.lock("x"))
	eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
	if left := time.Until(h.ValidUntil()); h.Err() != nil || left < 20*time.Second || left > 27*time.Second {
		t.Errorf("%v, valid for %v", h.Err(), left)
	}
	_, err := b.lock("x").TryLock(ctxT(t))
	var refused *NotAcquiredError
	if !errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) || !errors.As(err, &refused) || refused.TTL < 20*time.Second {
		t.Errorf("TryLock: %v", err)
	}
	// It does not wait for the others when three have refused.
	if !hasText(err, "granted by 0 of 5 servers, 3 are needed: 127.0.0.1:") || strings.Count(err.Error(), ": held by another") < 3 {
		t.Errorf("the text: %v", err)
	}
	if ran, err := b.lock("x").TryDo(ctxT(t), nil); ran || err != nil {
		t.Errorf("TryDo: %v, %v", ran, err)
	}
	if _, err := b.lock("x").Lock(ctxT(t), Wait(2*time.Second)); !errors.Is(err, ErrHeld) || !hasText(err, "Wait is over") {
		t.Errorf("Wait: %v", err)
	}
	next := b.lock("x").LockAsync(ctxT(t))
	mustRelease(t, h)
	receive(t, h.Done())
	if err := h.Err(); err != ErrReleased || h.ValidUntil().After(time.Now()) || len(h.Servers()) != 0 {
		t.Errorf("after Unlock: %v, valid until %v, at %v", err, h.ValidUntil(), h.Servers())
	}
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("Unlock again: %v", err)
	}
	h2, err := next.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, h2)
	s.clean(a, b)
}

// A minority that is down delays neither the grant nor the release.
func TestRedLockWithTwoOfFiveDown(t *testing.T) {
	t.Parallel()
	s := independent(t, 5)
	v := s.open()
	s.servers[0].Kill()
	s.servers[3].Kill()
	for range 20 {
		start := pace.Now()
		h := mustRedLock(t, v.lock("x"))
		mustRelease(t, h)
		if d := start.Elapsed(); d > 2*time.Second {
			t.Errorf("took %v", d)
		}
	}
	h, err := v.lock("x").TryLock(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Servers(); len(got) != 3 {
		t.Errorf("held at %v", got)
	}
	// Those that come back join.
	s.servers[0].Restart()
	s.servers[3].Restart()
	eventually(t, "all five have it", func() bool { return len(h.Servers()) == 5 })
	mustRelease(t, h)
	s.clean(v)
}

// Two hang: their sockets take what is sent, and nothing comes back.
func TestRedLockWithTwoOfFiveHanging(t *testing.T) {
	t.Parallel()
	s := independent(t, 5)
	v := s.open()
	h := mustRedLock(t, v.lock("x"))
	eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
	for _, one := range s.servers[:2] {
		one.Stop()
		defer func() { _ = one.Process.Cont() }()
	}
	start := pace.Now()
	mustRelease(t, h)
	if d := start.Elapsed(); d > 2*time.Second {
		t.Errorf("the release took %v", d)
	}
	for _, lock := range []func() (*Hold, error){
		func() (*Hold, error) { return v.lock("y").Lock(ctxT(t)) },
		func() (*Hold, error) { return v.lock("z").TryLock(ctxT(t)) },
	} {
		start := pace.Now()
		h, err := lock()
		if err != nil {
			t.Fatal(err)
		}
		if d := start.Elapsed(); d > 2*time.Second {
			t.Errorf("the grant took %v", d)
		}
		if n := len(h.Servers()); n != 3 {
			t.Errorf("held at %d servers", n)
		}
		mustRelease(t, h)
	}
	for _, one := range s.servers[:2] {
		one.Cont()
	}
	s.clean(v) // what they granted late is given back
}

// Without a majority nothing is granted, and the error has the servers.
func TestRedLockWithThreeOfFiveDown(t *testing.T) {
	t.Parallel()
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
		q := f.source.(*redLockAcquisition)
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
	mustRelease(t, h)
	for _, one := range s.servers[3:] {
		one.Restart()
	}
	s.clean(a, b)
}

// One server loses its data while the lock is held: it is asked again, and nobody else gets in.
func TestServerThatRestartsEmptyIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := independent(t, 5)
	a, b := s.open(leaseOf(3*time.Second)), s.open()
	h := mustRedLock(t, a.lock("x"))
	eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
	for _, one := range s.servers[:3] {
		one.Kill()
		one.Restart()
		eventually(t, "the server has it again", func() bool { return len(fields(t, one, "x")) == 1 && len(h.Servers()) == 5 })
		if _, err := b.lock("x").TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
			t.Errorf("TryLock of another: %v", err)
		}
		before := h.ValidUntil()
		eventually(t, "the others are renewed", func() bool { return h.ValidUntil().After(before.Add(time.Second)) })
	}
	if err := h.Err(); err != nil {
		t.Error(err)
	}
	mustRelease(t, h)
	s.clean(a, b)
}

// All servers are emptied. Each is found so by its own renewal and would grant it again; but
// others may have had it meanwhile.
func TestRedLockThatWasRemovedEverywhereIsLost(t *testing.T) {
	t.Parallel()
	s := independent(t, 5)
	v := s.open(leaseOf(3 * time.Second))
	h := mustRedLock(t, v.lock("x"))
	eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
	ctx := h.Context(context.Background())
	for _, one := range s.servers {
		one.Do("FLUSHALL")
	}
	receive(t, h.Done())
	var lost *LostError
	if err := h.Err(); !errors.As(err, &lost) || lost.Reason != GoneOnServer || !hasText(err, "3 are needed") || !errors.Is(context.Cause(ctx), ErrLost) {
		t.Errorf("%v; context: %v", err, context.Cause(ctx))
	}
	t.Log(h.Err())
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	s.clean(v) // what was granted again is given back
}

// Three of five are gone: the hold ends before their leases do, and says which.
func TestLossOfThreeOfFiveIsToldInTime(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := independent(t, 5)
		v := s.open(leaseOf(2 * time.Second))
		h := mustRedLock(t, v.lock("x"))
		eventually(t, "all five join", func() bool { return len(h.Servers()) == 5 })
		ctx := h.Context(context.Background())
		killed := time.Now()
		for _, one := range s.servers[1:4] {
			one.Stop()
			defer func() { _ = one.Process.Cont() }()
		}
		until := h.ValidUntil()
		receive(t, ctx.Done())
		receive(t, h.Done())
		if d := time.Since(killed); d > 2*time.Second || time.Until(until) > 0 && time.Until(until) > 100*time.Millisecond {
			t.Errorf("told after %v, %v before ValidUntil", d, time.Until(until))
		}
		var lost *LostError
		err := h.Err()
		if !errors.As(err, &lost) || lost.Reason != NotRenewed || lost.Name != "x" || !hasText(err, s.servers[1].Addr()+": no renewal") || strings.Contains(err.Error(), s.servers[0].Addr()) {
			t.Errorf("Err: %v", err)
		}
		for _, one := range []int{0, 4} {
			eventually(t, "what is left is given back", func() bool { return s.servers[one].Do("EXISTS", "x") == int64(0) })
		}
		if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
		for _, one := range s.servers[1:4] {
			one.Cont()
		}
		s.clean(v)
	})
}

func TestRedLockRefusesNonsense(t *testing.T) {
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
func TestRedLockOfPrimariesThatTheSameSentinelsWatch(t *testing.T) {
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

// One, and two, are possible; none of them may be missing.
func TestRedLockOfOneAndOfTwo(t *testing.T) {
	t.Parallel()
	s := independent(t, 2)
	v := s.open()
	for n := 1; n <= 2; n++ {
		h := mustRedLock(t, v[:n].lock("x"))
		if got := len(h.Servers()); got != n {
			t.Errorf("held at %d of %d", got, n)
		}
		mustRelease(t, h)
	}
	held := mustLock(t, s.open()[1].Mutex("x"))
	if _, err := v.lock("x").TryLock(ctxT(t)); !errors.Is(err, ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one of two is held: %v", err)
	}
	mustUnlock(t, held)
	s.clean(v)
}

// Many want it, in two processes' worth of engines: all get it, one at a time.
func TestContendersForARedLockMakeProgress(t *testing.T) {
	t.Parallel()
	contend(t, 0, 30)
}

// Now everybody needs all that are left.
func TestContendersForABareMajorityMakeProgress(t *testing.T) {
	t.Parallel()
	contend(t, 2, 15)
}

func contend(t *testing.T, down, rounds int) {
	s := independent(t, 5)
	const processes, each = 4, 3
	inside, sections := 0, 0
	var wg sync.WaitGroup
	var all []voters
	for range processes {
		all = append(all, s.open())
	}
	for _, one := range s.servers[:down] {
		one.Kill()
	}
	start := time.Now()
	for process, v := range all {
		if process%2 == 1 { // the order in which they are given does not matter
			v = slices.Clone(v)
			slices.Reverse(v)
		}
		for range each {
			wg.Go(func() {
				for range rounds {
					h, err := v.lock("x").Lock(ctxT(t))
					if err != nil {
						t.Error(err)
						return
					}
					if inside++; inside != 1 { // the race detector looks, too
						t.Error("two are inside")
					}
					sections++
					stay(s.servers[down])
					inside--
					if err := h.Unlock(ctxT(t)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d sections in %v", sections, time.Since(start))
	if sections != processes*each*rounds {
		t.Errorf("%d sections", sections)
	}
	s.clean(all...)
}
