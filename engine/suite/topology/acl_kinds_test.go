package topology

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// What the page adds for the kinds of locks with companions is enough, and all of it is used.
func TestTheDocumentedACLRulesOfFairAndFencedLocksAreEnough(t *testing.T) {
	t.Parallel()
	enoughACL(t, map[string]use{"a `FairMutex`": useFair, "a `FencedMutex`": useFenced})
}

func useFair(t *testing.T, s *redistest.Server, e, other *engine.Engine) {
	m, far := e.FairMutex("orders:1"), other.FairMutex("orders:1")
	h := kit.MustLock(t, m)
	var waits []*engine.Future[*engine.Hold]
	gone, leave := context.WithCancel(kit.Ctx(t))
	for i, ctx := range []context.Context{gone, kit.Ctx(t), kit.Ctx(t)} {
		waits = append(waits, far.LockAsync(ctx))
		kit.Eventually(t, "it is queued", func() bool { return s.Do("LLEN", "redisson_lock_queue:{orders:1}") == int64(i+1) })
	}
	kit.Eventually(t, "they listen", func() bool { return kit.Client(other).Stats().ChannelsConfirmed == 3 })
	leave()
	kit.Eventually(t, "it has left", func() bool { return s.Do("LLEN", "redisson_lock_queue:{orders:1}") == int64(2) })
	kit.MustUnlock(t, kit.MustReenter(t, m, h))
	kit.MustUnlock(t, h)
	h, err := waits[1].Await(kit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := m.ForceUnlock(kit.Ctx(t)); !ok || err != nil {
		t.Errorf("ForceUnlock: %v, %v", ok, err)
	}
	_ = h.Unlock(kit.Ctx(t)) // it was lost
	if h, err = waits[2].Await(kit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	kit.MustUnlock(t, h)
	kit.MustUnlock(t, kit.MustLock(t, m, engine.MinHold(10*time.Millisecond)))
}

func useFenced(t *testing.T, s *redistest.Server, e, other *engine.Engine) {
	m := e.FencedMutex("orders:1")
	h := kit.MustLock(t, m)
	next := m.LockAsync(kit.Ctx(t))
	kit.Eventually(t, "it listens", func() bool { return kit.Client(e).Stats().ChannelsConfirmed == 1 })
	kit.MustUnlock(t, h)
	h, err := next.Await(kit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	// Only now: if the lock was not passed on in time, the other might have it first.
	far := other.FencedMutex("orders:1").LockAsync(kit.Ctx(t))
	kit.Eventually(t, "it listens", func() bool { return kit.Client(other).Stats().ChannelsConfirmed == 1 })
	kit.MustUnlock(t, h)
	last, err := far.Await(kit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	// A copy of the command that took it reads the counter.
	s.Do("EVALSHA", script.Fenced.SHA, "2", "orders:1", script.TokenPrefix+":{orders:1}", "3000", last.Owner())
	kit.MustUnlock(t, last)
}
