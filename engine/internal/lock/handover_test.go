package lock

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// newHandOverLab hands a grant over twice, and for 10 ms.
func newHandOverLab(t *testing.T) *lab {
	l := newLab(t)
	l.cfg.HandOvers, l.cfg.HandOverFor = 2, 10*time.Millisecond
	return l
}

func TestAHoldIsHandedOverToTheFirstWhoWaitsWithoutACommand(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	first := l.ask(r, false)
	l.reply(r, Outcome{})
	second, third := l.ask(r, false), l.ask(r, false)
	u := l.unlock(first.hold)
	l.is(r, NoCommand)
	if u.delivered != 1 || u.Err != nil || second.delivered != 1 || second.hold == nil || third.hold != nil {
		t.Fatalf("unlocked: %+v, second: %+v, third: %+v", u, second, third)
	}
	if second.hold.ID != first.hold.ID || second.hold.Until() <= l.now || first.hold.Until() > l.now || first.hold.IsLive() {
		t.Errorf("first ends at %v, second at %v, now is %v", first.hold.Until(), second.hold.Until(), l.now)
	}
	if !first.hold.finished() || !first.hold.notified || !first.hold.renewed {
		t.Errorf("the first is over, and the tenure keeps its place among the renewals: %+v", first.hold)
	}
	if n := l.Count; n.Held != 1 || n.Acquired != 2 || n.Released != 1 || n.HandedOver != 1 || n.Pending != 1 {
		t.Errorf("counted: %+v", n)
	}
	// The first has ended: it does nothing to what the second has.
	if again := l.unlock(first.hold); again.Err == nil || !second.hold.IsLive() {
		t.Errorf("unlocked again: %v", again.Err)
	}
	// A renewal that was on its way counts for the second.
	l.now = l.now.Add(time.Second)
	var rd Ready
	if !first.hold.Grant.Renewed(l.now, l.now, l.cfg.Lease, 0, &rd) || second.hold.Until() < l.now.Add(l.cfg.Lease/2) {
		t.Error("the renewal is not that of the second")
	}
	first.hold.Grant.Gone(RemovedOnServer, &rd)
	l.settle()
	if second.hold.IsLive() || second.hold.why != RemovedOnServer || first.hold.why != 0 {
		t.Errorf("gone: %+v, %+v", second.hold, first.hold)
	}
}

// Nobody else would get in otherwise.
func TestATenureIsHandedOverSoOftenAndThenAnotherProcessHasATurn(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	for range l.cfg.HandOvers {
		next := l.ask(r, false)
		l.unlock(c.hold)
		l.is(r, NoCommand)
		c = next
	}
	last := l.ask(r, false)
	l.unlock(c.hold)
	l.is(r, Releasing)
	w := bellOf(r.sub)
	sent := l.now
	l.now = l.now.Add(3 * time.Millisecond)
	l.reply(r, Outcome{Sent: sent})
	l.is(r, NoCommand)
	if want := l.now.Add(3*time.Millisecond + serial.YieldFor); w.at != want {
		t.Errorf("it skips its turn until %v, want %v", w.at, want)
	}
	// Its own release is announced to it, too.
	l.does(w.OnMessage)
	l.does(w.Subscribed)
	l.does(w.ConnectionLost)
	l.is(r, NoCommand)
	l.does(w.AlarmFired)
	l.is(r, Acquiring)
	l.reply(r, Outcome{})
	if last.hold == nil || last.hold.ID == c.hold.ID || last.hold.handOvers != 0 {
		t.Errorf("%+v", last)
	}
}

func TestATenureIsHandedOverForSoLongAfterItsGrant(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration]CommandKind{0: NoCommand, 10 * time.Millisecond: NoCommand, 11 * time.Millisecond: Releasing} {
		l := newHandOverLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		l.ask(r, false)
		l.now = l.now.Add(late)
		l.unlock(c.hold)
		if r.Cmd.Action != want {
			t.Errorf("%v after the grant: command %d", late, r.Cmd.Action)
		}
	}
}

// From when this process knows of it: the answer may take longer than a turn.
func TestATurnBeginsWhenTheGrantIsHeardOf(t *testing.T) {
	t.Parallel()
	const way = 15 * time.Millisecond
	l := newHandOverLab(t)
	r := l.name()
	first, second, third := l.ask(r, false), l.ask(r, false), l.ask(r, false)
	sent := l.now
	l.now = l.now.Add(way)
	l.reply(r, Outcome{Sent: sent})
	l.now = l.now.Add(l.cfg.HandOverFor)
	l.unlock(first.hold)
	l.is(r, NoCommand)
	if second.hold == nil {
		t.Fatal("it was not handed over")
	}
	l.now = l.now.Add(time.Millisecond)
	l.unlock(second.hold)
	l.is(r, Releasing)
	if third.hold != nil {
		t.Fatal("it was handed over after its turn")
	}
	// And the next turn, which somebody waited for.
	l.reply(r, Outcome{})
	l.does(r.sub.AlarmFired)
	l.is(r, Acquiring)
	sent = l.now
	l.now = l.now.Add(way)
	l.reply(r, Outcome{Sent: sent})
	fourth := l.ask(r, false)
	l.unlock(third.hold)
	l.is(r, NoCommand)
	if fourth.hold == nil {
		t.Error("it was not handed over in the next turn")
	}
}

// Renewals, and looks at the hold, which are renewals, come while a lock is in demand.
func TestARenewalMakesATurnNoLonger(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	next, last := l.ask(r, false), l.ask(r, false)
	l.now = l.now.Add(6 * time.Millisecond)
	l.unlock(c.hold)
	l.is(r, NoCommand)
	l.now = l.now.Add(6 * time.Millisecond)
	var rd Ready
	next.hold.Renewed(l.now, l.now, l.cfg.Lease, 0, &rd)
	l.unlock(next.hold)
	l.is(r, Releasing)
	if last.hold != nil {
		t.Error("it was handed over")
	}
}

func TestWhatIsNotLikeAGrantOfNowIsReleased(t *testing.T) {
	t.Parallel()
	quiet := func(*Request) {}
	for what, x := range map[string]struct {
		first, second func(*Request)
		between       func(l *lab, h *Hold)
	}{
		"the first has a fixed lease":   {first: func(a *Request) { a.Lease = time.Minute }},
		"the first has a MaxHold":       {first: func(a *Request) { a.More().MaxHold = time.Minute }},
		"the first has a MinHold":       {first: func(a *Request) { a.More().MinHold = time.Minute }},
		"the first wants a replica":     {first: func(a *Request) { a.Acks = 1 }},
		"both want other replicas":      {first: func(a *Request) { a.Acks = 1 }, second: func(a *Request) { a.Acks = 2 }},
		"neither can be batched":        {first: func(a *Request) { a.Kind = queued }, second: func(a *Request) { a.Kind = queued }},
		"the first is one of several":   {first: func(a *Request) { a.More().Quorum = true }},
		"the second wants a lease":      {second: func(a *Request) { a.Lease = time.Minute }},
		"the second wants a MaxHold":    {second: func(a *Request) { a.More().MaxHold = time.Minute }},
		"the second wants a MinHold":    {second: func(a *Request) { a.More().MinHold = time.Minute }},
		"the second wants a replica":    {second: func(a *Request) { a.Acks = 1 }},
		"the second is of another kind": {second: func(a *Request) { a.Kind = 1 }},
		"the second is one of several":  {second: func(a *Request) { a.More().Quorum = true }},
		"it was not renewed":            {between: func(l *lab, h *Hold) { h.validUntil.Store(int64(l.now.Add(l.cfg.Lease/2 - 1))) }},
		"a release may be executed":     {between: func(_ *lab, h *Hold) { h.releaseInDoubt = true }},
		"the server counts a re-entry":  {between: func(_ *lab, h *Hold) { h.counted = 2 }},
		"the engine is being shut down": {between: func(l *lab, _ *Hold) { l.Phase = Closed }},
		"it is switched off":            {between: func(l *lab, _ *Hold) { l.cfg.HandOvers = 0 }},
	} {
		l := newHandOverLab(t)
		r := l.name()
		ask := func(set func(*Request)) *caller {
			c := new(caller)
			c.Init(c)
			if set == nil {
				set = quiet
			}
			set(&c.Request)
			l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
			return c
		}
		first := ask(x.first)
		l.reply(r, Outcome{Acked: 1})
		second := ask(x.second)
		if x.between != nil {
			x.between(l, &first.hold.Hold)
		}
		l.unlock(first.hold)
		if r.Cmd.Action != Releasing || second.hold != nil {
			t.Errorf("%s: command %d", what, r.Cmd.Action)
		}
	}
}

// A re-entry that was given back leaves a count of one.
func TestAHoldIsHandedOverWhenItsReentriesAreGivenBack(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{true, false} {
		l := newHandOverLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		inner := new(caller)
		inner.Init(inner)
		inner.Parent = &c.hold.Hold
		l.does(func(rd *Ready) { r.Admit(&inner.Request, rd) })
		l.is(r, Reentering)
		l.reply(r, Outcome{})
		if back {
			l.unlock(inner.hold)
			l.is(r, Decrementing)
			l.reply(r, Outcome{})
		}
		next := l.ask(r, false)
		l.unlock(c.hold)
		if handed := next.hold != nil; handed != back {
			t.Errorf("given back %v: handed over %v, command %d", back, handed, r.Cmd.Action)
		}
	}
}

// The renewals never shorten the lease of a re-entry: if this process died, nobody else would
// get the lock for an hour, though its holder asked for no lease.
func TestATenureThatAReentryMadeLongerIsNotHandedOver(t *testing.T) {
	t.Parallel()
	for what, x := range map[string]struct {
		lease, extend time.Duration
		handed        bool
	}{
		"no longer than the watchdog's": {lease: 30 * time.Second, handed: true},
		"longer":                        {lease: time.Hour},
		"extended":                      {lease: time.Second, extend: time.Hour},
	} {
		l := newHandOverLab(t)
		l.cfg.Lease = 30 * time.Second
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		inner := new(caller)
		inner.Init(inner)
		inner.Parent, inner.Lease = &c.hold.Hold, x.lease
		l.does(func(rd *Ready) { r.Admit(&inner.Request, rd) })
		l.reply(r, Outcome{})
		if x.extend != 0 {
			longer := new(stretch)
			longer.Handle, longer.Lease = longer, x.extend
			l.does(func(rd *Ready) { inner.hold.Extend(&longer.Extend, rd) })
			l.is(r, Extending)
			l.reply(r, Outcome{})
		}
		l.unlock(inner.hold)
		l.is(r, Decrementing)
		l.reply(r, Outcome{})
		next := l.ask(r, false)
		l.unlock(c.hold)
		if handed := next.hold != nil; handed != x.handed {
			t.Errorf("%s: handed over %v, command %d", what, handed, r.Cmd.Action)
		}
	}
}

// The next holder must find no context of this one alive.
func TestAHoldWithContextsIsHandedOverWhenTheyHaveEnded(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	c.hold.Bind(heard{})
	next := l.ask(r, false)
	var rd Ready
	u := new(leaver)
	u.Handle = u
	c.hold.Unlock(&u.Unlock, &rd)
	l.settle()
	tell(&rd)
	if next.hold != nil || u.delivered != 0 || rd.Ended == nil {
		t.Fatalf("before its contexts have ended: %+v, %+v", next, u)
	}
	l.does(func(after *Ready) { r.ContextsEnded(rd.Ended, after) })
	if next.hold == nil || u.delivered != 1 {
		t.Errorf("after that: %+v, %+v", next, u)
	}
}

type heard struct{}

func (heard) End(error) {}

// A TryLock is refused while another has the lock, and takes part in no hand-over.
func TestATryLockIsNotHandedALock(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	once, next := l.ask(r, true), l.ask(r, false)
	if once.err == nil {
		t.Errorf("it was not refused: %+v", once)
	}
	l.unlock(c.hold)
	if once := l.ask(r, true); once.err == nil || next.hold == nil {
		t.Errorf("%+v, %+v", once, next)
	}
}

// The last waiter is gone when it has the lock: so is what only waiters need.
func TestAfterTheLastHandOverTheSubscriptionLingers(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	next := l.ask(r, false)
	l.unlock(c.hold)
	if v := r.View(); v.Head != Lingers || next.hold == nil {
		t.Errorf("%+v", v)
	}
	w := bellOf(r.sub)
	l.now = l.now.Add(serial.LingerFor)
	l.does(w.AlarmFired)
	l.unlock(next.hold)
	l.is(r, Releasing)
	l.reply(r, Outcome{})
	if w.listening || !r.Detached {
		t.Errorf("left: %+v", r.View())
	}
}

// The alarm of a head that skips its turn was once that of a look, which a confirmation of the
// channel makes needless.
func TestAConfirmationDoesNotStopTheAlarmOfASkippedTurn(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	first := l.ask(r, false)
	l.reply(r, Outcome{})
	second, third := l.ask(r, false), l.ask(r, false)
	l.unlock(first.hold)
	if bellOf(r.sub).at == 0 {
		t.Fatal("the hold is not looked at, though the channel is silent")
	}
	l.now = l.now.Add(time.Second)
	l.unlock(second.hold)
	l.is(r, Releasing)
	l.reply(r, Outcome{})
	w := bellOf(r.sub)
	l.does(w.Subscribed)
	if w.at == 0 {
		t.Fatal("its alarm will not ring")
	}
	l.does(w.AlarmFired)
	l.is(r, Acquiring)
	l.reply(r, Outcome{})
	if third.hold == nil {
		t.Error("not granted")
	}
}

// A renewal that finds the hold being released leaves the grant without a place among the
// renewals, and one that the server does not have any more is found so by the release.
func TestATenureThatIsNotRenewedAnyMoreIsNotHandedOver(t *testing.T) {
	t.Parallel()
	for what, renewal := range map[string]func(l *lab, t *Grant, rd *Ready){
		"it was not sent": func(l *lab, t *Grant, rd *Ready) {
			if _, ok := t.Renewal(l.now, rd); ok {
				l.t.Error("renewed while it is released")
			}
		},
		"it was answered": func(l *lab, t *Grant, rd *Ready) {
			if t.Renewed(l.now, l.now, l.cfg.Lease, 0, rd) {
				l.t.Error("renewed while it is released")
			}
		},
		"the server does not have it": func(l *lab, t *Grant, rd *Ready) { t.Gone(RemovedOnServer, rd) },
	} {
		l := newHandOverLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		c.hold.Bind(heard{})
		next := l.ask(r, false)
		var rd Ready
		u := new(leaver)
		u.Handle = u
		c.hold.Unlock(&u.Unlock, &rd)
		l.does(func(rd *Ready) { renewal(l, c.hold.Grant, rd) })
		l.does(func(after *Ready) { r.ContextsEnded(rd.Ended, after) })
		if r.Cmd.Action != Releasing || next.hold != nil {
			t.Errorf("%s: command %d, %+v", what, r.Cmd.Action, next.hold)
		}
	}
}

func TestWhatTheEngineGivesBackIsReleased(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	next := l.ask(r, false)
	u := new(leaver)
	u.Handle = u
	l.does(func(rd *Ready) { c.hold.GiveBack(&u.Unlock, rd) })
	l.is(r, Releasing)
	if next.hold != nil {
		t.Errorf("%+v", next)
	}
}

// What the channel says may be that the lock was taken away. While the hold is live that has it
// looked at; while it is released, the release finds out.
func TestATenureOfWhichTheChannelSpokeWhileItWasReleasedIsNotHandedOver(t *testing.T) {
	t.Parallel()
	for what, event := range map[string]func(*Subscription, *Ready){
		"a message": (*Subscription).OnMessage, "a confirmation": (*Subscription).Subscribed,
	} {
		l := newHandOverLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		c.hold.Bind(heard{})
		next := l.ask(r, false)
		var rd Ready
		u := new(leaver)
		u.Handle = u
		c.hold.Unlock(&u.Unlock, &rd)
		l.does(func(rd *Ready) { event(r.sub, rd) })
		l.does(func(after *Ready) { r.ContextsEnded(rd.Ended, after) })
		if r.Cmd.Action != Releasing || next.hold != nil {
			t.Errorf("%s: command %d, %+v", what, r.Cmd.Action, next.hold)
		}
	}
}

// Messages that follow one another are answered by one look, and by one more after 100 ms.
func TestWait_MessagesBehindAHold_AreAnsweredByOneLookEach100ms(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	l.ask(r, false)
	l.now = l.now.Add(verifyEvery) // since the grant
	looks := func(event func(*Subscription, *Ready)) bool {
		c.hold.soon = false
		l.does(func(rd *Ready) { event(r.sub, rd) })
		return c.hold.soon
	}
	for i, want := range []bool{true, false, false} {
		if got := looks((*Subscription).OnMessage); got != want {
			t.Fatalf("message %d: looked at %v", i, got)
		}
	}
	alarm := bellOf(r.sub).at
	if d := alarm.Sub(l.now); d != verifyEvery {
		t.Fatalf("it looks again after %v", d)
	}
	if l.now = alarm; !looks((*Subscription).AlarmFired) || looks((*Subscription).OnMessage) {
		t.Error("the alarm does not look, or a message right after it does")
	}
}

// A waiter behind a hold with a lease of its own looks at it every 15 to 30 s, as long as nothing is
// announced; behind one that is renewed more often than that it sleeps.
func TestWait_BehindAHold_LooksIfNoRenewalDoes(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		lease, watchdog time.Duration
		clustered       bool
		least, most     time.Duration // 0: no alarm
	}{
		"a lease of its own":           {time.Hour, 30 * time.Second, false, 15 * time.Second, 30 * time.Second},
		"the same in a cluster":        {time.Hour, 30 * time.Second, true, 5 * time.Second, 10 * time.Second},
		"renewed every ten seconds":    {0, 30 * time.Second, false, 0, 0},
		"renewed every twenty minutes": {0, time.Hour, false, 15 * time.Second, 30 * time.Second},
	} {
		l := newHandOverLab(t)
		if l.cfg.Lease = x.watchdog; x.clustered {
			l.cfg.LongestSleep = LongestSleepMissed
		}
		r := l.name()
		c := new(caller)
		c.Init(c)
		c.Lease = x.lease
		l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
		l.reply(r, Outcome{})
		l.ask(r, false)
		w, b := r.sub, bellOf(r.sub)
		l.now = l.now.Add(verifyEvery) // since the grant
		if x.most == 0 {
			l.does(w.Subscribed)
			l.now = l.now.Add(verifyEvery)
			b.at = 0
			l.does(w.Subscribed) // it has looked, and sleeps again
			if b.at != 0 {
				t.Errorf("%s: it looks after %v", name, b.at.Sub(l.now))
			}
			continue
		}
		l.does(w.Subscribed)
		if d := b.at.Sub(l.now); d < x.least || d > x.most {
			t.Errorf("%s: it looks after %v", name, d)
		}
		l.now, c.hold.soon = b.at, false
		if l.does(w.AlarmFired); !c.hold.soon || b.at <= l.now {
			t.Errorf("%s: the alarm has looked: %v, and rings at %v", name, c.hold.soon, b.at)
		}
	}
}

// What the server does not have any more is given to nobody, also if the answer that says so is
// that to an Extend which the Unlock has overtaken.
func TestATenureThatAnExtendFindsGoneIsNotHandedOver(t *testing.T) {
	t.Parallel()
	for what, o := range map[string]Outcome{"gone": {Reply: NotOwner}, "another's": {Reply: OtherType}, "no lock": {Result: WrongType}} {
		l := newHandOverLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		next := l.ask(r, false)
		x := new(stretch)
		x.Handle, x.Lease = x, l.cfg.Lease
		l.does(func(rd *Ready) { c.hold.Extend(&x.Extend, rd) })
		l.is(r, Extending)
		l.unlock(c.hold)
		l.reply(r, o)
		if next.hold != nil || r.Cmd.Action != Releasing {
			t.Errorf("%s: handed over %v, command %d", what, next.hold != nil, r.Cmd.Action)
		}
	}
}
