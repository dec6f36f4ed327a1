package multilock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// lab has some locks, and those who want many of them. Nothing in it happens by itself: each
// answer and each step is due until a test has it happen, in any order.
type lab struct {
	t     *testing.T
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

// taker drives an acquisition of many, as the engine does.
type taker struct {
	Acquisition
	l     *lab
	name  string
	wants []*fakeLock
	asked []*asking
	held  []bool
	lost  int // it loses so many, when they are bound together
	story []string
	ended int
	has   bool // all
	err   Refusal
}

var (
	errGone    = errors.New("gone")
	errBad     = errors.New("refused for good")
	errStopped = errors.New("not wanted any more")
	errCut     = errors.New("cut")
)

func newLab(t *testing.T, names string) *lab {
	l := &lab{
		t: t, names: strings.Fields(names), locks: make(map[string]*fakeLock),
		draw: func(d time.Duration) time.Duration { return d / 2 },
		pick: func(int) int { return 0 },
	}
	for _, name := range l.names {
		l.locks[name] = &fakeLock{name: name}
	}
	return l
}

func (l *lab) Draw(d time.Duration) time.Duration { return l.draw(d) }

// taker makes one who wants those locks, and does not begin.
func (l *lab) taker(name, wants string, once, async bool) *taker {
	k := &taker{l: l, name: name}
	for _, one := range strings.Fields(wants) {
		k.wants = append(k.wants, l.locks[one])
	}
	k.asked, k.held = make([]*asking, len(k.wants)), make([]bool, len(k.wants))
	k.Acquisition = New(l, len(k.wants), once, async)
	l.all = append(l.all, k)
	return k
}

// fakeLock begins to take those locks.
func (l *lab) lock(name, wants string) *taker {
	k := l.taker(name, wants, false, false)
	k.do(k.Start())
	return k
}

func (l *lab) tryLock(name, wants string) *taker {
	k := l.taker(name, wants, true, false)
	k.do(k.Start())
	return k
}

func (l *lab) later(what string, happen func()) { l.due = append(l.due, due{what, happen}) }

// next has one thing happen; it reports whether there was one.
func (l *lab) next() bool {
	if len(l.due) == 0 {
		return false
	}
	i := l.pick(len(l.due))
	d := l.due[i]
	l.due = slices.Delete(l.due, i, i+1)
	d.happen()
	l.check()
	return true
}

// run has everything happen that is due.
func (l *lab) run() {
	l.t.Helper()
	for n := 0; l.next(); n++ {
		if n > 100_000 {
			l.t.Fatalf("it does not end: %v", l.due[0].what)
		}
	}
}

// until has things happen until one of that kind is due.
func (l *lab) until(what string) {
	l.t.Helper()
	for !slices.ContainsFunc(l.due, func(d due) bool { return d.what == what }) {
		if !l.next() {
			l.t.Fatalf("never due: %s", what)
		}
	}
}

// only has one thing happen that is due, before the others.
func (l *lab) only(what string) {
	l.t.Helper()
	l.until(what)
	i := slices.IndexFunc(l.due, func(d due) bool { return d.what == what })
	d := l.due[i]
	l.due = slices.Delete(l.due, i, i+1)
	d.happen()
	l.check()
}

// check looks at the promises that hold always.
func (l *lab) check() {
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
		v := k.View()
		waits := slices.ContainsFunc(k.asked, func(a *asking) bool { return a != nil && !a.once })
		switch {
		case mine > 0 && (waits || v.Stage == Pausing):
			l.t.Fatalf("%s waits while it holds %d: %v", k, mine, k.story)
		case k.ended > 0 && (k.ended > 1 || v.Stage != Over):
			l.t.Fatalf("%s has ended %d times, %+v", k, k.ended, v)
		case k.ended > 0 && !k.has && mine > 0:
			l.t.Fatalf("%s failed, and holds %d: %v", k, mine, k.story)
		case (k.ended > 0) != k.has && k.err.Why == nil:
			l.t.Fatalf("%s failed without a reason: %v", k, k.story)
		}
	}
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

var actions = map[Action]string{
	CheckServers: "looks", Try: "tries", Wait: "waits", Decide: "decides", GiveBack: "gives back",
	Pause: "pauses", Bind: "binds", CancelTries: "withdraws", Fail: "fails",
}

// do has a step done later, as another goroutine may come between.
func (k *taker) do(s Ready) {
	switch s.Do {
	case Nothing:
	case CancelTries:
		k.action(s)
	default:
		k.l.later(k.name+" "+actions[s.Do], func() { k.action(s) })
	}
}

func (k *taker) action(s Ready) {
	l := k.l
	switch s.Do {
	case CheckServers:
		i := slices.IndexFunc(k.wants, func(lock *fakeLock) bool { return lock.away && lock.owner != k })
		if i < 0 {
			k.do(k.ServersChecked(-1, nil))
			return
		}
		k.tell("%s is away", k.wants[i].name)
		k.do(k.ServersChecked(i, lockerr.Wrap(lockerr.ErrUnavailable, errCut)))
	case Try:
		k.tell("tries %s", k.names(false))
		for i := range k.wants {
			if !k.held[i] {
				s.Count--
				k.ask(i, true)
			}
		}
		if s.Count != 0 {
			l.t.Errorf("%s: %d more were to be tried", k, s.Count)
		}
	case Wait:
		k.tell("waits for %s", k.wants[s.At].name)
		k.ask(s.At, false)
	case Decide:
		k.do(k.Decide())
	case GiveBack:
		k.giveBack()
		k.do(k.GivenBack(0))
	case Pause:
		k.tell("pauses %v", s.For)
		l.later(k.name+" is rested", func() { k.do(k.PauseOver()) })
	case Bind:
		k.bind()
	case CancelTries:
		k.tell("withdraws")
		for _, a := range slices.Clone(k.asked) {
			if a != nil {
				a.cancel()
			}
		}
	case Fail:
		k.giveBack()
		k.tell("fails for %s", k.wants[s.At].name)
		k.ended++
		k.err = Refusal{s.At, s.Why}
	}
}

func (k *taker) giveBack() {
	if mine := k.names(true); mine != "" {
		k.tell("gives back %s", mine)
	}
	for i, lock := range k.wants {
		if k.held[i] {
			k.held[i] = false
			k.l.release(lock)
		}
	}
}

func (k *taker) bind() {
	for i, lock := range k.wants {
		if !k.held[i] {
			k.l.t.Errorf("%s binds, and has not %s", k, lock.name)
		}
	}
	if k.lost > 0 {
		k.lost--
		i := k.l.pick(len(k.wants))
		k.tell("lost %s", k.wants[i].name)
		k.held[i] = false
		k.l.release(k.wants[i])
		k.do(k.Lost(i, lockerr.Wrap(lockerr.ErrGrantTooLate, errGone)))
		return
	}
	k.Bound()
	k.tell("has all")
	k.ended++
	k.has = true
	if k.l.holds != nil {
		k.unlockIn(k.l.holds())
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

// cancel gives k up.
func (k *taker) cancel(s lockerr.Cancel) { k.do(k.Cancel(s)) }

// failed fails the test unless k has failed for that lock, for those reasons and no others of
// the engine's.
func (k *taker) failed(name string, is ...error) {
	k.l.t.Helper()
	if k.ended != 1 || k.has || k.wants[k.err.At].name != name {
		k.l.t.Fatalf("%s: ended %d times, has all: %v; %s: %v", k, k.ended, k.has, k.wants[max(k.err.At, 0)].name, k.err.Why)
	}
	for _, one := range []error{
		lockerr.ErrHeld, lockerr.ErrUnavailable, lockerr.ErrClosed, lockerr.ErrGrantTooLate, lockerr.ErrEarly,
		lockerr.ErrWaited, errBad, errStopped, errGone,
	} {
		if got := errors.Is(k.err.Why, one); got != slices.Contains(is, one) {
			k.l.t.Errorf("%s: is %q: %v; it is %q", k, one, got, k.err.Why)
		}
	}
}
