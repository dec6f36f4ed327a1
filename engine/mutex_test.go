package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// With a silent replica a group takes AckTimeout, and those behind it wait for theirs.
func TestTryLock_BehindAnswersThatDoNotCome_Ends(t *testing.T) {
	t.Parallel()
	steady(t, func(t testing.TB) {
		r := redistest.StartReplicated(t, 1, redistest.Line("repl-timeout 300"))
		primary := r.Servers()[0]
		link := r.Through(r.Servers()[1], primary)
		e := open(t, primary.URL(), func(c *Config) { c.AckTimeout, c.CommandTimeout = time.Minute, 300*time.Millisecond })
		mustUnlock(t, mustLock(t, e.Mutex("x"), Acked(1)))
		link.Hold()
		stuck := e.Mutex("stuck").LockAsync(ctxT(t), Acked(1))
		eventually(t, "its WAIT is out", func() bool { return primary.Do("EXISTS", "stuck") == int64(1) })
		e.table.Lock.AckTimeout = 100 * time.Millisecond // as the deadline sees it
		_, err := e.Mutex("x").TryLock(ctxT(t), Acked(1))
		if !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("%v", err)
		}
		if primary.Do("EXISTS", "x") != int64(0) {
			t.Error("it was sent, into the WAIT")
		}
		// So does Wait: nobody has said that somebody else holds the lock.
		_, err = e.Mutex("y").Lock(ctxT(t), Acked(1), Wait(50*time.Millisecond))
		if errors.Is(err, ErrHeld) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
		stuck.Abandon()
		link.Release()
		clean(t, primary, e)
	})
}

// A re-entry without a Lease lasts as long as the hold that it re-enters, and so its
// replicas are those of the latest renewal of that.
func TestHold_AckedOfAReentry_IsThatOfTheLeaseItFollows(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	h := mustLock(t, e.Mutex("x"))
	child := mustReenter(t, e.Mutex("x"), mustReenter(t, e.Mutex("x"), h))
	fixed := mustReenter(t, e.Mutex("x"), child, Lease(time.Minute))
	now := e.clock.Now()
	oneOf(h).Renewable().Renewed(now, now, e.cfg.Lease, 2)
	if h.Acked() != 2 || child.Acked() != 2 || fixed.Acked() != 0 {
		t.Errorf("acknowledged by %d, the re-entry by %d, one with a lease of its own by %d", h.Acked(), child.Acked(), fixed.Acked())
	}
}

func TestReplicas_BadNumber_IsRefusedWithItsName(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	for _, r := range []Replicas{-3, maxReplicas + 1} {
		if _, err := e.Mutex("x").Lock(ctxT(t), Acked(r)); !errors.Is(err, ErrInvalid) || !hasText(err, "Acked") {
			t.Errorf("Acked(%d): %v", r, err)
		}
		if _, err := New(ctxT(t), Config{Replicas: r}); !errors.Is(err, ErrInvalid) || !hasText(err, "Config.Replicas") {
			t.Errorf("Config.Replicas %d: %v", r, err)
		}
	}
	if _, err := New(ctxT(t), Config{AckTimeout: time.Microsecond}); !errors.Is(err, ErrInvalid) || !hasText(err, "AckTimeout") {
		t.Errorf("%v", err)
	}
	for _, s := range []string{"some", "-1", "1.5", "", "99999999999999999999"} {
		if _, err := ParseURL("redis://h?replicas=" + s); !errors.Is(err, ErrInvalid) || !hasText(err, "replicas") {
			t.Errorf("replicas=%s: %v", s, err)
		}
	}
	for s, want := range map[string]Replicas{"all": AllReplicas, "majority": MajorityOfReplicas, "0": 0, "2": 2} {
		c, err := ParseURL("redis://h?ack_timeout=250ms&replicas=" + s)
		if err != nil || c.Replicas != want || c.AckTimeout != 250*time.Millisecond {
			t.Errorf("%s: %+v, %v", s, c, err)
		}
	}
	if c := (Config{Lease: 3 * time.Second}).withDefaults(); c.AckTimeout != 500*time.Millisecond {
		t.Errorf("AckTimeout %v at a lease of 3s", c.AckTimeout)
	}
}

// Each of many that contend in one process has a grant, and a token, of its own: the lock is
// never handed over silently.
func TestFencedMutex_WaitersOfOneProcess_TokensRise(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := handsOver(t, s.URL())
	m := e.FencedMutex("x")
	const n = 50
	var futures []*Future[*Hold]
	for range n {
		futures = append(futures, m.LockAsync(ctxT(t)))
	}
	last, owners, before := int64(0), make(map[string]bool), uint64(0)
	eventually(t, "the first has it", func() bool { return viewOf(e, "x").Depth > 0 })
	before = e.Stats().Commands
	for _, f := range futures { // first come, first served
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if h.Token() <= last {
			t.Fatalf("token %d after %d", h.Token(), last)
		}
		last = h.Token()
		owners[h.Owner()] = true
		if held := fields(t, s, "x"); len(held) != 1 || held[h.Owner()] != "1" {
			t.Fatalf("the server has %v, and it is %s's", held, h.Owner())
		}
		mustUnlock(t, h)
	}
	if st := e.Stats(); st.HandedOver != n-1 || last != n || len(owners) != n {
		t.Errorf("%d passed on, last token %d, %d owners", st.HandedOver, last, len(owners))
	}
	// A command for each who was next, and the last release; and perhaps the channel and a look.
	if used := e.Stats().Commands - before; used > n+2 {
		t.Errorf("%d commands for %d holds", used, n)
	}
}

// handsOver is an engine that hands locks over for a minute, so that a test is not in a hurry. It does not listen for
// questions, as it would after a second, with a command for that: the tests count them.
func handsOver(t *testing.T, url string, change ...func(*Config)) *Engine {
	t.Helper()
	return open(t, url, append([]func(*Config){func(c *Config) { c.HandOverTime = time.Minute }}, change...)...)
}

func TestMutex_UnlockWithALocalWaiter_SendsNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	var local atomic.Int32
	e := handsOver(t, s.URL(), func(c *Config) {
		c.Observer = ObserverFuncs{OnAcquireEnd: func(_ context.Context, _ Acquisition, end AcquireEnd) {
			if end.HandedOver {
				local.Add(1)
			}
		}}
	})
	m := e.Mutex("x")
	h := mustLock(t, m)
	owner := h.Owner()
	ctx := h.Context(ctxT(t))
	const n = 100
	var waiting []*Future[*Hold]
	for range n {
		waiting = append(waiting, m.LockAsync(ctxT(t)))
	}
	// The confirmation has the hold looked at, once, within a quantum of the renewals.
	eventually(t, "the channel is confirmed", func() bool { return viewOf(e, "x").Channel == lock.Heard && e.Stats().Renewed > 0 })
	before := e.Stats().Commands
	for i, f := range waiting {
		mustUnlock(t, h)
		if i == 0 && !errors.Is(context.Cause(ctx), ErrReleased) {
			t.Errorf("the context of the first: %v", context.Cause(ctx))
		}
		next, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		if next.Owner() != owner || next.Err() != nil || time.Until(next.ValidUntil()) < 20*time.Second {
			t.Fatalf("owner %s, was %s; %v, until %v", next.Owner(), owner, next.Err(), next.ValidUntil())
		}
		if err := h.Err(); err != ErrReleased || time.Until(h.ValidUntil()) > 0 {
			t.Fatalf("the one before: %v, until %v", err, h.ValidUntil())
		}
		if err := h.Unlock(ctxT(t)); !errors.Is(err, ErrNotHeld) {
			t.Fatalf("unlocked again: %v", err)
		}
		h = next
	}
	if after := e.Stats(); after.Commands != before || after.HandedOver != n {
		t.Errorf("%d commands for %d hand-overs", after.Commands-before, after.HandedOver)
	}
	if st, err := m.State(ctxT(t)); err != nil || !st.Mine || len(st.Holders) != 1 || st.Holders[0].Count != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	again := mustReenter(t, m, h)
	mustUnlock(t, again)
	mustUnlock(t, h)
	if left := fields(t, s, "x"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	eventually(t, "the hook hears of all", func() bool { return local.Load() == n })
}

// A MultiLock that gets one lock, and not the other, gives it back, perhaps on an event loop. If
// the next one, which fares the same, got it in that call, and so on, the stack would grow with
// the number of those who wait.
func TestMultiLock_GivesBack_IsNotHandedOver(t *testing.T) {
	t.Parallel()
	e := handsOver(t, server(t).URL())
	a, b := mustLock(t, e.Mutex("a")), mustLock(t, e.Mutex("b"))
	const n = 200
	var waiting []*Future[*Hold]
	for range n {
		waiting = append(waiting, Multi(e.Mutex("a"), e.Mutex("b")).LockAsync(ctxT(t)))
	}
	eventually(t, "all wait for the first lock", func() bool { return viewOf(e, "a").Waiters == n })
	mustUnlock(t, a)
	eventually(t, "all wait for the second lock", func() bool { return viewOf(e, "b").Waiters == n })
	if handed := e.Stats().HandedOver; handed != 1 {
		t.Errorf("%d hand-overs, want that of the user's Unlock", handed)
	}
	for _, f := range waiting {
		f.Abandon()
	}
	mustUnlock(t, b)
}

// The release of a SpinMutex is announced to nobody. A waiter of the same process needs no
// message; and one that polls does not sleep until a message comes, because of another that
// waited before it and does.
func TestSpinMutex_BesideAMutexOfItsName_WaitsInOneQueue(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := open(t, s.URL()), open(t, s.URL())
	h := mustLock(t, e.SpinMutex("x"))
	fut := e.Mutex("x").LockAsync(ctxT(t))
	eventually(t, "it waits", func() bool { return e.Stats().Waiting == 1 })
	mustUnlock(t, h)
	next, err := fut.Await(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, next)

	// Elsewhere a SpinMutex has it for long. A Mutex waits for a message, then a SpinMutex.
	far := mustLock(t, other.SpinMutex("y"))
	first, second := e.Mutex("y").LockAsync(ctxT(t)), e.SpinMutex("y").LockAsync(ctxT(t))
	eventually(t, "the first is subscribed and asleep", func() bool {
		v := viewOf(e, "y")
		return v.Channel == lock.Heard && v.Head == lock.Asleep
	})
	first.Abandon()
	eventually(t, "it is gone", func() bool { return e.Stats().Waiting == 1 })
	mustUnlock(t, far)
	began := cputime.Now()
	if next, err = second.Await(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	if took := began.Elapsed(); took > 5*time.Second {
		t.Errorf("the SpinMutex got it after %v", took)
	}
	mustUnlock(t, next)
}

// A Mutex that waits in another process counts on the message of a Mutex, whoever of the holder's
// process had the lock before that.
func TestMutex_HandedOverByASpinMutex_AnnouncesItsRelease(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := handsOver(t, s.URL()), open(t, s.URL())
	h := mustLock(t, e.SpinMutex("x"))
	next, far := e.Mutex("x").LockAsync(ctxT(t)), other.Mutex("x").LockAsync(ctxT(t))
	eventually(t, "the other process listens and sleeps", func() bool {
		v := viewOf(other, "x")
		return v.Channel == lock.Heard && v.Head == lock.Asleep
	})
	both := []*Future[*Hold]{next, far} // mostly in this order, but the grant may not be handed over
	for _, f := range both {
		f.OnComplete(func(h *Hold, err error) {
			if err == nil {
				h.UnlockAsync()
			}
		})
	}
	mustUnlock(t, h)
	for _, f := range both {
		if _, err := f.Await(ctxT(t)); err != nil {
			t.Error(err)
		}
	}
}

// viewOf is the state of a name, zero if it has none.
func viewOf(e *Engine, name string) (v lock.View) {
	sh := e.table.Shard(e.table.Client.Route(name))
	sh.Lock()
	defer sh.Unlock()
	if r := sh.Locks.Find(name); r != nil {
		v = r.View()
	}
	return v
}

// A Downgrade that fails leaves nothing with the writer.
func TestRWMutex_DowngradeThatFails_LeavesNoContext(t *testing.T) {
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

// A read lock under the context of the writer is another hold, which stays. A write lock under
// the context of a reader would wait for itself.
func TestRWMutex_ReaderBesideItsWriter_IsGranted(t *testing.T) {
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

	began := cputime.Now()
	for _, once := range []bool{true, false} {
		_, err := l.Writer().acquire(one.Context(ctxT(t)), nil, once)
		if !errors.Is(err, ErrReentry) || !errors.Is(err, ErrNotAcquired) {
			t.Errorf("an upgrade: %v", err)
		}
	}
	if _, err := Multi(l.Writer()).TryLock(one.Context(ctxT(t))); !errors.Is(err, ErrReentry) {
		t.Errorf("an upgrade of many: %v", err)
	}
	if took := began.Elapsed(); took > time.Second {
		t.Errorf("an upgrade fails after %v", took)
	}
	mustUnlock(t, one)
	mustUnlock(t, two)
	clean(t, s, e, other)
}

func TestRWMutex_Downgrade_LetsNoWriterIn(t *testing.T) {
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
	began := cputime.Now()
	for name, f := range map[string]*Future[*Hold]{"another process": remote, "this process": local} {
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatalf("a reader of %s: %v", name, err)
		}
		defer mustUnlock(t, h)
	}
	if took := began.Elapsed(); took > 5*time.Second {
		t.Errorf("readers are woken after %v", took)
	}
	if _, err := far.Result(); !errors.Is(err, ErrPending) {
		t.Errorf("a writer beside readers: %v", err)
	}
	far.Abandon()
	mustUnlock(t, r)
}

// Those that are behind a writer that gives up go on, too; and those that give up are forgotten.
func TestRWMutex_WriterGivesUp_ReadersBehindItAreGranted(t *testing.T) {
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
	r := sh.Locks.Find(name)
	return r != nil && r.View().Channel == lock.Heard && r.View().Head == lock.Asleep
}

// A reader that is dead keeps a writer out no longer than its lease, even if others read.
func TestRWMutex_ReaderThatIsGone_BlocksForItsLeaseAtMost(t *testing.T) {
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
	began := cputime.Now()
	h, err := w.Await(ctxT(t))
	if took := began.Elapsed(); err != nil || took > 2*time.Second {
		t.Fatalf("%v, after %v", err, took)
	}
	mustUnlock(t, h)
	clean(t, s, e)
}
