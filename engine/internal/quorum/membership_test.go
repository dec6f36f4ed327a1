package quorum

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/machine"
	"github.com/pawl-lock/pawl/engine/internal/reason"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Five servers are emptied, and that is noticed one by one: each is asked again, and grants it.
// What has joined after the latest renewal of the one that is found gone does not count.
func TestServersThatAreFoundEmptyOneByOneLoseIt(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 5)
	renewed := l.now.Add(time.Second)
	l.after(10 * time.Second)
	for i := range 2 {
		l.leave(i, machine.GoneOnServer, renewed)
		l.is(Holding)
		l.after(time.Millisecond)
		l.grant(i)
	}
	l.did("ask [waits 0 waits 1] give [] cancel [] look [1 2 3 4 1 2 3 4 0 2 3 4 0 2 3 4]")
	l.leave(2, machine.GoneOnServer, renewed)
	l.is(Over)
	l.did("ask [] give [0 1 3 4] cancel [] look [0 1 3 4]")
	loss := l.Ending.(*lossError).Loss
	l.must(loss.Last == machine.GoneOnServer && loss.Left == 2 && len(l.logged) == 1, "%+v, logged %v", loss, l.logged)
	var is []What
	for _, said := range loss.Each {
		is = append(is, said.Is)
	}
	l.must(slices.Equal(is, []What{GrantedAgain, GrantedAgain, WasLost}), "what became of them: %v", is)
}

// The same, but the others were looked at when one joined, and had it then.
func TestAServerThatJoinedCountsWhenTheOthersWereLookedAt(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 5)
	for i := range 5 {
		l.after(time.Second)
		l.leave(i, machine.GoneOnServer, l.now.Add(-time.Millisecond)) // it was looked at just now
		l.must(l.Stage == Holding, "lost at server %d", i)
		l.after(time.Millisecond)
		h := l.grant(i)
		l.must(h.Joined() == l.now, "it joined at %v", h.Joined())
		l.after(time.Millisecond)
	}
	l.must(l.Ending == nil && len(l.logged) == 0, "lost: %v", l.Ending)
}

// Which votes count when one is lost depends on how long it may have been missing.
func TestWhatCountsWhenAVoteIsLost(t *testing.T) {
	t.Parallel()
	const (
		before = iota // the vote of server 0 has joined before the lost one was there
		after
	)
	for _, c := range []struct {
		why   machine.Loss
		there int
		stays bool
		again bool // it is asked again
	}{
		{machine.GoneOnServer, before, true, true},
		{machine.GoneOnServer, after, false, false},
		{machine.TakenOnServer, before, true, false},
		{machine.TakenOnServer, after, false, false},
		{machine.NotRenewed, before, true, true},
		{machine.NotRenewed, after, false, false},
		{machine.LeaseEnded, before, true, false},
		{machine.LeaseEnded, after, false, false},
		{machine.EngineClosed, before, true, false},
		{machine.EngineClosed, after, true, false}, // it was there until now
		{machine.MaxHoldReached, after, true, false},
		{0, after, true, false},
	} {
		l := heldBy(t, 3)
		l.after(time.Minute)
		l.leave(0, machine.GoneOnServer, l.now)
		l.grant(0)
		l.news()
		there := l.now
		if c.there == after {
			there--
		}
		l.holds[1].until = there // of a lease that has ended
		l.leave(1, c.why, there)
		if stays := l.Stage == Holding; stays != c.stays {
			t.Errorf("%+v: it is held: %t", c, stays)
		} else if asked := l.tries[1] != nil; asked != c.again {
			t.Errorf("%+v: asked again: %t", c, asked)
		}
	}
}

// What a server may have lost before the whole was held does not matter: nobody counted on it.
func TestWhatWasMissingBeforeItWasHeldDoesNotMatter(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 3)
	l.leave(0, machine.GoneOnServer, l.now)
	l.grant(0) // at that moment still
	l.leave(1, machine.GoneOnServer, l.now.Add(-time.Millisecond))
	l.is(Holding)
}

func TestALossIsLoggedUnlessItWasWanted(t *testing.T) {
	t.Parallel()
	for why, logged := range map[machine.Loss]int{
		machine.NotRenewed: 1, machine.LeaseEnded: 1, machine.MaxHoldReached: 1, machine.EngineClosed: 0, 0: 0,
	} {
		l := heldBy(t, 3)
		l.leave(1, why, l.now)
		if l.tries[1] == nil {
			l.leave(2, why, l.now)
		} else { // it is asked again, and does not answer
			l.leave(2, why, l.now)
			l.did("ask [waits 1] give [0] cancel [1] look []")
		}
		l.is(Over)
		l.must(len(l.logged) == logged, "loss %d is logged %d times", why, len(l.logged))
		if why == 0 && l.Ending != reason.ErrReleased {
			t.Errorf("released: %v", l.Ending)
		}
	}
}

// A re-entry does not follow to a server that has lost the lock: it would be a hold of its own.
func TestAReentryIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	for i := range 3 {
		l.grantWithin(i, i < 2)
	}
	l.is(Holding)
	l.leave(0, machine.GoneOnServer, l.now)
	l.is(Holding)
	l.must(l.tries[0] == nil, "it is asked again")
	l.leave(2, machine.NotRenewed, l.now)
	l.is(Over)

	l = lock(t, 3) // before the whole is held, it is
	l.grantWithin(0, true)
	l.leave(0, machine.GoneOnServer, l.now)
	l.grant(1)
	l.grant(2)
	l.is(Holding)
	l.must(l.tries[0] != nil && l.tries[0].how.Waits, "asked again: %+v", l.tries[0])
}

// It waits at the first server as anybody does. Then its caller has a hold there: it asks again, the
// rest goes on, and it is asked as before if that is refused. If it was granted, or given up, meanwhile,
// that stands.
func TestWhatWaitsIsAskedAnewWhereTheCallerHasAHold(t *testing.T) {
	t.Parallel()
	waiting := func() *lab {
		l := lock(t, 3)
		for i := range 3 {
			l.refuse(i, held)
		}
		l.is(Blocked)
		l.news()
		l.stands[0], l.anew[0] = Held, true
		l.ring(LongWait)
		l.did("ask [once 1] give [] cancel [0] look []")
		l.anew[0] = false
		return l
	}
	l := waiting()
	l.must(l.tell(0, nil, cut), "it did not wait")
	l.did("ask [waits 0] give [] cancel [] look []")
	l.is(Blocked)
	l.grant(0)
	l.is(Asking)
	l.grant(1)
	l.is(Holding)

	l = waiting()
	l.refuse(0, cut)
	l.news()
	l.refuse(0, forGood) // and this is an answer
	l.did("ask [waits 2] give [] cancel [] look []")

	l = waiting()
	l.grant(0)
	l.is(Asking)
	l.hasVotes(0)

	l = waiting()
	l.cancel(reason.ErrWaited)
	l.refuse(0, cut)
	l.refuse(1, cut)
	l.did("ask [] give [] cancel [0 1] look []")
	l.failedWith(NoAnswer)
}

// It is held before the end of the try that was given up is told: then it waits there, as elsewhere.
func TestWhatIsAskedAnewIsAskedThoughItIsHeldMeanwhile(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.grant(1)
	l.anew[0] = true
	l.ring(FirstLook)
	l.grant(2)
	l.is(Holding)
	l.news()
	l.refuse(0, cut)
	l.did("ask [waits 0] give [] cancel [] look []")
}

// A try that was asked anew just now is not slow, though the one before was.
func TestWhatIsAskedAnewIsNotSlow(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.refuse(1, held)
	l.anew[0] = true
	l.Rang()
	l.look(true)
	l.refuse(0, cut)
	l.must(!l.Parts[0].slow, "it counts as slow")
}

// A fixed lease, or MaxHold, bounds the whole: what joins ends with it, unless it was extended.
func TestWhatJoinsEndsWithTheOthers(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3, Config{Lease: 20 * time.Second})
	l.does(func(do *Deeds) { l.Begin(do) })
	end := l.now.Add(time.Second)
	l.grant(0).until = end
	l.grant(1)
	l.grant(2)
	l.must(l.joins == end, "the third ends in %v", l.joins.Sub(l.now))

	for i, h := range l.holds { // a majority has extended it
		h.until = end.Add(time.Duration(i) * time.Minute)
	}
	l.Extended(time.Minute)
	l.must(l.last == end.Add(time.Minute), "it ends in %v", l.last.Sub(l.now))
	l.Extended(time.Second)
	l.must(l.Lease == time.Minute, "it asks for %v", l.Lease)
	l.now = end
	l.leave(0, machine.LeaseEnded, l.now)
	l.is(Holding)
	l.must(l.tries[0].how == How{Waits: true, Lease: time.Minute}, "asked again: %+v", l.tries[0].how)

	l = lock(t, 3)
	var first clock.Instant
	for i := range 3 {
		h := &hold{lab: l, until: l.now.Add(time.Minute)}
		h.Port, h.Server, h.MaxEnd = h, i, l.now.Add(time.Hour-time.Duration(i))
		if i == 1 {
			first = h.MaxEnd
		}
		l.tell(i, h, Refusal{})
	}
	l.must(l.joins == first, "it ends in %v", l.last.Sub(l.now))
}

// The clock is authoritative: it is over when fewer than a majority are in time, though no hold
// has told.
func TestTheClockSaysWhetherItIsHeld(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 3)
	for i, h := range l.holds {
		h.until = l.now.Add(time.Duration(i+1) * time.Second)
	}
	end := l.now.Add(2 * time.Second)
	l.must(l.Until() == end, "it ends in %v", l.Until().Sub(l.now))
	l.now = end - 1
	certain, expired := l.Check()
	l.must(certain && len(expired) == 1, "certain %t, %d expired", certain, len(expired))
	l.now = end
	certain, expired = l.Check()
	l.must(!certain && len(expired) == 2, "certain %t, %d expired", certain, len(expired))
	why := l.Expired([]End{{0, errors.New("first"), machine.NotRenewed}, {1, errors.New("second"), machine.NotRenewed}})
	loss := why.(*lossError).Loss
	l.must(loss.Left == 1 && len(loss.Each) == 2 && loss.Each[0].Is == EndedNow, "%+v", loss)
	var do Deeds
	votes, ending := l.Release(why, &do)
	l.must(ending == why && len(votes) == 0 && len(do.Give) == 3 && l.Stage == Over, "%v, %d released, %d given", ending, len(votes), len(do.Give))
	_, ending = l.Release(nil, &do)
	l.must(ending == why, "unlocked again: %v", ending)
}

// With one grant more since the loss, left is still fewer than a majority.
func TestALossNeverSaysThatEnoughAreLeft(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 3)
	loss := l.Expired([]End{{1, errors.New("lost"), machine.NotRenewed}}).(*lossError).Loss
	l.must(loss.Left == 1, "%+v", loss)
}

// A loss has what became of each server that is not left.
func TestALossSaysWhatBecameOfEachServer(t *testing.T) {
	t.Parallel()
	l := lock(t, 5)
	for i := range 3 {
		l.grant(i)
	}
	l.refuse(3, forGood)
	l.leave(0, machine.EngineClosed, l.now)
	loss := l.Ending.(*lossError).Loss
	l.must(loss.Last == machine.EngineClosed && loss.Left == 2 && len(loss.Each) == 3, "%+v", loss)
	for i, want := range []Said{{0, WasLost, loss.Each[0].Why}, {3, Refused, forGood.Why}, {4, NotGranted, nil}} {
		l.must(loss.Each[i] == want, "%+v, want %+v", loss.Each[i], want)
	}
	l.did("ask [once 0 once 1 once 2 once 3 once 4] give [1 2] cancel [4] look []")
}

// OfMajority is the greatest value that a majority reaches.
func TestValueOfAMajority(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		values := make([]int, 1+r.IntN(7))
		for i := range values {
			values[i] = r.IntN(9)
		}
		said := fmt.Sprintf("seed %d: %v", seed, values)
		reach := func(v int) (n int) {
			for _, one := range values {
				if one >= v {
					n++
				}
			}
			return n
		}
		got := OfMajority(slices.Clone(values))
		if most := len(values)/2 + 1; reach(got) < most || reach(got+1) >= most {
			t.Errorf("%s: %d", said, got)
		}
	}
}
