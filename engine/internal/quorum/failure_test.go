package quorum

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// tryLock is a TryLock that has begun.
func tryLock(t testing.TB, servers int) *lab {
	l := lockWith(t, servers, Config{Once: true})
	l.news()
	return l
}

func TestFailure_TryLock_IsReportedAsSoonAsItCannotChange(t *testing.T) {
	t.Parallel()
	other := errors.New("of another type")
	for _, c := range []struct {
		what string
		said []Refusal // by the first servers of five; the zero one is a grant
		is   error
		out  string // what is done at the end
	}{
		{"held by one", []Refusal{held, held, held}, lockerr.ErrHeld, "ask [] give [] cancel [3 4] look []"},
		{"two parts", []Refusal{{}, {}, held, held, held}, lockerr.ErrHeld, "ask [] give [0 1] cancel [] look []"},
		{"unavailable", []Refusal{away, away, away}, lockerr.ErrUnavailable, "ask [] give [] cancel [3 4] look []"},
		{"away, and held", []Refusal{away, held, held, {}}, lockerr.ErrUnavailable, "ask [] give [] cancel [] look []"},
		{"for good", []Refusal{{Why: other}, {Why: other}, {Why: other}}, other, "ask [] give [] cancel [3 4] look []"},
		{"closed", []Refusal{{}, closed}, lockerr.ErrClosed, "ask [] give [0] cancel [2 3 4] look []"},
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
			l.news()
			for i, a := range l.tries {
				if a != nil {
					l.refuse(i, away)
				}
			}
		}
		f := l.failedWith(c.is)
		if got := l.news(); got != c.out {
			t.Errorf("%s: it did %s, want %s", c.what, got, c.out)
		}
		for _, said := range f.Each {
			l.must(said.Why != nil, "%s: %+v", c.what, f)
		}
	}
}

// No majority any more, but the owner is not known: what was granted is given back at once.
func TestFailure_TryLock_KeepsNothingWhileItAsksWhoHasIt(t *testing.T) {
	t.Parallel()
	l := tryLock(t, 3)
	l.grant(0)
	l.refuse(1, forGood)
	l.did(nothing)
	l.refuse(2, held)
	f := l.failedWith(forGood.Why)
	l.must(f.Granted == 1, "%+v", f)

	l = tryLock(t, 5)
	l.grant(0)
	l.refuse(1, forGood)
	l.refuse(2, held)
	l.did(nothing)
	l.refuse(3, held)
	l.did("ask [] give [0] cancel [] look []")
	l.is(Asking)
	l.refuse(4, heldFor(time.Hour))
	f = l.failedWith(lockerr.ErrHeld)
	l.must(f.TTL == time.Second && f.Granted == 0 && f.Each[0].Why == lockerr.ErrGivenBack, "%+v", f)

	// What it has given back does not count as held: it has not waited for an owner.
	l = tryLock(t, 5)
	l.grant(0)
	l.refuse(1, forGood)
	l.refuse(2, held)
	l.refuse(3, held)
	l.refuse(4, forGood)
	l.failedWith(forGood.Why)
}

// A majority has refused it for good: there is nothing to wait for.
func TestFailure_RefusedForGoodByAMajority_EndsIt(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	l.refuse(0, forGood)
	l.is(Asking)
	l.news()
	l.refuse(1, forGood)
	f := l.failedWith(forGood.Why)
	l.must(f.Stop == nil, "%+v", f)
	l.did("ask [] give [] cancel [2] look []")
}

// The TTL is the time until a majority is free, if no owner renews.
func TestFailure_TTL_IsUntilAMajorityIsFree(t *testing.T) {
	t.Parallel()
	l := tryLock(t, 5)
	for i, ttl := range []time.Duration{5, 1, 3} {
		l.refuse(i, heldFor(ttl*time.Second))
	}
	f := l.failedWith(lockerr.ErrHeld)
	l.must(f.TTL == time.Second, "%v: two are not asked any more, and one more is needed", f.TTL)
}

// What a Lock says that was given up depends on what stood in its way.
func TestFailure_LockIsGivenUp_SaysWhatStoodInItsWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		said []Refusal // by servers 0, 1, ..; the zero one is a grant; those that are left are cut
		is   error
		ttl  time.Duration
	}{
		{"nobody has answered", nil, lockerr.ErrEarly, 0},
		{"one has", []Refusal{heldFor(2 * time.Second)}, lockerr.ErrEarly, 0},
		{"held", []Refusal{heldFor(2 * time.Second), heldFor(3 * time.Second)}, lockerr.ErrHeld, 2 * time.Second},
		{"held by three", []Refusal{heldFor(3 * time.Second), heldFor(time.Second), heldFor(2 * time.Second)}, lockerr.ErrHeld, 2 * time.Second},
		{"held, the other given back", []Refusal{heldFor(2 * time.Second), {}, forGood}, lockerr.ErrHeld, 2 * time.Second},
		{"unavailable", []Refusal{away, away}, lockerr.ErrUnavailable, 0},
		{"away and held", []Refusal{away, heldFor(time.Second)}, lockerr.ErrUnavailable, 0},
	} {
		l := newContender(t, 3)
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
			case a.waits: // it says what it has waited for
				l.refuse(i, c.said[i])
			default:
				l.refuse(i, cut)
			}
		}
		f := l.failedWith(c.is)
		if f.TTL != c.ttl || f.Stop == nil || f.Stop.Cause != cause {
			t.Errorf("%s: %+v", c.what, f)
		}
		for _, said := range f.Each {
			if wasCut := said.Member >= len(c.said); wasCut != (said.Why == lockerr.ErrEarly) {
				t.Errorf("%s: of server %d: %+v", c.what, said.Member, said)
			}
		}
	}
	l := newContender(t, 3)
	l.cancel(lockerr.ErrClosed)
	for i := range l.tries {
		l.refuse(i, cut)
	}
	l.failedWith(lockerr.ErrClosed)

	l = newContender(t, 3) // and then the engine of one closes
	l.cancel(lockerr.ErrWaited)
	l.refuse(0, closed)
	l.must(!l.Decided(), "it has ended before its tries")
	l.refuse(1, cut)
	l.refuse(2, cut)
	l.failedWith(lockerr.ErrEarly)
}
