package engine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/drive"
	"github.com/pawl-lock/pawl/engine/internal/machine"
)

// A Mutex and a SpinMutex of one name share a key on the server, so they are one lock in the
// engine, too.
func TestAMutexAndASpinMutexOfOneNameReenterEachOther(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	kinds := map[string]Mutex{"mutex": e.Mutex("x"), "spin": e.SpinMutex("x")}
	for outer, m := range kinds {
		for inner, other := range kinds {
			h := mustLock(t, m)
			again := mustReenter(t, other, h)
			if got := count(t, again, fields(t, s, "x")); got != "2" || again.Owner() != h.Owner() {
				t.Errorf("%s in %s is counted %q, owners %s and %s", inner, outer, got, again.Owner(), h.Owner())
			}
			mustUnlock(t, again)
			mustUnlock(t, h)
		}
	}
	many, err := Multi(e.SpinMutex("x"), e.SpinMutex("y")).Lock(ctxT(t))
	if err != nil {
		t.Fatal(err)
	}
	again, err := e.Mutex("y").TryLock(many.Context(ctxT(t)))
	if err != nil {
		t.Fatalf("a Mutex in a MultiLock of SpinMutexes: %v", err)
	}
	mustUnlock(t, again)
	if err := many.Unlock(ctxT(t)); err != nil {
		t.Error(err)
	}
}

// The release of a SpinMutex is announced to nobody. A waiter of the same process needs no
// message; and one that polls does not sleep until a message comes, because of another that
// waited before it and does.
func TestAMutexAndASpinMutexOfOneNameWaitInOneQueue(t *testing.T) {
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
		return v.Confirmed && v.Asleep
	})
	first.Abandon()
	eventually(t, "it is gone", func() bool { return e.Stats().Waiting == 1 })
	mustUnlock(t, far)
	began := time.Now()
	if next, err = second.Await(ctxT(t)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the SpinMutex got it after %v", took)
	}
	mustUnlock(t, next)
}

// A Mutex that waits in another process counts on the message of a Mutex, whoever of the holder's
// process had the lock before that.
func TestAMutexThatFollowsASpinMutexAnnouncesItsRelease(t *testing.T) {
	t.Parallel()
	s := server(t)
	e, other := handsOver(t, s.URL()), open(t, s.URL())
	h := mustLock(t, e.SpinMutex("x"))
	next, far := e.Mutex("x").LockAsync(ctxT(t)), other.Mutex("x").LockAsync(ctxT(t))
	eventually(t, "the other process listens and sleeps", func() bool {
		v := viewOf(other, "x")
		return v.Confirmed && v.Asleep
	})
	both := []*Future[*Hold]{next, far} // mostly in this order, but the tenure may not be handed over
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
func viewOf(e *Engine, name string) (v machine.View) {
	sh := e.table.Shard(e.table.Client.Route(name))
	sh.Lock()
	defer sh.Unlock()
	if r := sh.Find(drive.Key{Name: name}); r != nil {
		v = r.View()
	}
	return v
}
