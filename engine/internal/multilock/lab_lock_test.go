package multilock

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// fakeLock is one lock of the lab, on a server of its own.
type fakeLock struct {
	name  string
	owner any // a taker, or a string: somebody else
	away  bool
	bad   error // it is refused for good
	late  int   // so many answers come after the lease
	queue []*asking
}

// asking is an acquisition of one lock.
type asking struct {
	of    *taker
	at    int
	once  bool
	heard error // what it was told, while it waits
	over  bool
}

func (k *taker) ask(i int, once bool) {
	a := &asking{of: k, at: i, once: once}
	k.asked[i] = a
	if stop := k.View().Stop; stop != nil {
		a.tell(stop.Cause) // it was not even asked
		return
	}
	k.l.later(fmt.Sprintf("%s hears of %s", k, k.wants[i].name), a.answer)
}

// answer is that of the server; one that waits has it when it is granted.
func (a *asking) answer() {
	k, lock := a.of, a.of.wants[a.at]
	switch {
	case a.over:
	case lock.bad != nil:
		a.tell(lock.bad)
	case lock.away && a.once:
		a.tell(lockerr.Wrap(lockerr.ErrUnavailable, errCut))
	case lock.away:
		a.heard = lockerr.Wrap(lockerr.ErrUnavailable, errCut)
		lock.queue = append(lock.queue, a)
	case lock.late > 0:
		lock.late--
		a.tell(lockerr.ErrGrantTooLate)
	case lock.owner == nil:
		lock.owner = k
		a.tell(nil)
	case a.once:
		a.tell(&lockerr.Held{TTL: time.Second})
	default:
		a.heard = &lockerr.Held{TTL: time.Second}
		lock.queue = append(lock.queue, a)
	}
}

// tell ends it.
func (a *asking) tell(why error) {
	k := a.of
	if k.asked[a.at] != a || a.over {
		k.l.t.Fatalf("%s: %s is told twice", k, k.wants[a.at].name)
	}
	a.over, k.asked[a.at], k.held[a.at] = true, nil, why == nil
	if why != nil {
		k.tell("%s refused", k.wants[a.at].name)
	}
	k.do(k.OnResult(a.at, why))
}

// cancel gives it up, for what the acquisition was given up.
func (a *asking) cancel() {
	lock, obstacle, stop := a.of.wants[a.at], a.heard, a.of.View().Stop
	if i := slices.Index(lock.queue, a); i >= 0 {
		lock.queue = slices.Delete(lock.queue, i, i+1)
	}
	switch {
	case obstacle != nil:
	case stop.TimedOut: // it has had its time
		obstacle = lockerr.Wrap(lockerr.ErrUnavailable, lockerr.ErrSilent)
	default:
		obstacle = lockerr.ErrEarly
	}
	a.tell(lockerr.Wrap(append([]error{stop.Cause}, lockerr.Parts(obstacle)...)...))
}

// release lets those who wait for a lock try again.
func (l *lab) release(wanted *fakeLock) {
	wanted.owner = nil
	l.wake(wanted)
}

func (l *lab) wake(lock *fakeLock) {
	for _, a := range lock.queue {
		l.later(fmt.Sprintf("%s hears of %s", a.of, lock.name), a.answer)
	}
	lock.queue = nil
}

// free has somebody else give a lock back.
func (l *lab) free(name string) { l.release(l.locks[name]) }

// back has the server of a lock come back.
func (l *lab) back(name string) {
	l.locks[name].away = false
	l.wake(l.locks[name])
}
