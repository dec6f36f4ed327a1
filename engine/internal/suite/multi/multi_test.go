package multi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

func TestManyLocksAreOneHold(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	a, b := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	h := testkit.MustLockMany(t, a, []string{"x", "y", "x", "z"})
	var names []string
	for _, part := range h.Parts() {
		names = append(names, part.Name())
	}
	if !slices.Equal(names, []string{"x", "y", "z"}) || h.Name() != "x and 2 more" {
		t.Errorf("%q: names %q", h.Name(), names)
	}
	for _, name := range names {
		if _, err := b.Mutex(name).TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var refused *engine.NotAcquiredError
	if _, err := b.Many([]string{"w", "y"}...).TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) || !errors.As(err, &refused) || refused.Name != "y" {
		t.Errorf("TryLockMany: %v", err)
	}
	if left := time.Until(h.ValidUntil()); h.Err() != nil || left < 20*time.Second {
		t.Errorf("%v, valid for %v", h.Err(), left)
	}
	testkit.Eventually(t, "what was granted beside the refusal is given back", func() bool { return s.Do("EXISTS", "w") == int64(0) })
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	testkit.Receive(t, h.Done())
	if err := h.Err(); err != engine.ErrReleased {
		t.Errorf("Err: %v", err)
	}
	if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotHeld) {
		t.Errorf("Unlock again: %v", err)
	}
	testkit.Clean(t, s, a, b)
}

// Two that want the same two locks in opposite orders both get them, again and again.
func TestMultiLocksDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	engines := []*engine.Engine{testkit.Open(t, s.URL()), testkit.Open(t, s.URL())}
	const rounds = 100
	inside := 0
	var wg sync.WaitGroup
	for i, e := range engines {
		x, y := e.Mutex("x"), e.Mutex("y")
		l := engine.Multi(x, y)
		if i == 1 {
			l = engine.Multi(y, x)
		}
		wg.Go(func() {
			for range rounds {
				h, err := l.Lock(testkit.Ctx(t))
				if err != nil {
					t.Error(err)
					return
				}
				inside++ // the race detector looks
				if err := h.Unlock(testkit.Ctx(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if inside != 2*rounds {
		t.Errorf("%d sections", inside)
	}
	testkit.Clean(t, s, engines...)
}

// Overlapping sets, taken by two engines in random order: nobody waits for ever, two are
// never inside, and nothing stays.
func TestOverlappingSetsExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	engines := []*engine.Engine{testkit.Open(t, s.URL()), testkit.Open(t, s.URL())}
	const all, sets, rounds = 40, 20, 25
	var inside [all]int // the race detector looks, too
	var wg sync.WaitGroup
	for i, e := range engines {
		for j := range 2 {
			seed := uint64(100*i + j)
			rng := rand.New(rand.NewPCG(seed, seed))
			wg.Go(func() {
				for range rounds {
					picked := rng.Perm(all)[:sets]
					var l []engine.Mutex
					for _, k := range picked {
						l = append(l, e.Mutex(fmt.Sprint("n", k)))
					}
					ctx := testkit.Ctx(t)
					if rng.IntN(4) == 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(3000))*time.Microsecond)
						defer cancel()
					}
					h, err := engine.Multi(l...).Lock(ctx)
					if err != nil {
						if ctx.Err() == nil {
							t.Errorf("seed %d: %v", seed, err)
						}
						continue
					}
					for _, k := range picked {
						if inside[k]++; inside[k] != 1 {
							t.Errorf("seed %d: %d are inside n%d", seed, inside[k], k)
						}
					}
					_, _ = s.Process.Do("PING") // gives others the time to come in
					for _, k := range picked {
						inside[k]--
					}
					if err := h.Unlock(testkit.Ctx(t)); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				}
			})
		}
	}
	wg.Wait()
	testkit.Clean(t, s, engines...)
}

func TestLossOfOneEndsAMultiHold(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	a, b := testkit.Open(t, s.URL(), testkit.LeaseOf(2*time.Second)), testkit.Open(t, s.URL())
	h := testkit.MustLockMany(t, a, []string{"x", "y", "z"})
	ctx := h.Context(testkit.Ctx(t))
	if ok, err := b.Mutex("y").ForceUnlock(testkit.Ctx(t)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	testkit.Receive(t, h.Done())
	var lost *engine.LostError
	if !errors.As(h.Err(), &lost) || lost.Name != "y" || lost.Reason != engine.RemovedOnServer {
		t.Errorf("Err: %v", h.Err())
	}
	if !errors.Is(context.Cause(ctx), engine.ErrLost) {
		t.Errorf("context: %v", context.Cause(ctx))
	}
	if h.ValidUntil().After(time.Now()) {
		t.Error("ValidUntil is in the future")
	}
	if err := h.Unlock(testkit.Ctx(t)); !errors.As(err, &lost) || lost.Name != "y" {
		t.Errorf("Unlock: %v", err)
	}
	testkit.Clean(t, s, a, b)
}

func TestMultiLockReentersThroughContexts(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	outer := testkit.MustLockMany(t, e, []string{"x", "y"})
	ctx := outer.Context(testkit.Ctx(t))
	inner, err := e.LockMany(ctx, []string{"y", "z"})
	if err != nil {
		t.Fatal(err)
	}
	single := testkit.MustReenterWith(t, ctx, e.Mutex("x"))
	if n := slices.Collect(maps.Values(testkit.Fields(t, s, "y"))); !slices.Equal(n, []string{"2"}) {
		t.Errorf("y is held %s times", n)
	}
	testkit.MustUnlock(t, single)
	if _, err := e.Many([]string{"x"}...).TryLock(engine.Detach(ctx)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("after Detach: %v", err)
	}
	if _, err := e.LockMany(ctx, []string{"x"}, engine.NonReentrant()); !errors.Is(err, engine.ErrReentry) {
		t.Errorf("NonReentrant: %v", err)
	}
	if err := inner.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if err := outer.Unlock(ctx); err != nil { // ends with it, and is passed anyway
		t.Error(err)
	}
	testkit.Clean(t, s, e)
}

func TestMultiLockOverSeveralEngines(t *testing.T) {
	t.Parallel()
	s1, s2 := testkit.Server(t), testkit.Server(t)
	a, b := testkit.Open(t, s1.URL()), testkit.Open(t, s2.URL())
	l := engine.Multi(a.Mutex("x"), b.Mutex("x"))
	ran, err := l.TryDo(testkit.Ctx(t), func(ctx context.Context, h *engine.Hold) error {
		if _, err := a.Mutex("x").TryLock(engine.Detach(ctx)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("on the first: %v", err)
		}
		if ok, err := l.TryDo(engine.Detach(ctx), nil); ok || err != nil {
			t.Errorf("TryDo inside: %v, %v", ok, err)
		}
		return nil
	})
	if !ran || err != nil {
		t.Fatal(ran, err)
	}
	testkit.Clean(t, s1, a)
	testkit.Clean(t, s2, b)
}

func TestWaitBoundsAMultiLock(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	a, b := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	h := testkit.MustLock(t, a.Mutex("y"))
	_, err := b.LockMany(testkit.Ctx(t), []string{"x", "y"}, engine.Wait(2*time.Second))
	var refused *engine.NotAcquiredError
	if !errors.As(err, &refused) || refused.Name != "y" || !errors.Is(err, engine.ErrHeld) || !testkit.HasText(err, "Wait is over") {
		t.Errorf("%v", err)
	}
	f := b.Many("x", "y").LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it waits for y, and has given x back", func() bool {
		return b.Stats().Waiting == 1 && len(testkit.Fields(t, s, "x")) == 0
	})
	if free, err := a.Mutex("x").TryLock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	} else {
		testkit.MustUnlock(t, free)
	}
	testkit.MustUnlock(t, h)
	if m, err := f.Await(testkit.Ctx(t)); err != nil {
		t.Error(err)
	} else if err := m.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	f = b.Many("x", "y").LockAsync(testkit.Ctx(t))
	f.Abandon()
	testkit.Eventually(t, "nothing is left", func() bool { return s.Do("DBSIZE") == int64(0) })
	testkit.Clean(t, s, a, b)
}

// The error names a lock, whatever is wrong: of many names, the one that cannot be used.
func TestMultiLockErrorsHaveAName(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	ended, cancel := context.WithCancel(testkit.Ctx(t))
	cancel()
	var none context.Context
	for what, c := range map[string]struct {
		ctx   context.Context
		names []string
		opts  []engine.Option
		want  string
	}{
		"a bad name":         {testkit.Ctx(t), []string{"a", "b\x00", "c"}, nil, "b\x00"},
		"a bad option":       {testkit.Ctx(t), []string{"a", "b"}, []engine.Option{engine.Lease(0)}, "a"},
		"MinHold":            {testkit.Ctx(t), []string{"a", "b"}, []engine.Option{engine.MinHold(time.Second)}, "a"},
		"an ended context":   {ended, []string{"a", "b"}, nil, "a"},
		"no context":         {none, []string{"a", "b"}, nil, "a"},
		"a context, one bad": {ended, []string{"a", ""}, nil, ""},
	} {
		var refused *engine.NotAcquiredError
		if _, err := e.LockMany(c.ctx, c.names, c.opts...); !errors.As(err, &refused) || refused.Name != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	testkit.Clean(t, s, e)
}

// One to take and one to release, for all of them.
func TestManyLocksCostTwoCommandsEach(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	const n = 500
	before := s.CommandStats()["evalsha"]
	h := testkit.MustLockMany(t, e, testkit.Names(n))
	if got := s.CommandStats()["evalsha"] - before; got != n {
		t.Errorf("%d commands to take %d locks", got, n)
	}
	if err := h.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	if got := s.CommandStats()["evalsha"] - before; got != 2*n {
		t.Errorf("%d commands in all", got)
	}
	testkit.Clean(t, s, e)
}

// All are asked for before the first has an answer, and all are given back so: a round trip
// each, however many they are.
func TestManyLocksTakeARoundTripEach(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	const n = 500
	allOut := func(what string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return e.Stats().InFlight == n })
		p.Resume()
	}
	p.Pause(faultproxy.All)
	f := e.Many(testkit.Names(n)...).LockAsync(testkit.Ctx(t))
	allOut("all are asked for")
	h, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	p.Pause(faultproxy.All)
	released := testkit.Background(func() error { return h.Unlock(testkit.Ctx(t)) })
	allOut("all are given back")
	if err := testkit.Receive(t, released); err != nil {
		t.Error(err)
	}
	testkit.Clean(t, s, e)
}

func TestCloseEndsWhatGathers(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	a, b := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	h := testkit.MustLock(t, a.Mutex("x3"))
	futures := make([]*engine.Future[*engine.Hold], 200)
	for i := range futures {
		futures[i] = b.Many("x1", "x2", "x3").LockAsync(testkit.Ctx(t))
	}
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, f := range futures {
		if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, engine.ErrClosed) && !errors.Is(err, engine.ErrHeld) {
			t.Errorf("%v", err)
		}
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s, a)
}
