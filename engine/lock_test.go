package engine_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

// After Do one can tell whether the function has run, whatever the function returns.
func TestDo_Fails_SaysWhetherTheFunctionHasRun(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	testkit.MustLock(t, other.Mutex("taken"))
	a, b, taken := e.Mutex("a"), e.Mutex("b"), e.Mutex("taken")
	never := func(context.Context, *engine.Hold) error { t.Error("it ran without the lock"); return nil }
	var none context.Context
	brief := engine.Wait(2 * time.Second) // long enough for an answer
	under := func(m engine.Mutex, fn func(context.Context) error) func(context.Context, *engine.Hold) error {
		return func(ctx context.Context, _ *engine.Hold) error {
			return m.Do(ctx, func(ctx context.Context, _ *engine.Hold) error { return fn(ctx) })
		}
	}
	for what, c := range map[string]struct {
		err    error
		notRun bool
		held   bool
	}{
		"not acquired":     {taken.Do(testkit.Ctx(t), never, brief), true, true},
		"invalid":          {e.Mutex("").Do(testkit.Ctx(t), never), true, false},
		"a zero Mutex":     {engine.Mutex{}.Do(testkit.Ctx(t), never), true, false},
		"no context":       {a.Do(none, never), true, false},
		"ran well":         {a.Do(testkit.Ctx(t), func(context.Context, *engine.Hold) error { return nil }), false, false},
		"ran with another": {a.Do(testkit.Ctx(t), func(ctx context.Context, _ *engine.Hold) error { return taken.Do(ctx, never, brief) }), false, true},
		"ran with others": {a.Do(testkit.Ctx(t), under(b, func(ctx context.Context) error {
			return errors.Join(errors.New("half of it is done"), taken.Do(ctx, never, brief))
		})), false, true},
		"ran with a lock by hand": {a.Do(testkit.Ctx(t), func(ctx context.Context, _ *engine.Hold) error { return testkit.ErrOf(taken.TryLock(ctx)) }), false, true},
		"ran, and was lost": {a.Do(testkit.Ctx(t), func(ctx context.Context, h *engine.Hold) error {
			s.Do("DEL", "a")
			return taken.Do(ctx, never, brief)
		}), false, true},
	} {
		if errors.Is(c.err, engine.ErrNotRun) != c.notRun || errors.Is(c.err, engine.ErrHeld) != c.held {
			t.Errorf("%s: not run %t, held %t: %v", what, errors.Is(c.err, engine.ErrNotRun), errors.Is(c.err, engine.ErrHeld), c.err)
		}
		if c.err != nil && strings.Contains(c.err.Error(), "\n") && what != "ran with others" {
			t.Errorf("%s: several lines: %q", what, c.err)
		}
		var e *engine.NotAcquiredError
		if errors.As(c.err, &e) != (c.notRun || c.held) || c.held && e.Name != "taken" {
			t.Errorf("%s: %+v", what, e)
		}
	}
}

func TestDo_Granted_RunsUnderTheLockAndReturnsTheFunctionsError(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	why := errors.New("the job failed")
	err := m.Do(testkit.Ctx(t), func(ctx context.Context, h *engine.Hold) error {
		if f := testkit.Fields(t, s, "x"); f[h.Owner()] != "1" {
			t.Errorf("hash is %v", f)
		}
		if ctx.Err() != nil {
			t.Error("the context has ended")
		}
		return why
	})
	if err != why {
		t.Errorf("Do: %v, want the function's error as it is", err)
	}
	testkit.Clean(t, s)
}

func TestDo_FunctionPanicsOrExits_Releases(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	ended := make(chan any, 1)
	for what, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		go func() {
			defer func() { ended <- recover() }()
			_ = m.Do(context.Background(), func(context.Context, *engine.Hold) error { end(); return nil })
			t.Error("Do returned")
		}()
		if p := testkit.Receive(t, ended); (p == "boom") != (what == "panic") {
			t.Errorf("%s came out as %v", what, p)
		}
		if f := testkit.Fields(t, s, "x"); len(f) != 0 {
			t.Errorf("after %s the lock is held: %v", what, f)
		}
	}
	testkit.Clean(t, s)
}

func TestDo_LockLost_SaysSo(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		m := testkit.Open(t, s.URL()).Mutex("x")
		why := errors.New("the job failed too")
		for _, result := range []error{nil, why} {
			err := m.Do(testkit.Ctx(t), func(ctx context.Context, _ *engine.Hold) error {
				testkit.Receive(t, ctx.Done())
				testkit.WantLost(t, "cause", context.Cause(ctx), engine.LeaseEnded)
				return result
			}, engine.Lease(150*time.Millisecond))
			testkit.WantLost(t, "Do", err, engine.LeaseEnded)
			if result != nil && !errors.Is(err, why) {
				t.Errorf("the function's error is lost: %v", err)
			}
		}
		err := m.Do(testkit.Ctx(t), func(ctx context.Context, _ *engine.Hold) error {
			<-ctx.Done()
			return fmt.Errorf("the job stopped: %w", context.Cause(ctx))
		}, engine.Lease(150*time.Millisecond))
		testkit.WantLost(t, "Do of a function that says why it stopped", err, engine.LeaseEnded)
		if strings.Count(err.Error(), "was lost") != 1 {
			t.Errorf("it stutters: %v", err)
		}
		err = m.Do(testkit.Ctx(t), func(context.Context, *engine.Hold) error { s.Do("DEL", "x"); return nil })
		testkit.WantLost(t, "Do of a deleted lock", err, engine.RemovedOnServer)
		testkit.Clean(t, s)
	})
}

func TestDo_FunctionUnlocks_IsNoError(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	if err := m.Do(testkit.Ctx(t), func(ctx context.Context, h *engine.Hold) error { return h.Unlock(ctx) }); err != nil {
		t.Error(err)
	}
	// A context that was made from the hold's own, and of a re-entry.
	if err := m.Do(testkit.Ctx(t), func(ctx context.Context, h *engine.Hold) error {
		child, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		inner, cancel := cputime.WithTimeout(child.Context(ctx), testkit.Limit)
		defer cancel()
		return h.Unlock(inner)
	}); err != nil {
		t.Error(err)
	}
	if err := m.Do(testkit.Ctx(t), func(_ context.Context, h *engine.Hold) error { h.UnlockAsync(); return nil }); err != nil {
		t.Error(err)
	}
	testkit.Clean(t, s)
}

// The release does not depend on the context of the call.
func TestDo_ContextEnded_Releases(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	ctx, cancel := context.WithCancel(context.Background())
	if err := m.Do(ctx, func(context.Context, *engine.Hold) error { cancel(); return nil }); err != nil {
		t.Error(err)
	}
	testkit.Clean(t, s)
}

func TestTryDo_AmongMany_RunsOnce(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	a, b := testkit.Open(t, s.URL()).Mutex("job"), testkit.Open(t, s.URL()).Mutex("job")
	ran, err := a.TryDo(testkit.Ctx(t), func(context.Context, *engine.Hold) error {
		ran, err := b.TryDo(testkit.Ctx(t), func(context.Context, *engine.Hold) error { t.Error("ran twice"); return nil })
		if ran || err != nil {
			t.Errorf("the second: %v, %v", ran, err)
		}
		return nil
	})
	if !ran || err != nil {
		t.Errorf("the first: %v, %v", ran, err)
	}
	why := errors.New("the job failed")
	if ran, err := b.TryDo(testkit.Ctx(t), func(context.Context, *engine.Hold) error { return why }); !ran || !errors.Is(err, why) {
		t.Errorf("the next: %v, %v", ran, err)
	}
	testkit.Clean(t, s)
}

// A part tells of its lock, and only the whole ends it.
func TestHold_Parts_AreOneLockEach(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	whole, err := engine.Multi(e.FencedMutex("a"), e.FencedMutex("b")).Lock(testkit.Ctx(t), engine.Lease(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	parts := whole.Parts()
	if len(parts) != 2 || parts[0].Name() != "a" || parts[1].Name() != "b" {
		t.Fatalf("parts %v", parts)
	}
	if whole.Name() != "a and 1 more" || whole.Owner() != "" || whole.Token() != 0 || whole.PermitIDs() != nil {
		t.Errorf("the whole: %q of %q, token %d, permits %v", whole.Name(), whole.Owner(), whole.Token(), whole.PermitIDs())
	}
	if !slices.Equal(whole.Servers(), []string{s.Addr()}) {
		t.Errorf("servers %v", whole.Servers())
	}
	for _, p := range parts {
		if p.Token() != 1 || !strings.HasPrefix(p.Owner(), e.ID()) || p.Err() != nil || p.Parts() != nil {
			t.Errorf("%v: token %d, owner %q, %v, parts %v", p, p.Token(), p.Owner(), p.Err(), p.Parts())
		}
		for what, err := range map[string]error{
			"Unlock":      p.Unlock(testkit.Ctx(t)),
			"UnlockAsync": testkit.ErrOf(p.UnlockAsync().Await(testkit.Ctx(t))),
			"Extend":      p.Extend(testkit.Ctx(t), time.Hour),
		} {
			if !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), `"a", "b"`) {
				t.Errorf("%s of a part: %v", what, err)
			}
		}
		if left := time.Until(p.ValidUntil()); left > time.Minute || left < 30*time.Second {
			t.Errorf("%v is valid for %v", p, left)
		}
		if again, err := e.FencedMutex(p.Name()).Lock(p.Context(testkit.Ctx(t))); err != nil || again.Token() != 1 {
			t.Errorf("under the context of a part: %v, %v", again, err)
		}
	}
	testkit.MustUnlock(t, whole)
	for _, p := range parts {
		if p.Err() != engine.ErrReleased {
			t.Errorf("%v after the Unlock of the whole: %v", p, p.Err())
		}
	}
	s.Do("DEL", "redisson_lock_token:{a}", "redisson_lock_token:{b}")
	testkit.Clean(t, s)
}

// Each re-entry of a hold of a FencedMutex has its token, through whatever Mutex, and a FencedMutex
// never returns a hold without one.
func TestHold_Token_IsThatOfTheFencedGrant(t *testing.T) {
	t.Parallel()
	e := testkit.Open(t, testkit.Server(t).URL())
	fenced := testkit.MustLock(t, e.FencedMutex("x"))
	plain, err := e.Mutex("x").Lock(fenced.Context(testkit.Ctx(t)))
	if err != nil || plain.Token() != fenced.Token() || fenced.Token() != 1 {
		t.Fatalf("%v, %v", plain, err)
	}
	again, err := e.FencedMutex("x").Lock(plain.Context(testkit.Ctx(t)))
	if err != nil || again.Token() != 1 {
		t.Errorf("a FencedMutex under a Mutex under a FencedMutex: %v, %v", again, err)
	}
	testkit.MustUnlock(t, again)
	testkit.MustUnlock(t, plain)
	testkit.MustUnlock(t, fenced)
	bare := testkit.MustLock(t, e.Mutex("x"))
	if bare.Token() != 0 {
		t.Errorf("a Mutex has the token %d", bare.Token())
	}
	if _, err := e.FencedMutex("x").Lock(bare.Context(testkit.Ctx(t))); !errors.Is(err, engine.ErrKindConflict) {
		t.Errorf("under a hold without a token: %v", err)
	}
	testkit.MustUnlock(t, bare)
}

// A MultiLock that is dropped is reported once, also if one of its locks was lost before.
func TestHold_ManyDroppedAfterALoss_IsReportedOnce(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL(), testkit.LeaseOf(2*time.Second))
	func() {
		h := testkit.MustLockMany(t, e, []string{"a", "b"})
		s.Do("DEL", "a")
		testkit.Receive(t, h.Done())
	}()
	testkit.Eventually(t, "it is noticed", func() bool { runtime.GC(); return e.Stats().Leaked == 1 })
}

// Whoever is refused is told by whom, at no cost: the answer that refuses says it.
func TestTryLock_HeldElsewhere_SaysWhoHoldsIt(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		holder, e := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
		for name, of := range map[string]func(e *engine.Engine) engine.Mutex{
			"mutex":  func(e *engine.Engine) engine.Mutex { return e.Mutex("mutex") },
			"spin":   func(e *engine.Engine) engine.Mutex { return e.SpinMutex("spin") },
			"fenced": func(e *engine.Engine) engine.Mutex { return e.FencedMutex("fenced") },
		} {
			h := testkit.MustLock(t, of(holder), engine.Lease(time.Minute))
			m := of(e)
			before := s.CommandStats()["evalsha"]
			is(t, name+", TryLock", testkit.ErrOf(m.TryLock(testkit.Ctx(t))), h.Owner())
			if n := s.CommandStats()["evalsha"] - before; n != 1 {
				t.Errorf("%s: a refused TryLock sent %d commands", name, n)
			}
			is(t, name+", TryLockAsync", testkit.ErrOf(m.TryLockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t))), h.Owner())
			is(t, name+", Lock", testkit.ErrOf(m.Lock(testkit.Ctx(t), engine.Wait(50*time.Millisecond))), h.Owner())
			// One that never tries itself knows it from the first.
			head := m.LockAsync(testkit.Ctx(t))
			testkit.Eventually(t, "the first waits", func() bool { return e.Stats().Waiting == 1 && e.Stats().InFlight == 0 })
			is(t, name+", behind a waiter", testkit.ErrOf(m.Lock(testkit.Ctx(t), engine.Wait(50*time.Millisecond))), h.Owner())
			head.Abandon()
			is(t, name+", in its own process", testkit.ErrOf(of(holder).TryLock(testkit.Ctx(t))), h.Owner())
			is(t, name+", waiting in its own process", testkit.ErrOf(of(holder).Lock(testkit.Ctx(t), engine.Wait(50*time.Millisecond))), h.Owner())
			if name == "mutex" {
				is(t, "LockMany", testkit.ErrOf(engine.Multi(e.Mutex("free"), m).TryLock(testkit.Ctx(t))), h.Owner())
			}
			testkit.MustUnlock(t, h)
			// The next holder is another.
			h = testkit.MustLock(t, of(holder), engine.Lease(time.Minute))
			is(t, name+", TryLock again", testkit.ErrOf(m.TryLock(testkit.Ctx(t))), h.Owner())
			testkit.MustUnlock(t, h)
		}
	})
}

// A holder that is not known is not named.
func TestTryLock_ManyHolders_NamesNobody(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	holder, e := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	testkit.MustLock(t, holder.RWMutex("rw").Reader(), engine.Lease(time.Minute))
	is(t, "a writer behind a reader", testkit.ErrOf(e.RWMutex("rw").Writer().TryLock(testkit.Ctx(t))), "")
	w := testkit.MustLock(t, e.RWMutex("own").Writer(), engine.Lease(time.Minute))
	is(t, "a reader behind a writer of its process", testkit.ErrOf(e.RWMutex("own").Reader().TryLock(testkit.Ctx(t))), w.Owner())
	is(t, "a name that is invalid", testkit.ErrOf(e.Mutex("").TryLock(testkit.Ctx(t))), "")
}

// is checks whom an error names.
func is(t testing.TB, way string, err error, holder string) {
	t.Helper()
	var refused *engine.NotAcquiredError
	if !errors.As(err, &refused) || refused.Holder != holder {
		t.Errorf("%s: %v names %q, want %q", way, err, refused.Holder, holder)
	}
}

func TestMutex_LockUnlock_LeavesTheServerClean(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.Mutex("orders:42")
	for range 3 {
		h := testkit.MustLock(t, m)
		if f := testkit.Fields(t, s, "orders:42"); f[h.Owner()] != "1" || len(f) != 1 {
			t.Fatalf("hash is %v, want {%s:1}", f, h.Owner())
		}
		if ttl := s.Do("PTTL", "orders:42").(int64); ttl < 25000 || ttl > 30000 {
			t.Fatalf("PTTL is %d", ttl)
		}
		testkit.MustUnlock(t, h)
		if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotHeld) {
			t.Fatalf("second Unlock: %v", err)
		}
	}
	testkit.Clean(t, s)
}

func TestMutex_Release_WakesTheWaiter(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	a, b := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	h := testkit.MustLock(t, a.Mutex("x"))
	f := b.Mutex("x").LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "b subscribes", func() bool {
		list, _ := s.Do("PUBSUB", "CHANNELS").([]any)
		return len(list) == 1 && list[0] == "redisson_lock__channel:{x}"
	})
	if _, err := f.Result(); err != engine.ErrPending {
		t.Fatalf("b is not waiting: %v", err)
	}
	start := cputime.Now()
	testkit.MustUnlock(t, h)
	h2, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := start.Elapsed(); d > 2*time.Second {
		t.Errorf("woken after %v", d)
	}
	testkit.MustUnlock(t, h2)
	testkit.Clean(t, s)
}

func TestMutex_ManyGoroutines_ExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	engines := []*engine.Engine{testkit.Open(t, s.URL()), testkit.Open(t, s.URL()), testkit.Open(t, s.URL())}
	var inside, total int
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			for range 20 {
				h, err := engines[i%3].Mutex("hot").Lock(testkit.Ctx(t))
				if err != nil {
					t.Error(err)
					return
				}
				if inside++; inside != 1 {
					t.Errorf("%d inside", inside)
				}
				total++
				testkit.Stay(s)
				inside--
				if err := h.Unlock(testkit.Ctx(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if total != 600 {
		t.Errorf("total %d", total)
	}
	testkit.Clean(t, s)
}

const (
	secret      = "hunter2hunter2"
	guardSecret = "guard3guard3"
)

// pprof.Handler serves Stats as JSON. Its readers have no list of numbers at hand.
func TestLostReason_JSON_IsText(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		`{"no renewal was acknowledged in time":3,"the engine was closed":1}`: engine.Stats{Lost: map[engine.LostReason]uint64{engine.NotRenewed: 3, engine.EngineClosed: 1}}.Lost,
		`["its lease ended",""]`: []engine.LostReason{engine.LeaseEnded, 0},
	} {
		text, err := json.Marshal(v)
		if err != nil || string(text) != want {
			t.Errorf("%s, %v\nwant %s", text, err, want)
		}
	}
}

func TestPrint_Text_SaysWhatItIs(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.Mutex("orders:42")
	h := testkit.MustLock(t, m)
	granted := m.LockAsync(h.Context(testkit.Ctx(t)))
	if _, err := granted.Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{Addrs: []string{"h:1"}, Password: secret, DB: 2, Lease: 20 * time.Second, Replicas: engine.MajorityOfReplicas, TLS: new(tls.Config)}
	for want, v := range map[string]any{
		"Engine(" + e.ID() + " at standalone " + s.Addr() + ")": e,
		`Mutex("orders:42")`:                     m,
		`SpinMutex("orders:42")`:                 e.SpinMutex("orders:42"),
		`Hold("orders:42" of ` + h.Owner() + `)`: h,
		`FairMutex("orders:42")`:                 e.FairMutex("orders:42"),
		`Reader("orders:42")`:                    e.RWMutex("orders:42").Reader(),
		`[Backoff(1ms, 64ms)]`:                   []engine.Option{engine.Backoff(time.Millisecond, 64*time.Millisecond)},
		`[Lease(10s) Acked(all) NonReentrant()]`: []engine.Option{engine.Lease(10 * time.Second), engine.Acked(engine.AllReplicas), engine.NonReentrant()},
		`Config{Addrs:[h:1] Password:*** DB:2 TLS:set Lease:20s Replicas:majority}`: cfg,
	} {
		if got := fmt.Sprint(v); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
