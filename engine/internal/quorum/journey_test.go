package quorum

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
)

const nothing = "ask [] give [] cancel [] look []"

func TestAnUncontendedLockAsksEachServerOnce(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.did("ask [once 0 once 1 once 2] give [] cancel [] look []")
	l.grant(0)
	l.is(Asking)
	l.grant(2)
	l.is(Holding)
	l.must(l.won == 1 && l.alarm == 0 && l.listed == 0, "won %d, timer %v, listed %d", l.won, l.alarm, l.listed)
	l.after(onItsWay)
	h := l.grant(1) // it was on its way
	l.must(h.Joined() == 0, "it joined at %v", h.Joined())
	l.did(nothing)
	l.hasVotes(0, 1, 2)
	votes, why := l.Release(nil, new(Deeds))
	l.must(why == reason.ErrReleased && len(votes) == 3 && l.Stage == Over, "released: %v, %d votes", why, len(votes))
	same, again := l.Release(nil, new(Deeds))
	l.must(again == why && slices.Equal(votes, same), "released again: %v, %d votes", again, len(same))
	for i := range 3 {
		l.leave(i, 0, l.now) // their ends come then
	}
	l.did(nothing)
}

// An answer that is late counts from now on only: somebody else may have had the lock there.
func TestAVoteThatComesLateHasTheOthersLookedAt(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.grant(0)
	l.grant(1)
	l.news()
	l.after(onItsWay + 1)
	h := l.grant(2)
	l.must(h.Joined() == l.now, "it joined at %v, want %v", h.Joined(), l.now)
	l.did("ask [] give [] cancel [] look [0 1]")
}

// While it is held it wants the lock everywhere, where that may be.
func TestAServerThatHasNotGrantedItIsAskedAgain(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		said Refusal
		want string
	}{
		"held":       {held, "ask [waits 2] give [] cancel [] look []"},
		"away":       {away, "ask [waits 2] give [] cancel [] look []"},
		"full":       {full, "ask [waits 2] give [] cancel [] look []"},
		"late":       {late, "ask [waits 2] give [] cancel [] look []"},
		"wrong type": {forGood, nothing},
		"closed":     {closed, nothing},
	} {
		for _, before := range []bool{false, true} {
			if what == "closed" && before {
				continue // then it fails
			}
			l := lock(t, 3)
			l.grant(0)
			l.news()
			if before {
				l.refuse(2, c.said)
				l.grant(1)
			} else {
				l.grant(1)
				l.refuse(2, c.said)
			}
			l.is(Holding)
			if got := l.news(); got != c.want {
				t.Errorf("%s, before %t: %s, want %s", what, before, got, c.want)
			}
			if l.tries[2] == nil {
				continue
			}
			h := l.grant(2)
			l.must(h.Joined() == l.now, "%s: it joined at %v", what, h.Joined())
			l.did("ask [] give [] cancel [] look [0 1]")
		}
	}
}

// Two ask at the same time, and each has a part. The one with the referee's vote keeps it.
func TestTheRefereeDecidesWhoKeepsWhatThereIs(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.grant(0)
	l.refuse(1, held)
	l.refuse(2, held)
	l.is(Pausing)
	l.hasVotes(0)
	l.news()
	l.ring(firstPause)
	l.is(Asking)
	l.did("ask [once 1 once 2] give [] cancel [] look []")
	l.grant(2)
	l.is(Holding)
	l.hasVotes(0, 2)

	other := lock(t, 3)
	other.news()
	other.refuse(0, held)
	other.is(Asking)
	other.grant(1)
	other.did(nothing) // two of three may grant it still
	other.refuse(2, held)
	other.is(Blocked)
	other.did("ask [waits 0] give [1] cancel [] look []")
	other.grant(0) // the first has released it
	other.is(Asking)
	other.did("ask [once 1 once 2] give [] cancel [] look []")
	other.grant(1)
	other.is(Holding)
	l.must(other.won == 1 && l.won == 1, "won: %d and %d", other.won, l.won)
}

// The order of referees is that of the addresses, whatever that of the locks is: two callers may
// have named the servers in different orders.
func TestTheOrderOfRefereesIsThatOfTheAddresses(t *testing.T) {
	t.Parallel()
	order := Config{Order: []int{2, 0, 1}}
	l := lockWith(t, 3, order)
	l.refuse(0, held)
	l.refuse(1, held)
	l.grant(2)
	l.is(Pausing)
	l.hasVotes(2)

	l = lockWith(t, 3, order)
	l.grant(0)
	l.refuse(1, held)
	l.news()
	l.refuse(2, held)
	l.is(Blocked)
	l.did("ask [waits 2] give [0] cancel [] look []")
}

// Its pauses double, and end: two that see different servers away have different referees.
func TestTheOneWithTheRefereesVoteGivesUpAfterAWhile(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.grant(0)
	for n := range maxPauses {
		l.refuse(1, held)
		l.refuse(2, held)
		l.is(Pausing)
		l.hasVotes(0)
		l.ring(min(firstPause<<n, mostPause))
	}
	l.news()
	l.refuse(1, held)
	l.is(Asking) // the third may grant it
	l.refuse(2, held)
	l.is(Blocked)
	l.did("ask [waits 1] give [0] cancel [] look []")

	l = lock(t, 3)
	l.grant(0)
	for n := range maxPauses { // the third is slow
		l.refuse(1, held)
		l.is(Pausing)
		l.ring(min(firstPause<<n, mostPause))
	}
	l.news()
	l.refuse(1, held)
	l.is(Asking)
	l.ring(FirstLook << MaxLooks)
	l.is(Blocked)
	l.did("ask [waits 1] give [0] cancel [] look []")
}

// The first server has not answered: it may be the referee, and the next is not until the first is
// known to be away, or takes too long.
func TestTheRefereeIsTheFirstThatIsNotAway(t *testing.T) {
	t.Parallel()
	for _, tooLong := range []bool{false, true} {
		l := lock(t, 3)
		l.grant(1)
		l.news()
		l.refuse(2, held)
		l.is(Asking)
		l.must(l.listed == 1, "listed %d times", l.listed)
		if tooLong {
			l.ring(FirstLook)
		} else {
			l.stands[0] = Away
			l.look(false)
		}
		l.is(Pausing)
		l.hasVotes(1)
		l.did(nothing)
		if tooLong {
			l.grant(0) // soon after
			l.is(Holding)
		}
	}
	l := lock(t, 3)
	l.refuse(1, held)
	l.grant(2)
	l.stands[0] = Held
	l.news()
	l.look(false) // it will be refused there
	l.is(Blocked)
	l.did("ask [waits 1] give [2] cancel [] look []")
}

// One was slow, and has answered: in the next round it may be the referee again.
func TestOneThatHasAnsweredIsNotSlowAnyMore(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.grant(1)
	l.refuse(2, held)
	l.ring(FirstLook)
	l.is(Pausing)
	l.refuse(0, held)
	l.ring(firstPause)
	l.is(Asking)
	l.refuse(2, held)
	l.is(Asking)
	l.refuse(0, held)
	l.is(Blocked)
	l.hasVotes()
}

// Nobody has refused, so the votes that are kept stand in nobody's way: it waits for those that
// are slow, and looks at longer and longer intervals.
func TestARoundWithoutARefusalWaitsForSlowServers(t *testing.T) {
	t.Parallel()
	l := lock(t, 5)
	l.grant(0)
	l.grant(1)
	for n := range MaxLooks + 2 {
		l.ring(FirstLook << min(n, MaxLooks))
		l.is(Asking)
		l.hasVotes(0, 1)
	}
	l.must(l.listed == 1, "it takes long, and is listed %d times", l.listed)
	l.stands[2], l.stands[3], l.stands[4] = Away, Away, Away
	l.news()
	l.ring(FirstLook << MaxLooks)
	l.is(Blocked)
	l.did("ask [] give [0 1] cancel [] look []")
	l.ring(LongWait)
	l.did(nothing) // all others are asked still
	l.grant(3)
	l.is(Asking)
	l.did("ask [once 0 once 1] give [] cancel [] look []")
}

// Grants that come after their leases: the lease is too short for a majority.
func TestGrantsThatComeTooLateEndIt(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	for range 2 {
		for i := range 3 {
			l.refuse(i, late)
		}
		l.is(Blocked)
		l.ring(LongWait)
		l.is(Asking)
	}
	l.news()
	l.grant(2)
	l.refuse(0, late)
	l.refuse(1, late)
	v := l.failedWith(IsRefused)
	l.must(v.ForGood.Why == reason.ErrLate && v.Granted == 1, "%+v", v)
	l.did("ask [] give [2] cancel [] look []")
}

// One server of three is so slow that its grants are too late. That is no reason to give up.
func TestGrantsOfAMinorityMayComeTooLate(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.refuse(0, late)
	l.refuse(1, held)
	l.refuse(2, held)
	for range machine.MaxLate {
		l.is(Blocked)
		l.stands[1] = Away // where it waits
		l.ring(LongWait)
		l.is(Asking)
		l.refuse(0, late)
		l.refuse(2, held)
	}
	l.is(Blocked)
}

// What a server has granted ended before the others answered. It is no vote, and no loss.
func TestAVoteThatEndsBeforeTheMajority(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.grant(0)
	l.leave(0, 1, l.now)
	l.hasVotes()
	l.must(l.Parts[0].refusal.Late && l.Parts[0].refusal.Ended, "it is %+v", l.Parts[0].refusal)
	h := &hold{lab: l, until: l.now.Add(time.Minute)} // this one before it was noted
	h.Port, h.Server = h, 1
	l.does(func(do *Deeds) { l.Leave(&h.Vote, End{1, errors.New("lost"), 1}, l.now, do) })
	l.tell(1, h, Refusal{})
	l.hasVotes()
	l.grant(2)
	l.must(l.won == 0 && len(l.logged) == 0, "won %d, %v", l.won, l.logged)
}

// A vote whose time is over does not count, though nobody has told so far.
func TestAVoteCountsWhileItIsInTime(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	h := l.grant(0)
	l.now = h.until
	l.grant(1)
	l.is(Asking)
	l.grant(2)
	l.is(Holding)
}
