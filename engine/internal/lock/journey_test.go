package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

func TestAnUncontendedLockIsTwoCommandsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.is(r, Acquiring)
	l.reply(r, Outcome{})
	if c.delivered != 1 || c.hold == nil || !c.hold.renewed {
		t.Fatalf("granted: %+v", c)
	}
	if want := l.now.Add(l.cfg.Lease - l.cfg.Margin(l.cfg.Lease)); c.hold.Until() != want {
		t.Errorf("it ends here at %v, want %v", c.hold.Until(), want)
	}
	l.is(r, NoCommand)
	u := new(leaver)
	u.Handle = u
	l.does(func(rd *Ready) { c.hold.Unlock(&u.Unlock, rd) })
	l.is(r, Releasing)
	if c.hold.ended != 1 || !c.hold.notified || u.delivered != 0 {
		t.Errorf("while it is released: %+v", c.hold)
	}
	l.reply(r, Outcome{})
	if u.delivered != 1 || u.Err != nil || !r.Detached || l.gone != 1 {
		t.Errorf("released: %+v, out %v, idle %v", u, r.Detached, l.gone)
	}
	if !c.hold.finished() || c.hold.renewed || len(l.released) != 1 || l.released[0] != c.hold.ID {
		t.Errorf("after it: %+v, releases answered of %v", c.hold, l.released)
	}
	if l.Count.Held != 0 || l.Count.Pending != 0 || l.Count.Acquired != 1 || l.Count.Released != 1 {
		t.Errorf("counted: %+v", l.Count)
	}
}

// The lease counts from when the command was sent, not from the answer.
func TestAGrantThatComesAfterItsLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, true)
	sent := l.now
	l.now = l.now.Add(l.cfg.Lease)
	l.reply(r, Outcome{Sent: sent})
	l.is(r, Compensating)
	if !errors.Is(c.err, lockerr.ErrGrantTooLate) || r.Cmd.ID != 1 || l.Count.Compensations != 1 {
		t.Errorf("%v, owner %d, %+v", c.err, r.Cmd.ID, l.Count)
	}
	l.reply(r, Outcome{})
	if !r.Detached {
		t.Errorf("something is left: %+v", r.View())
	}
}

func TestAnAcquireWithoutAnAnswerIsReleasedThreeTimes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, true)
	sent := l.now
	l.now = l.now.Add(l.cfg.CommandTimeout) // the connection was silent for so long
	l.reply(r, Outcome{Result: Unknown, Err: errors.New("cut"), Sent: sent})
	if !errors.Is(c.err, lockerr.ErrUnavailable) {
		t.Errorf("TryLock: %v", c.err)
	}
	d := r.compensations
	for i, pause := range []time.Duration{0, time.Second, l.cfg.Lease} {
		if i > 0 {
			if at := noteOf(d).at; at != l.now.Add(pause) {
				t.Fatalf("release %d is due in %v, want %v", i+1, at.Sub(l.now), pause)
			}
			l.now = l.now.Add(pause)
			l.does(func(rd *Ready) { d.Fired(l.now, rd) })
		}
		l.is(r, Compensating)
		l.reply(r, Outcome{Reply: NotOwner})
	}
	if !r.Detached || noteOf(d).at != 0 {
		t.Errorf("something is left: %+v", r.View())
	}
}

// A message between a try and its refusal must wake the head:
//
//	head              holder          the channel
//	try: refused
//	                  releases
//	                                  message
//	reads the refusal
func TestAMessageBeforeTheRefusalIsReadWakesTheHead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	l.ask(r, false)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute})
	w := bellOf(r.sub)
	if v := r.View(); v.Head != Asleep || !w.listening || w.at == 0 {
		t.Fatalf("after the first refusal: %+v, %+v", v, w)
	}
	l.does(w.Subscribed)
	l.is(r, Acquiring)
	l.does(w.OnMessage)
	if next := l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute}); next != r {
		t.Fatal("the head sleeps, with the lock free")
	}
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute})
	if v := r.View(); v.Head != Asleep || v.What != NoCommand {
		t.Errorf("after a refusal without a message: %+v", v)
	}
}

// The server has counted the TTL since it answered, whenever the answer is read:
//
//	head                    the server
//	is paused
//	                        refused: ten seconds are left
//	goes on, three seconds later
func TestARefusalThatIsReadLateDoesNotProlongTheSleep(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	l.ask(r, false)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute})
	w := bellOf(r.sub)
	l.does(w.Subscribed)
	l.is(r, Acquiring)
	sent := l.now
	l.now = sent.Add(3 * time.Second)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: 10 * time.Second, Sent: sent})
	if late := w.at.Sub(sent.Add(10 * time.Second)); late < 0 || late > 2*time.Second {
		t.Errorf("the head wakes %v after the lease of the holder", late)
	}
}

// Cancel at every step: before, while and after a command is out. In the end nothing is left.
func TestCancelAtEveryStepLeavesNothing(t *testing.T) {
	t.Parallel()
	stop := lockerr.Cancel{Cause: context.Canceled}
	for name, c := range map[string]struct {
		before []Outcome   // replies before the cancel
		orphan *Outcome    // reply of the command that was out
		last   CommandKind // the command after that
	}{
		"its try is out, and granted":        {nil, &Outcome{}, Compensating},
		"its try is out, and refused":        {nil, &Outcome{Reply: HeldByOther, TTL: time.Minute}, NoCommand},
		"its try is out, and never answered": {nil, &Outcome{Result: Unknown}, Compensating},
		"its try is out, and not sent":       {nil, &Outcome{Result: NotSent}, NoCommand},
		"it sleeps":                          {[]Outcome{{Reply: HeldByOther, TTL: time.Minute}}, nil, NoCommand},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			r := l.name()
			a := l.ask(r, false)
			for _, o := range c.before {
				l.reply(r, o)
			}
			l.does(func(rd *Ready) { a.Cancel(stop, rd) })
			if a.delivered != 1 || !errors.Is(a.err, context.Canceled) {
				t.Fatalf("cancelled: %+v", a)
			}
			if c.orphan != nil {
				l.reply(r, *c.orphan)
			}
			l.is(r, c.last)
			for i := 0; !r.Detached; i++ {
				switch {
				case i > 10:
					t.Fatalf("something is left: %+v", r.View())
				case r.Cmd.Action != NoCommand:
					l.reply(r, Outcome{})
				case r.compensations != nil:
					l.now = noteOf(r.compensations).at
					l.does(func(rd *Ready) { r.compensations.Fired(l.now, rd) })
				case r.sub != nil:
					l.does(r.sub.AlarmFired)
				}
			}
			if a.delivered != 1 || l.Count.Pending != 0 || l.Count.Held != 0 {
				t.Errorf("%+v, told %d times", l.Count, a.delivered)
			}
		})
	}
}

// ender is a context of a hold.
type ender struct{}

func (ender) End(error) {}

// Nothing is sent while contexts of a hold that ended are alive.
func TestTheReleaseWaitsForTheContexts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	c.hold.Bind(ender{})
	u := new(leaver)
	u.Handle = u
	var rd Ready
	c.hold.Unlock(&u.Unlock, &rd)
	if rd.Send != nil || rd.Ended != &c.hold.Hold || rd.Contexts != 1 || c.hold.notified {
		t.Fatalf("Unlock: %+v", rd)
	}
	other := l.ask(r, false)
	l.is(r, NoCommand)
	l.does(func(rd *Ready) { r.ContextsEnded(&c.hold.Hold, rd) })
	if !c.hold.notified {
		t.Error("nobody was told")
	}
	l.is(r, Releasing)
	l.reply(r, Outcome{})
	l.is(r, Acquiring)
	l.reply(r, Outcome{})
	if other.hold == nil {
		t.Errorf("the next one: %v", other.err)
	}
}
