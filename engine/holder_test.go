package engine

import (
	"errors"
	"testing"
	"time"
)

// Whoever is refused is told by whom, at no cost: the answer that refuses says it.
func TestTryLock_HeldElsewhere_SaysWhoHoldsIt(t *testing.T) {
	t.Parallel()
	s := server(t)
	holder, e := open(t, s.URL()), open(t, s.URL())
	for name, of := range map[string]func(e *Engine) Mutex{
		"mutex":  func(e *Engine) Mutex { return e.Mutex("mutex") },
		"spin":   func(e *Engine) Mutex { return e.SpinMutex("spin") },
		"fenced": func(e *Engine) Mutex { return e.FencedMutex("fenced") },
	} {
		h := mustLock(t, of(holder), Lease(time.Minute))
		m := of(e)
		before := s.CommandStats()["evalsha"]
		is(t, name+", TryLock", errOf(m.TryLock(ctxT(t))), h.Owner())
		if n := s.CommandStats()["evalsha"] - before; n != 1 {
			t.Errorf("%s: a refused TryLock sent %d commands", name, n)
		}
		is(t, name+", TryLockAsync", errOf(m.TryLockAsync(ctxT(t)).Await(ctxT(t))), h.Owner())
		is(t, name+", Lock", errOf(m.Lock(ctxT(t), Wait(50*time.Millisecond))), h.Owner())
		// One that never tries itself knows it from the first.
		head := m.LockAsync(ctxT(t))
		eventually(t, "the first waits", func() bool { return e.Stats().Waiting == 1 && e.Stats().InFlight == 0 })
		is(t, name+", behind a waiter", errOf(m.Lock(ctxT(t), Wait(50*time.Millisecond))), h.Owner())
		head.Abandon()
		is(t, name+", in its own process", errOf(of(holder).TryLock(ctxT(t))), h.Owner())
		is(t, name+", waiting in its own process", errOf(of(holder).Lock(ctxT(t), Wait(50*time.Millisecond))), h.Owner())
		if name == "mutex" {
			is(t, "LockMany", errOf(Multi(e.Mutex("free"), m).TryLock(ctxT(t))), h.Owner())
		}
		mustUnlock(t, h)
		// The next holder is another.
		h = mustLock(t, of(holder), Lease(time.Minute))
		is(t, name+", TryLock again", errOf(m.TryLock(ctxT(t))), h.Owner())
		mustUnlock(t, h)
	}
}

// A holder that is not known is not named.
func TestTryLock_ManyHolders_NamesNobody(t *testing.T) {
	t.Parallel()
	s := server(t)
	holder, e := open(t, s.URL()), open(t, s.URL())
	mustLock(t, holder.RWMutex("rw").Reader(), Lease(time.Minute))
	is(t, "a writer behind a reader", errOf(e.RWMutex("rw").Writer().TryLock(ctxT(t))), "")
	w := mustLock(t, e.RWMutex("own").Writer(), Lease(time.Minute))
	is(t, "a reader behind a writer of its process", errOf(e.RWMutex("own").Reader().TryLock(ctxT(t))), w.Owner())
	is(t, "a name that is invalid", errOf(e.Mutex("").TryLock(ctxT(t))), "")
}

// is checks whom an error names.
func is(t *testing.T, way string, err error, holder string) {
	t.Helper()
	var refused *NotAcquiredError
	if !errors.As(err, &refused) || refused.Holder != holder {
		t.Errorf("%s: %v names %q, want %q", way, err, refused.Holder, holder)
	}
}
