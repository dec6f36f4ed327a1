package redlock

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
)

func errlessRedLock(t testing.TB, l engine.QuorumLock, ctx context.Context) *engine.Hold {
	t.Helper()
	h, err := l.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// inside is a RedLock of three servers, held at all of them, and what may be asked for inside it.
type inside struct {
	*testkit.Independents
	engines testkit.Voters
	kind    func(*engine.Engine) engine.Mutex // of the outer hold
	outer   *engine.Hold
	lock    engine.QuorumLock
}

// granted waits for what was asked for, and gives all back.
func (in *inside) granted(t *testing.T, f *engine.Future[*engine.Hold]) {
	t.Helper()
	h, err := f.Await(testkit.Ctx(t))
	in.Servers[2].Cont()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.outer.Err(), h.Unlock(testkit.Ctx(t)), in.outer.Unlock(testkit.Ctx(t))); err != nil {
		t.Error(err)
	}
	in.Clean(in.engines)
}

// newInside holds a RedLock of mutexes.
func newInside(t *testing.T) *inside {
	x := func(e *engine.Engine) engine.Mutex { return e.Mutex("x") }
	return insideOf(t, x, x)
}

func insideOf(t *testing.T, outer, inner func(*engine.Engine) engine.Mutex) *inside {
	s := testkit.Independent(t, 3)
	in := &inside{Independents: s, engines: s.Open(), kind: outer}
	var outside, inside []engine.Mutex
	for _, e := range in.engines {
		outside, inside = append(outside, outer(e)), append(inside, inner(e))
	}
	in.outer, in.lock = testkit.MustRedLock(t, engine.RedLock(outside...)), engine.RedLock(inside...)
	testkit.Eventually(t, "all have granted it", func() bool { return len(in.outer.Servers()) == 3 })
	return in
}

// One server forgets the lock, the second refuses for a moment, the third hangs: so what is asked for inside
// gives back what it got, and the outer hold joins the first server again meanwhile. What is inside then
// re-enters it there, and does not wait for it.
func TestRedLock_InnerLock_FollowsToAServerJoinedAgain(t *testing.T) {
	t.Parallel()
	in := newInside(t)
	first, second := in.Servers[0], in.Servers[1]
	first.Do("DEL", "x")
	second.Do("CONFIG", "SET", "maxmemory", "1")
	in.Servers[2].Stop()
	f := in.lock.LockAsync(in.outer.Context(testkit.Ctx(t)))
	testkit.Eventually(t, "the outer hold has joined the first again", func() bool { return len(in.outer.Servers()) == 3 && first.Do("EXISTS", "x") == int64(1) })
	second.Do("CONFIG", "SET", "maxmemory", "0")
	in.granted(t, f)
}

// One server forgets the lock and gives it to somebody else; the third hangs. What is asked for inside waits
// at the first as any other does, and counts it once that is free.
func TestRedLock_InnerLock_WaitsWhereTheOuterWasLost(t *testing.T) {
	t.Parallel()
	x := func(e *engine.Engine) engine.Mutex { return e.Mutex("x") }
	for name, kinds := range map[string]struct {
		outer, inner func(*engine.Engine) engine.Mutex
	}{
		"re-entry": {x, x},
		"reader beside its writer": {
			func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Writer() },
			func(e *engine.Engine) engine.Mutex { return e.RWMutex("x").Reader() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := insideOf(t, kinds.outer, kinds.inner)
			ctx := in.outer.Context(testkit.Ctx(t))
			in.Servers[0].Do("DEL", "x")
			other := testkit.MustLock(t, in.kind(testkit.Open(t, in.Servers[0].URL())))
			noticed, err := in.lock.TryLock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			testkit.MustUnlock(t, noticed)
			in.Servers[2].Stop()
			f := in.lock.LockAsync(ctx)
			testkit.Eventually(t, "it waits there", func() bool { return in.engines[0].Stats().Waiting == 1 })
			testkit.MustUnlock(t, other)
			in.granted(t, f)
		})
	}
}

// watchedContext notes what asks for a value after it was handed over.
type watchedContext struct {
	context.Context
	handed atomic.Bool
	late   atomic.Int32
}

func (c *watchedContext) Value(key any) any {
	if c.handed.Load() {
		c.late.Add(1)
	}
	return c.Context.Value(key)
}

// It would be code of the user's on a goroutine of the engine.
func TestRedLock_AfterLockAsync_AsksItsContextForNoValue(t *testing.T) {
	t.Parallel()
	in := newInside(t)
	in.Servers[0].Do("DEL", "x")
	in.Servers[1].Do("CONFIG", "SET", "maxmemory", "1")
	in.Servers[2].Stop()
	ctx := &watchedContext{Context: in.outer.Context(testkit.Ctx(t))}
	f := in.lock.LockAsync(ctx)
	ctx.handed.Store(true)
	testkit.Eventually(t, "the outer hold has joined the first again", func() bool {
		return len(in.outer.Servers()) == 3 && in.Servers[0].Do("EXISTS", "x") == int64(1)
	})
	in.Servers[1].Do("CONFIG", "SET", "maxmemory", "0")
	in.granted(t, f)
	if n := ctx.late.Load(); n > 0 {
		t.Errorf("%d times", n)
	}
}

// The inner one finds the outer, and does not keep it alive. It ends with that, so it is not reported.
func TestRedLock_DroppedWithARedLockInside_IsReportedOnce(t *testing.T) {
	t.Parallel()
	v := testkit.Independent(t, 3).Open()
	ctx, cancel := context.WithCancel(context.Background())
	func() {
		outer := testkit.MustRedLock(t, v.Lock("x"))
		errlessRedLock(t, v.Lock("x"), outer.Context(ctx))
	}()
	cancel()
	leaked := func() (n uint64) {
		for _, e := range v {
			n += e.Stats().Leaked
		}
		return n
	}
	testkit.Eventually(t, "the outer one is noticed", func() bool { runtime.GC(); return leaked() > 0 })
	for range 3 {
		runtime.GC()
	}
	if n := leaked(); n != 1 {
		t.Errorf("%d reported", n)
	}
}
