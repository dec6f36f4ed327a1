package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// allLab has some locks, and takers that want many of them. Nothing in it happens by itself: each
// answer, and what each transition leaves to be done, is due until a test has it happen, in any order.
type allLab struct {
	t     *testing.T
	now   clock.Instant
	took  time.Duration // a try
	names []string
	locks map[string]*fakeLock
	all   []*taker
	due   []due
	draw  func(d time.Duration) time.Duration
	pick  func(n int) int // which of n that are due is next
	holds func() int      // how many are due until one that has all gives it back; nil: never
}

// due is something that happens next, or after others.
type due struct {
	what   string
	happen func()
}

// taker drives the machine of a MultiLock, as the engine does.
type taker struct {
	Machine
	l     *allLab
	name  string
	wants []*fakeLock
	asked []*asking
	held  []bool
	lost  int // so many grants end before all are held
	story []string
	ended int
	has   bool // all
	err   error
	of    string // the lock that err is about
}

var (
	errGone    = errors.New("gone")
	errBad     = errors.New("refused for good")
	errStopped = errors.New("not wanted any more")
	errCut     = errors.New("cut")
)

func newAllLab(t *testing.T, names string) *allLab {
	l := &allLab{
		t: t, now: clock.Instant(time.Hour), names: strings.Fields(names), locks: make(map[string]*fakeLock),
		draw: func(d time.Duration) time.Duration { return d / 2 },
		pick: func(int) int { return 0 },
	}
	for _, name := range l.names {
		l.locks[name] = &fakeLock{name: name}
	}
	return l
}

// taker makes one that wants those locks, and does not begin.
func (l *allLab) taker(name, wants string, once bool) *taker {
	k := &taker{l: l, name: name}
	for _, one := range strings.Fields(wants) {
		k.wants = append(k.wants, l.locks[one])
	}
	k.asked, k.held = make([]*asking, len(k.wants)), make([]bool, len(k.wants))
	k.Init(k, len(k.wants), Config{Policy: All, Once: once})
	l.all = append(l.all, k)
	return k
}

// lock begins to take those locks.
func (l *allLab) lock(name, wants string) *taker { return l.begin(name, wants, false) }

func (l *allLab) tryLock(name, wants string) *taker { return l.begin(name, wants, true) }

func (l *allLab) begin(name, wants string, once bool) *taker {
	k := l.taker(name, wants, once)
	k.does(k.Begin)
	return k
}

func (l *allLab) later(what string, happen func()) { l.due = append(l.due, due{what, happen}) }

// next has one thing happen; it reports whether there was one.
func (l *allLab) next() bool {
	if len(l.due) == 0 {
		return false
	}
	l.happen(l.pick(len(l.due)))
	return true
}

func (l *allLab) happen(i int) {
	d := l.due[i]
	l.due = slices.Delete(l.due, i, i+1)
	d.happen()
	l.check()
}

// run has everything happen that is due.
func (l *allLab) run() {
	l.t.Helper()
	for n := 0; l.next(); n++ {
		if n > 100_000 {
			l.t.Fatalf("it does not end: %v", l.due[0].what)
		}
	}
}

// until has things happen until one of that kind is due, and returns its place.
func (l *allLab) until(what string) int {
	l.t.Helper()
	for {
		if i := slices.IndexFunc(l.due, func(d due) bool { return d.what == what }); i >= 0 {
			return i
		}
		if !l.next() {
			l.t.Fatalf("never due: %s", what)
		}
	}
}

// only has one thing happen that is due, before the others.
func (l *allLab) only(what string) { l.t.Helper(); l.happen(l.until(what)) }

// check checks the promises that hold always.
func (l *allLab) check() {
	l.t.Helper()
	for _, k := range l.all {
		mine := 0
		for i, lock := range k.wants {
			if k.held[i] != (lock.owner == k) {
				l.t.Fatalf("%s: held %v, but the owner of %s is %v", k, k.held, lock.name, lock.owner)
			}
			if k.held[i] {
				mine++
			}
		}
		waits := slices.ContainsFunc(k.asked, func(a *asking) bool { return a != nil && a.begun && a.waits })
		switch {
		case mine > 0 && waits, k.Stage == Waiting && len(k.Votes()) > 0:
			l.t.Fatalf("%s waits while it holds %d: %v", k, mine, k.story)
		case !k.Decided() && k.out == 0 && k.Due == 0:
			l.t.Fatalf("%s is asleep for ever in stage %d: %v", k, k.Stage, k.story)
		case k.ended > 1 || k.ended > 0 && !k.has && k.Stage != Over:
			l.t.Fatalf("%s has ended %d times, stage %d", k, k.ended, k.Stage)
		case k.ended > 0 && !k.has && mine > 0:
			l.t.Fatalf("%s failed, and holds %d: %v", k, mine, k.story)
		case (k.ended > 0) != k.has && k.err == nil:
			l.t.Fatalf("%s failed without a reason: %v", k, k.story)
		}
	}
}

// The methods below implement Port.

func (k *taker) Now() clock.Instant                 { return k.l.now }
func (k *taker) Stamp(int) clock.Instant            { return k.l.now }
func (k *taker) Draw(d time.Duration) time.Duration { return k.l.draw(d) }
func (k *taker) RoundTrip(int) time.Duration        { return 0 }
func (k *taker) SetRoundTrip(int, time.Duration)    { k.l.t.Error("round trips are of RedLocks") }
func (k *taker) Lost(l Loss) error                  { return &lossError{l} }

func (k *taker) Away(i int) error {
	if !k.wants[i].away {
		return nil
	}
	k.tell("%s is away", k.wants[i].name)
	return lockerr.Wrap(lockerr.ErrUnavailable, errCut)
}

func (k *taker) NewTry(i int, waits bool) Try {
	k.asked[i] = &asking{of: k, at: i, waits: waits}
	return k.asked[i]
}

// NotAcquired is what the engine makes of it.
func (k *taker) NotAcquired(f Failure) error {
	k.of = k.wants[f.One.Member].name
	why := f.One.Why
	if f.Is == lockerr.ErrClosed {
		return lockerr.ErrClosed
	}
	if f.Stop != nil {
		return f.Stop.Err(lockerr.Parts(why)...)
	}
	return why
}

func (k *taker) String() string { return k.name }

// tells fails the test unless the story of k, since the last time, is that one.
func (k *taker) tells(want ...string) {
	k.l.t.Helper()
	if !slices.Equal(k.story, want) {
		k.l.t.Fatalf("%s\n got %q\nwant %q", k, k.story, want)
	}
	k.story = nil
}

func (k *taker) tell(format string, args ...any) {
	k.story = append(k.story, fmt.Sprintf(format, args...))
}

// names are those of the locks that are wanted, and held or not.
func (k *taker) names(held bool) string {
	var all []string
	for i, lock := range k.wants {
		if k.held[i] == held {
			all = append(all, lock.name)
		}
	}
	return strings.Join(all, " ")
}

// does makes a transition. What is to be done is done later, as another goroutine may come between; tries are
// cancelled at once.
func (k *taker) does(transition func(do *Ready)) {
	var do Ready
	transition(&do)
	if len(do.Cancel) > 0 {
		k.tell("withdraws")
	}
	for _, a := range do.Cancel {
		a.(*asking).cancel(do.Why)
	}
	what := ""
	switch {
	case do.Won:
		what = "has all"
	case do.Failed != nil:
		what = "fails"
	case len(do.Ask) > 0 && do.Ask[0].Try.(*asking).waits:
		what = "waits"
	case len(do.Ask) > 0:
		what = "tries"
	case do.Withdraw:
		what = "gives back"
	case do.Timer && k.Due != 0:
		what = "pauses"
	default:
		return
	}
	k.l.later(k.name+" "+what, func() { k.run(&do) })
}

func (k *taker) run(do *Ready) {
	if mine := k.names(true); len(do.Give) > 0 {
		k.tell("gives back %s", mine)
	}
	for _, v := range do.Give {
		k.held[v.Member] = false
		k.l.release(k.wants[v.Member])
	}
	if do.Withdraw {
		k.does(k.GivenBack)
	}
	switch {
	case do.Won:
		k.tell("has all")
		k.ended, k.has = k.ended+1, true
		if k.l.holds != nil {
			k.unlockIn(k.l.holds())
		}
	case do.Failed != nil:
		k.err = do.Failed
		k.tell("fails for %s", k.of)
		k.ended++
	}
	for i, one := range do.Ask {
		a := one.Try.(*asking)
		switch {
		case a.waits:
			k.tell("waits for %s", k.wants[one.Member].name)
		case i == 0:
			k.tell("tries %s", k.names(false))
		}
		a.begin()
	}
	if do.Timer && k.Due != 0 {
		k.tell("pauses %v", k.Due.Sub(k.l.now))
		k.l.later(k.name+" is rested", func() {
			k.l.now = max(k.l.now, k.Due)
			k.does(k.Tick)
		})
	}
}

// unlockIn gives all back after n more things.
func (k *taker) unlockIn(n int) {
	k.l.later(k.name+" unlocks", func() {
		if n > 0 {
			k.unlockIn(n - 1)
			return
		}
		k.giveBack()
	})
}

// giveBack is Unlock.
func (k *taker) giveBack() {
	var do Ready
	for range 2 { // the second has the locks of the first
		if votes, why := k.Release(&do); len(votes) != len(k.wants) || why != lockerr.ErrReleased || len(do.Give) > 0 {
			k.l.t.Errorf("%s releases %d locks: %v", k, len(votes), why)
		}
	}
	for i, lock := range k.wants {
		k.held[i] = false
		k.l.release(lock)
	}
}

// cancel gives k up.
func (k *taker) cancel(s lockerr.Cancel) { k.does(func(do *Ready) { k.Cancel(s, do) }) }

// failed fails the test unless k has failed for that lock, for those reasons and no others of
// the engine's.
func (k *taker) failed(name string, is ...error) {
	k.l.t.Helper()
	if k.ended != 1 || k.has || k.of != name {
		k.l.t.Fatalf("%s: ended %d times, has all: %v; %s: %v", k, k.ended, k.has, k.of, k.err)
	}
	for _, one := range []error{
		lockerr.ErrHeld, lockerr.ErrUnavailable, lockerr.ErrClosed, lockerr.ErrGrantTooLate, lockerr.ErrEarly,
		lockerr.ErrWaited, errBad, errStopped, errGone,
	} {
		if got := errors.Is(k.err, one); got != slices.Contains(is, one) {
			k.l.t.Errorf("%s: is %q: %v; it is %q", k, one, got, k.err)
		}
	}
}

// gone is the end of a grant before all are held.
func (k *taker) gone(i int) End { return endOf(i, errGone, lock.NotRenewed) }
