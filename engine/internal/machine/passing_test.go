package machine

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// passing makes a hold of a lock with fencing tokens, a waiter behind it, and the command
// that passes it on.
func (l *lab) passing(r *Resource) (first, second *caller, u *leaver) {
	l.t.Helper()
	first, second = l.askFenced(r), l.askFenced(r)
	l.reply(r, Outcome{Token: 7})
	u = l.unlock(first.hold)
	l.is(r, Passing)
	if g := r.Cmd.Giver(); g.ID != first.hold.ID || r.Cmd.ID == first.hold.ID || r.Cmd.Span != l.cfg.Lease {
		l.t.Fatalf("%d is passed on to %d, for %v", g.ID, r.Cmd.ID, r.Cmd.Span)
	}
	return first, second, u
}

func (l *lab) askFenced(r *Resource) *caller {
	c := new(caller)
	c.Init(c)
	c.Kind = fenced
	l.does(func(fx *Effects) { r.Admit(&c.Request, fx) })
	return c
}

func TestALockWithTokensIsPassedOnByOneCommand(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	first, second, u := l.passing(r)
	if u.delivered != 0 || first.hold.IsLive() || second.settled != 0 {
		t.Fatal("settled before the answer")
	}
	sent, owner := l.now, r.Cmd.ID
	l.now = l.now.Add(2 * time.Millisecond)
	l.reply(r, Outcome{Sent: sent, Token: 8})
	l.is(r, Nothing)
	h := second.hold
	if u.delivered != 1 || u.Err != nil || second.delivered != 1 || h == nil || h.Token() != 8 || h.ID != owner || !h.Local() {
		t.Fatalf("unlocked: %+v, second: %+v", u, second)
	}
	if want := sent.Add(l.cfg.Lease - l.cfg.Margin(l.cfg.Lease)); h.Until() != want || !h.renewed || first.hold.renewed || !first.hold.finished {
		t.Errorf("it ends at %v, want %v; %+v, %+v", h.Until(), want, h, first.hold)
	}
	if n := l.count; n.Held != 1 || n.Acquired != 2 || n.Released != 1 || n.HandedOver != 1 || n.Pending != 0 || n.Compensations != 0 {
		t.Errorf("counted: %+v", n)
	}
	if len(l.released) != 1 || l.released[0] != first.hold.ID {
		t.Errorf("released: %v", l.released)
	}
}

// The bounds are those of a tenure that is handed over, in number and in time.
func TestALockIsPassedOnSoOftenAndThenAnotherProcessHasATurn(t *testing.T) {
	t.Parallel()
	for what, pause := range map[string]time.Duration{"number": 0, "time": 6 * time.Millisecond} {
		l := newHandOverLab(t)
		r := l.name()
		c := l.askFenced(r)
		next := l.askFenced(r)
		l.reply(r, Outcome{Token: 1})
		for i := range int64(l.cfg.HandOvers) {
			l.now = l.now.Add(pause)
			l.unlock(c.hold)
			if r.Cmd.What == Unlocking {
				break // its time is over
			}
			l.is(r, Passing)
			c, next = next, l.askFenced(r)
			l.reply(r, Outcome{Token: 2 + i})
		}
		if r.Cmd.What == Nothing {
			l.now = l.now.Add(pause)
			l.unlock(c.hold)
		}
		if l.is(r, Unlocking); (c.hold.handed == l.cfg.HandOvers) != (pause == 0) {
			t.Errorf("%s: passed on %d times", what, c.hold.handed)
		}
		l.reply(r, Outcome{})
		l.is(r, Nothing) // the head skips a turn
		l.does(r.wait.Rang)
		l.is(r, Acquiring)
		l.reply(r, Outcome{Token: 9})
		if next.hold == nil || next.hold.handed != 0 {
			t.Errorf("%s: %+v", what, next)
		}
	}
}

// Replicas acknowledge the grant of each holder, so it needs a command.
func TestALockThatReplicasHaveIsPassedOnIfBothWantAsMany(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	durable := func() *caller {
		c := new(caller)
		c.Init(c)
		c.Want, c.AckedGiven = 1, true
		l.does(func(fx *Effects) { r.Admit(&c.Request, fx) })
		return c
	}
	first, second, third := durable(), durable(), durable()
	l.reply(r, Outcome{Ack: enough{}})
	l.unlock(first.hold)
	l.is(r, Passing)
	if r.Cmd.Want != 1 {
		t.Errorf("it wants %d replicas", r.Cmd.Want)
	}
	l.reply(r, Outcome{Ack: enough{}})
	if second.hold == nil || second.hold.Acked() != 1 {
		t.Fatalf("%+v", second)
	}
	// Too few have it: the release counts, and the grant is given back.
	u := l.unlock(second.hold)
	l.is(r, Passing)
	owner := r.Cmd.ID
	l.reply(r, Outcome{Ack: tooFew{}})
	if u.Err != nil || u.delivered != 1 || third.hold != nil || third.err == nil {
		t.Errorf("unlocked: %v, third: %+v", u.Err, third)
	}
	if l.is(r, Settling); r.Cmd.ID != owner {
		t.Errorf("%d is given back, want %d", r.Cmd.ID, owner)
	}
}

type tooFew struct{ enough }

func (tooFew) Missing() bool { return true }

func TestAPassThatGoesWrong(t *testing.T) {
	t.Parallel()
	why := errors.New("no")
	for what, x := range map[string]struct {
		answer Outcome
		burned bool // the next owner is given back first
		asked  bool // the release may find nothing
	}{
		"no answer":        {Outcome{Verdict: Unknown, Err: why}, true, true},
		"no right":         {Outcome{Verdict: Denied, Err: why}, true, true},
		"another type":     {Outcome{Verdict: WrongType, Err: why}, false, false},
		"for now":          {Outcome{Verdict: Busy, Err: why}, false, false},
		"the slot moves":   {Outcome{Verdict: Busy, Moving: true, Err: why}, false, false},
		"it had begun":     {Outcome{Verdict: Busy, Moving: true, Begun: true, Err: why}, true, true},
		"no connection":    {Outcome{Verdict: NotSent, Err: why}, false, false},
		"the lane is full": {Outcome{Verdict: Full, Err: why}, false, false},
	} {
		for _, gone := range []bool{false, true} {
			l := newHandOverLab(t)
			r := l.name()
			first, second, u := l.passing(r)
			next := r.Cmd.ID
			l.reply(r, x.answer)
			switch r.held {
			case Paused:
				l.now = l.paused
				l.does(r.PauseOver)
			case Stalled:
				l.does(func(fx *Effects) { r.Resume(nil, fx) })
			}
			if x.burned {
				if l.is(r, Settling); r.Cmd.ID != next {
					t.Errorf("%s: %d is given back, want %d", what, r.Cmd.ID, next)
				}
				l.reply(r, Outcome{Answer: Missing})
			}
			if l.is(r, Unlocking); r.Cmd.ID != first.hold.ID || u.delivered != 0 || second.trying {
				t.Errorf("%s: releases %d, and the Unlock is told %d times", what, r.Cmd.ID, u.delivered)
			}
			o := Outcome{}
			if gone {
				o.Answer = Missing
			}
			l.reply(r, o)
			if lost := gone && !x.asked; u.delivered != 1 || lost != errors.Is(u.Err, loss(GoneOnServer)) || !lost && u.Err != nil {
				t.Errorf("%s, gone %v: unlocked with %v", what, gone, u.Err)
			}
			if second.settled != 0 {
				t.Errorf("%s: the second has %v", what, second.err)
			}
			if r.wait.Ready() {
				l.is(r, Acquiring)
			} else {
				l.does(r.wait.Rang)
				l.is(r, Acquiring)
			}
			l.reply(r, Outcome{Token: 9})
			if second.hold == nil || second.hold.Token() != 9 {
				t.Errorf("%s: %+v", what, second)
			}
		}
	}
}

// The lock was lost without anybody knowing: the Unlock says so, and the next one tries.
func TestAPassThatFindsNobodyTellsOfTheLoss(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	_, second, u := l.passing(r)
	l.reply(r, Outcome{Answer: Missing})
	if u.delivered != 1 || !errors.Is(u.Err, loss(GoneOnServer)) || second.settled != 0 {
		t.Errorf("unlocked: %v, second: %+v", u.Err, second)
	}
	l.is(r, Acquiring)
}

// The one it was for has given up: the lock is given back, and the others are served.
func TestAPassThatNobodyWantsIsGivenBack(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	_, second, u := l.passing(r)
	third := l.askFenced(r)
	owner := r.Cmd.ID
	l.does(func(fx *Effects) { second.Cancel(reason.Stop{Cause: errors.New("given up")}, fx) })
	if second.err == nil || !r.Cmd.Wanted() {
		t.Fatal("it is a release, too")
	}
	l.reply(r, Outcome{Token: 8})
	if u.delivered != 1 || u.Err != nil || third.hold != nil {
		t.Errorf("unlocked: %v, third: %+v", u.Err, third)
	}
	if l.is(r, Settling); r.Cmd.ID != owner {
		t.Errorf("%d is given back, want %d", r.Cmd.ID, owner)
	}
	l.reply(r, Outcome{})
	l.is(r, Acquiring)
}

// The time of the release is over before the answer: what was granted counts.
func TestAPassThatIsAnsweredTooLateForTheRelease(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	first, second, u := l.passing(r)
	l.now = first.hold.serverUntil
	l.does(func(fx *Effects) { first.hold.Fired(l.now, fx) })
	if u.delivered != 1 || !errors.Is(u.Err, reason.ErrOutcomeUnknown) {
		t.Fatalf("unlocked: %v", u.Err)
	}
	l.is(r, Passing)
	l.reply(r, Outcome{Sent: l.now, Token: 8})
	if second.hold == nil || second.hold.Token() != 8 {
		t.Errorf("%+v", second)
	}
	if l.is(r, Settling); r.Cmd.ID != first.hold.ID {
		t.Errorf("%d is given back, want %d", r.Cmd.ID, first.hold.ID)
	}
}
