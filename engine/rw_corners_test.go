package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A reader that waits for a writer of its own process is told that it may not listen, and the
// server is not asked for the channel for ever.
func TestAReaderBehindAWriterIsToldThatTheChannelIsRefused(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.Do("ACL", "SETUSER", "joe", "on", ">secret", "~*", "+@all", "resetchannels", "&other:*")
	e := open(t, "redis://joe:secret@"+s.Addr())
	l := e.RWMutex("x")
	w := mustLock(t, l.Writer())
	if _, err := l.Reader().Lock(ctxT(t), Wait(5*time.Second)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "redisson_rwlock:{x}") {
		t.Errorf("it is told: %v", err)
	}
	mustUnlock(t, w)
	clean(t, s, e)
}

// What is left of a writer's MinHold keeps writers out while somebody reads beside it, and after
// that, but no longer; readers come in.
func TestAMinHoldOfAWriterThatLeavesAReader(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	l, far := e.RWMutex("x"), other.RWMutex("x")
	w := mustLock(t, l.Writer(), MinHold(time.Minute), MaxHold(time.Hour))
	r, err := l.Downgrade(ctxT(t), w)
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, mustLock(t, far.Reader(), Wait(5*time.Second)))
	mustUnlock(t, r)
	mustUnlock(t, mustLock(t, far.Reader(), Wait(5*time.Second)))
	if _, err := far.Writer().TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("a writer before MinHold is over: %v", err)
	}
	if left := pttl(t, s, "x"); left < 50*time.Second || left > time.Minute {
		t.Errorf("the lock is kept for %v", left)
	}
	s.Do("FLUSHALL")

	w = mustLock(t, l.Writer(), MinHold(100*time.Millisecond))
	if r, err = l.Downgrade(ctxT(t), w); err != nil {
		t.Fatal(err)
	}
	eventually(t, "MinHold is over", func() bool { return s.Do("DBSIZE").(int64) == 2 })
	mustUnlock(t, r)
	mustUnlock(t, mustLock(t, far.Writer(), Wait(5*time.Second)))
	clean(t, s, e, other)
}

// A Downgrade that fails leaves nothing with the writer.
func TestADowngradeThatFailsLeavesNoContext(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	l := e.RWMutex("x")
	w := mustLock(t, l.Writer())
	for range 10 {
		if _, err := l.Downgrade(context.Background(), w, MinHold(time.Second)); !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
	}
	eventually(t, "the contexts are forgotten", func() bool {
		oneOf(w).Shard().Lock()
		defer oneOf(w).Shard().Unlock()
		return len(oneOf(w).Contexts()) == 0
	})
	mustUnlock(t, w)
	clean(t, s, e)
}

// The writer was taken away by force, and another wrote, or still writes. It is told so, by Downgrade, too.
func TestADowngradeOfALostWriterSaysSo(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	l, far := e.RWMutex("x"), other.RWMutex("x")
	for _, writes := range []bool{false, true} {
		w := mustLock(t, l.Writer(), Lease(time.Minute))
		if done, err := far.Writer().ForceUnlock(ctxT(t)); !done || err != nil {
			t.Fatal(done, err)
		}
		h := mustLock(t, far.Writer())
		if !writes {
			mustUnlock(t, h)
		}
		if _, err := l.Downgrade(ctxT(t), w); !errors.Is(err, ErrLost) || errors.Is(err, ErrHeld) {
			t.Errorf("another writes %v: Downgrade: %v", writes, err)
		}
		receive(t, w.Done()) // it was looked at
		wantLost(t, "the writer", w.Err(), GoneOnServer)
		if writes {
			mustUnlock(t, h)
		}
	}
	clean(t, s, e, other)
}

// A reader is asked for beside a writer that was deleted. The writer is looked at: a TryLock fails as under a
// context of what was lost, and Lock asks as any other.
func TestReader_BesideADeletedWriter_HasThatLookedAt(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	l := e.RWMutex("x")
	for _, once := range []bool{false, true} {
		w := mustLock(t, l.Writer(), Lease(time.Minute))
		s.Do("DEL", "x")
		ctx := context.WithoutCancel(w.Context(ctxT(t)))
		ask := l.Reader().LockAsync
		if once {
			ask = l.Reader().TryLockAsync
		}
		f := ask(ctx)
		r, err := f.Await(ctxT(t))
		if once != errors.Is(err, ErrLost) || !once && err != nil {
			t.Errorf("once %v: %v", once, err)
		}
		receive(t, w.Done())
		wantLost(t, "the writer", w.Err(), GoneOnServer)
		if r != nil {
			mustUnlock(t, r)
		}
	}
	clean(t, s, e)
}

// A read lock that comes of a Downgrade is one of its own, also under the context of another.
func TestADowngradeUnderAReadersContextIsNoReentry(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	l := e.RWMutex("x")
	w := mustLock(t, l.Writer())
	beside, err := l.Reader().Lock(w.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Downgrade(beside.Context(ctxT(t)), w)
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, beside)
	if err := r.Err(); err != nil || r.Owner() == beside.Owner() {
		t.Errorf("%v, as %s and %s", err, r.Owner(), beside.Owner())
	}
	mustUnlock(t, r)
	clean(t, s, e)
}

// A RedLock of writers has its votes still if one server forgets its own, and another hangs. A reader beside it
// is granted by a majority.
func TestAReaderBesideARedLockIsGrantedThoughOneServerForgot(t *testing.T) {
	t.Parallel()
	s := independent(t, 3)
	v := s.open()
	var readers, writers []Mutex
	for _, e := range v {
		readers, writers = append(readers, e.RWMutex("x").Reader()), append(writers, e.RWMutex("x").Writer())
	}
	for _, lock := range []func(context.Context) (*Hold, error){
		func(ctx context.Context) (*Hold, error) { return RedLock(readers...).Lock(ctx) },
		func(ctx context.Context) (*Hold, error) { return RedLock(readers...).TryLock(ctx) },
	} {
		w, err := RedLock(writers...).Lock(ctxT(t), Lease(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "all have granted it", func() bool {
			return !slices.ContainsFunc(v, func(e *Engine) bool { return e.Stats().Held == 0 })
		})
		s.servers[0].Do("DEL", "x")
		s.servers[2].Stop()
		r, err := lock(w.Context(ctxT(t)))
		s.servers[2].Cont()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Err(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(r.Unlock(ctxT(t)), w.Unlock(ctxT(t))); err != nil {
			t.Error(err)
		}
	}
	s.clean(v)
}

// The readers of a process lose the lock together; each is told, and its contexts end.
func TestReaders_OwnerTakenAway_AllAreLost(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL(), shortLease(time.Second)), open(t, s.URL())
	l := e.RWMutex("x").Reader()
	var holds []*Hold
	var under []context.Context
	for range 3 {
		h := mustLock(t, l)
		holds, under = append(holds, h), append(under, h.Context(ctxT(t)))
	}
	gone := mustLock(t, l)
	mustUnlock(t, gone)
	apart := mustLock(t, l, Lease(time.Minute))
	if ok, err := other.RWMutex("x").Reader().ForceUnlock(ctxT(t), IfHolder(holds[1].Owner())); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for i, h := range holds {
		receive(t, h.Done())
		var lost *LostError
		if err := h.Err(); !errors.As(err, &lost) || lost.Reason != GoneOnServer || !errors.Is(context.Cause(under[i]), ErrLost) {
			t.Errorf("%d: %v, its context %v", i, err, context.Cause(under[i]))
		}
		if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
			t.Errorf("%d: Unlock: %v", i, err)
		}
	}
	if err := gone.Err(); err != ErrReleased {
		t.Errorf("the one that was unlocked before: %v", err)
	}
	if err := apart.Err(); err != nil || apart.Owner() == holds[0].Owner() {
		t.Errorf("one with a lease of its own: %v", err)
	}
	mustUnlock(t, apart)
	clean(t, s, e, other)
}

// What is not the last of a process is unlocked without the server, and each is watched for being dropped.
func TestReaders_NotTheLast_UnlockWithoutTheServer(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		s := server(t)
		e := open(t, s.URL(), shortLease(time.Second), func(c *Config) { c.HandOver = time.Hour })
		l := e.RWMutex("x").Reader()
		first := mustLock(t, l)
		func() { mustLock(t, l) }()
		func() { mustLock(t, l) }()
		before := e.Stats().Commands
		for range 100 {
			if h, err := l.TryLock(ctxT(t)); err != nil {
				t.Fatal(err)
			} else {
				mustUnlock(t, h)
			}
		}
		mustUnlock(t, first)
		if n := e.Stats().Commands - before; n > 10 { // there may be renewals
			t.Errorf("%d commands", n)
		}
		eventually(t, "those that were dropped are counted", func() bool {
			runtime.GC()
			return e.Stats().Leaked == 2
		})
		if n := s.Do("EXISTS", "x"); n != int64(1) {
			t.Error("the lock is not held any more")
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}
