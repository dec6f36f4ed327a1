package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// The server granted the lock, the reply was lost: the owner is in doubt, a fresh one
// takes the lock, and the count is never two.
func TestAcquireWhoseReplyIsCutIsInDoubtAndTheLockTakenAfresh(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	cut := p.CutAfterRequest(testkit.AcquireOf("x"))
	h, err := e.Mutex("x").Lock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	cut.Wait(1)
	if f := testkit.Fields(t, s, "x"); len(f) != 1 || f[h.Owner()] != "1" {
		t.Fatalf("hash is %v, want only %s", f, h.Owner())
	}
	wantInDoubt(t, e, 1)
	testkit.MustUnlock(t, h)
	if f := testkit.Fields(t, s, "x"); len(f) != 0 {
		t.Fatalf("left on the server: %v", f)
	}
}

func TestTryLock_NoAnswer_FailsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t, func(c *engine.Config) { c.CommandTimeout = 300 * time.Millisecond })
	p.Delay(faultproxy.Carried("EVALSHA"), 0, time.Hour)
	_, err := e.Mutex("x").TryLock(testkit.Ctx(t))
	if !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrUnavailable) {
		t.Fatalf("error is %v", err)
	}
	p.Delay(faultproxy.All, 0, 0)
	testkit.Eventually(t, "the phantom hold is released", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
}

func TestAcquireThatNeverReachedTheServerIsRepeated(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	p.CutBeforeRequest(testkit.AcquireOf("x"))
	h := testkit.MustLock(t, e.Mutex("x"))
	if f := testkit.Fields(t, s, "x"); len(f) != 1 || f[h.Owner()] != "1" {
		t.Fatalf("hash is %v", f)
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s)
}

// Stale bytes: the acquire of an in-doubt owner is executed by the server long after
// its connection died here. The release a second later takes it away.
func TestStaleAcquireLivesASecondAtMost(t *testing.T) {
	t.Parallel()
	s, p, e, clk := testkit.BehindInTime(t)
	burnt := ""
	cut := p.CutBeforeRequest(noting(&burnt, testkit.AcquireOf("x")))
	h := testkit.MustLock(t, e.Mutex("x"))
	cut.Wait(1)
	wantInDoubt(t, e, 1)
	testkit.MustUnlock(t, h)
	// What a server does with bytes that sat in its socket buffer:
	s.Do("EVALSHA", script.Acquire.SHA, "1", "x", "3600000", burnt)
	if f := testkit.Fields(t, s, "x"); f[burnt] != "1" {
		t.Fatalf("the phantom is not there: %v", f)
	}
	clk.Pass(1100 * time.Millisecond)
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	testkit.Eventually(t, "nothing is left", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
}

// noting is a match that notes the owner of the acquire that it finds.
func noting(owner *string, acquire faultproxy.Match) faultproxy.Match {
	return func(c faultproxy.Command) bool {
		found := acquire(c)
		if found && *owner == "" {
			*owner = c.Words[5] // EVALSHA sha 1 name lease owner
		}
		return found
	}
}

// wantInDoubt fails the test unless the engine has in doubt so many owners.
func wantInDoubt(t testing.TB, e *engine.Engine, want uint64) {
	t.Helper()
	if n := e.Stats().InDoubt; n != want {
		t.Fatalf("%d burned owners, want %d", n, want)
	}
}

// Cancel at every step of an acquisition: in the end the caller has the lock, or
// nobody has.
func TestCancelledAcquisitionLeavesTheLockFreeOrWithTheCaller(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	outcome := func(t *testing.T, h *engine.Hold, err error) {
		t.Helper()
		if err == nil {
			testkit.MustUnlock(t, h)
		} else if !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			t.Fatalf("error is %v", err)
		}
		testkit.Eventually(t, "the lock is free", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
		if d := e.Stats().Held; d != 0 {
			t.Fatalf("%d held", d)
		}
	}
	t.Run("before it is sent", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		h, err := e.Mutex("x").Lock(ctx)
		outcome(t, h, err)
	})
	t.Run("while the command is under way", func(t *testing.T) {
		for _, async := range []bool{false, true} {
			testkit.Eventually(t, "nothing of before is under way", func() bool { return e.Stats().InFlight == 0 })
			before := p.Stats().Received["EVALSHA"]
			p.Pause(faultproxy.All)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			var h *engine.Hold
			var err error
			if async {
				f := e.Mutex("x").LockAsync(ctx)
				cancel()
				h, err = f.Await(testkit.Ctx(t))
				close(done)
			} else {
				go func() {
					h, err = e.Mutex("x").Lock(ctx)
					close(done)
				}()
				testkit.Eventually(t, "it is in flight", func() bool { return e.Stats().InFlight > 0 })
				cancel()
			}
			<-done
			p.Resume()
			if err == nil {
				t.Error("the cancelled Lock got the lock although no reply could come")
			}
			outcome(t, h, err)
			testkit.Eventually(t, "the grant was taken back", func() bool { return p.Stats().Received["EVALSHA"] >= before+2 })
		}
	})
	t.Run("while it waits", func(t *testing.T) {
		other := testkit.Open(t, s.URL())
		held := testkit.MustLock(t, other.Mutex("x"))
		ctx, cancel := context.WithCancel(context.Background())
		f := e.Mutex("x").LockAsync(ctx)
		testkit.Eventually(t, "it subscribes", func() bool { return e.Stats().Channels == 1 })
		cancel()
		if _, err := f.Await(testkit.Ctx(t)); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, held)
		outcome(t, nil, mustErr(t, f))
	})
	t.Run("at random moments", func(t *testing.T) {
		for i := range 300 {
			ctx, cancel := context.WithCancel(context.Background())
			f := e.Mutex("x").LockAsync(ctx)
			go func() {
				time.Sleep(time.Duration(i) * time.Microsecond) // the moment is the test's variable
				cancel()
			}()
			if h, err := f.Await(testkit.Ctx(t)); err == nil {
				testkit.MustUnlock(t, h)
			}
		}
		outcome(t, nil, lockerr.Wrap(engine.ErrNotAcquired, context.Canceled))
	})
}

func mustErr[T any](t testing.TB, f *engine.Future[T]) error {
	t.Helper()
	_, err := f.Result()
	if err == nil {
		t.Fatal("no error")
	}
	return err
}

// The grant arrives after the lease that it grants.
func TestGrantThatComesLaterThanItsLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	p.Delay(faultproxy.Carried("EVALSHA"), 40*time.Millisecond, 40*time.Millisecond)
	_, err := e.Mutex("x").Lock(testkit.Ctx(t), engine.Lease(50*time.Millisecond))
	if !errors.Is(err, engine.ErrGrantTooLate) || !errors.Is(err, engine.ErrNotAcquired) {
		t.Fatalf("error is %v, want ErrGrantTooLate", err)
	}
	testkit.Eventually(t, "given back", func() bool { return len(testkit.Fields(t, s, "x")) == 0 })
	p.Delay(faultproxy.All, 0, 0)
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x"), engine.Lease(5*time.Second)))
}

func TestWaitingLockSurvivesServerRefusals(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"BUSY Redis is busy running a script", "LOADING Redis is loading the dataset in memory",
		"READONLY You can't write against a read only replica.", "OOM command not allowed when used memory > 'maxmemory'.",
		"MISCONF Redis is configured to save RDB snapshots", "NOREPLICAS Not enough good replicas to write.",
		"MASTERDOWN Link with MASTER is down"} {
		t.Run(refusal[:4], func(t *testing.T) {
			t.Parallel()
			s, p, e := testkit.Behind(t)
			p.ReplaceReply(testkit.AcquireOf("x"), []byte("-"+refusal+"\r\n"), 3)
			h := testkit.MustLock(t, e.Mutex("x"))
			p.ReplaceReply(testkit.ReleaseOf("x"), []byte("-"+refusal+"\r\n"), 2)
			testkit.MustUnlock(t, h)
			testkit.Clean(t, s)
		})
	}
}
