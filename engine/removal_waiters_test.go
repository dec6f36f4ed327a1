package engine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/faultproxy"
)

// A waiter behind a hold of this process asks no server. If the lock is
// removed by force he hears of it, or the hold is looked at: he must not sleep until
// the end of a lease that nobody has any more. The leases here last an hour.

// wantServedAfterRemoval expects the waiter to come in, and the hold to know.
func wantServedAfterRemoval(t *testing.T, h *Hold, waiter *Future[*Hold]) {
	t.Helper()
	next, err := waiter.Await(ctxT(t))
	if err != nil {
		t.Fatalf("the lock is free, and the waiter was not served: %v; the hold: %v", err, h.Err())
	}
	wantLost(t, "the hold that was removed", h.Err(), GoneOnServer)
	mustUnlock(t, next)
}

func TestWaiterThatQueuedBeforeTheGrantHearsOfARemoval(t *testing.T) {
	t.Parallel()
	first := map[string]func(m Mutex) *Future[*Hold]{
		"behind a Lock":    func(m Mutex) *Future[*Hold] { return m.LockAsync(ctxT(t), Lease(time.Hour)) },
		"behind a TryLock": func(m Mutex) *Future[*Hold] { return m.TryLockAsync(ctxT(t), Lease(time.Hour)) },
	}
	for name, take := range first {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, e := behind(t)
			other := open(t, s.URL())
			m := e.Mutex("x")
			p.Pause(faultproxy.All)
			taken := take(m)
			waiter := m.LockAsync(ctxT(t)) // the acquire ahead of it is out
			p.Resume()
			h, err := taken.Await(ctxT(t))
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the waiter listens", func() bool { return e.Stats().Channels == 1 })
			if was, err := other.Mutex("x").ForceUnlock(ctxT(t)); !was || err != nil {
				t.Fatalf("ForceUnlock: %v, %v", was, err)
			}
			wantServedAfterRemoval(t, h, waiter)
		})
	}
}

// The message of the removal is lost with the connection; what makes up for it is a
// look at the hold, once the channel is confirmed again.
func TestRemovalWhileNobodyIsSubscribedIsMadeUpFor(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	other := open(t, s.URL())
	m := e.Mutex("x")
	h := mustLock(t, m, Lease(time.Hour))
	waiter := m.LockAsync(ctxT(t))
	looks := p.Watch(scriptOn(script.Renew, "x"))
	looks.Wait(1) // that of the first confirmation
	p.Blackhole(faultproxy.Carried("SUBSCRIBE"))
	if was, err := other.Mutex("x").ForceUnlock(ctxT(t)); !was || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", was, err)
	}
	p.Heal()
	wantServedAfterRemoval(t, h, waiter)
}

// The lock was removed while nobody here waited for it, so nobody listened.
func TestRemovalBeforeAnybodyWaitedIsFoundByTheFirstWaiter(t *testing.T) {
	t.Parallel()
	s := server(t)
	e := open(t, s.URL())
	m := e.Mutex("x")
	h := mustLock(t, m, Lease(time.Hour))
	s.Do("DEL", "x")
	wantServedAfterRemoval(t, h, m.LockAsync(ctxT(t)))
}

// A look that is not answered, or refused for now, is repeated.
func TestLookAtAHoldIsRepeatedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	s, p, e := behind(t)
	m := e.Mutex("x")
	h := mustLock(t, m, Lease(time.Hour))
	s.Do("DEL", "x")
	cut := p.CutBeforeRequest(scriptOn(script.Renew, "x"))
	waiter := m.LockAsync(ctxT(t))
	cut.Wait(1)
	busy := p.ReplaceReply(scriptOn(script.Renew, "x"), []byte("-BUSY Redis is busy\r\n"), 1)
	wantServedAfterRemoval(t, h, waiter)
	busy.Wait(1)
}
