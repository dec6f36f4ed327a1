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
	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/internal/cputime"
)

func TestRWMutex_Contended_ManyReadOrOneWrites(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
	here, there := e.RWMutex("x"), other.RWMutex("x")

	first, second, third := kit.MustLock(t, here.Reader()), kit.MustLock(t, here.Reader()), kit.MustLock(t, there.Reader())
	if st, err := there.State(kit.Ctx(t)); err != nil || st.Mode != "read" || len(st.Holders) != 2 || !st.Mine {
		t.Errorf("read by two processes: %+v, %v", st, err)
	}
	if first.Owner() != second.Owner() || first.Owner() == third.Owner() {
		t.Errorf("two of a process are %s and %s, one of another %s", first.Owner(), second.Owner(), third.Owner())
	}
	for _, l := range []engine.RWMutex{here, there} {
		if _, err := l.Writer().TryLock(kit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("a writer beside readers: %v", err)
		}
	}
	for _, h := range []*engine.Hold{first, second, third} {
		kit.MustUnlock(t, h)
	}
	w := kit.MustLock(t, there.Writer())
	st, err := here.State(kit.Ctx(t))
	if err != nil || st.Mode != "write" || len(st.Holders) != 1 || st.Holders[0].ID != w.Owner() || !strings.HasSuffix(w.Owner(), ":write") || st.Mine {
		t.Errorf("written: %+v, %v", st, err)
	}
	for _, m := range []engine.Mutex{here.Reader(), here.Writer(), there.Reader(), there.Writer()} {
		if _, err := m.TryLock(kit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("beside a writer: %v", err)
		}
	}
	kit.MustUnlock(t, w)
	kit.Clean(t, s, e, other)
}

func TestRWMutex_UnderItsOwnHold_Reenters(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e := kit.Open(t, s.URL())
	l := e.RWMutex("x")
	for _, m := range []engine.Mutex{l.Reader(), l.Writer()} {
		h := kit.MustLock(t, m)
		again, err := m.TryLock(h.Context(kit.Ctx(t)))
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "1", false: "2"}[m == l.Reader()] // the readers of a process are one
		if got := kit.Fields(t, s, "x")[h.Owner()]; got != want || again.Owner() != h.Owner() {
			t.Errorf("%s is counted %q, and re-entered by %s", h.Owner(), got, again.Owner())
		}
		kit.MustUnlock(t, again)
		if got := kit.Fields(t, s, "x")[h.Owner()]; got != "1" {
			t.Errorf("%s is counted %q after the re-entry", h.Owner(), got)
		}
		kit.MustUnlock(t, h)
		kit.Clean(t, s, e)
	}
}

func TestRWMutex_DowngradeOfNoWriter_IsInvalid(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
	l := e.RWMutex("x")
	r := kit.MustLock(t, e.RWMutex("y").Reader())
	w := kit.MustLock(t, l.Writer())
	again, err := l.Writer().TryLock(w.Context(kit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	//lint:ignore SA1012 that is the test
	_, err = l.Downgrade(nil, w)
	for what, err := range map[string]error{
		"nothing": kit.ErrOf(l.Downgrade(kit.Ctx(t), nil)), "a reader": kit.ErrOf(e.RWMutex("y").Downgrade(kit.Ctx(t), r)),
		"another lock": kit.ErrOf(e.RWMutex("y").Downgrade(kit.Ctx(t), w)), "another engine": kit.ErrOf(other.RWMutex("x").Downgrade(kit.Ctx(t), w)),
		"a re-entry": kit.ErrOf(l.Downgrade(kit.Ctx(t), again)), "the zero lock": kit.ErrOf(engine.RWMutex{}.Downgrade(kit.Ctx(t), w)), "no context": err,
	} {
		if !errors.Is(err, engine.ErrInvalid) || !errors.Is(err, engine.ErrNotAcquired) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if w.Err() != nil {
		t.Errorf("the writer: %v", w.Err())
	}
	kit.MustUnlock(t, again)
	kit.MustUnlock(t, w)
	if _, err := l.Downgrade(kit.Ctx(t), w); !errors.Is(err, engine.ErrReleased) {
		t.Errorf("one that was unlocked: %v", err)
	}
	w = kit.MustLock(t, l.Writer())
	if ok, err := other.RWMutex("x").Writer().ForceUnlock(kit.Ctx(t)); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := l.Downgrade(kit.Ctx(t), w); !errors.Is(err, engine.ErrNotAcquired) || !errors.Is(err, engine.ErrLost) {
		t.Errorf("one that was taken away: %v", err)
	}
	kit.MustUnlock(t, r)
	kit.Clean(t, s, e, other)
}

// A reader that comes while a writer of its process waits stays behind it, and asks no server;
// when the writer is done, it comes before the next one.
func TestRWMutex_ReadersAndWritersOfAProcess_TakeTurns(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e := kit.HandingOver(t, s.URL())
	l := e.RWMutex("x")
	r := kit.MustLock(t, l.Reader())
	one, two := l.Writer().LockAsync(kit.Ctx(t)), l.Writer().LockAsync(kit.Ctx(t))
	var late []*engine.Future[*engine.Hold]
	for range 10 {
		late = append(late, l.Reader().LockAsync(kit.Ctx(t)))
	}
	beside, err := l.Reader().TryLock(kit.Ctx(t)) // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	kit.MustUnlock(t, beside)
	again, err := l.Reader().TryLock(r.Context(kit.Ctx(t))) // it re-enters
	if err != nil {
		t.Fatal(err)
	}
	kit.MustUnlock(t, again)
	if got := len(kit.Fields(t, s, "x")); got != 2 {
		t.Errorf("%d fields, want the mode and the first reader", got)
	}
	_, err = l.Reader().Lock(kit.Ctx(t), engine.Wait(500*time.Millisecond))
	if !errors.Is(err, engine.ErrHeld) {
		t.Errorf("a reader behind a writer: %v", err)
	}

	kit.MustUnlock(t, r)
	w, err := one.Await(kit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	var held *engine.NotAcquiredError
	if _, err := l.Reader().TryLock(kit.Ctx(t)); !errors.As(err, &held) || !errors.Is(err, engine.ErrHeld) || held.TTL <= 0 {
		t.Errorf("beside a writer: %v", err)
	}
	kit.MustUnlock(t, w)
	for _, f := range late {
		h, err := f.Await(kit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := two.Result(); !errors.Is(err, engine.ErrPending) {
			t.Fatalf("the next writer came first: %v", err)
		}
		defer kit.MustUnlock(t, h)
	}
	two.Abandon()
}

func TestRWMutex_NameOfAMutex_IsRefused(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
	h := kit.MustLock(t, e.Mutex("x"))
	rw := e.RWMutex("x")
	for _, m := range []engine.Mutex{rw.Reader(), rw.Writer()} {
		for what, ctx := range map[string]context.Context{"alone": kit.Ctx(t), "under its context": h.Context(kit.Ctx(t))} {
			if _, err := m.TryLock(ctx); !errors.Is(err, engine.ErrKind) {
				t.Errorf("beside a Mutex, %s: %v", what, err)
			}
		}
	}
	for _, m := range []engine.Mutex{other.RWMutex("x").Reader(), other.RWMutex("x").Writer()} {
		if _, err := m.TryLock(kit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("beside a Mutex of another process: %v", err)
		}
	}
	kit.MustUnlock(t, h)
	for _, m := range []engine.Mutex{rw.Reader(), rw.Writer()} {
		h := kit.MustLock(t, m)
		if _, err := e.Mutex("x").TryLock(kit.Ctx(t)); !errors.Is(err, engine.ErrKind) {
			t.Errorf("a Mutex beside it: %v", err)
		}
		if _, err := other.Mutex("x").TryLock(kit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("a Mutex of another process beside it: %v", err)
		}
		kit.MustUnlock(t, h)
	}
	kit.Clean(t, s, e, other)
}

func TestRWMutex_Watchdog_RenewsReadersAndWriters(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	lease := func(c *engine.Config) { c.Lease = 3 * time.Second }
	e, other := kit.Open(t, s.URL(), lease), kit.Open(t, s.URL(), lease)
	var held []*engine.Hold
	for range 5 {
		held = append(held, kit.MustLock(t, e.RWMutex("x").Reader()), kit.MustLock(t, other.RWMutex("x").Reader()))
	}
	held = append(held, kit.MustLock(t, e.RWMutex("y").Writer()))
	long := kit.MustLock(t, e.RWMutex("x").Reader(), engine.Lease(time.Hour))
	if left := kit.PTTL(t, s, "x"); left < 59*time.Minute {
		t.Errorf("the lock has %v", left)
	}
	kit.Eventually(t, "each was renewed", func() bool { return e.Stats().Renewed+other.Stats().Renewed > 40 })
	for _, h := range held {
		if h.Err() != nil {
			t.Error(h.Err())
		}
	}
	if left := kit.PTTL(t, s, "x"); left < 59*time.Minute {
		t.Errorf("renewals of others leave it %v", left)
	}
	kit.MustUnlock(t, long)
	if left := kit.PTTL(t, s, "x"); left > 3*time.Second || left <= 0 {
		t.Errorf("without the long one it has %v", left)
	}
	for _, h := range held {
		kit.MustUnlock(t, h)
	}
	kit.Clean(t, s, e, other)
}

func TestRWMutex_ForceUnlock_EndsReadersAndWriters(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e := kit.Open(t, s.URL())
	l := e.RWMutex("x")
	if ok, err := l.Reader().ForceUnlock(kit.Ctx(t)); ok || err != nil {
		t.Errorf("a free lock: %v, %v", ok, err)
	}
	one, two := kit.MustLock(t, l.Reader()), kit.MustLock(t, l.Reader(), engine.Lease(time.Minute))
	if ok, err := l.Writer().ForceUnlock(kit.Ctx(t)); ok || err != nil {
		t.Errorf("the writer of what is read: %v, %v", ok, err)
	}
	if ok, err := l.Reader().ForceUnlock(kit.Ctx(t), engine.IfHolder(one.Owner())); !ok || err != nil {
		t.Errorf("one reader: %v, %v", ok, err)
	}
	if ok, err := l.Reader().ForceUnlock(kit.Ctx(t), engine.IfHolder(one.Owner())); ok || err != nil {
		t.Errorf("one reader, again: %v, %v", ok, err)
	}
	if err := one.Unlock(kit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("its Unlock: %v", err)
	}
	kit.MustUnlock(t, two)
	w := kit.MustLock(t, l.Writer())
	if ok, err := l.Reader().ForceUnlock(kit.Ctx(t), engine.IfHolder(w.Owner())); ok || err != nil {
		t.Errorf("the readers of what is written: %v, %v", ok, err)
	}
	if ok, err := l.Writer().ForceUnlock(kit.Ctx(t), engine.IfHolder(w.Owner())); !ok || err != nil {
		t.Errorf("the writer: %v, %v", ok, err)
	}
	if err := w.Unlock(kit.Ctx(t)); !errors.Is(err, engine.ErrLost) {
		t.Errorf("its Unlock: %v", err)
	}
	kit.Clean(t, s, e)
}

func TestRWMutex_Options_AreThoseOfAMutex(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
	l := e.RWMutex("x")
	if _, err := l.Reader().TryLock(kit.Ctx(t), engine.MinHold(time.Second)); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a reader with MinHold: %v", err)
	}
	w := kit.MustLock(t, l.Writer(), engine.MinHold(2*time.Second))
	kit.MustUnlock(t, w)
	for _, m := range []engine.Mutex{other.RWMutex("x").Reader(), other.RWMutex("x").Writer()} {
		if _, err := m.TryLock(kit.Ctx(t)); !errors.Is(err, engine.ErrHeld) {
			t.Errorf("while nobody has it: %v", err)
		}
	}
	kit.MustUnlock(t, kit.MustLock(t, other.RWMutex("x").Reader()))

	r := kit.MustLock(t, l.Reader(), engine.Lease(20*time.Second))
	if err := r.Extend(kit.Ctx(t), time.Minute); err != nil {
		t.Error(err)
	}
	if left := min(kit.PTTL(t, s, "x"), kit.PTTL(t, s, "{x}:"+r.Owner()+":rwlock_timeout:1")); left < 50*time.Second {
		t.Errorf("after Extend it has %v", left)
	}
	kit.MustUnlock(t, r)
	r = kit.MustLock(t, l.Reader(), engine.MaxHold(4*time.Second), engine.NonReentrant())
	if _, err := l.Reader().TryLock(r.Context(kit.Ctx(t)), engine.NonReentrant()); !errors.Is(err, engine.ErrReentry) {
		t.Errorf("NonReentrant: %v", err)
	}
	kit.MustUnlock(t, r)
	ran, err := l.Reader().TryDo(kit.Ctx(t), func(context.Context, *engine.Hold) error { return nil })
	if !ran || err != nil {
		t.Error(ran, err)
	}
	many, err := engine.Multi(e.RWMutex("a").Reader(), e.RWMutex("b").Reader()).Lock(kit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	kit.MustUnlock(t, kit.MustLock(t, e.RWMutex("a").Reader()))
	if err := many.Unlock(kit.Ctx(t)); err != nil {
		t.Error(err)
	}
	kit.Clean(t, s, e, other)
}

// Read and write at random, from several processes, and nobody is beside a writer.
func TestRWMutex_Writer_IsAlone(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	var readers, writers atomic.Int32
	var all sync.WaitGroup
	engines := []*engine.Engine{kit.Open(t, s.URL()), kit.HandingOver(t, s.URL()), kit.Open(t, s.URL())}
	for i, e := range engines {
		for j := range 8 {
			all.Go(func() {
				l := e.RWMutex("x")
				for k := range 40 {
					ctx := kit.Ctx(t)
					if (i+j+k)%5 == 0 {
						h, err := l.Writer().Lock(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						if writers.Add(1) != 1 || readers.Load() != 0 {
							t.Error("somebody is beside a writer")
						}
						kit.Stay(s)
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
						kit.Stay(s)
						readers.Add(-1)
						kit.MustUnlock(t, r)
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
					kit.Stay(s)
					readers.Add(-1)
					if err := h.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	kit.Clean(t, s, engines...)
}

// What readers have waited for is forgotten with them.
func TestRWMutex_ReadersThatWaited_LeaveNothing(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e, other := kit.Open(t, s.URL()), kit.Open(t, s.URL())
	w := kit.MustLock(t, other.RWMutex("x").Writer())
	var waiting []*engine.Future[*engine.Hold]
	for range 50 {
		waiting = append(waiting, e.RWMutex("x").Reader().LockAsync(kit.Ctx(t)))
	}
	kit.Eventually(t, "they listen", func() bool { return kit.Client(e).Stats().ChannelsConfirmed == 1 })
	kit.MustUnlock(t, w)
	for _, f := range waiting {
		h, err := f.Await(kit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		kit.MustUnlock(t, h)
	}
	kit.Eventually(t, "nothing is left", func() bool { return kit.Inside(e).Names == 0 && e.Stats().Channels == 0 })
	kit.Clean(t, s, e, other)
}

// A writer that others of its process wait for is released if somebody reads beside it: the next
// writer must have nobody beside it.
func TestRWMutex_WriterWithAReaderBesideIt_IsNotHandedOver(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e := kit.HandingOver(t, s.URL())
	l := e.RWMutex("x")
	w := kit.MustLock(t, l.Writer())
	r, err := l.Reader().Lock(w.Context(kit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	next := l.Writer().LockAsync(kit.Ctx(t))
	kit.Eventually(t, "it waits", func() bool { return e.Stats().Waiting == 1 })
	kit.MustUnlock(t, w)
	if _, err := next.Result(); !errors.Is(err, engine.ErrPending) {
		t.Fatalf("beside a reader: %v", err)
	}
	kit.MustUnlock(t, r)
	h, err := next.Await(kit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	kit.MustUnlock(t, h)
	kit.Clean(t, s, e)
}

// A writer waits for a reader of its process, whose release is announced to nobody, as the server refuses the
// message: the writer tries at once. It was told of a lease of an hour.
func TestRWMutex_ReaderMayNotPublish_WriterOfItsProcessTriesAtOnce(t *testing.T) {
	t.Parallel()
	s := kit.Server(t)
	e := kit.Open(t, s.URL())
	reader := kit.MustLock(t, e.RWMutex("x").Reader(), engine.Lease(time.Hour))
	writer := e.RWMutex("x").Writer().LockAsync(kit.Ctx(t))
	// It tries once more when it listens: then it sleeps.
	tries := func() int64 { return s.CommandStats()["evalsha"] }
	kit.Eventually(t, "it listens", func() bool { return kit.Client(e).Stats().ChannelsConfirmed > 0 })
	kit.Eventually(t, "it has tried again", func() bool { return tries() >= 3 && e.Stats().InFlight == 0 })
	s.Do("ACL", "SETUSER", "default", "-publish", "-spublish")
	released := cputime.Now()
	kit.MustUnlock(t, reader)
	h, err := writer.Await(kit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := released.Elapsed(); d > 5*time.Second { // its own look comes after 15 s at least
		t.Errorf("granted after %v", d)
	}
	kit.MustUnlock(t, h)
}
