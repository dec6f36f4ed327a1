package multilock

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

func TestAllThatAreFreeAreTakenInOneRound(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y z")
	a := l.lock("a", "z x y")
	l.run()
	a.tells("tries z x y", "has all")
	b := l.tryLock("b", "x")
	l.run()
	b.tells("tries x", "x refused", "fails for x")
	b.failed("x", lockerr.ErrHeld)
	if v := a.View(); v.Stage != Over || v.Rounds != 0 || v.Last.Why != nil {
		t.Errorf("after it: %+v", v)
	}
}

// One is held: the others are given back first, and only then it is waited for.
func TestTheOthersAreGivenBackBeforeOneIsWaitedFor(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y z")
	l.locks["y"].owner = "somebody"
	a := l.lock("a", "x y z")
	l.run()
	a.tells("tries x y z", "y refused", "gives back x z", "pauses 0s", "waits for y")
	if v := a.View(); v.Stage != Blocked || v.Last.At != 1 || v.Out != 1 || v.Rounds != 1 {
		t.Errorf("it waits: %+v", v)
	}
	l.free("y")
	l.run()
	a.tells("tries x z", "has all")
}

// Each round asks for what is not held, and blocks on what refused last. It pauses from the
// second time on.
func TestARoundAfterTheOther(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y z")
	l.locks["x"].owner, l.locks["z"].owner = "somebody", "somebody"
	a := l.lock("a", "x y z")
	l.run()
	a.tells("tries x y z", "x refused", "z refused", "gives back y", "pauses 0s", "waits for x")
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

func TestPausesDoubleUpToABound(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y")
	var bounds []time.Duration
	l.draw = func(d time.Duration) time.Duration { bounds = append(bounds, d); return 0 }
	names := []string{"x", "y"}
	l.locks["x"].owner = "somebody"
	l.lock("a", "x y")
	for i := range 100 { // the one is free when the other is held
		l.run()
		l.locks[names[1-i%2]].owner = "somebody"
		l.free(names[i%2])
	}
	want := make([]time.Duration, 99)
	for i := range want {
		want[i] = time.Millisecond << min(i+1, 6)
	}
	if !slices.Equal(bounds, want) {
		t.Errorf("pauses up to %v, want %v", bounds, want)
	}
}

// Where a round takes long, so do the pauses: else all begin again at the same time.
func TestGivenBack_AfterASlowRound_PausesForRounds(t *testing.T) {
	t.Parallel()
	l := newLab(t, "a b")
	var bounds []time.Duration
	l.draw = func(d time.Duration) time.Duration { bounds = append(bounds, d); return d }
	g := New(l, 2, false, false)
	const round = 100 * time.Millisecond
	for range 7 {
		g.try()
		g.OnResult(0, nil)
		g.OnResult(1, &lockerr.Held{})
		g.Decide()
		if s := g.GivenBack(round); s.Do != Pause {
			t.Fatalf("%+v", s)
		}
	}
	if want := []time.Duration{2 * round, 4 * round, 8 * round, 16 * round, 16 * round, 16 * round}; !slices.Equal(bounds, want) {
		t.Errorf("the bounds are %v, want %v", bounds, want)
	}
}

// Two that want the same two locks in opposite orders, in every order of the first things
// that can happen: neither ever waits while it holds one, which the lab looks at after each
// of them, and both get them.
func TestOppositeOrdersNeverWaitForEachOther(t *testing.T) {
	t.Parallel()
	const depth = 9
	refused, runs := 0, 0
	var choices, among []int
	for more := true; more; runs++ {
		l := newLab(t, "x y")
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
		if a.View().Rounds > 0 && b.View().Rounds > 0 {
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
func TestARefusalForGoodEndsIt(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y z")
	l.locks["x"].owner = "somebody"
	l.locks["y"].bad = errBad
	a := l.lock("a", "x y z")
	l.run()
	a.tells("tries x y z", "x refused", "y refused", "gives back z", "fails for y")
	a.failed("y", errBad)
}

// And later, too.
func TestARefusalForGoodEndsOneThatWaits(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y")
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
func TestOneThatIsLostMeanwhileIsTriedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y")
	a := l.lock("a", "x y")
	a.lost = 1
	l.run()
	a.tells("tries x y", "lost x", "gives back y", "pauses 0s", "waits for x", "tries y", "has all")
	a.giveBack()
	b := l.lock("b", "x y")
	b.lost = lock.MaxLate
	l.run()
	b.failed("x", lockerr.ErrGrantTooLate, errGone)
	if v := b.View(); v.Late != lock.MaxLate || v.Rounds != lock.MaxLate-1 {
		t.Errorf("it gave up: %+v", v)
	}
	c := l.tryLock("c", "x y")
	c.lost = 1
	l.run()
	c.tells("tries x y", "lost x", "gives back y", "fails for x")
}

// A grant that comes after its lease counts as well.
func TestGrantsThatComeTooLateAreCounted(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y")
	l.locks["x"].late = 1
	a := l.lock("a", "x y")
	l.run()
	a.tells("tries x y", "x refused", "gives back y", "pauses 0s", "waits for x", "tries y", "has all")
	a.giveBack()
	b := l.lock("b", "x y")
	b.lost = lock.MaxLate - 1
	for range lock.MaxLate - 1 {
		l.only("b binds")
	}
	l.until("b tries") // has x, and asks for y
	l.locks["y"].late = 1
	l.run()
	b.failed("y", lockerr.ErrGrantTooLate)
	c := l.lock("c", "x y")
	l.locks["x"].late = 2 // one that waits has tried as often as it may
	l.run()
	c.tells("tries x y", "x refused", "gives back y", "pauses 0s", "waits for x", "x refused", "fails for x")
	c.failed("x", lockerr.ErrGrantTooLate)
}

// The server of one is away: it is waited for first, and nothing is taken before.
func TestAServerThatIsAwayIsWaitedForFirst(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y z")
	l.locks["y"].away = true
	a := l.lock("a", "x y z")
	l.run()
	a.tells("y is away", "pauses 0s", "waits for y")
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
	c.tells("tries x y z", "x refused", "z refused", "gives back y", "pauses 0s", "waits for z")
}

// TryLock looks at no server, and says of a lock that is held rather than of an outage.
func TestTryLockIsOneRound(t *testing.T) {
	t.Parallel()
	l := newLab(t, "x y z")
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

// Only the first round of a future may find a lane full: its caller can try later.
func TestOnlyTheFirstRoundOfAFutureMayOverflow(t *testing.T) {
	t.Parallel()
	for _, async := range []bool{false, true} {
		l := newLab(t, "x y")
		k := l.taker("a", "x y", true, async)
		if s := k.Start(); s.Do != Try || s.Patient == async || s.Count != 2 {
			t.Errorf("TryLock, async %v: %+v", async, s)
		}
		k = l.taker("b", "x y", false, async)
		if s := k.Start(); s.Do != CheckServers {
			t.Errorf("Lock: %+v", s)
		}
		if s := k.ServersChecked(-1, nil); s.Do != Try || s.Patient == async {
			t.Errorf("the first round, async %v: %+v", async, s)
		}
		k.OnResult(0, nil)
		k.OnResult(1, &lockerr.Held{})
		k.Decide()
		k.GivenBack(0)
		if s := k.PauseOver(); s.Do != Wait || s.At != 1 || !s.Patient {
			t.Errorf("it waits, async %v: %+v", async, s)
		}
		k.OnResult(1, nil)
		k.Decide()
		if s := k.ServersChecked(-1, nil); s.Do != Try || s.Count != 1 || !s.Patient {
			t.Errorf("the second round, async %v: %+v", async, s)
		}
	}
}

// A round is decided when its last result has come, and how much work that may be is known.
func TestTheLastResultDecides(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		granted, work int
		stop          bool
	}{{0, 0, false}, {7, 7, false}, {20, 20, false}, {7, 7, true}} {
		g := New(nil, 20, true, false)
		g.Start()
		for i := range 20 {
			var why error
			if i >= c.granted {
				why = &lockerr.Held{}
			}
			s := g.OnResult(i, why)
			if want := (Ready{Do: Decide, Count: c.work}); i == 19 && s != want || i < 19 && s != (Ready{}) {
				t.Errorf("%+v: result %d: %+v", c, i, s)
			}
			if v := g.View(); v.Out != 19-i {
				t.Errorf("%d are out after %d", v.Out, i+1)
			}
		}
	}
	for stopped, work := range map[bool]int{false: 20, true: 1} { // the others are next, or not
		l := newLab(t, "")
		g := New(l, 20, false, false)
		g.ServersChecked(3, lockerr.ErrUnavailable)
		g.GivenBack(0)
		g.PauseOver()
		if stopped {
			g.Cancel(lockerr.Cancel{Cause: errStopped})
		}
		if s := g.OnResult(3, nil); s.Count != work {
			t.Errorf("granted, after a wait, stopped %v: %+v", stopped, s)
		}
	}
}
