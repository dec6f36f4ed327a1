package lock

import (
	"testing"
	"time"
)

// blocked makes a hold with a fixed lease.
func (l *lab) held(r *Entry, lease time.Duration) *tenant {
	l.t.Helper()
	c := new(caller)
	c.Init(c)
	c.Lease = lease
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
	l.reply(r, Outcome{})
	if c.hold == nil {
		l.t.Fatal(c.err)
	}
	return c.hold
}

// unlock has somebody unlock.
func (l *lab) unlock(h *tenant) *leaver {
	u := new(leaver)
	u.Handle = u
	l.does(func(rd *Ready) { h.Unlock(&u.Unlock, rd) })
	return u
}

// A timer that waited for the lock looks at the clock like everybody else:
//
//	timer of the lease         user
//	fires, waits for the lock
//	                           Unlock
//	has the lock
func TestATimerThatComesLateGivesNoReleaseUp(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	h := l.held(r, time.Minute)
	u := l.unlock(h)
	if h.Until() > l.now {
		t.Error("it is valid after Unlock")
	}
	l.does(func(rd *Ready) { h.Fired(l.now, rd) })
	if u.delivered != 0 {
		t.Fatalf("the release was given up a minute early: %v", u.Err)
	}
	l.reply(r, Outcome{})
	if u.delivered != 1 || u.Err != nil {
		t.Errorf("Unlock: told %d times, %v", u.delivered, u.Err)
	}
}

// stretch is somebody's Extend.
type stretch struct {
	Extend
	settled int
}

func (x *stretch) OnResult() { x.settled++ }

// It is the clock that says when a hold has ended, and loss is irrevocable. What the server has been
// asked for meanwhile is owed for as long as it may last there.
func TestAnAnswerThatComesLateDoesNotReviveAHold(t *testing.T) {
	t.Parallel()
	for name, timer := range map[string]bool{"the answer comes first": false, "the timer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			r := l.name()
			h := l.held(r, time.Minute)
			x := &stretch{Extend: Extend{Lease: time.Hour}}
			x.Handle = x
			l.does(func(rd *Ready) { h.Extend(&x.Extend, rd) })
			l.is(r, Extending)
			sent := l.now
			l.now = l.now.Add(time.Minute)
			if timer {
				l.does(func(rd *Ready) { h.Fired(l.now, rd) })
			}
			l.reply(r, Outcome{Sent: sent})
			if h.why != LeaseEnded || x.settled != 1 || x.Err == nil {
				t.Errorf("lost for reason %d, Extend told %d times: %v", h.why, x.settled, x.Err)
			}
			l.is(r, Compensating) // the server has it for an hour

			l.reply(r, Outcome{Result: NotSent}) // and is out of reach, for an engine that closes
			l.Phase = Closed
			for range 1000 {
				if d := r.compensations; d != nil {
					l.now = d.at
					l.does(func(rd *Ready) { d.Fired(l.now, rd) })
				}
			}
			if d := l.now.Sub(sent); r.compensations != nil || d < time.Hour {
				t.Errorf("the debt is forgotten: %v, after %v", r.compensations == nil, d)
			}
		})
	}
}

// Of two Extends the second must not be told what the server said to the first.
func TestAnExtendThatNobodyWaitsForKeepsItsPlace(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	h := l.held(r, time.Minute)
	first, second := &stretch{Extend: Extend{Lease: 2 * time.Minute}}, &stretch{Extend: Extend{Lease: time.Hour}}
	third, fourth := &stretch{Extend: Extend{Lease: 3 * time.Minute}}, &stretch{Extend: Extend{Lease: 4 * time.Minute}}
	for _, x := range []*stretch{first, second, third, fourth} {
		x.Handle = x
	}
	begin := func(x *stretch) { l.does(func(rd *Ready) { h.Extend(&x.Extend, rd) }) }
	begin(first)
	if err := h.StopExtending(&first.Extend, nil); err == nil {
		t.Error("one that gave up has no error")
	}
	begin(third)
	begin(second)
	begin(fourth)
	if r.Cmd.Lease != 2*time.Minute {
		t.Fatal("the others do not wait for the first")
	}
	if err := h.StopExtending(&third.Extend, nil); err == nil {
		t.Error("one that gave up in the queue has no error")
	}
	l.reply(r, Outcome{})
	if first.settled != 1 || second.settled+third.settled+fourth.settled != 0 {
		t.Fatalf("told: %d, %d, %d, %d", first.settled, second.settled, third.settled, fourth.settled)
	}
	l.is(r, Extending)
	if r.Cmd.Lease != time.Hour {
		t.Errorf("asked for %v", r.Cmd.Lease)
	}
	l.unlock(h)
	if second.settled != 1 || fourth.settled != 1 || third.settled != 0 {
		t.Errorf("told when the hold has ended: %d, %d, %d", second.settled, third.settled, fourth.settled)
	}
}

// The reply of a release may be lost, and the release be sent again. If that finds nothing, the
// first copy has done it.
func TestASecondCopyOfAReleaseThatFindsNothingIsASuccess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first Outcome
		lost  bool
	}{
		"the first may have been executed": {Outcome{Result: Unknown}, false},
		"the first was refused":            {Outcome{Result: RetryLater}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			r := l.name()
			u := l.unlock(l.held(r, time.Minute))
			l.reply(r, c.first)
			if l.paused != 0 {
				l.does(r.PauseOver)
			}
			l.is(r, Releasing)
			l.reply(r, Outcome{Reply: NotOwner})
			if _, lost := u.Err.(loss); u.delivered != 1 || lost != c.lost {
				t.Errorf("Unlock: told %d times, %v", u.delivered, u.Err)
			}
			if len(l.released) != 1 { // a replica that is promoted may have the owner, whatever this server had
				t.Errorf("released: %v", l.released)
			}
		})
	}
}
