package multilock

import (
	"errors"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// Which of several refusals decides, for who goes on and for who does not.
func TestTheWorstRefusalDecides(t *testing.T) {
	t.Parallel()
	held, away := error(&lockerr.Held{}), lockerr.Wrap(lockerr.ErrUnavailable, errCut)
	heldToo := lockerr.Wrap(errStopped, &lockerr.Held{})
	for what, c := range map[string]struct {
		why            []error
		goesOn, atOnce int
	}{
		"none":                             {[]error{nil, nil}, -1, -1},
		"one":                              {[]error{nil, held}, 1, 1},
		"the first of equals":              {[]error{nil, held, held}, 1, 1},
		"away, and held":                   {[]error{held, away, held}, 1, 0},
		"held, and away":                   {[]error{away, held}, 0, 1},
		"late, and held":                   {[]error{lockerr.ErrGrantTooLate, held}, 1, 1},
		"late":                             {[]error{nil, lockerr.ErrGrantTooLate, lockerr.ErrGrantTooLate}, 1, 1},
		"late, and away":                   {[]error{lockerr.ErrGrantTooLate, away}, 1, 0},
		"for good, after all":              {[]error{held, away, errBad}, 2, 2},
		"for good, twice":                  {[]error{held, errBad, lockerr.ErrWrongType}, 1, 1},
		"overloaded":                       {[]error{held, lockerr.ErrOverloaded}, 1, 1},
		"closed":                           {[]error{away, lockerr.ErrClosed}, 1, 1},
		"held, and something else as well": {[]error{heldToo, held}, 1, 1},
	} {
		for _, how := range []string{"Lock", "TryLock", "given up"} {
			g := New(nil, len(c.why), how == "TryLock", false)
			g.try()
			for i, why := range c.why {
				g.OnResult(i, why)
			}
			if how == "given up" {
				g.Cancel(lockerr.Cancel{Cause: errStopped})
			}
			want := c.atOnce
			if how == "Lock" {
				want = c.goesOn
			}
			if got := g.worst(); got != want {
				t.Errorf("%s: %s: lock %d decides, want %d", how, what, got, want)
			}
		}
	}
}

// One that waits fails by itself, as its grants come too late, and just then it is given up.
func TestGivenUpAndTooLate(t *testing.T) {
	t.Parallel()
	g := New(nil, 2, false, false)
	g.ServersChecked(1, lockerr.ErrUnavailable)
	g.GivenBack(0)
	g.PauseOver()
	g.Cancel(lockerr.Cancel{Cause: errStopped})
	g.OnResult(1, lockerr.ErrGrantTooLate)
	if s := g.Decide(); s.Do != Fail || !errors.Is(s.Why, errStopped) || !errors.Is(s.Why, lockerr.ErrGrantTooLate) {
		t.Errorf("%+v", s)
	}
}

// Some had been told when it was given up; the others say little.
func TestOneThatWasCutOffSaysLeast(t *testing.T) {
	t.Parallel()
	held, away := error(&lockerr.Held{}), lockerr.Wrap(lockerr.ErrUnavailable, errCut)
	early := lockerr.Wrap(errStopped, lockerr.ErrEarly)
	for what, c := range map[string]struct {
		before, after error
		want          int
	}{
		"held, and not asked":     {held, errStopped, 1},
		"held, and early":         {held, early, 1},
		"away, and not asked":     {away, errStopped, 1},
		"late, and early":         {lockerr.ErrGrantTooLate, early, 1},
		"for good, and not asked": {errBad, errStopped, 1},
		"granted, and not asked":  {nil, errStopped, 0},
	} {
		for _, once := range []bool{false, true} {
			g := New(nil, 2, once, false)
			g.try()
			g.OnResult(1, c.before)
			g.Cancel(lockerr.Cancel{Cause: errStopped})
			g.OnResult(0, c.after)
			if got := g.worst(); got != c.want {
				t.Errorf("%s, TryLock %v: lock %d decides", what, once, got)
			}
		}
	}
}
