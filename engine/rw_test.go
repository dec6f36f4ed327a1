package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/kind"
)

func TestManyReadOrOneWrites(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	here, there := e.RWMutex("x"), other.RWMutex("x")

	first, second, third := mustLock(t, here.Reader()), mustLock(t, here.Reader()), mustLock(t, there.Reader())
	if st, err := there.State(ctxT(t)); err != nil || st.Mode != "read" || len(st.Holders) != 2 || !st.Mine {
		t.Errorf("read by two processes: %+v, %v", st, err)
	}
	if first.Owner() != second.Owner() || first.Owner() == third.Owner() {
		t.Errorf("two of a process are %s and %s, one of another %s", first.Owner(), second.Owner(), third.Owner())
	}
	for _, l := range []RWMutex{here, there} {
		if _, err := l.Writer().TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
			t.Errorf("a writer beside readers: %v", err)
		}
	}
	for _, h := range []*Hold{first, second, third} {
		mustUnlock(t, h)
	}
	w := mustLock(t, there.Writer())
	st, err := here.State(ctxT(t))
	if err != nil || st.Mode != "write" || len(st.Holders) != 1 || st.Holders[0].ID != w.Owner() || !strings.HasSuffix(w.Owner(), ":write") || st.Mine {
		t.Errorf("written: %+v, %v", st, err)
	}
	for _, m := range []Mutex{here.Reader(), here.Writer(), there.Reader(), there.Writer()} {
		if _, err := m.TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
			t.Errorf("beside a writer: %v", err)
		}
	}
	mustUnlock(t, w)
	clean(t, s, e, other)
}

func TestReadersAndWritersReenterThemselves(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	l := e.RWMutex("x")
	for _, m := range []Mutex{l.Reader(), l.Writer()} {
		h := mustLock(t, m)
		again, err := m.TryLock(h.Context(ctxT(t)))
		if err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "1", false: "2"}[m == l.Reader()] // the readers of a process are one
		if got := fields(t, s, "x")[h.Owner()]; got != want || again.Owner() != h.Owner() {
			t.Errorf("%s is counted %q, and re-entered by %s", h.Owner(), got, again.Owner())
		}
		mustUnlock(t, again)
		if got := fields(t, s, "x")[h.Owner()]; got != "1" {
			t.Errorf("%s is counted %q after the re-entry", h.Owner(), got)
		}
		mustUnlock(t, h)
		clean(t, s, e)
	}
}

// A read lock under the context of the writer is another hold, which stays. A write lock under
// the context of a reader would wait for itself.
func TestAReaderBesideItsWriter(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	l := e.RWMutex("x")
	w := mustLock(t, l.Writer())
	ctx := w.Context(ctxT(t))
	one, err := l.Reader().Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	two, err := l.Reader().TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	within, err := l.Writer().TryLock(one.Context(ctx)) // the writer is there, further out
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, within)
	mustUnlock(t, w)
	if one.Err() != nil || two.Err() != nil {
		t.Errorf("with the writer ended %v, %v", one.Err(), two.Err())
	}
	if _, err := other.RWMutex("x").Writer().TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("a writer beside them: %v", err)
	}
	mustUnlock(t, mustLock(t, other.RWMutex("x").Reader()))

	began := time.Now()
	for _, once := range []bool{true, false} {
		_, err := l.Writer().acquire(one.Context(ctxT(t)), nil, once)
		if !errors.Is(err, ErrReentry) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("an upgrade: %v", err)
		}
	}
	if _, err := Multi(l.Writer()).TryLock(one.Context(ctxT(t))); !errors.Is(err, ErrReentry) {
		t.Errorf("an upgrade of many: %v", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("an upgrade fails after %v", took)
	}
	mustUnlock(t, one)
	mustUnlock(t, two)
	clean(t, s, e, other)
}

func TestDowngradeLeavesNoMomentToAWriter(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	l := e.RWMutex("x")
	w := mustLock(t, l.Writer())
	ctx := w.Context(ctxT(t))
	remote, far := other.RWMutex("x").Reader().LockAsync(ctxT(t)), other.RWMutex("x").Writer().LockAsync(ctxT(t))
	local := l.Reader().LockAsync(ctxT(t))
	eventually(t, "the other process sleeps", func() bool { return asleep(other, "x") })

	r, err := l.Downgrade(ctxT(t), w)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(w.Err(), ErrReleased) || ctx.Err() == nil {
		t.Errorf("the writer has ended with %v, its context with %v", w.Err(), ctx.Err())
	}
	began := time.Now()
	for name, f := range map[string]*Future[*Hold]{"another process": remote, "this process": local} {
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatalf("a reader of %s: %v", name, err)
		}
		defer mustUnlock(t, h)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("readers are woken after %v", took)
	}
	if _, err := far.Result(); !errors.Is(err, ErrPending) {
		t.Errorf("a writer beside readers: %v", err)
	}
	far.Abandon()
	mustUnlock(t, r)
}

func TestDowngradeOfWhatIsNoWriter(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	l := e.RWMutex("x")
	r := mustLock(t, e.RWMutex("y").Reader())
	w := mustLock(t, l.Writer())
	again, err := l.Writer().TryLock(w.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	//lint:ignore SA1012 that is the test
	_, err = l.Downgrade(nil, w)
	for what, err := range map[string]error{
		"nothing": errOf(l.Downgrade(ctxT(t), nil)), "a reader": errOf(e.RWMutex("y").Downgrade(ctxT(t), r)),
		"another lock": errOf(e.RWMutex("y").Downgrade(ctxT(t), w)), "another engine": errOf(other.RWMutex("x").Downgrade(ctxT(t), w)),
		"a re-entry": errOf(l.Downgrade(ctxT(t), again)), "the zero lock": errOf(RWMutex{}.Downgrade(ctxT(t), w)), "no context": err,
	} {
		if !errors.Is(err, ErrInvalid) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if w.Err() != nil {
		t.Errorf("the writer: %v", w.Err())
	}
	mustUnlock(t, again)
	mustUnlock(t, w)
	if _, err := l.Downgrade(ctxT(t), w); !errors.Is(err, ErrReleased) {
		t.Errorf("one that was unlocked: %v", err)
	}
	w = mustLock(t, l.Writer())
	if ok, err := other.RWMutex("x").Writer().ForceUnlock(ctxT(t)); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := l.Downgrade(ctxT(t), w); !errors.Is(err, ErrNotAcquired) || !errors.Is(err, ErrLost) {
		t.Errorf("one that was taken away: %v", err)
	}
	mustUnlock(t, r)
	clean(t, s, e, other)
}

// A reader that comes while a writer of its process waits stays behind it, and asks no server;
// when the writer is done, it comes before the next one.
func TestReadersAndWritersOfAProcessTakeTurns(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := handsOver(t, s.URL())
	l := e.RWMutex("x")
	r := mustLock(t, l.Reader())
	one, two := l.Writer().LockAsync(ctxT(t)), l.Writer().LockAsync(ctxT(t))
	var late []*Future[*Hold]
	for range 10 {
		late = append(late, l.Reader().LockAsync(ctxT(t)))
	}
	beside, err := l.Reader().TryLock(ctxT(t)) // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, beside)
	again, err := l.Reader().TryLock(r.Context(ctxT(t))) // it re-enters
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, again)
	if got := len(fields(t, s, "x")); got != 2 {
		t.Errorf("%d fields, want the mode and the first reader", got)
	}
	_, err = l.Reader().Lock(ctxT(t), Wait(500*time.Millisecond))
	if !errors.Is(err, ErrHeld) {
		t.Errorf("a reader behind a writer: %v", err)
	}

	mustUnlock(t, r)
	w, err := one.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	var held *NotAcquiredError
	if _, err := l.Reader().TryLock(ctxT(t)); !errors.As(err, &held) || !errors.Is(err, ErrHeld) || held.TTL <= 0 {
		t.Errorf("beside a writer: %v", err)
	}
	mustUnlock(t, w)
	for _, f := range late {
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := two.Result(); !errors.Is(err, ErrPending) {
			t.Fatalf("the next writer came first: %v", err)
		}
		defer mustUnlock(t, h)
	}
	two.Abandon()
}

// Those that are behind a writer that gives up go on, too; and those that give up are forgotten.
func TestReadersBehindAWriterThatGivesUp(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	r := mustLock(t, other.RWMutex("x").Reader())
	l := e.RWMutex("x")
	w, one, two := l.Writer().LockAsync(ctxT(t)), l.Reader().LockAsync(ctxT(t)), l.Reader().LockAsync(ctxT(t))
	eventually(t, "the writer waits", func() bool { return asleep(e, "x") })
	one.Abandon()
	if _, err := two.Result(); !errors.Is(err, ErrPending) {
		t.Errorf("a reader behind a writer: %v", err)
	}
	w.Abandon()
	h, err := two.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
	mustUnlock(t, r)
	clean(t, s, e, other)
}

// asleep reports whether the channel of a name's writers is confirmed, and they sleep.
func asleep(e *Engine, name string) bool {
	sh := e.table.Shard(e.table.Client.Route(name))
	sh.Lock()
	defer sh.Unlock()
	r := sh.Find(drive.Key{Name: name, Kind: kind.Write})
	return r != nil && r.View().Confirmed && r.View().Asleep
}

func TestAnRWMutexAndAMutexOfOneName(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	h := mustLock(t, e.Mutex("x"))
	rw := e.RWMutex("x")
	for _, m := range []Mutex{rw.Reader(), rw.Writer()} {
		for what, ctx := range map[string]context.Context{"alone": ctxT(t), "under its context": h.Context(ctxT(t))} {
			if _, err := m.TryLock(ctx); !errors.Is(err, ErrKind) {
				t.Errorf("beside a Mutex, %s: %v", what, err)
			}
		}
	}
	for _, m := range []Mutex{other.RWMutex("x").Reader(), other.RWMutex("x").Writer()} {
		if _, err := m.TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
			t.Errorf("beside a Mutex of another process: %v", err)
		}
	}
	mustUnlock(t, h)
	for _, m := range []Mutex{rw.Reader(), rw.Writer()} {
		h := mustLock(t, m)
		if _, err := e.Mutex("x").TryLock(ctxT(t)); !errors.Is(err, ErrKind) {
			t.Errorf("a Mutex beside it: %v", err)
		}
		if _, err := other.Mutex("x").TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
			t.Errorf("a Mutex of another process beside it: %v", err)
		}
		mustUnlock(t, h)
	}
	clean(t, s, e, other)
}

func TestTheWatchdogRenewsReadersAndWriters(t *testing.T) {
	t.Parallel()
	s := server(t)
	lease := func(c *Config) { c.Lease = 3 * time.Second }
	e, other := open(t, s.URL(), lease), open(t, s.URL(), lease)
	var held []*Hold
	for range 5 {
		held = append(held, mustLock(t, e.RWMutex("x").Reader()), mustLock(t, other.RWMutex("x").Reader()))
	}
	held = append(held, mustLock(t, e.RWMutex("y").Writer()))
	long := mustLock(t, e.RWMutex("x").Reader(), Lease(time.Hour))
	if left := pttl(t, s, "x"); left < 59*time.Minute {
		t.Errorf("the lock has %v", left)
	}
	eventually(t, "each was renewed", func() bool { return e.Stats().Renewed+other.Stats().Renewed > 40 })
	for _, h := range held {
		if h.Err() != nil {
			t.Error(h.Err())
		}
	}
	if left := pttl(t, s, "x"); left < 59*time.Minute {
		t.Errorf("renewals of others leave it %v", left)
	}
	mustUnlock(t, long)
	if left := pttl(t, s, "x"); left > 3*time.Second || left <= 0 {
		t.Errorf("without the long one it has %v", left)
	}
	for _, h := range held {
		mustUnlock(t, h)
	}
	clean(t, s, e, other)
}

// A reader that is dead keeps a writer out no longer than its lease, even if others read.
func TestAReaderThatIsGoneBlocksNoLongerThanItsLease(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	l := e.RWMutex("x")
	dead := "11111111-2222-4333-8444-555555555555:7"
	alive := mustLock(t, l.Reader())
	s.Do("HSET", "x", dead, "2")
	s.Do("SET", "{x}:"+dead+":rwlock_timeout:1", "1", "PX", "300")
	s.Do("SET", "{x}:"+dead+":rwlock_timeout:2", "1", "PX", "100")
	w := l.Writer().LockAsync(ctxT(t))
	eventually(t, "the writer waits", func() bool { return asleep(e, "x") })
	mustUnlock(t, alive) // after which nobody says anything
	began := time.Now()
	h, err := w.Await(ctxT(t))
	if took := time.Since(began); err != nil || took > 2*time.Second {
		t.Fatalf("%v, after %v", err, took)
	}
	mustUnlock(t, h)
	clean(t, s, e)
}

func TestForceUnlockOfReadersAndWriters(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	l := e.RWMutex("x")
	if ok, err := l.Reader().ForceUnlock(ctxT(t)); ok || err != nil {
		t.Errorf("a free lock: %v, %v", ok, err)
	}
	one, two := mustLock(t, l.Reader()), mustLock(t, l.Reader(), Lease(time.Minute))
	if ok, err := l.Writer().ForceUnlock(ctxT(t)); ok || err != nil {
		t.Errorf("the writer of what is read: %v, %v", ok, err)
	}
	if ok, err := l.Reader().ForceUnlock(ctxT(t), IfHolder(one.Owner())); !ok || err != nil {
		t.Errorf("one reader: %v, %v", ok, err)
	}
	if ok, err := l.Reader().ForceUnlock(ctxT(t), IfHolder(one.Owner())); ok || err != nil {
		t.Errorf("one reader, again: %v, %v", ok, err)
	}
	if err := one.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Errorf("its Unlock: %v", err)
	}
	mustUnlock(t, two)
	w := mustLock(t, l.Writer())
	if ok, err := l.Reader().ForceUnlock(ctxT(t), IfHolder(w.Owner())); ok || err != nil {
		t.Errorf("the readers of what is written: %v, %v", ok, err)
	}
	if ok, err := l.Writer().ForceUnlock(ctxT(t), IfHolder(w.Owner())); !ok || err != nil {
		t.Errorf("the writer: %v, %v", ok, err)
	}
	if err := w.Unlock(ctxT(t)); !errors.Is(err, ErrLost) {
		t.Errorf("its Unlock: %v", err)
	}
	clean(t, s, e)
}

func TestOptionsOfAnRWMutex(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	l := e.RWMutex("x")
	if _, err := l.Reader().TryLock(ctxT(t), MinHold(time.Second)); !errors.Is(err, ErrInvalid) {
		t.Errorf("a reader with MinHold: %v", err)
	}
	w := mustLock(t, l.Writer(), MinHold(2*time.Second))
	mustUnlock(t, w)
	for _, m := range []Mutex{other.RWMutex("x").Reader(), other.RWMutex("x").Writer()} {
		if _, err := m.TryLock(ctxT(t)); !errors.Is(err, ErrHeld) {
			t.Errorf("while nobody has it: %v", err)
		}
	}
	mustUnlock(t, mustLock(t, other.RWMutex("x").Reader()))

	r := mustLock(t, l.Reader(), Lease(20*time.Second))
	if err := r.Extend(ctxT(t), time.Minute); err != nil {
		t.Error(err)
	}
	if left := min(pttl(t, s, "x"), pttl(t, s, "{x}:"+r.Owner()+":rwlock_timeout:1")); left < 50*time.Second {
		t.Errorf("after Extend it has %v", left)
	}
	mustUnlock(t, r)
	r = mustLock(t, l.Reader(), MaxHold(4*time.Second), NonReentrant())
	if _, err := l.Reader().TryLock(r.Context(ctxT(t)), NonReentrant()); !errors.Is(err, ErrReentry) {
		t.Errorf("NonReentrant: %v", err)
	}
	mustUnlock(t, r)
	ran, err := l.Reader().TryDo(ctxT(t), func(context.Context, *Hold) error { return nil })
	if !ran || err != nil {
		t.Error(ran, err)
	}
	many, err := Multi(e.RWMutex("a").Reader(), e.RWMutex("b").Reader()).Lock(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, mustLock(t, e.RWMutex("a").Reader()))
	if err := many.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
	clean(t, s, e, other)
}

// Read and write at random, from several processes, and nobody is beside a writer.
func TestNobodyIsBesideAWriter(t *testing.T) {
	t.Parallel()
	s := server(t)
	var readers, writers atomic.Int32
	var all sync.WaitGroup
	engines := []*Engine{open(t, s.URL()), handsOver(t, s.URL()), open(t, s.URL())}
	for i, e := range engines {
		for j := range 8 {
			all.Go(func() {
				l := e.RWMutex("x")
				for k := range 40 {
					ctx := ctxT(t)
					if (i+j+k)%5 == 0 {
						h, err := l.Writer().Lock(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						if writers.Add(1) != 1 || readers.Load() != 0 {
							t.Error("somebody is beside a writer")
						}
						stay(s)
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
						stay(s)
						readers.Add(-1)
						mustUnlock(t, r)
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
					stay(s)
					readers.Add(-1)
					if err := h.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	clean(t, s, engines...)
}

// What readers have waited for is forgotten with them.
func TestReadersThatWaitedLeaveNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	w := mustLock(t, other.RWMutex("x").Writer())
	var waiting []*Future[*Hold]
	for range 50 {
		waiting = append(waiting, e.RWMutex("x").Reader().LockAsync(ctxT(t)))
	}
	eventually(t, "they listen", func() bool { return connected(e).Stats().ChannelsConfirmed == 1 })
	mustUnlock(t, w)
	for _, f := range waiting {
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
	}
	eventually(t, "nothing is left", func() bool { return inspect(e).Names == 0 && e.Stats().Channels == 0 })
	clean(t, s, e, other)
}

// A writer that others of its process wait for is released if somebody reads beside it: the next
// writer must have nobody beside it.
func TestAWriterWithAReaderBesideItIsNotHandedOver(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := handsOver(t, s.URL())
	l := e.RWMutex("x")
	w := mustLock(t, l.Writer())
	r, err := l.Reader().Lock(w.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	next := l.Writer().LockAsync(ctxT(t))
	eventually(t, "it waits", func() bool { return e.Stats().Waiting == 1 })
	mustUnlock(t, w)
	if _, err := next.Result(); !errors.Is(err, ErrPending) {
		t.Fatalf("beside a reader: %v", err)
	}
	mustUnlock(t, r)
	h, err := next.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, h)
	clean(t, s, e)
}
