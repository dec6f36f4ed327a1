package rw

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestRWMutex_Contended_ManyReadOrOneWrites(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	here, there := e.RWMutex("x"), other.RWMutex("x")

	first, second, third := testkit.MustLock(t, here.Reader()), testkit.MustLock(t, here.Reader()), testkit.MustLock(t, there.Reader())
	if st, err := there.State(testkit.Ctx(t)); err != nil || st.Mode != "read" || len(st.Holders) != 2 || !st.Mine {
		t.Errorf("read by two processes: %+v, %v", st, err)
	}
	if first.Owner() != second.Owner() || first.Owner() == third.Owner() {
		t.Errorf("two of a process are %s and %s, one of another %s", first.Owner(), second.Owner(), third.Owner())
	}
	for _, l := range []engine.RWMutex{here, there} {
		if _, err := l.Writer().TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("a writer beside readers: %v", err)
		}
	}
	for _, h := range []*engine.Hold{first, second, third} {
		testkit.MustUnlock(t, h)
	}
	w := testkit.MustLock(t, there.Writer())
	st, err := here.State(testkit.Ctx(t))
	if err != nil || st.Mode != "write" || len(st.Holders) != 1 || st.Holders[0].ID != w.Owner() || !strings.HasSuffix(w.Owner(), ":write") || st.Mine {
		t.Errorf("written: %+v, %v", st, err)
	}
	for _, m := range []engine.Mutex{here.Reader(), here.Writer(), there.Reader(), there.Writer()} {
		if _, err := m.TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("beside a writer: %v", err)
		}
	}
	testkit.MustUnlock(t, w)
	testkit.Clean(t, s, e, other)
}

func TestRWMutex_UnderItsOwnHold_Reenters(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	l := e.RWMutex("x")
	for _, m := range []engine.Mutex{l.Reader(), l.Writer()} {
		h := testkit.MustLock(t, m)
		again, err := m.TryLock(h.Context(testkit.Ctx(t)))
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "1", false: "2"}[m == l.Reader()] // the readers of a process are one
		if got := testkit.Fields(t, s, "x")[h.Owner()]; got != want || again.Owner() != h.Owner() {
			t.Errorf("%s is counted %q, and re-entered by %s", h.Owner(), got, again.Owner())
		}
		testkit.MustUnlock(t, again)
		if got := testkit.Fields(t, s, "x")[h.Owner()]; got != "1" {
			t.Errorf("%s is counted %q after the re-entry", h.Owner(), got)
		}
		testkit.MustUnlock(t, h)
		testkit.Clean(t, s, e)
	}
}

func TestRWMutex_DowngradeOfNoWriter_IsInvalid(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	l := e.RWMutex("x")
	r := testkit.MustLock(t, e.RWMutex("y").Reader())
	w := testkit.MustLock(t, l.Writer())
	again, err := l.Writer().TryLock(w.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	//lint:ignore SA1012 that is the test
	_, err = l.Downgrade(nil, w)
	for what, err := range map[string]error{
		"nothing": testkit.ErrOf(l.Downgrade(testkit.Ctx(t), nil)), "a reader": testkit.ErrOf(e.RWMutex("y").Downgrade(testkit.Ctx(t), r)),
		"another lock": testkit.ErrOf(e.RWMutex("y").Downgrade(testkit.Ctx(t), w)), "another engine": testkit.ErrOf(other.RWMutex("x").Downgrade(testkit.Ctx(t), w)),
		"a re-entry": testkit.ErrOf(l.Downgrade(testkit.Ctx(t), again)), "the zero lock": testkit.ErrOf(engine.RWMutex{}.Downgrade(testkit.Ctx(t), w)), "no context": err,
	} {
		if !errors.Is(err, engine.ErrInvalid) || !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if w.Err() != nil {
		t.Errorf("the writer: %v", w.Err())
	}
	testkit.MustUnlock(t, again)
	testkit.MustUnlock(t, w)
	if _, err := l.Downgrade(testkit.Ctx(t), w); !errors.Is(err, engine.ErrReleased) {
		t.Errorf("one that was unlocked: %v", err)
	}
	w = testkit.MustLock(t, l.Writer())
	if ok, err := other.RWMutex("x").Writer().ForceUnlock(testkit.Ctx(t)); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := l.Downgrade(testkit.Ctx(t), w); !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrLost) {
		t.Errorf("one that was taken away: %v", err)
	}
	testkit.MustUnlock(t, r)
	testkit.Clean(t, s, e, other)
}

// A reader that comes while a writer of its process waits stays behind it, and asks no server;
// when the writer is done, it comes before the next one.
func TestRWMutex_ReadersAndWritersOfAProcess_TakeTurns(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.HandingOver(t, s.URL())
	l := e.RWMutex("x")
	r := testkit.MustLock(t, l.Reader())
	one, two := l.Writer().LockAsync(testkit.Ctx(t)), l.Writer().LockAsync(testkit.Ctx(t))
	var late []*engine.Future[*engine.Hold]
	for range 10 {
		late = append(late, l.Reader().LockAsync(testkit.Ctx(t)))
	}
	beside, err := l.Reader().TryLock(testkit.Ctx(t)) // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, beside)
	again, err := l.Reader().TryLock(r.Context(testkit.Ctx(t))) // it re-enters
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, again)
	if got := len(testkit.Fields(t, s, "x")); got != 2 {
		t.Errorf("%d fields, want the mode and the first reader", got)
	}
	_, err = l.Reader().Lock(testkit.Ctx(t), engine.Wait(500*time.Millisecond))
	if !errors.Is(err, engine.ErrHeld) {
		t.Errorf("a reader behind a writer: %v", err)
	}

	testkit.MustUnlock(t, r)
	w, err := one.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	var held *engine.NotAcquiredError
	if _, err := l.Reader().TryLock(testkit.Ctx(t)); !errors.As(err, &held) || !errors.Is(err, engine.ErrHeld) || held.TTL <= 0 {
		t.Errorf("beside a writer: %v", err)
	}
	testkit.MustUnlock(t, w)
	for _, f := range late {
		h, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := two.Result(); !errors.Is(err, engine.ErrPending) {
			t.Fatalf("the next writer came first: %v", err)
		}
		defer testkit.MustUnlock(t, h)
	}
	two.Abandon()
}

func TestRWMutex_NameOfAMutex_IsRefused(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	h := testkit.MustLock(t, e.Mutex("x"))
	rw := e.RWMutex("x")
	for _, m := range []engine.Mutex{rw.Reader(), rw.Writer()} {
		for what, ctx := range map[string]context.Context{"alone": testkit.Ctx(t), "under its context": h.Context(testkit.Ctx(t))} {
			if _, err := m.TryLock(ctx); !errors.Is(err, engine.ErrKindConflict) {
				t.Errorf("beside a Mutex, %s: %v", what, err)
			}
		}
	}
	for _, m := range []engine.Mutex{other.RWMutex("x").Reader(), other.RWMutex("x").Writer()} {
		if _, err := m.TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("beside a Mutex of another process: %v", err)
		}
	}
	testkit.MustUnlock(t, h)
	for _, m := range []engine.Mutex{rw.Reader(), rw.Writer()} {
		h := testkit.MustLock(t, m)
		if _, err := e.Mutex("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrKindConflict) {
			t.Errorf("a Mutex beside it: %v", err)
		}
		if _, err := other.Mutex("x").TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("a Mutex of another process beside it: %v", err)
		}
		testkit.MustUnlock(t, h)
	}
	testkit.Clean(t, s, e, other)
}

func TestRWMutex_Watchdog_RenewsReadersAndWriters(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	lease := func(c *engine.Config) { c.Lease = 3 * time.Second }
	e, other := testkit.Open(t, s.URL(), lease), testkit.Open(t, s.URL(), lease)
	var held []*engine.Hold
	for range 5 {
		held = append(held, testkit.MustLock(t, e.RWMutex("x").Reader()), testkit.MustLock(t, other.RWMutex("x").Reader()))
	}
	held = append(held, testkit.MustLock(t, e.RWMutex("y").Writer()))
	long := testkit.MustLock(t, e.RWMutex("x").Reader(), engine.Lease(time.Hour))
	if left := testkit.PTTL(t, s, "x"); left < 59*time.Minute {
		t.Errorf("the lock has %v", left)
	}
	testkit.Eventually(t, "each was renewed", func() bool { return e.Stats().Renewed+other.Stats().Renewed > 40 })
	for _, h := range held {
		if h.Err() != nil {
			t.Error(h.Err())
		}
	}
	if left := testkit.PTTL(t, s, "x"); left < 59*time.Minute {
		t.Errorf("renewals of others leave it %v", left)
	}
	testkit.MustUnlock(t, long)
	if left := testkit.PTTL(t, s, "x"); left > 3*time.Second || left <= 0 {
		t.Errorf("without the long one it has %v", left)
	}
	for _, h := range held {
		testkit.MustUnlock(t, h)
	}
	testkit.Clean(t, s, e, other)
}

func TestRWMutex_ForceUnlock_EndsReadersAndWriters(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	l := e.RWMutex("x")
	if ok, err := l.Reader().ForceUnlock(testkit.Ctx(t)); ok || err != nil {
		t.Errorf("a free lock: %v, %v", ok, err)
	}
	one, two := testkit.MustLock(t, l.Reader()), testkit.MustLock(t, l.Reader(), engine.Lease(time.Minute))
	if ok, err := l.Writer().ForceUnlock(testkit.Ctx(t)); ok || err != nil {
		t.Errorf("the writer of what is read: %v, %v", ok, err)
	}
	if ok, err := l.Reader().ForceUnlock(testkit.Ctx(t), engine.IfHolder(one.Owner())); !ok || err != nil {
		t.Errorf("one reader: %v, %v", ok, err)
	}
	if ok, err := l.Reader().ForceUnlock(testkit.Ctx(t), engine.IfHolder(one.Owner())); ok || err != nil {
		t.Errorf("one reader, again: %v, %v", ok, err)
	}
	if err := one.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("its Unlock: %v", err)
	}
	testkit.MustUnlock(t, two)
	w := testkit.MustLock(t, l.Writer())
	if ok, err := l.Reader().ForceUnlock(testkit.Ctx(t), engine.IfHolder(w.Owner())); ok || err != nil {
		t.Errorf("the readers of what is written: %v, %v", ok, err)
	}
	if ok, err := l.Writer().ForceUnlock(testkit.Ctx(t), engine.IfHolder(w.Owner())); !ok || err != nil {
		t.Errorf("the writer: %v, %v", ok, err)
	}
	if err := w.Unlock(testkit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("its Unlock: %v", err)
	}
	testkit.Clean(t, s, e)
}

func TestRWMutex_Options_AreThoseOfAMutex(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	l := e.RWMutex("x")
	if _, err := l.Reader().TryLock(testkit.Ctx(t), engine.MinHold(time.Second)); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a reader with MinHold: %v", err)
	}
	w := testkit.MustLock(t, l.Writer(), engine.MinHold(2*time.Second))
	testkit.MustUnlock(t, w)
	for _, m := range []engine.Mutex{other.RWMutex("x").Reader(), other.RWMutex("x").Writer()} {
		if _, err := m.TryLock(testkit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("while nobody has it: %v", err)
		}
	}
	testkit.MustUnlock(t, testkit.MustLock(t, other.RWMutex("x").Reader()))

	r := testkit.MustLock(t, l.Reader(), engine.Lease(20*time.Second))
	if err := r.Extend(testkit.Ctx(t), time.Minute); err != nil {
		t.Error(err)
	}
	if left := min(testkit.PTTL(t, s, "x"), testkit.PTTL(t, s, "{x}:"+r.Owner()+":rwlock_timeout:1")); left < 50*time.Second {
		t.Errorf("after Extend it has %v", left)
	}
	testkit.MustUnlock(t, r)
	r = testkit.MustLock(t, l.Reader(), engine.MaxHold(4*time.Second), engine.NonReentrant())
	if _, err := l.Reader().TryLock(r.Context(testkit.Ctx(t)), engine.NonReentrant()); !errors.Is(err, engine.ErrReentry) {
		t.Errorf("NonReentrant: %v", err)
	}
	testkit.MustUnlock(t, r)
	ran, err := l.Reader().TryDo(testkit.Ctx(t), func(context.Context, *engine.Hold) error { return nil })
	if !ran || err != nil {
		t.Error(ran, err)
	}
	many, err := engine.Multi(e.RWMutex("a").Reader(), e.RWMutex("b").Reader()).Lock(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, testkit.MustLock(t, e.RWMutex("a").Reader()))
	if err := many.Unlock(testkit.Ctx(t)); err != nil {
		t.Error(err)
	}
	testkit.Clean(t, s, e, other)
}

// Read and write at random, from several processes, and nobody is beside a writer.
func TestRWMutex_Writer_IsAlone(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	var readers, writers atomic.Int32
	var all sync.WaitGroup
	engines := []*engine.Engine{testkit.Open(t, s.URL()), testkit.HandingOver(t, s.URL()), testkit.Open(t, s.URL())}
	for i, e := range engines {
		for j := range 8 {
			all.Go(func() {
				l := e.RWMutex("x")
				for k := range 40 {
					ctx := testkit.Ctx(t)
					if (i+j+k)%5 == 0 {
						h, err := l.Writer().Lock(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						if writers.Add(1) != 1 || readers.Load() != 0 {
							t.Error("somebody is beside a writer")
						}
						testkit.Stay(s)
						if k%2 == 0 {
							writers.Add(-1)
							if err := h.Unlock(ctx); err != nil {
								t.Error(err)
							}
							continue
						}
						readers.Add(1)
						writers.Add(-1)
						r, err := l.Downgrade(ctx, h)
						if err != nil {
							t.Error(err)
							return
						}
						if writers.Load() != 0 {
							t.Error("a writer is beside one that was one")
						}
						testkit.Stay(s)
						readers.Add(-1)
						testkit.MustUnlock(t, r)
						continue
					}
					h, err := l.Reader().Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					readers.Add(1)
					if writers.Load() != 0 {
						t.Error("a reader is beside a writer")
					}
					testkit.Stay(s)
					readers.Add(-1)
					if err := h.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	testkit.Clean(t, s, engines...)
}

// What readers have waited for is forgotten with them.
func TestRWMutex_ReadersThatWaited_LeaveNothing(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e, other := testkit.Open(t, s.URL()), testkit.Open(t, s.URL())
	w := testkit.MustLock(t, other.RWMutex("x").Writer())
	var waiting []*engine.Future[*engine.Hold]
	for range 50 {
		waiting = append(waiting, e.RWMutex("x").Reader().LockAsync(testkit.Ctx(t)))
	}
	testkit.Eventually(t, "they listen", func() bool { return testkit.Client(e).Stats().ChannelsConfirmed == 1 })
	testkit.MustUnlock(t, w)
	for _, f := range waiting {
		h, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
	}
	testkit.Eventually(t, "nothing is left", func() bool { return testkit.Inside(e).Names == 0 && e.Stats().Channels == 0 })
	testkit.Clean(t, s, e, other)
}

// A writer that others of its process wait for is released if somebody reads beside it: the next
// writer must have nobody beside it.
func TestRWMutex_WriterWithAReaderBesideIt_IsNotHandedOver(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.HandingOver(t, s.URL())
	l := e.RWMutex("x")
	w := testkit.MustLock(t, l.Writer())
	r, err := l.Reader().Lock(w.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	next := l.Writer().LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it waits", func() bool { return e.Stats().Waiting == 1 })
	testkit.MustUnlock(t, w)
	if _, err := next.Result(); !errors.Is(err, engine.ErrPending) {
		t.Fatalf("beside a reader: %v", err)
	}
	testkit.MustUnlock(t, r)
	h, err := next.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h)
	testkit.Clean(t, s, e)
}

// A writer waits for a reader of its process, whose release is announced to nobody, as the server refuses the
// message: the writer tries at once. It was told of a lease of an hour.
func TestRWMutex_ReaderMayNotPublish_WriterOfItsProcessTriesAtOnce(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	reader := testkit.MustLock(t, e.RWMutex("x").Reader(), engine.Lease(time.Hour))
	writer := e.RWMutex("x").Writer().LockAsync(testkit.Ctx(t))
	// It tries once more when it listens: then it sleeps.
	tries := func() int64 { return s.CommandStats()["evalsha"] }
	testkit.Eventually(t, "it listens", func() bool { return testkit.Client(e).Stats().ChannelsConfirmed > 0 })
	testkit.Eventually(t, "it has tried again", func() bool { return tries() >= 3 && e.Stats().InFlight == 0 })
	s.Do("ACL", "SETUSER", "default", "-publish", "-spublish")
	released := cputime.Now()
	testkit.MustUnlock(t, reader)
	h, err := writer.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := released.Elapsed(); d > 5*time.Second { // its own look comes after 15 s at least
		t.Errorf("granted after %v", d)
	}
	testkit.MustUnlock(t, h)
}
