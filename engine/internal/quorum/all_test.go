package quorum

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

func TestAll_Free_TakesThemInOneAttempt(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y z")
	a := l.lock("a", "z x y")
	l.run()
	a.tells("tries z x y", "has all")
	b := l.tryLock("b", "x")
	l.run()
	b.tells("tries x", "x refused", "fails for x")
	b.failed("x", lockerr.ErrHeld)
	if a.Stage != Holding || a.refusals != 0 {
		t.Errorf("stage %d, refused %d times", a.Stage, a.refusals)
	}
}

// One is held: the others are given back first, and only then it is waited for.
func TestAll_OneIsHeld_GivesTheOthersBackBeforeItWaits(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y z")
	l.locks["y"].owner = "somebody"
	a := l.lock("a", "x y z")
	l.run()
	a.tells("tries x y z", "y refused", "gives back x z", "waits for y")
	if a.Stage != Waiting || a.last.Member != 1 || a.out != 1 || a.refusals != 1 {
		t.Errorf("stage %d, last %+v, out %d, refused %d times", a.Stage, a.last, a.out, a.refusals)
	}
	l.free("y")
	l.run()
	a.tells("tries x z", "has all")
}

// Each round asks for what is not held, and blocks on what refused last. It pauses from the
// second time on.
func TestAll_RefusedAgain_WaitsForTheOneThatRefusedLast(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y z")
	l.locks["x"].owner, l.locks["z"].owner = "somebody", "somebody"
	a := l.lock("a", "x y z")
	l.run()
	a.tells("tries x y z", "x refused", "z refused", "gives back y", "waits for x")
	l.free("x")
	l.run()
	a.tells("tries y z", "z refused", "gives back x y", "pauses 1ms", "waits for z")
	l.locks["y"].owner = "somebody"
	l.free("z")
	l.run()
	a.tells("tries x y", "y refused", "gives back x z", "pauses 2ms", "waits for y")
	l.free("y")
	l.run()
	a.tells("tries x z", "has all")
}

func TestAll_Pauses_DoubleUpToABound(t *testing.T) {
	t.Parallel()
	want := make([]time.Duration, 99)
	for i := range want {
		want[i] = time.Millisecond << min(i+1, 6)
	}
	if bounds := pausesOf(t, 0, 100); !slices.Equal(bounds, want) {
		t.Errorf("pauses up to %v, want %v", bounds, want)
	}
}

// Where an attempt takes long, so do the pauses: else all begin again at the same time.
func TestAll_SlowAttempts_PauseLonger(t *testing.T) {
	t.Parallel()
	const took = 100 * time.Millisecond
	bounds := pausesOf(t, took, 7)
	if want := []time.Duration{2 * took, 4 * took, 8 * took, 16 * took, 16 * took, 16 * took}; !slices.Equal(bounds, want) {
		t.Errorf("the bounds are %v, want %v", bounds, want)
	}
}

// pausesOf are the bounds of the pauses of one that is refused so often, after attempts that take so long.
func pausesOf(t *testing.T, took time.Duration, refusals int) (bounds []time.Duration) {
	l := newAllLab(t, "x y")
	l.took = took
	l.draw = func(d time.Duration) time.Duration { bounds = append(bounds, d); return 0 }
	names := []string{"x", "y"}
	l.locks["x"].owner = "somebody"
	l.lock("a", "x y")
	for i := range refusals { // the one is free when the other is held
		l.run()
		l.locks[names[1-i%2]].owner = "somebody"
		l.free(names[i%2])
	}
	return bounds
}

// Two that want the same two locks in opposite orders, in every order of the first things
// that can happen: neither ever waits while it holds one, which the lab looks at after each
// of them, and both get them.
func TestAll_OppositeOrders_NeverWaitForEachOther(t *testing.T) {
	t.Parallel()
	const depth = 9
	refused, runs := 0, 0
	var choices, among []int
	for more := true; more; runs++ {
		l := newAllLab(t, "x y")
		random := rand.New(rand.NewPCG(1, uint64(runs)))
		n := 0
		l.pick = func(of int) int {
			n++
			switch {
			case n > depth:
				return random.IntN(of)
			case n > len(choices):
				choices, among = append(choices, 0), append(among, of)
			}
			return choices[n-1]
		}
		l.draw = func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
		l.holds = func() int { return 0 }
		a, b := l.lock("a", "x y"), l.lock("b", "y x")
		l.run()
		if !a.has || !b.has {
			t.Fatalf("%v: a has all: %v; b has all: %v", choices, a.has, b.has)
		}
		if a.refusals > 0 && b.refusals > 0 {
			refused++
		}
		// The next path, as an odometer goes on.
		for more = false; len(choices) > 0 && !more; {
			last := len(choices) - 1
			if choices[last]++; choices[last] < among[last] {
				more = true
			} else {
				choices, among = choices[:last], among[:last]
			}
		}
	}
	t.Logf("%d paths; in %d they refused each other", runs, refused)
	if refused == 0 || runs < 100 {
		t.Error("too few")
	}
}

// A refusal that will not go away ends it, also when another lock is only held.
func TestAll_RefusedForGood_Fails(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y z")
	l.locks["x"].owner = "somebody"
	l.locks["y"].bad = errBad
	a := l.lock("a", "x y z")
	l.run()
	a.tells("tries x y z", "x refused", "y refused", "gives back z", "fails for y")
	a.failed("y", errBad)
}

// And later, too.
func TestAll_RefusedForGoodWhileItWaits_Fails(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y")
	l.locks["x"].owner = "somebody"
	a := l.lock("a", "x y")
	l.run()
	l.locks["x"].bad = errBad
	l.free("x")
	l.run()
	a.failed("x", errBad)
	b := l.lock("b", "y x")
	l.run()
	b.failed("x", errBad)
}

// What was granted had ended before all were held: it tries again, as often as one lock does.
func TestAll_OneIsLostMeanwhile_TriesAgain(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y")
	a := l.lock("a", "x y")
	a.lost = 1
	l.run()
	a.tells("tries x y", "lost x", "gives back y", "waits for x", "tries y", "has all")
	a.giveBack()
	b := l.lock("b", "x y")
	b.lost = lock.MaxLate
	l.run()
	b.failed("x", lockerr.ErrGrantTooLate, errGone)
	if b.late != lock.MaxLate || b.refusals != lock.MaxLate-1 {
		t.Errorf("%d were late, refused %d times", b.late, b.refusals)
	}
	c := l.tryLock("c", "x y")
	c.lost = 1
	l.run()
	c.tells("tries x y", "lost x", "gives back y", "fails for x")
}

// A grant that comes after its lease counts as well.
func TestAll_LateGrants_AreCounted(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y")
	l.locks["x"].late = 1
	a := l.lock("a", "x y")
	l.run()
	a.tells("tries x y", "x refused", "gives back y", "waits for x", "tries y", "has all")
	a.giveBack()
	b := l.lock("b", "x y")
	b.lost = lock.MaxLate - 1
	l.until("b pauses")
	l.only("b pauses")
	l.until("b tries") // has y, and asks for x
	l.locks["x"].late = 1
	l.run()
	b.failed("x", lockerr.ErrGrantTooLate)
	c := l.lock("c", "x y")
	l.locks["x"].late = 2 // one that waits has tried as often as it may
	l.run()
	c.tells("tries x y", "x refused", "gives back y", "waits for x", "x refused", "fails for x")
	c.failed("x", lockerr.ErrGrantTooLate)
}

// The server of one is away: it is waited for first, and nothing is taken before.
func TestAll_ServerIsAway_IsWaitedForFirst(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y z")
	l.locks["y"].away = true
	a := l.lock("a", "x y z")
	l.run()
	a.tells("y is away", "waits for y")
	l.back("y")
	l.run()
	a.tells("tries x z", "has all")
	a.giveBack()

	// It goes away while another lock is waited for.
	l.locks["x"].owner = "somebody"
	b := l.lock("b", "x y z")
	l.run()
	b.story = nil
	l.locks["z"].away = true
	l.free("x")
	l.run()
	b.tells("z is away", "gives back x", "pauses 1ms", "waits for z")
	l.back("z")
	l.run()
	b.tells("tries x y", "has all")
	b.giveBack()

	// It goes away while it is asked, with another lock held.
	l.locks["x"].owner = "somebody"
	c := l.lock("c", "x y z")
	l.only("c tries")
	l.locks["z"].away = true
	l.run()
	c.tells("tries x y z", "x refused", "z refused", "gives back y", "waits for z")
}

// TryLock looks at no server, and says of a lock that is held rather than of an outage.
func TestAll_TryLock_IsOneAttempt(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y z")
	l.locks["x"].away, l.locks["y"].owner = true, "somebody"
	a := l.tryLock("a", "x y z")
	l.run()
	a.tells("tries x y z", "x refused", "y refused", "gives back z", "fails for y")
	a.failed("y", lockerr.ErrHeld)
	l.free("y")
	b := l.tryLock("b", "x y z")
	l.run()
	b.failed("x", lockerr.ErrUnavailable)
	l.back("x")
	l.locks["z"].late = 1
	c := l.tryLock("c", "x y z")
	l.run()
	c.failed("z", lockerr.ErrGrantTooLate)
	d := l.tryLock("d", "x y z")
	l.run()
	d.tells("tries x y z", "has all")
}

// It is given up before anything, and after each thing that happens on its way: it ends,
// nothing is held, and the reason has what ended it.
func TestAll_CancelledAtAnyStep_GivesAllBack(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		begin func(l *allLab) *taker
		more  func(l *allLab) // once nothing happens any more
	}{
		"free":     {func(l *allLab) *taker { return l.lock("a", "x y z") }, nil},
		"TryLock":  {func(l *allLab) *taker { return l.tryLock("a", "x y z") }, nil},
		"held":     {func(l *allLab) *taker { l.locks["y"].owner = "b"; return l.lock("a", "x y z") }, func(l *allLab) { l.free("y") }},
		"two held": {func(l *allLab) *taker { l.locks["y"].owner, l.locks["z"].owner = "b", "b"; return l.lock("a", "x y z") }, func(l *allLab) { l.free("y"); l.free("z") }},
		"away":     {func(l *allLab) *taker { l.locks["y"].away = true; return l.lock("a", "x y z") }, func(l *allLab) { l.back("y") }},
		"late":     {func(l *allLab) *taker { l.locks["y"].late = 1; return l.lock("a", "x y z") }, nil},
		"lost":     {func(l *allLab) *taker { a := l.taker("a", "x y z", false); a.lost = 1; a.does(a.Begin); return a }, nil},
	} {
		for _, stop := range []lockerr.Cancel{{Cause: errStopped}, {Cause: lockerr.ErrWaited, TimedOut: true}, {Cause: lockerr.ErrClosed}} {
			for at, over := 0, false; !over; at++ {
				l := newAllLab(t, "x y z")
				a := c.begin(l)
				for range at {
					if !l.next() && c.more != nil {
						c.more(l)
						l.next()
					}
				}
				over = a.ended > 0
				stage := a.Stage
				a.cancel(stop)
				if a.Cancel(lockerr.Cancel{Cause: errGone}, new(Ready)) {
					t.Fatalf("%s: given up twice", what)
				}
				l.run()
				switch {
				case a.ended != 1:
					t.Fatalf("%s, %v after %d, in stage %d: it does not end: %v", what, stop.Cause, at, stage, a.story)
				case a.has != (a.names(false) == ""):
					t.Fatalf("%s, %v after %d: has all: %v, but not %q", what, stop.Cause, at, a.has, a.names(false))
				case !a.has && !over && !errors.Is(a.err, stop.Cause):
					t.Errorf("%s, %v after %d: %v", what, stop.Cause, at, a.err)
				}
			}
		}
	}
}

// While it pauses there is nobody to ask, so it fails at once; the end of the pause says
// nothing then.
func TestAll_CancelledWhileItPauses_Fails(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y")
	l.locks["y"].owner = "somebody"
	a := l.lock("a", "x y")
	l.run()
	l.locks["x"].owner = "somebody"
	l.free("y")
	a.story = nil
	l.until("a is rested")
	a.cancel(lockerr.Cancel{Cause: lockerr.ErrWaited, TimedOut: true})
	l.run()
	a.tells("tries x", "x refused", "gives back y", "pauses 1ms", "fails for x")
	a.failed("x", lockerr.ErrWaited, lockerr.ErrHeld)
}

// It is given up while the others are given back: it does not wait.
func TestAll_CancelledBetweenTwoAttempts_Fails(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y")
	l.locks["y"].owner = "somebody"
	a := l.lock("a", "x y")
	l.until("a gives back")
	a.cancel(lockerr.Cancel{Cause: errStopped})
	l.run()
	a.tells("tries x y", "y refused", "gives back x", "fails for y")
	a.failed("y", errStopped, lockerr.ErrHeld)

	// Or when it has the one that it waited for: the others are not tried.
	b := l.lock("b", "x y")
	l.run()
	l.free("y")
	l.until("b tries")
	b.story = nil
	b.cancel(lockerr.Cancel{Cause: errStopped})
	l.run()
	b.tells("withdraws", "tries x", "x refused", "gives back y", "fails for y")
	b.failed("y", errStopped, lockerr.ErrHeld)
}

// It is given up, and is granted the lock that it waited for all the same: the others are not tried. Of one
// lock there are no others.
func TestAll_GrantedWhileItIsCancelled_TriesNoOthers(t *testing.T) {
	t.Parallel()
	for _, wants := range []string{"x y", "y"} {
		l := newAllLab(t, "x y")
		l.locks["y"].owner = "somebody"
		k := l.lock("a", wants)
		l.run()
		k.stop, k.story, l.locks["y"].owner = &lockerr.Cancel{Cause: errStopped}, nil, k
		k.asked[len(k.wants)-1].tell(nil)
		l.run()
		if wants == "y" {
			k.tells("has all")
			continue
		}
		k.tells("gives back y", "fails for y")
		k.failed("y", errStopped, lockerr.ErrHeld)
	}
}

// One was held, the others have not answered when it is given up: what is known stands, and
// no answer is no reason.
func TestAll_CancelledWithoutAnAnswer_SaysWhatWasKnown(t *testing.T) {
	t.Parallel()
	stop := lockerr.Cancel{Cause: errStopped}
	l := newAllLab(t, "x y z")
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
		g := l.taker("g", "x y z", false)
		var do Ready
		g.Begin(&do)
		g.Reply(1, nil, RefusalOf(&lockerr.Held{}), &do)
		g.Cancel(lockerr.Cancel{Cause: errStopped, TimedOut: late}, &do)
		g.Reply(2, nil, RefusalOf(errStopped), &do)
		g.Reply(0, nil, RefusalOf(errStopped), &do)
		if g.last.Member != 1 {
			t.Errorf("two were not asked, late %v: %+v", late, g.last)
		}
		l.all = l.all[:len(l.all)-1]
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
	l.until("h gives back")
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

// Which of several refusals decides, for who goes on and for who does not.
func TestAll_SeveralRefusals_TheWorstDecides(t *testing.T) {
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
			var g Machine
			g.Init(nil, len(c.why), Config{Policy: All, Once: how == "TryLock"})
			for i, why := range c.why {
				if why != nil {
					g.Members[i].refusal = RefusalOf(why)
				}
			}
			if how == "given up" {
				g.stop = &lockerr.Cancel{Cause: errStopped}
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
func TestAll_GivenUpAndTooLate_SaysBoth(t *testing.T) {
	t.Parallel()
	l := newAllLab(t, "x y")
	l.locks["y"].away = true
	k := l.lock("a", "x y")
	l.run()
	k.stop = &lockerr.Cancel{Cause: errStopped}
	k.asked[1].tell(lockerr.ErrGrantTooLate)
	l.run()
	k.failed("y", errStopped, lockerr.ErrGrantTooLate)
}

// Some had been told when it was given up; the others say little.
func TestAll_OneIsCutOff_SaysLeast(t *testing.T) {
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
			var g Machine
			g.Init(nil, 2, Config{Policy: All, Once: once})
			if c.before != nil {
				g.Members[1].refusal = RefusalOf(c.before)
			}
			g.stop = &lockerr.Cancel{Cause: errStopped}
			g.Members[0].refusal, g.Members[0].cut = RefusalOf(c.after), true
			if got := g.worst(); got != c.want {
				t.Errorf("%s, TryLock %v: lock %d decides", what, once, got)
			}
		}
	}
}
