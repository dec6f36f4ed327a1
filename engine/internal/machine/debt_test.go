package machine

import (
	"errors"
	"testing"
	"time"
)

// What the timer of a debt does, and when.
func TestTimerOfADebt(t *testing.T) {
	t.Parallel()
	const lease = time.Hour
	for name, c := range map[string]struct {
		grade   grade
		due     bool          // nobody has answered since it was last to be sent
		set     time.Duration // when its timer is set to, from the time that it fires at
		until   time.Duration // likewise, until when the server may have the owner
		out     bool          // a command of the owner is out
		queued  bool          // it may have a place in a queue
		shared  bool          // it is of a writer that readers are beside
		moving  bool          // it was refused because the slot moves
		closing bool          // nothing new is admitted
		forgets bool
		sends   bool
		again   time.Duration // when the timer fires next, from then
	}{
		"was set anew while it waited for the lock":        {grade: doubtful, set: time.Second, again: time.Second},
		"nobody has answered, and the server may have it":  {due: true, until: 3 * lease, again: 3 * lease},
		"nobody has answered, and the server cannot":       {due: true, forgets: true},
		"nobody has answered, its command is out":          {due: true, until: -lease, out: true, again: lease + 2*time.Second},
		"nobody has answered, its place may be kept":       {due: true, until: -lease, queued: true, again: lease + 2*time.Second},
		"the same, and a Shutdown waits for it":            {due: true, until: -lease, queued: true, closing: true, forgets: true},
		"nobody has answered, readers may keep it there":   {due: true, until: -lease, shared: true, again: lease + 2*time.Second},
		"the same, with a Shutdown that waits":             {due: true, until: -lease, shared: true, closing: true, forgets: true},
		"it is refused while the slot moves":               {due: true, until: -lease, moving: true, again: lease + 2*time.Second},
		"its acquire may be executed yet":                  {grade: doubtful, due: true, until: -100 * lease, again: lease + 2*time.Second},
		"may be executed yet, and a Shutdown waits for it": {grade: doubtful, due: true, until: -lease, closing: true, forgets: true},
		"its acquire may be executed yet, if hardly":       {grade: again, due: true, until: -100 * lease, again: lease + 2*time.Second},
		"a second after the first release":                 {grade: again, until: 2 * lease, sends: true, again: lease + 2*time.Second},
		"a lease after the second release":                 {grade: certain, until: lease, sends: true, again: lease + 2*time.Second},
		"the machine slept, after the first release":       {grade: again, until: -100 * lease, sends: true, again: lease + 2*time.Second},
		"the machine slept, after the second release":      {grade: certain, until: -lease, sends: true, again: lease + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			r := l.name()
			r.held = Paused // nothing is sent before the test looks
			kind := uint8(0)
			if c.queued {
				kind = queued
			}
			d := r.owe(1, kind, c.grade, lease, l.now)
			d.due, d.until, d.shared, d.moving = c.due, l.now.Add(c.until), c.shared, c.moving
			d.wakeAt(l.now.Add(c.set))
			l.closing = c.closing
			if c.out {
				r.Cmd = Command{What: Reentering, ID: d.ID}
			}
			var fx Effects
			d.Fired(l.now, &fx)
			if forgets := r.debts == nil; forgets != c.forgets {
				t.Errorf("it is forgotten: %v", forgets)
			} else if sends := d.due && !c.due; sends != c.sends {
				t.Errorf("it is to be sent: %v", sends)
			} else if at := d.at.Sub(l.now); !forgets && at != c.again {
				t.Errorf("its timer fires in %v, want %v", at, c.again)
			}
		})
	}
}

// The release of a hold was refused while its slot moves, and then nobody could be asked until its lease
// was over. What it owes is asked for however late: others may have kept it in the hash.
func TestTheDebtOfAReleaseThatWasRefusedInAMoveOutlastsItsLease(t *testing.T) {
	t.Parallel()
	for _, moving := range []bool{false, true} {
		l := newLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		l.unlock(c.hold)
		l.reply(r, Outcome{Verdict: Busy, Moving: moving})
		var fx Effects
		c.hold.giveUpRelease(&fx)
		if r.debts == nil || r.debts.outlasts() != moving {
			t.Errorf("moving %v: %+v", moving, r.debts)
		}
	}
}

// A hold whose lock was granted to another request may be there still: its owner is released, once.
func TestAHoldThatIsOvertakenIsReleasedOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	l.does(func(fx *Effects) { c.hold.Tenure.Overtaken(fx) })
	if n := l.count.Compensations; n != 1 || r.View().Debts != 1 || r.Cmd.Also != nil {
		t.Errorf("%d compensations, %d debts, %+v", n, r.View().Debts, r.Cmd)
	}
	if until := l.now.Add(l.cfg.Lease); r.debts.until < until {
		t.Errorf("the owner is forgotten after %v, and may be there for longer", r.debts.until.Sub(l.now))
	}
}

// A notice is sent until somebody answers. Only an engine that closes does not wait for a server that
// cannot be reached, or refuses it.
func TestANoticeOutlastsAnOutageButNotAShutdown(t *testing.T) {
	t.Parallel()
	busy := Outcome{Verdict: Busy, Err: errors.New("NOREPLICAS")}
	for _, x := range []struct {
		what    string
		happens func(l *lab, r *Resource)
		left    bool
	}{
		{"refused for an hour", func(l *lab, r *Resource) {
			l.reply(r, busy)
			l.now = l.now.Add(time.Hour)
			l.does(func(fx *Effects) { r.debts.Fired(l.now, fx) })
		}, true},
		{"refused, and then a Shutdown", func(l *lab, r *Resource) {
			l.reply(r, busy)
			l.closing = true
			l.does(r.StopWaiting)
		}, false},
		{"no answer in a Shutdown", func(l *lab, r *Resource) {
			l.closing = true
			l.does(r.StopWaiting)
			l.reply(r, Outcome{Verdict: Unknown, Err: errors.New("cut")})
		}, false},
		{"a Shutdown while the server is away", func(l *lab, r *Resource) {
			l.closing, l.down = true, true
			l.does(r.StopWaiting)
		}, false},
		{"a Shutdown", func(l *lab, r *Resource) {
			l.closing = true
			l.does(r.StopWaiting)
		}, true},
	} {
		l := newLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		c.hold.serverUntil = l.now.Add(24 * time.Hour)
		l.does(func(fx *Effects) {
			c.hold.Tenure.Gone(GoneOnServer, fx)
			r.GoOn(fx)
		})
		if x.happens(l, r); (r.debts != nil) != x.left {
			t.Errorf("%s: it is there: %v, want %v", x.what, r.debts != nil, x.left)
		}
	}
}

// After the lease that others were told of they ask by themselves. A server that refuses writes for an hour
// is not asked for each lost name again and again.
func TestARefusedNoticeEndsWithTheLease(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{}) // a lease of 30 s
	l.does(func(fx *Effects) {
		c.hold.Tenure.Gone(GoneOnServer, fx)
		r.GoOn(fx)
	})
	moving := true
	for end := l.now.Add(time.Hour); r.debts != nil; {
		switch d := r.debts.Port.(*note); {
		case l.now > end:
			t.Fatal("after an hour it is owed still")
		case r.Cmd.What == Settling:
			l.reply(r, Outcome{Verdict: Busy, Moving: moving, Err: errors.New("NOREPLICAS")})
			moving = false // once, at first
		case d.at <= l.paused:
			l.now = max(l.now, d.at)
			l.does(func(fx *Effects) { d.Debt.Fired(l.now, fx) })
		default:
			l.now = l.paused
			l.does(r.PauseOver)
		}
	}
}

// An engine that closes does not wait for a server that cannot be reached: the lane dies after StopWaiting,
// or the loss is heard of after it, by the renewals' own connection.
func TestANoticeThatCannotBeSentHoldsUpNoShutdown(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		l := newLab(t)
		l.cfg.Lease = time.Hour
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		gone := func(fx *Effects) {
			c.hold.Tenure.Gone(GoneOnServer, fx)
			r.GoOn(fx)
		}
		if !after {
			l.does(gone)
		}
		l.closing = true
		l.does(r.StopWaiting)
		if after {
			l.does(gone)
		}
		l.is(r, Settling)
		l.down = true
		l.reply(r, Outcome{Verdict: NotSent, Err: errors.New("no connection")})
		if r.debts != nil || len(l.idle) != 1 {
			t.Errorf("heard of after StopWaiting %v: %+v, idle %v", after, r.View(), l.idle)
		}
	}
}

// The same if the name is held back already, because its Extend could not be sent.
func TestANoticeOfANameThatIsHeldBackHoldsUpNoShutdown(t *testing.T) {
	t.Parallel()
	for _, goneFirst := range []bool{false, true} {
		l := newLab(t)
		l.cfg.Lease = time.Hour
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		l.closing = true
		l.does(r.StopWaiting)
		x := &stretch{Extend: Extend{Lease: time.Hour}}
		x.Port = x
		l.does(func(fx *Effects) {
			if _, err := c.hold.Extend(&x.Extend, fx); err != nil {
				t.Fatal(err)
			}
		})
		l.is(r, Extending)
		l.down = true
		gone := func(fx *Effects) { c.hold.Tenure.Gone(GoneOnServer, fx) }
		if goneFirst {
			l.does(gone)
		}
		l.reply(r, Outcome{Verdict: NotSent, Err: errors.New("no connection")})
		if !goneFirst {
			l.does(gone)
		}
		if r.debts != nil || len(l.idle) != 1 {
			t.Errorf("gone before the answer %v: %+v, idle %v", goneFirst, r.View(), l.idle)
		}
	}
}

// Nobody listens for a lock whose waiters poll.
func TestALockThatPollsOwesNoNotice(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := new(caller)
	c.Init(c)
	c.Kind = polling
	l.does(func(fx *Effects) { r.Admit(&c.Request, fx) })
	l.reply(r, Outcome{})
	l.does(func(fx *Effects) {
		c.hold.Tenure.Gone(GoneOnServer, fx)
		r.GoOn(fx)
	})
	if l.is(r, Nothing); r.debts != nil {
		t.Errorf("owed: %+v", r.View())
	}
}

// The server does not have the owner any more, and a release says so to the waiters of other
// processes. If another has the lock by now, that one's release will.
func TestAHoldThatIsGoneIsReleased(t *testing.T) {
	t.Parallel()
	for why, want := range map[Loss]What{GoneOnServer: Settling, TakenOnServer: Nothing} {
		l := newLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		l.does(func(fx *Effects) {
			c.hold.Tenure.Gone(why, fx)
			r.GoOn(fx)
		})
		if l.is(r, want); want == Settling && r.Cmd.ID != c.hold.ID {
			t.Errorf("it settles %d", r.Cmd.ID)
		}
		if want == Settling {
			l.reply(r, Outcome{Answer: Missing})
		}
		if l.is(r, Nothing); r.debts != nil {
			t.Errorf("%v: a debt is left", why)
		}
	}
}
