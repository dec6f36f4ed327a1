package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/driver"
	"github.com/pawl-lock/pawl/engine/internal/kind"
)

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
	r := sh.Find(driver.Key{Name: name, Kind: kind.Write})
	return r != nil && r.View().Confirmed && r.View().Asleep
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
	began := time.Now()
	h, err := w.Await(ctxT(t))
	if took := time.Since(began); err != nil || took > 2*time.Second {
		t.Fatalf("%v, after %v", err, took)
	}
	mustUnlock(t, h)
	clean(t, s, e)
}
