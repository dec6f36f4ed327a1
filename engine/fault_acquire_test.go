package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/pace"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// behind starts a server with a fault proxy in front, and an engine that goes
// through the proxy.
func behind(t testing.TB, change ...func(*Config)) (*redistest.Server, *faultproxy.Proxy, *Engine) {
	t.Helper()
	s := server(t)
	p := faultproxy.New(t, "tcp", s.Addr())
	return s, p, open(t, "redis://"+p.Addr(), change...)
}

func acquireOf(name string) faultproxy.Match { return scriptOn(script.Acquire, name) }
func releaseOf(name string) faultproxy.Match { return scriptOn(script.Release, name) }

func scriptOn(s *script.Script, name string) faultproxy.Match {
	is, has := faultproxy.Is("EVALSHA", s.SHA), faultproxy.Has(name)
	return func(c faultproxy.Command) bool { return is(c) && has(c) }
}

// The server granted the lock, the reply was lost: the owner is burned, a fresh one
// takes the lock, and the count is never two.
func TestAcquireWhoseReplyIsCutIsBurnedAndTheLockTakenAfresh(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	cut := p.CutAfterRequest(acquireOf("x"))
	h, err := e.Mutex("x").Lock(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	cut.Wait(1)
	if f := fields(t, s, "x"); len(f) != 1 || f[h.Owner()] != "1" {
		t.Fatalf("hash is %v, want only %s", f, h.Owner())
	}
	if n := e.Stats().Burned; n != 1 {
		t.Errorf("%d burned owners, want 1", n)
	}
	mustUnlock(t, h)
	if f := fields(t, s, "x"); len(f) != 0 {
		t.Fatalf("left on the server: %v", f)
	}
}

func TestTryLockWhoseReplyIsCutFailsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	p.CutAfterRequest(acquireOf("x"))
	_, err := e.Mutex("x").TryLock(ctxT(t))
	if !errors.Is(err, ErrNotAcquired) || !errors.Is(err, ErrUnavailable) {
		t.Fatalf("error is %v", err)
	}
	eventually(t, "the phantom hold is released", func() bool { return len(fields(t, s, "x")) == 0 })
}

func TestAcquireThatNeverReachedTheServerIsRepeated(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	p.CutBeforeRequest(acquireOf("x"))
	h := mustLock(t, e.Mutex("x"))
	if f := fields(t, s, "x"); len(f) != 1 || f[h.Owner()] != "1" {
		t.Fatalf("hash is %v", f)
	}
	mustUnlock(t, h)
	clean(t, s)
}

// Stale bytes: the acquire of a burned owner is executed by the server long after
// its connection died here. The release a second later takes it away.
func TestStaleAcquireLivesASecondAtMost(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	p.CutBeforeRequest(acquireOf("x"))
	h := mustLock(t, e.Mutex("x"))
	burnt := e.burnedForTest(t, "x")
	mustUnlock(t, h)
	// What a server does with bytes that sat in its socket buffer:
	s.Do("EVALSHA", script.Acquire.SHA, "1", "x", "30000", burnt)
	if f := fields(t, s, "x"); f[burnt] != "1" {
		t.Fatalf("the phantom is not there: %v", f)
	}
	start := pace.Now()
	h2 := mustLock(t, e.Mutex("x"))
	if d := start.Elapsed(); d > 5*time.Second {
		t.Errorf("the phantom lived %v", d)
	}
	mustUnlock(t, h2)
	eventually(t, "nothing is left", func() bool { return len(fields(t, s, "x")) == 0 })
}

// burnedForTest returns the owner that the engine holds burned on a name.
func (e *Engine) burnedForTest(t testing.TB, name string) string {
	t.Helper()
	m := e.Mutex(name)
	sh := e.table.Shard(m.route)
	sh.Lock()
	defer sh.Unlock()
	r := sh.Find(m.key)
	if r == nil || r.View().Debts == 0 {
		t.Fatal("no burned owner is noted")
	}
	return drive.OwnerOf(r, r.View().Owed).String()
}

// Cancel at every step of an acquisition: in the end the caller has the lock, or
// nobody has.
func TestCancelledAcquisitionLeavesTheLockFreeOrWithTheCaller(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	outcome := func(t *testing.T, h *Hold, err error) {
		t.Helper()
		if err == nil {
			mustUnlock(t, h)
		} else if !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			t.Fatalf("error is %v", err)
		}
		eventually(t, "the lock is free", func() bool { return len(fields(t, s, "x")) == 0 })
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
			eventually(t, "nothing of before is under way", func() bool { return e.Stats().InFlight == 0 })
			before := p.Stats().Received["EVALSHA"]
			p.Pause(faultproxy.All)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			var h *Hold
			var err error
			if async {
				f := e.Mutex("x").LockAsync(ctx)
				cancel()
				h, err = f.Await(ctxT(t))
				close(done)
			} else {
				go func() {
					h, err = e.Mutex("x").Lock(ctx)
					close(done)
				}()
				eventually(t, "it is in flight", func() bool { return e.Stats().InFlight > 0 })
				cancel()
			}
			<-done
			p.Resume()
			if err == nil {
				t.Error("the cancelled Lock got the lock although no reply could come")
			}
			outcome(t, h, err)
			eventually(t, "the grant was taken back", func() bool { return p.Stats().Received["EVALSHA"] >= before+2 })
		}
	})
	t.Run("while it waits", func(t *testing.T) {
		other := open(t, s.URL())
		held := mustLock(t, other.Mutex("x"))
		ctx, cancel := context.WithCancel(context.Background())
		f := e.Mutex("x").LockAsync(ctx)
		eventually(t, "it subscribes", func() bool { return e.Stats().Channels == 1 })
		cancel()
		if _, err := f.Await(ctxT(t)); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		mustUnlock(t, held)
		outcome(t, nil, f.mustErr(t))
	})
	t.Run("at random moments", func(t *testing.T) {
		for i := range 300 {
			ctx, cancel := context.WithCancel(context.Background())
			f := e.Mutex("x").LockAsync(ctx)
			go func() {
				time.Sleep(time.Duration(i) * time.Microsecond) // the moment is the test's variable
				cancel()
			}()
			if h, err := f.Await(ctxT(t)); err == nil {
				mustUnlock(t, h)
			}
		}
		outcome(t, nil, reason.Because(ErrNotAcquired, context.Canceled))
	})
}

func (f *Future[T]) mustErr(t testing.TB) error {
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
	s, p, e := behind(t)
	p.Delay(faultproxy.Carried("EVALSHA"), 40*time.Millisecond, 40*time.Millisecond)
	_, err := e.Mutex("x").Lock(ctxT(t), Lease(50*time.Millisecond))
	if !errors.Is(err, ErrLate) || !errors.Is(err, ErrNotAcquired) {
		t.Fatalf("error is %v, want ErrLate", err)
	}
	eventually(t, "given back", func() bool { return len(fields(t, s, "x")) == 0 })
	p.Delay(faultproxy.All, 0, 0)
	mustUnlock(t, mustLock(t, e.Mutex("x"), Lease(5*time.Second)))
}

func TestWaitingLockSurvivesServerRefusals(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"BUSY Redis is busy running a script", "LOADING Redis is loading the dataset in memory",
		"READONLY You can't write against a read only replica.", "OOM command not allowed when used memory > 'maxmemory'.",
		"MISCONF Redis is configured to save RDB snapshots", "NOREPLICAS Not enough good replicas to write.",
		"MASTERDOWN Link with MASTER is down"} {
		t.Run(refusal[:4], func(t *testing.T) {
			t.Parallel()
			s, p, e := behind(t)
			p.ReplaceReply(acquireOf("x"), []byte("-"+refusal+"\r\n"), 3)
			if _, err := e.Mutex("x").TryLock(ctxT(t)); !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrNotAcquired) {
				t.Errorf("TryLock: %v", err)
			}
			h := mustLock(t, e.Mutex("x"))
			p.ReplaceReply(releaseOf("x"), []byte("-"+refusal+"\r\n"), 2)
			mustUnlock(t, h)
			clean(t, s)
		})
	}
}
