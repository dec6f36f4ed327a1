package quorum

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// fakeLock is one lock of an allLab, on a server of its own.
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
	waits bool
	begun bool
	heard error           // what it was told, while it waits
	stop  *lockerr.Cancel // it was given up before it began
	over  bool
}

// fakeHold is a hold whose time is not over.
type fakeHold struct{ Vote }

func (h *fakeHold) InTime() bool         { return true }
func (h *fakeHold) Until() clock.Instant { return clock.Instant(time.Hour) }

func (a *asking) begin() {
	k := a.of
	if a.begun = true; a.stop == nil {
		a.stop = k.Stopped()
	}
	if a.stop != nil {
		a.tell(a.stop.Cause) // it was not even asked
		return
	}
	k.l.later(fmt.Sprintf("%s hears of %s", k, k.wants[a.at].name), a.answer)
}

// answer is that of the server; one that waits has it when it is granted.
func (a *asking) answer() {
	k, lock := a.of, a.of.wants[a.at]
	if !a.waits {
		k.l.now = k.l.now.Add(k.l.took)
	}
	switch {
	case a.over:
	case lock.bad != nil:
		a.tell(lock.bad)
	case lock.away && !a.waits:
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
	case !a.waits:
		a.tell(&lockerr.Held{TTL: time.Second})
	default:
		a.heard = &lockerr.Held{TTL: time.Second}
		lock.queue = append(lock.queue, a)
	}
}

// tell ends it. One that was granted may end again, before the answer is noted, or after that.
func (a *asking) tell(why error) {
	k := a.of
	if k.asked[a.at] != a || a.over {
		k.l.t.Fatalf("%s: %s is told twice", k, k.wants[a.at].name)
	}
	a.over, k.asked[a.at], k.held[a.at] = true, nil, why == nil
	if why != nil {
		k.tell("%s refused", k.wants[a.at].name)
		k.does(func(do *Ready) { k.Reply(a.at, nil, RefusalOf(why), do) })
		return
	}
	h := &fakeHold{}
	h.Port, h.Member = h, a.at
	lost := k.lost > 0 && !a.waits && k.stop == nil && k.worst() < 0
	before := k.out == 1 || k.l.pick(2) == 1
	if lost {
		k.lost--
		k.tell("lost %s", k.wants[a.at].name)
		k.held[a.at] = false
		k.l.release(k.wants[a.at])
		if before {
			k.does(func(do *Ready) { k.Leave(&h.Vote, k.gone(a.at), 0, do) })
		}
	}
	k.does(func(do *Ready) { k.Reply(a.at, &h.Vote, Refusal{}, do) })
	if lost && !before {
		k.does(func(do *Ready) { k.Leave(&h.Vote, k.gone(a.at), 0, do) })
	}
}

// cancel gives it up, for what the acquisition was given up.
func (a *asking) cancel(stop lockerr.Cancel) {
	if !a.begun {
		a.stop = &stop
		return
	}
	lock, obstacle := a.of.wants[a.at], a.heard
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

// release lets those that wait for a lock try again.
func (l *allLab) release(wanted *fakeLock) {
	wanted.owner = nil
	l.wake(wanted)
}

func (l *allLab) wake(lock *fakeLock) {
	for _, a := range lock.queue {
		l.later(fmt.Sprintf("%s hears of %s", a.of, lock.name), a.answer)
	}
	lock.queue = nil
}

// free has somebody else give a lock back.
func (l *allLab) free(name string) { l.release(l.locks[name]) }

// back has the server of a lock come back.
func (l *allLab) back(name string) {
	l.locks[name].away = false
	l.wake(l.locks[name])
}
