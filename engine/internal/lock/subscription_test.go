package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// A hold of a month that nobody has waited for, and then somebody does: it must be looked at.
func TestHold_OfAMonth_IsLookedAt(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{0, 60 * 24 * time.Hour} {
		l := newLab(t)
		r := l.name()
		c := new(caller)
		c.Init(c)
		c.Lease = lease
		l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
		l.reply(r, Outcome{})
		h := c.hold
		l.now = l.now.Add(25 * 24 * time.Hour)
		if lease == 0 {
			h.validUntil.Store(int64(l.now.Add(20 * time.Second))) // it has been renewed all the time
		}
		l.ask(r, false)
		w := bellOf(r.sub)
		l.does(r.sub.Subscribed)
		rings := 0
		for end := l.now.Add(time.Minute); l.now < end && !h.soon && w.at != 0; rings++ {
			l.now = w.at
			w.at = 0
			l.does(r.sub.AlarmFired)
		}
		if !h.soon {
			t.Errorf("lease %v: in a minute the alarm rang %d times, and nobody looked at the hold", lease, rings)
		}
	}
}

// A compensation whose time is over does not keep a closing engine.
func TestCompensation_WhoseTimeIsOver_DoesNotKeepAClosingEngine(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{30 * time.Second, time.Hour} {
		l := newLab(t)
		r := l.name()
		r.blocked = Disconnected
		d := r.compensate(1, 0, certain, lease, l.now.Add(lease))
		over := d.until
		for range 3 { // the outage lasts
			l.now = d.at
			l.does(func(rd *Ready) { d.Fired(l.now, rd) })
		}
		l.now = l.now.Add(time.Millisecond)
		l.Phase = Closed
		l.does(r.StopWaiting)
		if r.compensations != nil {
			t.Errorf("lease %v: the server has forgotten the owner %v ago, and Shutdown waits for %v more", lease, l.now.Sub(over), d.at.Sub(l.now))
		}
	}
}

// A try that shows that the slot moves, by a node that has no lane here, is repeated within 100 ms.
func TestCommand_MovingAndNotSent_IsRepeatedWithin100ms(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	l.ask(r, false)
	for i := range 8 {
		l.is(r, Acquiring)
		l.reply(r, Outcome{Result: NotSent, Moving: true})
		if d := l.paused.Sub(l.now); d > serial.MovingPoll {
			t.Errorf("try %d: the next one is in %v", i, d)
		}
		l.now = l.paused
		l.does(r.PauseOver)
	}
}

// A release that is refused because the slot moves and an Unlock's caller: the pause stays within 100 ms, whatever
// was refused before.
func TestUnlock_SlotMoves_IsRepeatedWithin100ms(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	u := new(leaver)
	u.Handle = u
	l.does(func(rd *Ready) { c.hold.Unlock(&u.Unlock, rd) })
	for i := range 10 {
		l.is(r, Releasing)
		l.reply(r, Outcome{Result: RetryLater, Moving: i > 5, Begun: i == 7})
		if d := l.paused.Sub(l.now); i > 5 && d > serial.MovingPoll {
			t.Errorf("release %d: the next one is in %v", i, d)
		}
		l.now = l.paused
		l.does(r.PauseOver)
	}
	l.is(r, Releasing)
	l.reply(r, Outcome{Reply: NotOwner})
	if u.Err != nil || !u.Decided() {
		t.Error(u.Err)
	}
}

// Every event of a wait behind a hold in every state of that hold; then silence: what wakes it?
func TestWait_LooksASecond_AreBounded(t *testing.T) {
	t.Parallel()
	for _, kind := range []uint8{0, polling} {
		for _, lease := range []time.Duration{0, 5 * time.Minute} {
			l := newLab(t)
			r := l.name()
			c := new(caller)
			c.Init(c)
			c.Lease = lease
			l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
			l.reply(r, Outcome{})
			l.askAs(r, kind)
			w := bellOf(r.sub)
			if kind == 0 {
				l.does(r.sub.Subscribed)
			}
			looks, rings := 0, 0
			for end := l.now.Add(20 * time.Second); ; {
				if c.hold.soon {
					looks++
					c.hold.soon = false
				}
				if w.at == 0 || w.at > end {
					break
				}
				rings++
				l.now, w.at = w.at, 0
				l.does(r.sub.AlarmFired)
			}
			if looks > 200 || rings > 400 {
				t.Errorf("kind %d lease %v: %d looks, %d rings in 20 s", kind, lease, looks, rings)
			}
		}
	}
}

// Somebody comes while the contexts of a hold that was unlocked are ending, and is not the next: after the hand-over
// nobody sets an alarm.
func TestWait_BeginsWhileContextsEnd_SleepIsBounded(t *testing.T) {
	t.Parallel()
	for range 1 {
		l := newHandOverLab(t)
		l.cfg.Lease = 10 * time.Minute
		r := l.name()
		a := l.ask(r, false)
		l.reply(r, Outcome{})
		h := a.hold
		h.Bind(ender{})
		u := new(leaver)
		u.Handle = u
		var ended *Hold
		l.does(func(rd *Ready) { h.Unlock(&u.Unlock, rd); ended = rd.Ended })
		b := l.ask(r, false)
		c := l.ask(r, false)
		l.does(func(rd *Ready) { r.ContextsEnded(ended, rd) })
		if b.hold == nil || c.hold != nil {
			t.Fatalf("not handed over: %+v, command %d", r.View(), r.Cmd.Action)
		}
		w := bellOf(r.sub)
		if at := w.at; at == 0 || at.Sub(l.now) > time.Second {
			t.Errorf("the second waiter sleeps behind the hold of the first, with no confirmed channel: the alarm is at %v (0: none), %+v", at, r.View())
		}
	}
}

// The same with a name whose subscription lingers, and is confirmed.
func TestWait_BeginsWhileContextsEndAndConfirmed_SleepIsBounded(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	l.cfg.Lease = 10 * time.Minute
	l.cfg.LongestSleep = LongestSleepMissed
	r := l.name()
	a := l.ask(r, false)
	l.reply(r, Outcome{})
	x := l.ask(r, false) // comes, has the channel confirmed, and goes
	l.does(r.sub.Subscribed)
	l.does(func(rd *Ready) { x.Cancel(lockerr.Cancel{TimedOut: true}, rd) })
	h := a.hold
	h.Bind(ender{})
	u := new(leaver)
	u.Handle = u
	var ended *Hold
	l.does(func(rd *Ready) { h.Unlock(&u.Unlock, rd); ended = rd.Ended })
	b := l.ask(r, false)
	c := l.ask(r, false)
	l.does(func(rd *Ready) { r.ContextsEnded(ended, rd) })
	if b.hold == nil || c.hold != nil {
		t.Fatalf("not handed over: %+v, command %d", r.View(), r.Cmd.Action)
	}
	w := bellOf(r.sub)
	if at := w.at; at == 0 || at.Sub(l.now) > LongestSleepMissed {
		t.Errorf("the second waiter sleeps behind the hold of the first: the alarm is at %v (0: none), %+v; renewals come every %v", at, r.View(), l.cfg.Lease/3)
	}
}

// An alarm or an event that comes when the entry has finished with the subscription is nothing to the next one.
func TestSubscription_Over_LeavesTheNextAlone(t *testing.T) {
	t.Parallel()
	for what, late := range map[string]func(w *Subscription, rd *Ready){
		"the alarm":         (*Subscription).AlarmFired,
		"a message":         (*Subscription).OnMessage,
		"a confirmation":    (*Subscription).Subscribed,
		"a lost connection": (*Subscription).ConnectionLost,
		"a refusal":         func(w *Subscription, rd *Ready) { w.ChannelRefused("channel", errors.New("NOPERM"), rd) },
	} {
		l := newLab(t)
		r := l.name()
		first := l.ask(r, false)
		l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute})
		w := r.sub
		l.giveUp(first)
		l.does(w.AlarmFired) // it has lingered
		second := l.ask(r, false)
		l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute})
		next := r.sub
		if next == nil || next == w {
			t.Fatalf("%s: the second one waits by %p, the first by %p", what, next, w)
		}
		l.does(func(rd *Ready) { late(w, rd) })
		if r.sub != next || second.settled != 0 || r.Cmd.Action != NoCommand || r.blocked != NotBlocked {
			t.Errorf("%s: %+v, told %d times", what, r.View(), second.settled)
		}
	}
}

// Recovery still points to an entry that was dropped in an outage, or of which nothing was left: so it serves no
// other name.
func TestEntry_OutageAndNothingLeft_ServesNoOtherName(t *testing.T) {
	t.Parallel()
	for what, x := range map[string]struct {
		result Result
		free   int
	}{"answered": {Replied, 1}, "not sent": {NotSent, 0}} {
		for _, drops := range []bool{false, true} {
			l := newLab(t)
			r := l.name()
			c := l.ask(r, true)
			l.reply(r, Outcome{Result: x.result, Reply: HeldByOther, TTL: time.Minute})
			if c.settled == 0 && !drops {
				l.giveUp(c)
			} else if !r.Detached {
				l.does(r.Drop)
			}
			if !r.Detached || l.gone != x.free {
				t.Errorf("%s, dropped %v: out %v, %d entries are for use again", what, drops, r.Detached, l.gone)
			}
		}
	}
}
