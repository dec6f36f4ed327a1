package multilock

import (
	"errors"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// It is given up before anything, and after each thing that happens on its way: it ends,
// nothing is held, and the reason has what ended it.
func TestCancelAtEveryStepGivesAllBack(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		begin func(l *lab) *taker
		more  func(l *lab) // once nothing happens any more
	}{
		"free":     {func(l *lab) *taker { return l.lock("a", "x y z") }, nil},
		"TryLock":  {func(l *lab) *taker { return l.tryLock("a", "x y z") }, nil},
		"held":     {func(l *lab) *taker { l.locks["y"].owner = "b"; return l.lock("a", "x y z") }, func(l *lab) { l.free("y") }},
		"two held": {func(l *lab) *taker { l.locks["y"].owner, l.locks["z"].owner = "b", "b"; return l.lock("a", "x y z") }, func(l *lab) { l.free("y"); l.free("z") }},
		"away":     {func(l *lab) *taker { l.locks["y"].away = true; return l.lock("a", "x y z") }, func(l *lab) { l.back("y") }},
		"late":     {func(l *lab) *taker { l.locks["y"].late = 1; return l.lock("a", "x y z") }, nil},
		"lost":     {func(l *lab) *taker { a := l.lock("a", "x y z"); a.lost = 1; return a }, nil},
	} {
		for _, stop := range []lockerr.Cancel{{Cause: errStopped}, {Cause: lockerr.ErrWaited, TimedOut: true}, {Cause: lockerr.ErrClosed}} {
			for at, over := 0, false; !over; at++ {
				l := newLab(t, "x y z")
				a := c.begin(l)
				for range at {
					if !l.next() && c.more != nil {
						c.more(l)
						l.next()
					}
				}
				over = a.ended > 0
				stage := a.View().Stage
				a.cancel(stop)
				if s := a.Cancel(lockerr.Cancel{Cause: errGone}); s.Do != Nothing {
					t.Fatalf("%s: given up twice: %+v", what, s)
				}
				l.run()
				switch {
				case a.ended != 1:
					t.Fatalf("%s, %v after %d, in stage %d: it does not end: %v", what, stop.Cause, at, stage, a.story)
				case a.has != (a.names(false) == ""):
					t.Fatalf("%s, %v after %d: has all: %v, but not %q", what, stop.Cause, at, a.has, a.names(false))
				case !a.has && !over && !errors.Is(a.err.Why, stop.Cause):
					t.Errorf("%s, %v after %d: %v", what, stop.Cause, at, a.err.Why)
				}
			}
		}
	}
}

// While it pauses there is nobody to ask, so it fails at once; the end of the pause says
// nothing then.
func TestCancelEndsAPause(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y")
	l.locks["y"].owner = "somebody"
	a := l.lock("a", "x y")
	l.until("a is rested")
	a.cancel(lockerr.Cancel{Cause: lockerr.ErrWaited, TimedOut: true})
	l.run()
	a.tells("tries x y", "y refused", "gives back x", "pauses 0s", "fails for y")
	a.failed("y", lockerr.ErrWaited, lockerr.ErrHeld)
}

// It is given up while the others are given back: it does not pause.
func TestCancelBetweenTwoRounds(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y")
	l.locks["y"].owner = "somebody"
	a := l.lock("a", "x y")
	l.until("a gives back")
	a.cancel(lockerr.Cancel{Cause: errStopped})
	l.run()
	a.tells("tries x y", "y refused", "withdraws", "gives back x", "fails for y")
	a.failed("y", errStopped, lockerr.ErrHeld)

	// Or when it has the one that it waited for: the others are not tried.
	b := l.lock("b", "x y")
	l.run()
	l.free("y")
	l.until("b decides")
	b.cancel(lockerr.Cancel{Cause: errStopped})
	b.story = nil
	l.run()
	b.tells("gives back y", "fails for y")
	b.failed("y", errStopped, lockerr.ErrHeld)

	// Of one lock there are no others: it is held.
	l.locks["x"].owner = "somebody"
	c := l.lock("c", "x")
	l.run()
	l.free("x")
	l.until("c decides")
	c.cancel(lockerr.Cancel{Cause: errStopped})
	l.run()
	if !c.has {
		t.Errorf("granted, and then given up: %v", c.err)
	}
}

// One was held, the others have not answered when it is given up: what is known stands, and
// no answer is no reason.
func TestWhatWasKnownBeforeStands(t *testing.T) {
	t.Parallel()
	stop := lockerr.Cancel{Cause: errStopped}
	l := newLab(t, "x y")
	l.locks["y"].owner = "somebody"
	a := l.lock("a", "x y")
	l.run()
	l.free("y")
	l.until("a hears of x")
	a.cancel(stop)
	l.run()
	a.failed("y", errStopped, lockerr.ErrHeld)

	// Nothing was known before.
	l.locks["y"].owner = nil
	b := l.lock("b", "x y")
	l.only("b tries")
	b.cancel(stop)
	l.run()
	b.failed("x", errStopped, lockerr.ErrEarly)

	// One of this round was told before: that, and what ended the other, which had no
	// answer, or was not even asked.
	l.locks["y"].owner = "somebody"
	for _, late := range []bool{true, false} {
		c := l.lock("c", "x y")
		l.only("c hears of y")
		c.cancel(lockerr.Cancel{Cause: errStopped, TimedOut: late})
		l.run()
		c.failed("y", errStopped, lockerr.ErrHeld)
		g := New(l, 3, false, false)
		g.ServersChecked(-1, nil)
		g.OnResult(1, &lockerr.Held{})
		g.Cancel(lockerr.Cancel{Cause: errStopped, TimedOut: late})
		g.OnResult(2, errStopped)
		g.OnResult(0, errStopped)
		g.Decide()
		if v := g.View(); v.Last.At != 1 {
			t.Errorf("two were not asked, late %v: %+v", late, v)
		}
	}
	l.free("y")

	// In a later round as well.
	l.locks["y"].owner = "somebody"
	f := l.lock("f", "x y")
	l.run()
	l.free("y")
	l.until("f tries")
	f.cancel(stop)
	l.run()
	f.failed("y", errStopped, lockerr.ErrHeld)

	// It was lost, and would have been tried again.
	h := l.lock("h", "x y")
	h.lost = 1
	l.until("h binds")
	h.cancel(stop)
	l.run()
	h.failed("x", errStopped, lockerr.ErrGrantTooLate, errGone)
	l.locks["y"].owner = "somebody"

	// Closed says it all, but one that waits is told by its lock.
	d := l.lock("d", "x y")
	l.until("d gives back")
	d.cancel(lockerr.Cancel{Cause: lockerr.ErrClosed})
	l.run()
	d.failed("y", lockerr.ErrClosed)
	e := l.lock("e", "x y")
	l.run()
	e.cancel(lockerr.Cancel{Cause: lockerr.ErrClosed})
	l.run()
	e.failed("y", lockerr.ErrClosed, lockerr.ErrHeld)
}
