package rw

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

// A reader that waits for a writer of its own process is told that it may not listen, and the
// server is not asked for the channel for ever.
func TestRWMutex_ReaderBehindAWriterWithoutTheChannel_SaysSo(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	s.Do("ACL", "SETUSER", "joe", "on", ">secret", "~*", "+@all", "resetchannels", "&other:*")
	e := testkit.Open(t, "redis://joe:secret@"+s.Addr())
	l := e.RWMutex("x")
	w := testkit.MustLock(t, l.Writer())
	if _, err := l.Reader().Lock(testkit.Ctx(t), engine.Wait(5*time.Second)); !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), "redisson_rwlock:{x}") {
		t.Errorf("it is told: %v", err)
	}
	testkit.MustUnlock(t, w)
	testkit.Clean(t, s, e)
}

// What is left of a writer's MinHold keeps writers out while somebody reads beside it, and after
// that, but no longer; readers come in.
func TestRWMutex_MinHoldOfAWriterBesideAReader_KeepsWritersOut(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	l, far := e.RWMutex("x"), other.RWMutex("x")
	w := testkit.MustLock(t, l.Writer(), engine.MinHold(time.Minute), engine.MaxHold(time.Hour))
	r, err := l.Downgrade(testkit.Ctx(t), w)
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, testkit.MustLock(t, far.Reader(), engine.Wait(5*time.Second)))
	testkit.MustUnlock(t, r)
	testkit.MustUnlock(t, testkit.MustLock(t, far.Reader(), engine.Wait(5*time.Second)))
	if _, err := far.Writer().TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
		t.Errorf("a writer before MinHold is over: %v", err)
	}
	if left := testkit.PTTL(t, s, "x"); left < 50*time.Second || left > time.Minute {
		t.Errorf("the lock is kept for %v", left)
	}
	s.Do("FLUSHALL")

	w = testkit.MustLock(t, l.Writer(), engine.MinHold(100*time.Millisecond))
	if r, err = l.Downgrade(testkit.Ctx(t), w); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "MinHold is over", func() bool { return s.Do("DBSIZE").(int64) == 2 })
	testkit.MustUnlock(t, r)
	testkit.MustUnlock(t, testkit.MustLock(t, far.Writer(), engine.Wait(5*time.Second)))
	testkit.Clean(t, s, e, other)
}

// The writer was taken away by force, and another wrote, or still writes. It is told so, by Downgrade, too.
func TestRWMutex_DowngradeOfALostWriter_SaysSo(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	l, far := e.RWMutex("x"), other.RWMutex("x")
	for _, writes := range []bool{false, true} {
		w := testkit.MustLock(t, l.Writer(), engine.Lease(time.Minute))
		if done, err := far.Writer().ForceUnlock(testkit.Ctx(t)); !done || err != nil {
			t.Fatal(done, err)
		}
		h := testkit.MustLock(t, far.Writer())
		if !writes {
			testkit.MustUnlock(t, h)
		}
		if _, err := l.Downgrade(testkit.Ctx(t), w); !errors.Is(err, engine.ErrLost) || errors.Is(err, engine.ErrHeld) {
			t.Errorf("another writes %v: Downgrade: %v", writes, err)
		}
		testkit.Receive(t, w.Done()) // it was looked at
		testkit.WantLost(t, "the writer", w.Err(), engine.RemovedOnServer)
		if writes {
			testkit.MustUnlock(t, h)
		}
	}
	testkit.Clean(t, s, e, other)
}

// A reader is asked for beside a writer that was deleted. The writer is looked at: a TryLock fails as under a
// context of what was lost, and Lock asks as any other.
func TestRWMutex_ReaderBesideADeletedWriter_HasItVerified(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	l := e.RWMutex("x")
	for _, once := range []bool{false, true} {
		w := testkit.MustLock(t, l.Writer(), engine.Lease(time.Minute))
		s.Do("DEL", "x")
		ctx := context.WithoutCancel(w.Context(testkit.Ctx(t)))
		ask := l.Reader().LockAsync
		if once {
			ask = l.Reader().TryLockAsync
		}
		f := ask(ctx)
		r, err := f.Await(testkit.Ctx(t))
		if once != errors.Is(err, engine.ErrLost) || !once && err != nil {
			t.Errorf("once %v: %v", once, err)
		}
		testkit.Receive(t, w.Done())
		testkit.WantLost(t, "the writer", w.Err(), engine.RemovedOnServer)
		if r != nil {
			testkit.MustUnlock(t, r)
		}
	}
	testkit.Clean(t, s, e)
}

// A read lock that comes of a Downgrade is one of its own, also under the context of another.
func TestRWMutex_DowngradeUnderAReadersContext_IsNoReentry(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	l := e.RWMutex("x")
	w := testkit.MustLock(t, l.Writer())
	beside, err := l.Reader().Lock(w.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Downgrade(beside.Context(testkit.Ctx(t)), w)
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, beside)
	if err := r.Err(); err != nil || r.Owner() == beside.Owner() {
		t.Errorf("%v, as %s and %s", err, r.Owner(), beside.Owner())
	}
	testkit.MustUnlock(t, r)
	testkit.Clean(t, s, e)
}

// A RedLock of writers has its votes still if one server forgets its own, and another hangs. A reader beside it
// is granted by a majority.
func TestRWMutex_ReaderBesideItsRedLock_IsGrantedThoughOneServerForgot(t *testing.T) {
	t.Parallel()
	s := testkit.Independent(t, 3)
	v := s.Open()
	var readers, writers []engine.Mutex
	for _, e := range v {
		readers, writers = append(readers, e.RWMutex("x").Reader()), append(writers, e.RWMutex("x").Writer())
	}
	for _, lock := range []func(context.Context) (*engine.Hold, error){
		func(ctx context.Context) (*engine.Hold, error) { return engine.RedLock(readers...).Lock(ctx) },
		func(ctx context.Context) (*engine.Hold, error) { return engine.RedLock(readers...).TryLock(ctx) },
	} {
		w, err := engine.RedLock(writers...).Lock(testkit.Ctx(t), engine.Lease(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "all have granted it", func() bool {
			return !slices.ContainsFunc(v, func(e *engine.Engine) bool { return e.Stats().Held == 0 })
		})
		s.Servers[0].Do("DEL", "x")
		s.Servers[2].Stop()
		r, err := lock(w.Context(testkit.Ctx(t)))
		s.Servers[2].Cont()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Err(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(r.Unlock(testkit.Ctx(t)), w.Unlock(testkit.Ctx(t))); err != nil {
			t.Error(err)
		}
	}
	s.Clean(v)
}

// The readers of a process lose the lock together; each is told, and its contexts end.
func TestRWMutex_OwnerOfReadersTakenAway_AllAreLost(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL(), testkit.ShortLease(time.Second)), testkit.Open(t, s.URL())
	l := e.RWMutex("x").Reader()
	var holds []*engine.Hold
	var under []context.Context
	for range 3 {
		h := testkit.MustLock(t, l)
		holds, under = append(holds, h), append(under, h.Context(testkit.Ctx(t)))
	}
	gone := testkit.MustLock(t, l)
	testkit.MustUnlock(t, gone)
	apart := testkit.MustLock(t, l, engine.Lease(time.Minute))
	if ok, err := other.RWMutex("x").Reader().ForceUnlock(testkit.Ctx(t), engine.IfHolder(holds[1].Owner())); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for i, h := range holds {
		testkit.Receive(t, h.Done())
		var lost *engine.LostError
		if err := h.Err(); !errors.As(err, &lost) || lost.Reason != engine.RemovedOnServer || !errors.Is(context.Cause(under[i]), engine.ErrLost) {
			t.Errorf("%d: %v, its context %v", i, err, context.Cause(under[i]))
		}
		if err := h.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
			t.Errorf("%d: Unlock: %v", i, err)
		}
	}
	if err := gone.Err(); err != engine.ErrReleased {
		t.Errorf("the one that was unlocked before: %v", err)
	}
	if err := apart.Err(); err != nil || apart.Owner() == holds[0].Owner() {
		t.Errorf("one with a lease of its own: %v", err)
	}
	testkit.MustUnlock(t, apart)
	testkit.Clean(t, s, e, other)
}

// What is not the last of a process is unlocked without the server, and each is watched for being dropped.
func TestRWMutex_ReaderThatIsNotTheLast_UnlocksWithoutTheServer(t *testing.T) {
	t.Parallel()
	testkit.Steady(t, func(t testing.TB) {
		s := testkit.Server(t)
		e := testkit.Open(t, s.URL(), testkit.ShortLease(time.Second), func(c *engine.Config) { c.HandOverTime = time.Hour })
		l := e.RWMutex("x").Reader()
		first := testkit.MustLock(t, l)
		func() { testkit.MustLock(t, l) }()
		func() { testkit.MustLock(t, l) }()
		before := e.Stats().Commands
		for range 100 {
			if h, err := l.TryLock(testkit.Ctx(t)); err != nil {
				t.Fatal(err)
			} else {
				testkit.MustUnlock(t, h)
			}
		}
		testkit.MustUnlock(t, first)
		if n := e.Stats().Commands - before; n > 10 { // there may be renewals
			t.Errorf("%d commands", n)
		}
		testkit.Eventually(t, "those that were dropped are counted", func() bool {
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
