package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestDeletedLockIsLostAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e := open(t, s.URL(), shortLease(time.Second))
		h := mustLock(t, e.Mutex("x"))
		s.Do("DEL", "x")
		deleted := cputime.Now()
		receive(t, h.Done())
		wantLost(t, "Err", h.Err(), GoneOnServer)
		if d := deleted.Elapsed(); d > 2*time.Second {
			t.Errorf("noticed after %v", d)
		}
		wantLost(t, "Unlock", h.Unlock(ctxT(t)), GoneOnServer)
		mustUnlock(t, mustLock(t, e.Mutex("x")))
		clean(t, s)
	})
}

func TestOverwrittenLockIsLostAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e := open(t, s.URL(), shortLease(time.Second))
		h := mustLock(t, e.Mutex("x"))
		s.Do("SET", "x", "somebody else's")
		receive(t, h.Done())
		wantLost(t, "Err", h.Err(), TakenOnServer)
		if v := s.Do("GET", "x"); v != "somebody else's" {
			t.Errorf("the key is %v now", v)
		}
	})
}

func TestUnlockNoticesThatTheLockWasLost(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	gone, taken, child := mustLock(t, e.Mutex("g")), mustLock(t, e.Mutex("t")), mustLock(t, e.Mutex("c"))
	inner := mustReenter(t, e.Mutex("c"), child)
	s.Do("DEL", "g", "c")
	s.Do("SET", "t", "1")
	wantLost(t, "deleted", gone.Unlock(ctxT(t)), GoneOnServer)
	wantLost(t, "deleted, again", gone.Unlock(ctxT(t)), GoneOnServer)
	wantLost(t, "overwritten", taken.Unlock(ctxT(t)), TakenOnServer)
	wantLost(t, "re-entry", inner.Unlock(ctxT(t)), GoneOnServer)
	wantLost(t, "its parent", child.Err(), GoneOnServer)
	if n := e.Stats().Lost[GoneOnServer]; n < 2 {
		t.Errorf("%d were counted as gone", n)
	}
}

func TestForceUnlock(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := open(t, s.URL()), open(t, s.URL())
	m := b.Mutex("x")
	if was, err := m.ForceUnlock(ctxT(t)); was || err != nil {
		t.Errorf("of a free lock: %v, %v", was, err)
	}
	h := mustLock(t, a.Mutex("x"))
	st, err := m.State(ctxT(t))
	if err != nil || !st.Locked || st.Mine || st.Mode != "exclusive" || len(st.Holders) != 1 ||
		st.Holders[0] != (Holder{h.Owner(), 1}) || st.TTL <= 0 || st.TTL > 30*time.Second {
		t.Fatalf("State: %+v, %v", st, err)
	}
	if st, err := a.Mutex("x").State(ctxT(t)); err != nil || !st.Mine {
		t.Errorf("the holder's State: %+v, %v", st, err)
	}
	if was, err := m.ForceUnlock(ctxT(t), IfHolder("somebody:1")); was || err != nil {
		t.Errorf("of another holder: %v, %v", was, err)
	}
	if err := h.Err(); err != nil || len(fields(t, s, "x")) != 1 {
		t.Fatalf("the lock was taken away although it should not be: %v", err)
	}
	waiting := m.LockAsync(ctxT(t))
	if was, err := m.ForceUnlock(ctxT(t), IfHolder(st.Holders[0].ID)); !was || err != nil {
		t.Errorf("of that holder: %v, %v", was, err)
	}
	h2, err := waiting.Await(within(t, 5*time.Second)) // woken by the message
	if err != nil {
		t.Fatalf("the waiter was not woken: %v", err)
	}
	// The old holder cannot release the new one's lock.
	wantLost(t, "Unlock of the forced", h.Unlock(ctxT(t)), GoneOnServer)
	if f := fields(t, s, "x"); f[h2.Owner()] != "1" {
		t.Errorf("hash is %v", f)
	}
	mustUnlock(t, h2)
	if st, err := m.State(ctxT(t)); err != nil || st.Locked || st.TTL != 0 || st.Mode != "" || len(st.Holders) != 0 {
		t.Errorf("State of a free lock: %+v, %v", st, err)
	}
	clean(t, s)
}

// A script that looked for a holder and found none has an empty id to give.
func TestForceUnlockOfNoHolderInParticularTakesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	m := open(t, s.URL()).Mutex("x")
	h := mustLock(t, m)
	for _, opts := range [][]ForceOption{{IfHolder("")}, {IfHolder(""), IfHolder(h.Owner())}} {
		if was, err := m.ForceUnlock(ctxT(t), opts...); was || !errors.Is(err, ErrInvalid) || !hasText(err, "IfHolder") {
			t.Errorf("%v: %v, %v", opts, was, err)
		}
	}
	if f := fields(t, s, "x"); f[h.Owner()] != "1" {
		t.Errorf("hash is %v", f)
	}
	mustUnlock(t, h)
}

// While somebody waits in this process its channel is heard: a release that is not
// ours makes the holder look at once, long before the next renewal.
func TestForceUnlockIsNoticedAtOnceAfterReleasesOfOurOwn(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	m := e.Mutex("x")
	for round := range 3 { // with releases of our own before it, whose messages come late
		first := mustLock(t, m)
		waiting := m.LockAsync(ctxT(t))
		if round == 0 {
			// A local waiter behind a local hold has not asked the server yet.
			blocker := mustLockBehind(t, other.Mutex("y"), e.Mutex("y"))
			mustUnlock(t, blocker)
		}
		mustUnlock(t, first)
		h, err := waiting.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
	}
	blocker := mustLock(t, other.Mutex("x"))
	got, next := m.LockAsync(ctxT(t)), m.LockAsync(ctxT(t))
	eventually(t, "we listen", func() bool { return e.Stats().Channels >= 1 })
	mustUnlock(t, blocker)
	h, err := got.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Do("PING") // a round trip: the message of the blocker's release has been sent
	<-time.After(20 * time.Millisecond)
	start := cputime.Now()
	if was, err := other.Mutex("x").ForceUnlock(ctxT(t), IfHolder(h.Owner())); !was || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", was, err)
	}
	receive(t, h.Done())
	wantLost(t, "Err", h.Err(), GoneOnServer)
	if d := start.Elapsed(); d > 3*time.Second {
		t.Errorf("noticed after %v", d)
	}
	h2, err := next.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h2)
	clean(t, s)
}

// mustLockBehind lets b wait for a's hold and returns b's.
func mustLockBehind(t testing.TB, a, b Mutex) *Hold {
	t.Helper()
	h := mustLock(t, a)
	f := b.LockAsync(ctxT(t))
	eventually(t, "it listens", func() bool { return b.home.Stats().Channels >= 1 })
	mustUnlock(t, h)
	h, err := f.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHoldThatIsDroppedIsCountedAndKept(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e := open(t, s.URL(), shortLease(time.Second))
		kept := mustLock(t, e.Mutex("kept"))
		func() { mustLock(t, e.Mutex("dropped")) }()
		func() { _, _ = e.Mutex("dropped too").LockAsync(ctxT(t)).Await(ctxT(t)) }()
		func() { mustUnlock(t, mustLock(t, e.Mutex("unlocked"))) }()
		eventually(t, "two are counted", func() bool {
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
		if !errors.Is(kept.Err(), ErrLost) {
			t.Errorf("after Close: %v", kept.Err())
		}
		clean(t, s)
	})
}

// A hold that was lost, or ended by Close, is not waited for by the garbage collector any more: its
// owner may be known to a hook, so that the engine, by what was to be called, kept it for good.
func TestAClosedEngineIsGarbageThoughAHookKnowsItsHolds(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	engines := func() (all []weak.Pointer[Engine]) {
		type app struct {
			hold   *Hold
			quorum *Hold
		}
		a := new(app)
		var v voters
		for _, one := range s.servers {
			c, err := ParseURL(one.URL())
			if err != nil {
				t.Fatal(err)
			}
			shortLease(time.Second)(&c)
			c.Hooks.Lost = func(HoldEvent) { runtime.KeepAlive(a) }
			e, err := New(ctxT(t), c) // not open: that remembers it until the test ends
			if err != nil {
				t.Fatal(err)
			}
			v = append(v, e)
		}
		a.hold = mustLock(t, v[0].Mutex("x"))
		a.quorum = mustRedLock(t, v.lock("y"))
		eventually(t, "they are renewed", func() bool {
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
	eventually(t, "no engine is left", func() bool {
		runtime.GC()
		return !slices.ContainsFunc(engines, func(e weak.Pointer[Engine]) bool { return e.Value() != nil })
	})
}

// A caller that has given up before the call takes nobody's lock away.
func TestForceUnlockUnderAnEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	m := e.Mutex("x")
	h := mustLock(t, m)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	was, err := m.ForceUnlock(ctx)
	if was || !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("ForceUnlock: %v, %v", was, err)
	}
	mustUnlock(t, h) // on the same connection
}
