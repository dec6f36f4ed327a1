package loss

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestHold_KeyDeleted_IsLostAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), testkit.ShortLease(time.Second))
		h := testkit.MustLock(t, e.Mutex("x"))
		s.Do("DEL", "x")
		deleted := cputime.Now()
		testkit.Receive(t, h.Done())
		testkit.WantLost(t, "Err", h.Err(), engine.RemovedOnServer)
		if d := deleted.Elapsed(); d > 2*time.Second {
			t.Errorf("noticed after %v", d)
		}
		testkit.WantLost(t, "Unlock", h.Unlock(testkit.Ctx(t)), engine.RemovedOnServer)
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
		testkit.Clean(t, s)
	})
}

func TestHold_KeyOverwritten_IsLostAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), testkit.ShortLease(time.Second))
		h := testkit.MustLock(t, e.Mutex("x"))
		s.Do("SET", "x", "somebody else's")
		testkit.Receive(t, h.Done())
		testkit.WantLost(t, "Err", h.Err(), engine.KeyOverwritten)
		if v := s.Do("GET", "x"); v != "somebody else's" {
			t.Errorf("the key is %v now", v)
		}
	})
}

func TestUnlock_LockLost_NoticesIt(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	gone, taken, child := testkit.MustLock(t, e.Mutex("g")), testkit.MustLock(t, e.Mutex("t")), testkit.MustLock(t, e.Mutex("c"))
	inner := testkit.MustReenter(t, e.Mutex("c"), child)
	s.Do("DEL", "g", "c")
	s.Do("SET", "t", "1")
	testkit.WantLost(t, "deleted", gone.Unlock(testkit.Ctx(t)), engine.RemovedOnServer)
	testkit.WantLost(t, "deleted, again", gone.Unlock(testkit.Ctx(t)), engine.RemovedOnServer)
	testkit.WantLost(t, "overwritten", taken.Unlock(testkit.Ctx(t)), engine.KeyOverwritten)
	testkit.WantLost(t, "re-entry", inner.Unlock(testkit.Ctx(t)), engine.RemovedOnServer)
	testkit.WantLost(t, "its parent", child.Err(), engine.RemovedOnServer)
	if n := e.Stats().Lost[engine.RemovedOnServer]; n < 2 {
		t.Errorf("%d were counted as gone", n)
	}
}

func TestForceUnlock_Held_ReleasesAndReportsIt(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	a, b := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	m := b.Mutex("x")
	if was, err := m.ForceUnlock(testkit.Ctx(t)); was || err != nil {
		t.Errorf("of a free lock: %v, %v", was, err)
	}
	h := testkit.MustLock(t, a.Mutex("x"))
	st, err := m.State(testkit.Ctx(t))
	if err != nil || !st.Locked || st.Mine || st.Mode != "exclusive" || len(st.Holders) != 1 ||
		st.Holders[0] != (engine.Holder{ID: h.Owner(), Count: 1}) || st.TTL <= 0 || st.TTL > 30*time.Second {
		t.Fatalf("State: %+v, %v", st, err)
	}
	if st, err := a.Mutex("x").State(testkit.Ctx(t)); err != nil || !st.Mine {
		t.Errorf("the holder's State: %+v, %v", st, err)
	}
	if was, err := m.ForceUnlock(testkit.Ctx(t), engine.IfHolder("somebody:1")); was || err != nil {
		t.Errorf("of another holder: %v, %v", was, err)
	}
	if err := h.Err(); err != nil || len(testkit.Fields(t, s, "x")) != 1 {
		t.Fatalf("the lock was taken away although it should not be: %v", err)
	}
	waiting := m.LockAsync(testkit.Ctx(t))
	if was, err := m.ForceUnlock(testkit.Ctx(t), engine.IfHolder(st.Holders[0].ID)); !was || err != nil {
		t.Errorf("of that holder: %v, %v", was, err)
	}
	h2, err := waiting.Await(testkit.Within(t, 5*time.Second)) // woken by the message
	if err != nil {
		t.Fatalf("the waiter was not woken: %v", err)
	}
	// The old holder cannot release the new one's lock.
	testkit.WantLost(t, "Unlock of the forced", h.Unlock(testkit.Ctx(t)), engine.RemovedOnServer)
	if f := testkit.Fields(t, s, "x"); f[h2.Owner()] != "1" {
		t.Errorf("hash is %v", f)
	}
	testkit.MustUnlock(t, h2)
	if st, err := m.State(testkit.Ctx(t)); err != nil || st.Locked || st.TTL != 0 || st.Mode != "" || len(st.Holders) != 0 {
		t.Errorf("State of a free lock: %+v, %v", st, err)
	}
	testkit.Clean(t, s)
}

// A script that looked for a holder and found none has an empty id to give.
func TestForceUnlock_EmptyIfHolder_IsInvalid(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	m := testkit.Open(t, s.URL()).Mutex("x")
	h := testkit.MustLock(t, m)
	for _, opts := range [][]engine.ForceOption{{engine.IfHolder("")}, {engine.IfHolder(""), engine.IfHolder(h.Owner())}} {
		if was, err := m.ForceUnlock(testkit.Ctx(t), opts...); was || !errors.Is(err, engine.ErrInvalid) || !testkit.HasText(err, "IfHolder") {
			t.Errorf("%v: %v, %v", opts, was, err)
		}
	}
	if f := testkit.Fields(t, s, "x"); f[h.Owner()] != "1" {
		t.Errorf("hash is %v", f)
	}
	testkit.MustUnlock(t, h)
}

func TestHold_Dropped_IsCountedAndKept(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), testkit.ShortLease(time.Second))
		kept := testkit.MustLock(t, e.Mutex("kept"))
		func() { testkit.MustLock(t, e.Mutex("dropped")) }()
		func() { _, _ = e.Mutex("dropped too").LockAsync(testkit.Ctx(t)).Await(testkit.Ctx(t)) }()
		func() { testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("unlocked"))) }()
		testkit.Eventually(t, "two are counted", func() bool {
			runtime.GC()
			return e.Stats().Leaked >= 2
		})
		<-time.After(time.Second)
		runtime.GC()
		if n := e.Stats().Leaked; n != 2 {
			t.Errorf("%d leaked, want 2", n)
		}
		if n := s.Do("EXISTS", "dropped", "dropped too", "kept"); n != int64(3) {
			t.Errorf("%v of 3 locks are still held", n)
		}
		if err := kept.Err(); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if !errors.Is(kept.Err(), engine.ErrLost) {
			t.Errorf("after Close: %v", kept.Err())
		}
		testkit.Clean(t, s)
	})
}

// A hold that was lost, or ended by Close, is not waited for by the garbage collector any more: its
// owner may be known to a hook, so that the engine, by what was to be called, kept it for good.
func TestEngine_ClosedWithAnObserverThatKnowsItsHolds_IsGarbage(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	engines := func() (all []weak.Pointer[engine.Engine]) {
		type app struct {
			hold   *engine.Hold
			quorum *engine.Hold
		}
		a := new(app)
		var v testkit.Voters
		for _, one := range s.Servers {
			c, err := engine.ParseURL(one.URL())
			if err != nil {
				t.Fatal(err)
			}
			testkit.ShortLease(time.Second)(&c)
			c.Observer = engine.ObserverFuncs{OnHoldEnd: func(context.Context, engine.Acquisition, engine.HoldEnd) { runtime.KeepAlive(a) }}
			e, err := engine.New(testkit.Ctx(t), c) // not open: that remembers it until the test ends
			if err != nil {
				t.Fatal(err)
			}
			v = append(v, e)
		}
		a.hold = testkit.MustLock(t, v[0].Mutex("x"))
		a.quorum = testkit.MustRedLock(t, v.Lock("y"))
		testkit.Eventually(t, "they are renewed", func() bool {
			return v[0].Stats().Renewed >= 2 && v[1].Stats().Renewed >= 1 && v[2].Stats().Renewed >= 1
		})
		for _, e := range v {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			all = append(all, weak.Make(e))
		}
		return all
	}()
	testkit.Eventually(t, "no engine is left", func() bool {
		runtime.GC()
		return !slices.ContainsFunc(engines, func(e weak.Pointer[engine.Engine]) bool { return e.Value() != nil })
	})
}

// A caller that has given up before the call takes nobody's lock away.
func TestForceUnlock_ContextEnded_SendsNothing(t *testing.T) {
	t.Parallel()
	e := testkit.Open(t, testkit.Server(t).URL())
	m := e.Mutex("x")
	h := testkit.MustLock(t, m)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	was, err := m.ForceUnlock(ctx)
	if was || !errors.Is(err, context.Canceled) || !errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrOutcomeUnknown) {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	testkit.MustUnlock(t, h) // on the same connection
}
