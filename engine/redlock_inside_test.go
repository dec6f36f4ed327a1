package engine

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
)

// inside is a RedLock of three servers, held at all of them, and what may be asked for inside it.
type inside struct {
	*independents
	engines voters
	kind    func(*Engine) Mutex // of the outer hold
	outer   *Hold
	lock    QuorumLock
}

// newInside holds a RedLock of mutexes.
func newInside(t *testing.T) *inside {
	x := func(e *Engine) Mutex { return e.Mutex("x") }
	return insideOf(t, x, x)
}

func insideOf(t *testing.T, outer, inner func(*Engine) Mutex) *inside {
	s := independent(t, 3)
	in := &inside{independents: s, engines: s.open(), kind: outer}
	var outside, inside []Mutex
	for _, e := range in.engines {
		outside, inside = append(outside, outer(e)), append(inside, inner(e))
	}
	in.outer, in.lock = mustRedLock(t, RedLock(outside...)), RedLock(inside...)
	eventually(t, "all have granted it", func() bool { return len(in.outer.Servers()) == 3 })
	return in
}

// granted waits for what was asked for, and gives all back.
func (in *inside) granted(t *testing.T, f *Future[*Hold]) {
	t.Helper()
	h, err := f.Await(ctxT(t))
	in.servers[2].Cont()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.outer.Err(), h.Unlock(ctxT(t)), in.outer.Unlock(ctxT(t))); err != nil {
		t.Error(err)
	}
	in.clean(in.engines)
}

// One server forgets the lock, the second refuses for a moment, the third hangs: so what is asked for inside
// gives back what it got, and the outer hold joins the first server again meanwhile. What is inside then
// re-enters it there, and does not wait for it.
func TestWhatIsInsideARedLockFollowsItToAServerThatItJoinedAgain(t *testing.T) {
	t.Parallel()
	in := newInside(t)
	first, second := in.servers[0], in.servers[1]
	first.Do("DEL", "x")
	second.Do("CONFIG", "SET", "maxmemory", "1")
	in.servers[2].Stop()
	f := in.lock.LockAsync(in.outer.Context(ctxT(t)))
	eventually(t, "the outer hold has joined the first again", func() bool { return len(in.outer.Servers()) == 3 && first.Do("EXISTS", "x") == int64(1) })
	second.Do("CONFIG", "SET", "maxmemory", "0")
	in.granted(t, f)
}

// One server forgets the lock and gives it to somebody else; the third hangs. What is asked for inside waits
// at the first as any other does, and counts it once that is free.
func TestWhatIsInsideARedLockWaitsWhereThatWasLost(t *testing.T) {
	t.Parallel()
	x := func(e *Engine) Mutex { return e.Mutex("x") }
	for name, kinds := range map[string]struct{ outer, inner func(*Engine) Mutex }{
		"re-entry": {x, x},
		"reader beside its writer": {
			func(e *Engine) Mutex { return e.RWMutex("x").Writer() },
			func(e *Engine) Mutex { return e.RWMutex("x").Reader() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := insideOf(t, kinds.outer, kinds.inner)
			ctx := in.outer.Context(ctxT(t))
			in.servers[0].Do("DEL", "x")
			other := mustLock(t, in.kind(open(t, in.servers[0].URL())))
			noticed, err := in.lock.TryLock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			mustRelease(t, noticed)
			in.servers[2].Stop()
			f := in.lock.LockAsync(ctx)
			eventually(t, "it waits there", func() bool { return in.engines[0].Stats().Waiting == 1 })
			mustUnlock(t, other)
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
func TestNoValueOfAContextIsAskedForAfterLockAsync(t *testing.T) {
	t.Parallel()
	in := newInside(t)
	in.servers[0].Do("DEL", "x")
	in.servers[1].Do("CONFIG", "SET", "maxmemory", "1")
	in.servers[2].Stop()
	ctx := &watchedContext{Context: in.outer.Context(ctxT(t))}
	f := in.lock.LockAsync(ctx)
	ctx.handed.Store(true)
	eventually(t, "the outer hold has joined the first again", func() bool {
		return len(in.outer.Servers()) == 3 && in.servers[0].Do("EXISTS", "x") == int64(1)
	})
	in.servers[1].Do("CONFIG", "SET", "maxmemory", "0")
	in.granted(t, f)
	if n := ctx.late.Load(); n > 0 {
		t.Errorf("%d times", n)
	}
}

// The inner one finds the outer, and does not keep it alive.
func TestRedLocksInsideEachOtherThatAreDroppedAreNoticed(t *testing.T) {
	t.Parallel()
	v := independent(t, 3).open()
	ctx, cancel := context.WithCancel(context.Background())
	func() {
		outer := mustRedLock(t, v.lock("x"))
		errlessRedLock(t, v.lock("x"), outer.Context(ctx))
	}()
	cancel()
	leaked := func() (n uint64) {
		for _, e := range v {
			n += e.Stats().Leaked
		}
		return n
	}
	eventually(t, "both are noticed", func() bool { runtime.GC(); return leaked() == 2 })
}

// The context is gone, and the hold that it carried has ended: nothing is re-entered.
func TestAnEndedHoldOfAContextThatIsGoneIsNotCarried(t *testing.T) {
	t.Parallel()
	e := open(t, server(t).URL())
	m := e.Mutex("x")
	h := mustLock(t, m)
	q := &redLockAcquisition{locks: []Mutex{m}, parents: []*lockHold{oneOf(h)}}
	if q.carried(0) != oneOf(h) {
		t.Error("a live hold is not carried")
	}
	if q.opts.nonReentrant = true; q.carried(0) != nil {
		t.Error("carried, though it may not be re-entered")
	}
	q.opts.nonReentrant = false
	mustUnlock(t, h)
	if q.carried(0) != nil {
		t.Error("an ended hold is carried")
	}
}
