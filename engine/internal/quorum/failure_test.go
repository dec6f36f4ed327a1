package quorum

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// try is a TryLock that has begun.
func tryLock(t testing.TB, servers int) *lab {
	l := lockWith(t, servers, Config{Once: true})
	l.news()
	return l
}

func TestTryLockIsToldAsSoonAsItCannotChange(t *testing.T) {
	t.Parallel()
	other := errors.New("of another type")
	for _, c := range []struct {
		what string
		said []Refusal // by the first servers of five; the zero one is a grant
		is   Cause
		out  string // what is done at the end
	}{
		{"held by one", []Refusal{held, held, held}, IsHeld, "ask [] give [] cancel [3 4] look []"},
		{"two parts", []Refusal{{}, {}, held, held, held}, IsHeld, "ask [] give [0 1] cancel [] look []"},
		{"away", []Refusal{away, away, away}, IsAway, "ask [] give [] cancel [3 4] look []"},
		{"away, and held", []Refusal{away, held, held, {}}, IsAway, "ask [] give [] cancel [] look []"},
		{"for good", []Refusal{{Why: other}, {Why: other}, {Why: other}}, IsRefused, "ask [] give [] cancel [3 4] look []"},
		{"closed", []Refusal{{}, closed}, EngineIsClosed, "ask [] give [0] cancel [2 3 4] look []"},
	} {
		l := tryLock(t, 5)
		for i, r := range c.said {
			l.must(len(l.failed) == 0, "%s: it is over after %d answers", c.what, i)
			if r.none() {
				l.grant(i)
			} else {
				l.refuse(i, r)
			}
		}
		if len(l.failed) == 0 { // what is out decides what is said
			l.must(l.out > 0, "%s: it has no verdict", c.what)
			l.news()
			for i, a := range l.tries {
				if a != nil {
					l.refuse(i, away)
				}
			}
		}
		v := l.failedWith(c.is)
		if got := l.news(); got != c.out {
			t.Errorf("%s: it did %s, want %s", c.what, got, c.out)
		}
		for _, said := range v.Each {
			l.must(said.Is != Refused || said.Why != nil, "%s: %+v", c.what, v)
		}
	}
}

// No majority any more, but the owner is not known: what was granted is given back at once.
func TestTryLockKeepsNothingWhileItAsksWhoHasIt(t *testing.T) {
	t.Parallel()
	l := tryLock(t, 3)
	l.grant(0)
	l.refuse(1, forGood)
	l.did(nothing)
	l.refuse(2, held)
	v := l.failedWith(IsRefused)
	l.must(v.Granted == 1, "%+v", v)

	l = tryLock(t, 5)
	l.grant(0)
	l.refuse(1, forGood)
	l.refuse(2, held)
	l.did(nothing)
	l.refuse(3, held)
	l.did("ask [] give [0] cancel [] look []")
	l.is(Asking)
	l.refuse(4, heldFor(time.Hour))
	v = l.failedWith(IsHeld)
	l.must(v.TTL == time.Second && v.Granted == 0 && v.Each[0].Is == GivenBack, "%+v", v)

	// What it has given back does not count as held: it has not waited for an owner.
	l = tryLock(t, 5)
	l.grant(0)
	l.refuse(1, forGood)
	l.refuse(2, held)
	l.refuse(3, held)
	l.refuse(4, forGood)
	l.failedWith(IsRefused)
}

// A majority has refused it for good: there is nothing to wait for.
func TestARefusalForGoodByAMajorityEndsIt(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.refuse(0, forGood)
	l.is(Asking)
	l.news()
	l.refuse(1, forGood)
	v := l.failedWith(IsRefused)
	l.must(v.ForGood.Why == forGood.Why && v.Stop == nil, "%+v", v)
	l.did("ask [] give [] cancel [2] look []")
}

// The TTL is the time until a majority is free, if no owner renews.
func TestTTLOfTheWhole(t *testing.T) {
	t.Parallel()
	l := tryLock(t, 5)
	for i, ttl := range []time.Duration{5, 1, 3} {
		l.refuse(i, heldFor(ttl*time.Second))
	}
	v := l.failedWith(IsHeld)
	l.must(v.TTL == time.Second, "%v: two are not asked any more, and one more is needed", v.TTL)
}

// What a Lock says that was given up depends on what stood in its way.
func TestVerdictOfALockThatIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		said []Refusal // by servers 0, 1, ..; the zero one is a grant; those that are left are cut
		is   Cause
		ttl  time.Duration
	}{
		{"nobody has answered", nil, NoAnswer, 0},
		{"one has", []Refusal{heldFor(2 * time.Second)}, NoAnswer, 0},
		{"held", []Refusal{heldFor(2 * time.Second), heldFor(3 * time.Second)}, IsHeld, 2 * time.Second},
		{"held by three", []Refusal{heldFor(3 * time.Second), heldFor(time.Second), heldFor(2 * time.Second)}, IsHeld, 2 * time.Second},
		{"held, the other given back", []Refusal{heldFor(2 * time.Second), {}, forGood}, IsHeld, 2 * time.Second},
		{"away", []Refusal{away, away}, IsAway, 0},
		{"away and held", []Refusal{away, heldFor(time.Second)}, IsAway, 0},
	} {
		l := lock(t, 3)
		for i, r := range c.said {
			if r.none() {
				l.grant(i)
			} else {
				l.refuse(i, r)
			}
		}
		cause := errors.New("enough")
		l.must(l.cancel(cause), "it cannot be given up")
		l.must(!l.cancel(cause), "it is given up twice")
		for i, a := range l.tries {
			switch {
			case a == nil:
			case a.how.Waits: // it says what it has waited for
				l.refuse(i, c.said[i])
			default:
				l.refuse(i, cut)
			}
		}
		v := l.failedWith(c.is)
		if v.TTL != c.ttl || v.Stop == nil || v.Stop.Cause != cause {
			t.Errorf("%s: %+v", c.what, v)
		}
		for _, said := range v.Each {
			if wasCut := said.Server >= len(c.said); wasCut != (said.Is == Cut) {
				t.Errorf("%s: of server %d: %+v", c.what, said.Server, said)
			}
		}
	}
	l := lock(t, 3)
	l.cancel(reason.ErrClosed)
	for i := range l.tries {
		l.refuse(i, cut)
	}
	l.failedWith(EngineIsClosed)

	l = lock(t, 3) // and then the engine of one closes
	l.cancel(reason.ErrWaited)
	l.refuse(0, closed)
	l.must(!l.Decided(), "it has ended before its tries")
	l.refuse(1, cut)
	l.refuse(2, cut)
	l.failedWith(NoAnswer)
}

// An engine closes while it has a vote there: that ends it, as a decision of this process.
func TestAnEngineThatClosesEndsIt(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.grant(0)
	l.news()
	l.leave(0, machine.EngineClosed, l.now)
	l.failedWith(EngineIsClosed)
	l.did("ask [] give [] cancel [1 2] look []")
}

// One is away, but that is not why: a majority was granted, and given back for the owner of another.
func TestVerdictIsHeldIfAMajorityWasGivenBack(t *testing.T) {
	t.Parallel()
	l := lock(t, 5)
	l.refuse(0, held)
	l.refuse(1, away)
	l.grant(2)
	l.ring(FirstLook)
	l.is(Blocked)
	l.grant(3)
	l.again = maxAgain // it has asked for them once more, a few times
	l.grant(4)
	l.is(Blocked)
	l.cancel(reason.ErrWaited)
	l.refuse(0, held)
	v := l.failedWith(IsHeld)
	l.must(v.TTL == held.TTL, "%+v", v)
}

// Given up at each step of a journey: it ends when all that is out has an answer, whatever that is,
// it is told once, and keeps nothing.
func TestCancelAtEachStepLeavesNothing(t *testing.T) {
	t.Parallel()
	steps := []func(l *lab){
		func(l *lab) { l.grant(0) },
		func(l *lab) { l.refuse(1, held) },
		func(l *lab) { l.refuse(2, held) }, // pauses
		func(l *lab) { l.ring(firstPause) },
		func(l *lab) { l.leave(0, machine.NotRenewed, l.now) },
		func(l *lab) { l.refuse(2, held) },
		func(l *lab) { l.refuse(1, held); l.stands[1] = Held }, // blocked
		func(l *lab) { l.ring(LongWait) },                      // asks another
		func(l *lab) { l.grant(l.probed) },
		func(l *lab) { l.after(time.Second); l.look(true) },
	}
	for n := range len(steps) + 1 {
		for _, grants := range []bool{false, true} {
			for _, backwards := range []bool{false, true} {
				what := fmt.Sprintf("after %d steps, granted %t, backwards %t", n, grants, backwards)
				l := lock(t, 3)
				for _, step := range steps[:n] {
					step(l)
				}
				l.must(!l.Decided(), "%s: stage %d", what, l.Stage)
				kept := len(l.votes())
				l.news()
				l.must(l.cancel(reason.ErrWaited), "%s: not given up", what)
				l.must(len(l.cancelled) == l.out, "%s: cancelled %v of %d", what, l.cancelled, l.out)
				for i := range 3 {
					if backwards {
						i = 2 - i
					}
					switch {
					case l.tries[i] == nil:
					case grants:
						l.must(l.Stopped() != nil, "%s: it is wanted", what)
						l.grant(i)
						kept++
					default:
						l.refuse(i, cut)
					}
				}
				l.must(len(l.failed) == 1 && l.won == 0, "%s: failed %d, won %d", what, len(l.failed), l.won)
				l.must(len(l.given) == kept && len(l.asked) == 0, "%s: it had %d, and %s", what, kept, l.news())
				l.look(true) // a timer that was late
				l.did(fmt.Sprintf("ask [] give %v cancel %v look []", l.given, l.cancelled))
			}
		}
	}
	l := heldBy(t, 3)
	l.must(!l.cancel(reason.ErrWaited) && l.Stage == Holding, "what is held is given up")
}

// It fails while tries are out. What they bring is given back.
func TestAGrantAfterTheVerdictIsGivenBack(t *testing.T) {
	t.Parallel()
	l := tryLock(t, 3)
	l.refuse(0, held)
	l.refuse(1, held)
	l.failedWith(IsHeld)
	l.must(l.Stopped().Cause == reason.ErrAbandoned, "a try that begins now: %+v", l.Stopped())
	l.news()
	l.grant(2)
	l.did("ask [] give [2] cancel [] look []")
}
