package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/kit"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// What the channel of a name says about its hold must not be forgotten before the hold
// was looked at, whatever else the alarm is set to meanwhile. The leases here last an
// hour.

// hearing is an engine of which is known what it has heard: messages arrive in one
// order, so all that was announced before that of another name, a mark, is there when
// the hold of the mark is looked at.
type hearing struct {
	t     *testing.T
	s     *redistest.Server
	e     *engine.Engine
	time  kit.FakeTime
	other *engine.Engine
	proxy *faultproxy.Proxy
	marks *int
}

func newHearing(t *testing.T) hearing {
	s, p, e, clk := kit.BehindInTime(t, kit.Patient)
	return hearing{t, s, e, clk, kit.Open(t, s.URL()), p, new(int)}
}

// announce publishes a release of x, and waits until it was heard.
func (l hearing) announce() {
	l.t.Helper()
	l.s.Do("PUBLISH", "redisson_lock__channel:{x}", "0")
	l.heard()
}

// heard waits until all messages have arrived.
func (l hearing) heard() {
	l.t.Helper()
	*l.marks++
	m := l.e.Mutex(fmt.Sprint("mark", *l.marks))
	channel := "redisson_lock__channel:{" + m.Name() + "}"
	ctx, cancel := context.WithCancel(kit.Ctx(l.t))
	h := kit.MustLock(l.t, m, engine.Lease(time.Hour))
	defer kit.MustUnlock(l.t, h)
	defer cancel()
	m.LockAsync(ctx)
	kit.Eventually(l.t, "the mark is listened to", func() bool {
		list, _ := l.s.Do("PUBSUB", "NUMSUB", channel).([]any)
		return len(list) == 2 && list[1] == int64(1)
	})
	looks := l.proxy.Watch(kit.ScriptOn(script.Renew, m.Name()))
	l.s.Do("PUBLISH", channel, "0")
	looks.Wait(1)
}

// remove takes x away by force, and waits until that was heard.
func (l hearing) remove() {
	l.t.Helper()
	if was, err := l.other.Mutex("x").ForceUnlock(kit.Ctx(l.t)); !was || err != nil {
		l.t.Fatalf("ForceUnlock: %v, %v", was, err)
	}
	l.heard()
}

// wantServed expects that the waiter comes in long before the end of the lease.
func (l hearing) wantServed(h *engine.Hold, waiter *engine.Future[*engine.Hold]) {
	l.t.Helper()
	kit.Eventually(l.t, "the waiter is served", func() bool {
		l.time.Pass(50 * time.Millisecond)
		_, err := waiter.Result()
		return err != engine.ErrPending
	})
	kit.WantServedAfterRemoval(l.t, h, waiter)
}

// A look is due in a moment; then the hold ends, and the next one is taken after a sleep
// that set the alarm to something else.
func TestLookThatWasDueForAnEarlierHoldIsNotInTheWay(t *testing.T) {
	t.Parallel()
	l := newHearing(t)
	m := l.e.Mutex("x")
	first := kit.MustLock(t, m, engine.Lease(time.Hour))
	second := m.LockAsync(kit.Ctx(t), engine.Lease(time.Hour))
	third := m.LockAsync(kit.Ctx(t), engine.Lease(time.Hour))
	l.announce() // the hold is looked at
	l.announce() // ... and once more, in a moment
	refused := l.proxy.ReplaceReply(kit.AcquireOf("x"), []byte(":3600000\r\n"), 1)
	l.s.Do("DEL", "x") // nothing is announced
	kit.WantLost(t, "Unlock", first.Unlock(kit.Ctx(t)), engine.GoneOnServer)
	refused.Wait(1)
	kit.Eventually(t, "the second one sleeps", func() bool { return l.e.Stats().InFlight == 0 })
	l.announce()
	h, err := second.Await(kit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	l.remove()
	l.wantServed(h, third)
}

// The message comes while nobody waits, shortly after another one, and somebody comes
// before the subscription is given up.
func TestRemovalBetweenTwoWaitersIsFoundByTheSecond(t *testing.T) {
	t.Parallel()
	l := newHearing(t)
	m := l.e.Mutex("x")
	h := kit.MustLock(t, m, engine.Lease(time.Hour))
	ctx, cancel := context.WithCancel(context.Background())
	first := m.LockAsync(ctx)
	l.heard() // the subscription was confirmed
	l.announce()
	cancel()
	<-first.Done()
	l.remove()
	l.wantServed(h, m.LockAsync(kit.Ctx(t)))
}

// The message comes after the server has granted the lock, and before its answer.
func TestRemovalBeforeTheGrantIsReadIsFound(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"by a waiter": false, "by the next waiter": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newHearing(t)
			m := l.e.Mutex("x")
			before := kit.MustLock(t, l.other.Mutex("x"))
			first := m.LockAsync(kit.Ctx(t), engine.Lease(time.Hour))
			var waiter *engine.Future[*engine.Hold]
			if !late {
				waiter = m.LockAsync(kit.Ctx(t))
			}
			l.heard()
			l.proxy.Delay(faultproxy.Carried("EVALSHA"), 0, 200*time.Millisecond)
			kit.MustUnlock(t, before)
			kit.Eventually(t, "it is granted", func() bool { return len(kit.Fields(t, l.s, "x")) == 1 })
			if was, err := l.other.Mutex("x").ForceUnlock(kit.Ctx(t)); !was || err != nil {
				t.Fatalf("ForceUnlock: %v, %v", was, err)
			}
			h, err := first.Await(kit.Ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			l.proxy.Delay(faultproxy.All, 0, 0)
			if late {
				waiter = m.LockAsync(kit.Ctx(t))
			}
			l.wantServed(h, waiter)
		})
	}
}

// The removal is announced while the channel is not confirmed; the confirmation comes
// while nobody waits. Nobody but it says that the hold is to be looked at, and it does so
// once.
func TestRemovalBeforeAConfirmationThatNobodyWaitedForIsFoundByTheNextWaiter(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"the first confirmation": false, "that after a lost connection": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newHearing(t)
			m := l.e.Mutex("x")
			h := kit.MustLock(t, m, engine.Lease(time.Hour))
			// The mark's channel is known to the connection before x's is: it has one.
			l.heard()
			if !again {
				l.proxy.Pause(faultproxy.Carried("SUBSCRIBE"))
			}
			ctx, cancel := context.WithCancel(context.Background())
			first := m.LockAsync(ctx)
			if again {
				l.heard() // x is confirmed
				looks := l.proxy.Watch(kit.ScriptOn(script.Renew, "x"))
				l.time.Pass(time.Second / 2)
				looks.Wait(1) // that of this confirmation
				l.proxy.Blackhole(faultproxy.Carried("SUBSCRIBE"))
			}
			cancel()
			<-first.Done()
			if was, err := l.other.Mutex("x").ForceUnlock(kit.Ctx(t)); !was || err != nil {
				t.Fatalf("ForceUnlock: %v, %v", was, err)
			}
			l.proxy.Heal()
			l.proxy.Resume()
			l.heard() // x is confirmed
			l.wantServed(h, m.LockAsync(kit.Ctx(t)))
		})
	}
}
