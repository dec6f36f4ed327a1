package faults

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// A waiter behind a hold of this process asks no server. If the lock is
// removed by force he hears of it, or the hold is looked at: he must not sleep until
// the end of a lease that nobody has any more. The leases here last an hour.

func TestWaiterThatQueuedBeforeTheGrantHearsOfARemoval(t *testing.T) {
	t.Parallel()
	first := map[string]func(m engine.Mutex) *engine.Future[*engine.Hold]{
		"behind a Lock": func(m engine.Mutex) *engine.Future[*engine.Hold] {
			return m.LockAsync(testkit.Ctx(t), engine.Lease(time.Hour))
		},
		"behind a TryLock": func(m engine.Mutex) *engine.Future[*engine.Hold] {
			return m.TryLockAsync(testkit.Ctx(t), engine.Lease(time.Hour))
		},
	}
	for name, take := range first {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := testkit.Behind(t)
			other := testkit.Open(t, s.URL())
			m := e.Mutex("x")
			p.Pause(faultproxy.All)
			taken := take(m)
			waiter := m.LockAsync(testkit.Ctx(t)) // the acquire ahead of it is out
			p.Resume()
			h, err := taken.Await(testkit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "the waiter listens", func() bool { return e.Stats().Channels == 1 })
			if was, err := other.Mutex("x").ForceUnlock(testkit.Ctx(t)); !was || err != nil {
				t.Fatalf("ForceUnlock: %v, %v", was, err)
			}
			testkit.WantServedAfterRemoval(t, h, waiter)
		})
	}
}

// The message of the removal is lost with the connection; what makes up for it is a
// look at the hold, once the channel is confirmed again.
func TestRemovalWhileNobodyIsSubscribedIsMadeUpFor(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	other := testkit.Open(t, s.URL())
	m := e.Mutex("x")
	h := testkit.MustLock(t, m, engine.Lease(time.Hour))
	looks := p.Watch(testkit.ScriptOn(script.Renew, "x"))
	waiter := m.LockAsync(testkit.Ctx(t))
	looks.Wait(1) // that of the first confirmation
	p.Blackhole(faultproxy.Carried("SUBSCRIBE"))
	if was, err := other.Mutex("x").ForceUnlock(testkit.Ctx(t)); !was || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", was, err)
	}
	p.Heal()
	testkit.WantServedAfterRemoval(t, h, waiter)
}

// The lock was removed while nobody here waited for it, so nobody listened.
func TestRemovalBeforeAnybodyWaitedIsFoundByTheFirstWaiter(t *testing.T) {
	t.Parallel()
	s := testkit.Server(t)
	e := testkit.Open(t, s.URL())
	m := e.Mutex("x")
	h := testkit.MustLock(t, m, engine.Lease(time.Hour))
	s.Do("DEL", "x")
	testkit.WantServedAfterRemoval(t, h, m.LockAsync(testkit.Ctx(t)))
}

// A look that is not answered, or refused for now, is repeated.
func TestLookAtAHoldIsRepeatedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	s, p, e := testkit.Behind(t)
	m := e.Mutex("x")
	h := testkit.MustLock(t, m, engine.Lease(time.Hour))
	s.Do("DEL", "x")
	// The newest trap comes first.
	busy := p.ReplaceReply(testkit.ScriptOn(script.Renew, "x"), []byte("-BUSY Redis is busy\r\n"), 1)
	cut := p.CutBeforeRequest(testkit.ScriptOn(script.Renew, "x"))
	testkit.WantServedAfterRemoval(t, h, m.LockAsync(testkit.Ctx(t)))
	cut.Wait(1)
	busy.Wait(1)
}
