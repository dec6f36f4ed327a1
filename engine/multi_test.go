package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/faultproxy"
)

func someNames(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("n", i)
	}
	return all
}

func mustLockMany(t testing.TB, e *Engine, names []string, opts ...Option) *MultiHold {
	t.Helper()
	h, err := e.LockMany(ctxT(t), names, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestManyLocksAreOneHold(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := open(t, s.URL()), open(t, s.URL())
	h := mustLockMany(t, a, []string{"x", "y", "x", "z"})
	if got := h.Names(); !slices.Equal(got, []string{"x", "y", "z"}) {
		t.Errorf("names %q", got)
	}
	for _, name := range h.Names() {
		if _, err := b.Mutex(name).TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var refused *NotAcquiredError
	if _, err := b.TryLockMany(ctxT(t), []string{"w", "y"}); !errors.Is(err, ErrHeld) || !errors.As(err, &refused) || refused.Name != "y" {
		t.Errorf("TryLockMany: %v", err)
	}
	if left := time.Until(h.ValidUntil()); h.Err() != nil || left < 20*time.Second {
		t.Errorf("%v, valid for %v", h.Err(), left)
	}
	eventually(t, "what was granted beside the refusal is given back", func() bool { return s.Do("EXISTS", "w") == int64(0) })
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	receive(t, h.Done())
	if err := h.Err(); err != ErrReleased {
		t.Errorf("Err: %v", err)
	}
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("Unlock again: %v", err)
	}
	clean(t, s, a, b)
}

// Two that want the same two locks in opposite orders both get them, again and again.
func TestMultiLocksDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := server(t)
	engines := []*Engine{open(t, s.URL()), open(t, s.URL())}
	const rounds = 300
	inside := 0
	var wg sync.WaitGroup
	for i, e := range engines {
		x, y := e.Mutex("x"), e.Mutex("y")
		l := Multi(x, y)
		if i == 1 {
			l = Multi(y, x)
		}
		wg.Go(func() {
			for range rounds {
				h, err := l.Lock(ctxT(t))
				if err != nil {
					t.Error(err)
					return
				}
				inside++ // the race detector looks
				if err := h.Unlock(ctxT(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if inside != 2*rounds {
		t.Errorf("%d sections", inside)
	}
	clean(t, s, engines...)
}

// Overlapping sets, taken by two engines in random order: nobody waits for ever, two are
// never inside, and nothing stays.
func TestOverlappingSetsExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := server(t)
	engines := []*Engine{open(t, s.URL()), open(t, s.URL())}
	const all, sets, rounds = 40, 20, 60
	var counters [all]int
	var wg sync.WaitGroup
	for i, e := range engines {
		for j := range 2 {
			seed := uint64(100*i + j)
			rng := rand.New(rand.NewPCG(seed, seed))
			wg.Go(func() {
				for range rounds {
					picked := rng.Perm(all)[:sets]
					var l []Mutex
					for _, k := range picked {
						l = append(l, e.Mutex(fmt.Sprint("n", k)))
					}
					ctx := ctxT(t)
					if rng.IntN(4) == 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Microsecond)
						defer cancel()
					}
					h, err := Multi(l...).Lock(ctx)
					if err != nil {
						if ctx.Err() == nil {
							t.Errorf("seed %d: %v", seed, err)
						}
						continue
					}
					for _, k := range picked {
						counters[k]++
					}
					if err := h.Unlock(ctxT(t)); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				}
			})
		}
	}
	wg.Wait()
	clean(t, s, engines...)
}

func TestLossOfOneEndsAMultiHold(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := open(t, s.URL(), leaseOf(2*time.Second)), open(t, s.URL())
	h := mustLockMany(t, a, []string{"x", "y", "z"})
	ctx := h.Context(ctxT(t))
	if ok, err := b.Mutex("y").ForceUnlock(ctxT(t)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	receive(t, h.Done())
	var lost *LostError
	if !errors.As(h.Err(), &lost) || lost.Name != "y" || lost.Reason != GoneOnServer {
		t.Errorf("Err: %v", h.Err())
	}
	if !errors.Is(context.Cause(ctx), ErrLost) {
		t.Errorf("context: %v", context.Cause(ctx))
	}
	if h.ValidUntil().After(time.Now()) {
		t.Error("ValidUntil is in the future")
	}
	if err := h.Unlock(ctxT(t)); !errors.As(err, &lost) || lost.Name != "y" {
		t.Errorf("Unlock: %v", err)
	}
	clean(t, s, a, b)
}

func TestMultiLockReentersThroughContexts(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	outer := mustLockMany(t, e, []string{"x", "y"})
	ctx := outer.Context(ctxT(t))
	inner, err := e.LockMany(ctx, []string{"y", "z"})
	if err != nil {
		t.Fatal(err)
	}
	single := mustReenterWith(t, ctx, e.Mutex("x"))
	if n := fields(t, s, "y")[outer.holds[1].Owner()]; n != "2" {
		t.Errorf("y is held %s times", n)
	}
	mustUnlock(t, single)
	if _, err := e.TryLockMany(Detach(ctx), []string{"x"}); !errors.Is(err, ErrHeld) {
		t.Errorf("after Detach: %v", err)
	}
	if _, err := e.LockMany(ctx, []string{"x"}, NonReentrant()); !errors.Is(err, ErrReentry) {
		t.Errorf("NonReentrant: %v", err)
	}
	if err := inner.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if err := outer.Unlock(ctx); err != nil { // ends with it, and is passed nevertheless
		t.Error(err)
	}
	clean(t, s, e)
}

func mustReenterWith(t testing.TB, ctx context.Context, m Mutex) *Hold {
	t.Helper()
	h, err := m.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestMultiLockOverSeveralEngines(t *testing.T) {
	t.Parallel()
	s1, s2 := server(t), server(t)
	a, b := open(t, s1.URL()), open(t, s2.URL())
	l := Multi(a.Mutex("x"), b.Mutex("x"))
	ran, err := l.TryDo(ctxT(t), func(ctx context.Context, h *MultiHold) error {
		if _, err := a.Mutex("x").TryLock(Detach(ctx)); !errors.Is(err, ErrHeld) {
			t.Errorf("on the first: %v", err)
		}
		if ok, err := l.TryDo(Detach(ctx), nil); ok || err != nil {
			t.Errorf("TryDo inside: %v, %v", ok, err)
		}
		return nil
	})
	if !ran || err != nil {
		t.Fatal(ran, err)
	}
	clean(t, s1, a)
	clean(t, s2, b)
}

func TestWaitBoundsAMultiLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := open(t, s.URL()), open(t, s.URL())
	h := mustLock(t, a.Mutex("y"))
	_, err := b.LockMany(ctxT(t), []string{"x", "y"}, Wait(50*time.Millisecond))
	var refused *NotAcquiredError
	if !errors.As(err, &refused) || refused.Name != "y" || !errors.Is(err, ErrHeld) || !hasText(err, "Wait is over") {
		t.Errorf("%v", err)
	}
	f := b.Many("x", "y").LockAsync(ctxT(t))
	eventually(t, "it waits for y, and has given x back", func() bool {
		return b.Stats().Waiting == 1 && len(fields(t, s, "x")) == 0
	})
	if free, err := a.Mutex("x").TryLock(ctxT(t)); err != nil {
		t.Error(err)
	} else {
		mustUnlock(t, free)
	}
	mustUnlock(t, h)
	if m, err := f.Await(ctxT(t)); err != nil {
		t.Error(err)
	} else if err := m.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	f = b.Many("x", "y").LockAsync(ctxT(t))
	f.Abandon()
	eventually(t, "nothing is left", func() bool { return s.Do("DBSIZE") == int64(0) })
	clean(t, s, a, b)
}

// The error names a lock, whatever is wrong: of many names, the one that cannot be used.
func TestMultiLockErrorsHaveAName(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	ended, cancel := context.WithCancel(ctxT(t))
	cancel()
	var none context.Context
	for what, c := range map[string]struct {
		ctx   context.Context
		names []string
		opts  []Option
		want  string
	}{
		"a bad name":         {ctxT(t), []string{"a", "b\x00", "c"}, nil, "b\x00"},
		"a bad option":       {ctxT(t), []string{"a", "b"}, []Option{Lease(0)}, "a"},
		"MinHold":            {ctxT(t), []string{"a", "b"}, []Option{MinHold(time.Second)}, "a"},
		"an ended context":   {ended, []string{"a", "b"}, nil, "a"},
		"no context":         {none, []string{"a", "b"}, nil, "a"},
		"a context, one bad": {ended, []string{"a", ""}, nil, ""},
	} {
		var refused *NotAcquiredError
		if _, err := e.LockMany(c.ctx, c.names, c.opts...); !errors.As(err, &refused) || refused.Name != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	clean(t, s, e)
}

// One to take and one to release, for all of them.
func TestManyLocksCostTwoCommandsEach(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	const n = 500
	before := s.CommandStats()["evalsha"]
	h := mustLockMany(t, e, someNames(n))
	if got := s.CommandStats()["evalsha"] - before; got != n {
		t.Errorf("%d commands to take %d locks", got, n)
	}
	if err := h.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	if got := s.CommandStats()["evalsha"] - before; got != 2*n {
		t.Errorf("%d commands in all", got)
	}
	clean(t, s, e)
}

// All are asked for before the first has an answer, and all are given back so: a round trip
// each, however many they are.
func TestManyLocksTakeARoundTripEach(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	const n = 500
	allOut := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { return e.Stats().InFlight == n })
		p.Resume()
	}
	p.Pause(faultproxy.All)
	f := e.Many(someNames(n)...).LockAsync(ctxT(t))
	allOut("all are asked for")
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	p.Pause(faultproxy.All)
	released := background(func() error { return h.Unlock(ctxT(t)) })
	allOut("all are given back")
	if err := receive(t, released); err != nil {
		t.Error(err)
	}
	clean(t, s, e)
}

func TestCloseEndsWhatGathers(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := open(t, s.URL()), open(t, s.URL())
	h := mustLock(t, a.Mutex("x3"))
	futures := make([]*Future[*MultiHold], 200)
	for i := range futures {
		futures[i] = b.Many("x1", "x2", "x3").LockAsync(ctxT(t))
	}
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, f := range futures {
		if _, err := f.Await(ctxT(t)); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrHeld) {
			t.Errorf("%v", err)
		}
	}
	mustUnlock(t, h)
	clean(t, s, a)
}
