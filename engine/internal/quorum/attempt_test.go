package quorum

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

const nothing = "ask [] give [] cancel [] look []"

func TestAttempt_Uncontended_AsksEachServerOnce(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	l.did("ask [once 0 once 1 once 2] give [] cancel [] look []")
	l.grant(0)
	l.is(Asking)
	l.grant(2)
	l.is(Holding)
	l.must(l.won == 1 && l.Due == 0 && l.listed == 0, "won %d, due %v, listed %d", l.won, l.Due, l.listed)
	l.grant(1)
	l.did(nothing)
	l.hasVotes(0, 1, 2)
}

// refusedByAll is a lab that waits at the first of its servers.
func refusedByAll(t *testing.T, servers int) *lab {
	t.Helper()
	l := newContender(t, servers)
	for i := range servers {
		l.refuse(i, held)
	}
	l.waitsAt(0)
	l.news()
	return l
}

// The order is that of the addresses, whatever that of the locks is, and whoever answers first.
func TestAttempt_Refused_WaitsAtTheFirstServerThatRefuses(t *testing.T) {
	t.Parallel()
	l := lockWith(t, 3, Config{Order: []int{2, 0, 1}})
	l.news()
	l.refuse(1, held)
	l.did(nothing) // two may still grant it
	l.grant(2)
	l.refuse(0, held)
	l.waitsAt(0)
	l.did("ask [waits 0] give [2] cancel [] look []")
	l.must(l.listed == 1, "listed %d times", l.listed)
	l.grant(0)
	l.did("ask [once 1] give [] cancel [] look []") // that is behind it

	l = lockWith(t, 3, Config{Order: []int{2, 0, 1}})
	l.news()
	l.refuse(0, held)
	l.grant(1)
	l.refuse(2, held)
	l.waitsAt(2)
	l.did("ask [waits 2] give [1] cancel [] look []")

	l = newContender(t, 3)
	l.news()
	l.refuse(2, held)
	l.refuse(1, held)
	l.is(Asking) // the first may refuse it, too
	l.grant(0)
	l.did("ask [waits 1] give [0] cancel [] look []")
	l.waitsAt(1)
}

// A server is passed over after four of its round trips, and 50 ms at least. One that was passed over is
// not waited for until it has answered.
func TestAttempt_SilentServer_IsPassedOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ trip, patience time.Duration }{
		{time.Millisecond, leastPatience},
		{100 * time.Millisecond, 400 * time.Millisecond},
		{0, LongestWait}, // not known
	} {
		l := newContender(t, 3)
		l.trips[0] = c.trip
		l.refuse(1, held)
		l.grant(2)
		l.is(Asking)
		l.ring(c.patience)
		l.waitsAt(1)
		l.did("ask [once 0 once 1 once 2 waits 1] give [2] cancel [] look []")

		l.grant(1) // released
		l.is(Asking)
		l.did("ask [once 2] give [] cancel [] look []")
		l.trips[2] = c.trip
		l.must(l.trips[0] == WasSilent, "the round trip of the first is %v", l.trips[0])
		l.grant(2)
		l.is(Holding)
		l.grant(0) // at last
		l.must(l.trips[0] > 0, "the round trip of the first is %v", l.trips[0])
	}

	l := newContender(t, 3)
	l.trips[0] = WasSilent
	l.refuse(1, held)
	l.grant(2)
	l.waitsAt(1)

	l = newContender(t, 3)
	l.after(time.Second)
	l.refuse(0, held) // an answer of the server
	here := held
	here.Here = true
	l.refuse(1, here) // and none
	l.must(l.trips[0] == time.Second && l.trips[1] < 0, "round trips of %v", l.trips)

	l = newContender(t, 3) // it did not answer a try in all its time
	l.refuse(0, away)
	l.must(l.trips[0] == WasSilent, "the round trip of the first is %v", l.trips[0])
}

// Nobody has refused, so what is kept is in nobody's way.
func TestAttempt_NobodyRefuses_WaitsForSlowServers(t *testing.T) {
	t.Parallel()
	l := newContender(t, 5)
	l.grant(0)
	l.grant(1)
	l.must(l.Due == 0, "it is due in %v", l.Due.Sub(l.now))
	l.after(20 * time.Second)
	l.refuse(3, away)
	l.is(Asking)
	l.hasVotes(0, 1)
	l.refuse(2, away)
	l.news()
	l.refuse(4, away)
	l.did("ask [waits 2] give [0 1] cancel [] look []")
	l.waitsAt(2)
}

func TestAttempt_GrantedWhereItWaited_AsksThoseBehind(t *testing.T) {
	t.Parallel()
	l := refusedByAll(t, 5)
	l.grant(0)
	l.is(Asking)
	l.did("ask [once 1 once 2 once 3 once 4] give [] cancel [] look []")
	l.grant(1)
	l.refuse(2, held) // it may go without
	l.grant(3)
	l.is(Holding)
	l.hasVotes(0, 1, 3)
	l.did("ask [once 2] give [] cancel [] look []")

	l = refusedByAll(t, 3)
	l.grant(0)
	l.refuse(1, held)
	l.news()
	l.refuse(2, held)
	l.did("ask [waits 1] give [0] cancel [] look []")
	l.waitsAt(1)
	l.grant(1)
	l.did("ask [once 2] give [] cancel [] look []")
	l.grant(2)
	l.is(Holding)
	l.did("ask [once 0] give [] cancel [] look []")
}

// The order is that of all contenders: with the vote of a server it asks none before that.
func TestAttempt_TooFewServersBehind_BeginsAtTheFirst(t *testing.T) {
	t.Parallel()
	l := refusedByAll(t, 3)
	l.grant(0)
	l.refuse(2, held)
	l.ring(leastPatience) // the second is silent
	l.waitsAt(2)
	l.news()
	l.grant(2)
	l.waitsAt(0)
	l.did("ask [waits 0] give [2] cancel [] look []")
}

func TestAttempt_TwoWaitsInVain_AsksAskingAgain(t *testing.T) {
	t.Parallel()
	l := refusedByAll(t, 3)
	l.inVain(0)
	l.inVain(0)
	l.is(Asking)
	l.did("ask [waits 0 once 0 once 1 once 2] give [] cancel [] look []")
	l.refuse(0, held) // as before
	l.grant(1)
	l.grant(2)
	l.is(Holding)

	// It is granted while the wait is called off.
	l = refusedByAll(t, 3)
	l.ring(LongestWait / 2)
	l.grant(0)
	l.is(Asking)
	l.grant(1)
	l.is(Holding)
}

// Where it waits nothing can be had any more: the rest of the time it waits at none.
func TestAttempt_TheWaitIsRefused_WaitsOn(t *testing.T) {
	t.Parallel()
	l := refusedByAll(t, 3)
	l.refuse(0, forGood)
	l.is(Waiting)
	l.did(nothing)
	l.ring(LongestWait / 2)
	l.waitsAt(1)
}

// A full server may grant it later, but nothing says when. A majority of them ends it.
func TestAttempt_Full_WaitsAtNone(t *testing.T) {
	t.Parallel()
	l := newContender(t, 5)
	l.grant(0)
	l.grant(1)
	l.news()
	l.refuse(2, full)
	l.refuse(3, full)
	l.refuse(4, cut) // it cannot tell more
	l.failedWith(cut.Why)

	l = newContender(t, 5)
	l.trips[4] = WasSilent
	l.refuse(2, full)
	l.refuse(3, full)
	l.grant(0)
	l.grant(1)
	l.is(Asking) // the last may grant it
	l.refuse(4, held)
	l.waitsAt(4)
	l.news()
	l.grant(4) // none behind it
	l.waitsAt(0)
	l.refuse(0, full)
	l.is(Waiting)
	l.ring(LongestWait / 2)
	l.waitsAt(0)
}

// A majority of the servers is known to be silent: there is no order in which it may get one.
func TestAttempt_TooFewServersAnswer_AsksAsking(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	l.refuse(0, held)
	l.refuse(1, away)
	l.refuse(2, away)
	l.waitsAt(0)
	l.news()
	l.inVain(0)
	l.is(Asking)
	l.did("ask [once 0 once 1 once 2] give [] cancel [] look []")
}

// A vote of an earlier attempt is not wanted alone. Its time is noted.
func TestAttempt_VoteOfAnEarlierAttempt_IsGivenBack(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	l.refuse(0, held)
	l.refuse(1, held)
	l.ring(leastPatience)
	l.waitsAt(0)
	l.news()
	l.after(400 * time.Millisecond)
	l.grant(2)
	l.waitsAt(0)
	l.did("ask [] give [2] cancel [] look []")
	l.must(l.trips[2] > 400*time.Millisecond, "its round trip is %v", l.trips[2])
}

// While it asks in order, it counts.
func TestAttempt_Behind_VoteOfAnEarlierAttemptCounts(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	l.refuse(0, held)
	l.refuse(1, held)
	l.ring(leastPatience)
	l.grant(0)
	l.is(Asking)
	l.grant(2)
	l.is(Holding)
}

// Grants that come after their leases: the lease is too short for a majority.
func TestAttempt_GrantsThatComeTooLate_EndIt(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	for range lock.MaxLate - 1 {
		for i := range 3 {
			l.refuse(i, late)
		}
		l.waitsAt(0)
		for range waitsInVain {
			l.ring(LongestWait / 2)
			l.refuse(0, late)
		}
		l.is(Asking)
	}
	l.news()
	l.grant(2)
	l.refuse(0, late)
	l.refuse(1, late)
	f := l.failedWith(lockerr.ErrGrantTooLate)
	l.must(f.Granted == 0, "%+v", f)
	l.did("ask [] give [2] cancel [] look []")
}

// One server of three is so slow that its grants are too late. That is no reason to give up.
func TestAttempt_GrantsOfAMinorityComeTooLate_GoesOn(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	for range lock.MaxLate + 1 {
		l.refuse(0, late)
		l.refuse(1, held)
		l.refuse(2, held)
		l.waitsAt(1)
		l.inVain(1)
		l.inVain(0)
		l.is(Asking)
	}
}

// What a server has granted ended before the others answered. It is no vote, and no loss.
func TestAttempt_VoteThatEndsBeforeTheMajority_DoesNotCount(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	l.grant(0)
	l.leave(0, lock.NotRenewed, l.now)
	l.hasVotes()
	l.must(l.Members[0].refusal.Late, "it is %+v", l.Members[0].refusal)
	h := &hold{lab: l, until: l.now.Add(time.Minute)} // this one before it was noted
	h.Port, h.Member = h, 1
	l.does(func(do *Ready) { l.Leave(&h.Vote, endOf(1, errors.New("lost"), lock.NotRenewed), l.now, do) })
	l.tell(1, h, Refusal{})
	l.hasVotes()
	l.grant(2)
	l.must(l.won == 0 && len(l.logged) == 0, "won %d, %v", l.won, l.logged)
}

// A vote whose time is over does not count, though nobody has told so far.
func TestAttempt_VoteCountsWhileItIsInTime(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	h := l.grant(0)
	l.now = h.until
	l.grant(1)
	l.is(Asking)
	l.grant(2)
	l.is(Holding)
}

// The timer of an earlier stage may ring.
func TestAttempt_TickTooEarly_ChangesNothing(t *testing.T) {
	t.Parallel()
	l := refusedByAll(t, 3)
	var do Ready
	l.Tick(&do)
	l.waitsAt(0)
	l.must(do.Timer && len(do.Cancel) == 0, "%+v", do)
	l.grant(0)
	l.grant(1)
	do = Ready{}
	l.Tick(&do)
	l.must(!do.Timer, "%+v", do)
}

// An engine closes while it has a vote there, or while it waits: that ends it, as a decision of this process.
func TestAttempt_AnEngineCloses_EndsIt(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	l.grant(0)
	l.news()
	l.leave(0, lock.EngineClosed, l.now)
	l.failedWith(lockerr.ErrClosed)
	l.did("ask [] give [] cancel [1 2] look []")

	l = refusedByAll(t, 3)
	l.refuse(0, closed)
	l.failedWith(lockerr.ErrClosed)
}

// Given up at each step of a journey: it ends when all that is out has an answer, whatever that is,
// it is told once, and keeps nothing.
func TestAttempt_CancelledAtEachStep_LeavesNothing(t *testing.T) {
	t.Parallel()
	steps := []func(l *lab){
		func(l *lab) { l.grant(0) },
		func(l *lab) { l.refuse(1, held) },
		func(l *lab) { l.refuse(2, held) },                  // waits at 1
		func(l *lab) { l.grant(1) },                         // asks 2
		func(l *lab) { l.leave(1, lock.NotRenewed, l.now) }, // waits at 1
		func(l *lab) { l.refuse(2, held) },
		func(l *lab) { l.ring(LongestWait / 2) },
		func(l *lab) { l.refuse(1, held) }, // waits at 0
		func(l *lab) { l.ring(LongestWait / 2) },
		func(l *lab) { l.refuse(0, held) }, // asks all
		func(l *lab) { l.grant(2) },
	}
	for n := range len(steps) + 1 {
		for _, grants := range []bool{false, true} {
			for _, backwards := range []bool{false, true} {
				l := newContender(t, 3)
				for _, step := range steps[:n] {
					step(l)
				}
				l.must(!l.Decided(), "after %d steps: stage %d", n, l.Stage)
				kept := len(l.votes())
				l.news()
				l.must(l.cancel(lockerr.ErrWaited), "after %d steps: not given up", n)
				for i := range 3 {
					if backwards {
						i = 2 - i
					}
					switch {
					case l.tries[i] == nil:
					case grants:
						l.must(l.Stopped() != nil, "after %d steps: it is wanted", n)
						l.grant(i)
						kept++
					default:
						l.refuse(i, cut)
					}
				}
				l.must(len(l.failed) == 1 && l.won == 0, "after %d steps: failed %d, won %d", n, len(l.failed), l.won)
				l.does(l.Tick) // a timer that was late
				l.must(len(l.given) == kept && len(l.asked) == 0, "after %d steps, granted %t: it had %d, gave %v, asked %v", n, grants, kept, l.given, l.asked)
			}
		}
	}
	l := heldBy(t, 3)
	l.must(!l.cancel(lockerr.ErrWaited) && l.Stage == Holding, "what is held is given up")
}

// It fails while tries are out. What they bring is given back.
func TestAttempt_GrantAfterTheFailure_IsGivenBack(t *testing.T) {
	t.Parallel()
	l := tryLock(t, 3)
	l.refuse(0, held)
	l.refuse(1, held)
	l.failedWith(lockerr.ErrHeld)
	l.must(l.Stopped().Cause == lockerr.ErrAbandoned, "a try that begins now: %+v", l.Stopped())
	l.news()
	l.grant(2)
	l.did("ask [] give [2] cancel [] look []")
}
