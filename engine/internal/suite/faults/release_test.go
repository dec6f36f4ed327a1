package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// The server released the lock and the reply was lost: the release is sent again,
// finds nothing, and that is success; the next holder is not touched.
func TestUnlockWhoseReplyIsCutReleasesOnce(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	h := testkit.MustLock(t, e.Mutex("x"))
	cut := p.CutAfterRequest(testkit.ReleaseOf("x"))
	other := testkit.Open(t, s.URL()).Mutex("x")
	next := other.LockAsync(testkit.Ctx(t))
	testkit.MustUnlock(t, h)
	cut.Wait(1)
	h2, err := next.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrNotHeld) {
		t.Errorf("second Unlock: %v", err)
	}
	if f := testkit.Fields(t, s, "x"); f[h2.Owner()] != "1" || len(f) != 1 {
		t.Fatalf("hash is %v, want only the next holder", f)
	}
	testkit.MustUnlock(t, h2)
	testkit.Clean(t, s)
}

func TestUnlockThatNeverReachedTheServerIsRepeated(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	h := testkit.MustLock(t, e.Mutex("x"))
	p.CutBeforeRequest(testkit.ReleaseOf("x"))
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s)
}

func TestUnlockWithACancelledContextReleases(t *testing.T) {
	t.Parallel()
	s, _, e := testkit.Behind(t)
	h := testkit.MustLock(t, e.Mutex("x"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Unlock(ctx); err != nil && (!errors.Is(err, engine.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled)) {
		t.Fatalf("error is %v", err)
	}
	testkit.Eventually(t, "the lock is free", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
	testkit.Clean(t, s)
}

// An Unlock that was given up goes on in the background; a second one joins it.
func TestUnlockGoesOnAfterItsContextEnded(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	h := testkit.MustLock(t, e.Mutex("x"))
	p.Pause(faultproxy.All)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() { result <- h.Unlock(ctx) }()
	testkit.Eventually(t, "the release is under way", func() bool { return e.Stats().InFlight > 0 })
	cancel()
	if err := <-result; !errors.Is(err, engine.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("first Unlock: %v", err)
	}
	go func() { result <- h.Unlock(testkit.Ctx(t)) }()
	p.Resume()
	if err := <-result; err != nil && !errors.Is(err, engine.ErrNotHeld) {
		t.Fatalf("second Unlock: %v", err)
	}
	testkit.Eventually(t, "the lock is free", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
}

// While the server is away an Unlock waits; the lease bounds it.
func TestUnlockWithoutAServerEndsWithTheLease(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL())
		h := testkit.MustLock(t, e.Mutex("x"), engine.Lease(600*time.Millisecond))
		s.Kill()
		start := cputime.Now()
		err := h.Unlock(testkit.Ctx(t))
		if !errors.Is(err, engine.ErrOutcomeUnknown) {
			t.Fatalf("error is %v", err)
		}
		if d := start.Elapsed(); d > 3*time.Second {
			t.Errorf("it took %v, the lease is 600ms", d)
		}
		if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrOutcomeUnknown) {
			t.Errorf("a later Unlock: %v", err)
		}
	})
}

func TestReleaseOfAHoldThatTheServerLostSaysSo(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	for what, spoil := range map[string]func(){
		"gone":  func() { s.Do("DEL", "x") },
		"taken": func() { s.Do("DEL", "x"); s.Do("SET", "x", "mine") },
	} {
		t.Run(what, func(t *testing.T) {
			s.Do("DEL", "x")
			h := testkit.MustLock(t, e.Mutex("x"))
			spoil()
			err := h.Unlock(testkit.Ctx(t))
			var lost *engine.LostError
			if !errors.As(err, &lost) || !errors.Is(err, engine.ErrLost) || lost.Name != "x" {
				t.Fatalf("error is %v", err)
			}
			want := map[string]engine.LostReason{"gone": engine.RemovedOnServer, "taken": engine.KeyOverwritten}[what]
			if lost.Reason != want {
				t.Errorf("reason is %v, want %v", lost.Reason, want)
			}
		})
	}
}

func TestScriptFlushInTheMiddleOfTrafficCostsOneMoreCommand(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	h := testkit.MustLock(t, e.Mutex("x"))
	s.Do("SCRIPT", "FLUSH")
	watch := p.Watch(faultproxy.Is("EVAL"))
	testkit.MustUnlock(t, h)
	if watch.Done() != 1 {
		t.Errorf("%d EVALs, want 1", watch.Done())
	}
	for range 3 {
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	}
	if watch.Done() != 2 { // release above, acquire now
		t.Errorf("%d EVALs, want 2: a script stays loaded", watch.Done())
	}
	testkit.Clean(t, s)
}

func TestReentryWhoseReplyIsCutIsRepeated(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	h := testkit.MustLock(t, e.Mutex("x"))
	p.CutAfterRequest(testkit.ScriptOn(script.Reenter, "x"))
	child, err := e.Mutex("x").Lock(h.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	if f := testkit.Fields(t, s, "x"); f[h.Owner()] != "2" {
		t.Fatalf("hash is %v, want a count of 2", f)
	}
	p.CutAfterRequest(testkit.ScriptOn(script.Leave, "x"))
	testkit.MustUnlock(t, child)
	if f := testkit.Fields(t, s, "x"); f[h.Owner()] != "1" {
		t.Fatalf("hash is %v, want a count of 1", f)
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s)
}
