package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/pace"
)

// The server released the lock and the reply was lost: the release is sent again,
// finds nothing, and that is success; the next holder is not touched.
func TestUnlockWhoseReplyIsCutReleasesOnce(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	h := mustLock(t, e.Mutex("x"))
	cut := p.CutAfterRequest(releaseOf("x"))
	other := open(t, s.URL()).Mutex("x")
	next := other.LockAsync(ctxT(t))
	mustUnlock(t, h)
	cut.Wait(1)
	h2, err := next.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("second Unlock: %v", err)
	}
	if f := fields(t, s, "x"); f[h2.Owner()] != "1" || len(f) != 1 {
		t.Fatalf("hash is %v, want only the next holder", f)
	}
	mustUnlock(t, h2)
	clean(t, s)
}

func TestUnlockThatNeverReachedTheServerIsRepeated(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	h := mustLock(t, e.Mutex("x"))
	p.CutBeforeRequest(releaseOf("x"))
	mustUnlock(t, h)
	clean(t, s)
}

func TestUnlockWithACancelledContextReleases(t *testing.T) {
	t.Parallel()
	s, _, e := behind(t)
	h := mustLock(t, e.Mutex("x"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.Unlock(ctx); err != nil && (!errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled)) {
		t.Fatalf("error is %v", err)
	}
	eventually(t, "the lock is free", func() bool { return len(fields(t, s, "x")) == 0 })
	clean(t, s)
}

// An Unlock that was given up goes on in the background; a second one joins it.
func TestUnlockGoesOnAfterItsContextEnded(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	h := mustLock(t, e.Mutex("x"))
	p.Pause(faultproxy.All)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() { result <- h.Unlock(ctx) }()
	eventually(t, "the release is under way", func() bool { return e.Stats().InFlight > 0 })
	cancel()
	if err := <-result; !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Fatalf("first Unlock: %v", err)
	}
	go func() { result <- h.Unlock(ctxT(t)) }()
	p.Resume()
	if err := <-result; err != nil && !errors.Is(err, ErrNotHeld) {
		t.Fatalf("second Unlock: %v", err)
	}
	eventually(t, "the lock is free", func() bool { return len(fields(t, s, "x")) == 0 })
}

// While the server is away an Unlock waits; the lease bounds it.
func TestUnlockWithoutAServerEndsWithTheLease(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e := open(t, s.URL())
		h := mustLock(t, e.Mutex("x"), Lease(600*time.Millisecond))
		s.Kill()
		start := pace.Now()
		err := h.Unlock(ctxT(t))
		if !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatalf("error is %v", err)
		}
		if d := start.Elapsed(); d > 3*time.Second {
			t.Errorf("it took %v, the lease is 600ms", d)
		}
		if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("a later Unlock: %v", err)
		}
	})
}

func TestReleaseOfAHoldThatTheServerLostSaysSo(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	for what, spoil := range map[string]func(){
		"gone":  func() { s.Do("DEL", "x") },
		"taken": func() { s.Do("DEL", "x"); s.Do("SET", "x", "mine") },
	} {
		t.Run(what, func(t *testing.T) {
			s.Do("DEL", "x")
			h := mustLock(t, e.Mutex("x"))
			spoil()
			err := h.Unlock(ctxT(t))
			var lost *LostError
			if !errors.As(err, &lost) || !errors.Is(err, ErrLost) || lost.Name != "x" {
				t.Fatalf("error is %v", err)
			}
			want := map[string]LostReason{"gone": GoneOnServer, "taken": TakenOnServer}[what]
			if lost.Reason != want {
				t.Errorf("reason is %v, want %v", lost.Reason, want)
			}
		})
	}
}

func TestScriptFlushInTheMiddleOfTrafficCostsOneMoreCommand(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	h := mustLock(t, e.Mutex("x"))
	s.Do("SCRIPT", "FLUSH")
	watch := p.Watch(faultproxy.Is("EVAL"))
	mustUnlock(t, h)
	if watch.Done() != 1 {
		t.Errorf("%d EVALs, want 1", watch.Done())
	}
	for range 3 {
		mustUnlock(t, mustLock(t, e.Mutex("x")))
	}
	if watch.Done() != 2 { // release above, acquire now
		t.Errorf("%d EVALs, want 2: a script stays loaded", watch.Done())
	}
	clean(t, s)
}

func TestReentryWhoseReplyIsCutIsRepeated(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	h := mustLock(t, e.Mutex("x"))
	p.CutAfterRequest(scriptOn(script.Reenter, "x"))
	child, err := e.Mutex("x").Lock(h.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	if f := fields(t, s, "x"); f[h.Owner()] != "2" {
		t.Fatalf("hash is %v, want a count of 2", f)
	}
	p.CutAfterRequest(scriptOn(script.Leave, "x"))
	mustUnlock(t, child)
	if f := fields(t, s, "x"); f[h.Owner()] != "1" {
		t.Fatalf("hash is %v, want a count of 1", f)
	}
	mustUnlock(t, h)
	clean(t, s)
}
