package topology

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// What the page adds for the kinds of locks with companions is enough, and all of it is used.
func TestTheDocumentedACLRulesOfFairAndFencedLocksAreEnough(t *testing.T) {
	t.Parallel()
	enoughACL(t, map[string]use{"a `FairMutex`": useFair, "a `FencedMutex`": useFenced})
}

func useFair(t *testing.T, s *redistest.Server, e, other *engine.Engine) {
	m, far := e.FairMutex("orders:1"), other.FairMutex("orders:1")
	h := testkit.MustLock(t, m)
	var waits []*engine.Future[*engine.Hold]
	gone, leave := context.WithCancel(testkit.Ctx(t))
	for i, ctx := range []context.Context{gone, testkit.Ctx(t), testkit.Ctx(t)} {
		waits = append(waits, far.LockAsync(ctx))
		testkit.Eventually(t, "it is queued", func() bool { return s.Do("LLEN", "redisson_lock_queue:{orders:1}") == int64(i+1) })
	}
	testkit.Eventually(t, "they listen", func() bool { return testkit.Client(other).Stats().ChannelsConfirmed == 3 })
	leave()
	testkit.Eventually(t, "it has left", func() bool { return s.Do("LLEN", "redisson_lock_queue:{orders:1}") == int64(2) })
	testkit.MustUnlock(t, testkit.MustReenter(t, m, h))
	testkit.MustUnlock(t, h)
	h, err := waits[1].Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := m.ForceUnlock(testkit.Ctx(t)); !ok || err != nil {
		t.Errorf("ForceUnlock: %v, %v", ok, err)
	}
	_ = h.Unlock(testkit.Ctx(t)) // it was lost
	if h, err = waits[2].Await(testkit.Ctx(t)); err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h)
	testkit.MustUnlock(t, testkit.MustLock(t, m, engine.MinHold(10*time.Millisecond)))
}

func useFenced(t *testing.T, s *redistest.Server, e, other *engine.Engine) {
	m := e.FencedMutex("orders:1")
	h := testkit.MustLock(t, m)
	next := m.LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it listens", func() bool { return testkit.Client(e).Stats().ChannelsConfirmed == 1 })
	testkit.MustUnlock(t, h)
	h, err := next.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	// Only now: if the lock was not passed on in time, the other might have it first.
	far := other.FencedMutex("orders:1").LockAsync(testkit.Ctx(t))
	testkit.Eventually(t, "it listens", func() bool { return testkit.Client(other).Stats().ChannelsConfirmed == 1 })
	testkit.MustUnlock(t, h)
	last, err := far.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	// A copy of the command that took it reads the counter.
	s.Do("EVALSHA", script.Fenced.SHA, "2", "orders:1", script.TokenPrefix+":{orders:1}", "3000", last.Owner())
	testkit.MustUnlock(t, last)
}
