package quorum

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/internal/clock"
)

// Five servers are emptied, and that is noticed one by one: each is asked again, and grants it.
// What has joined after the latest renewal of the one that is found gone does not count.
func TestMembership_ServersAreFoundEmptyOneByOne_IsLost(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 5)
	renewed := l.now.Add(time.Second)
	l.after(10 * time.Second)
	for i := range 2 {
		l.leave(i, lock.RemovedOnServer, renewed)
		l.is(Holding)
		l.after(time.Millisecond)
		l.grant(i)
	}
	l.did("ask [once 0 once 1] give [] cancel [] look [1 2 3 4 1 2 3 4 0 2 3 4 0 2 3 4]")
	l.leave(2, lock.RemovedOnServer, renewed)
	l.is(Over)
	l.did("ask [] give [0 1 3 4] cancel [] look [0 1 3 4]")
	loss := l.Ending.(*lossError).Loss
	l.must(loss.Last == lock.RemovedOnServer && loss.Left == 2 && len(l.logged) == 1, "%+v, logged %v", loss, l.logged)
	var is []error
	for _, said := range loss.Each {
		is = append(is, said.Why)
	}
	l.must(slices.Equal(is, []error{lockerr.ErrGrantedAgain, lockerr.ErrGrantedAgain, loss.Each[2].Why}) && is[2] == l.Members[2].lost, "what became of them: %v", is)
}

// The same, but the others were looked at when one joined, and had it then.
func TestMembership_OthersWereLookedAt_ServerThatJoinedCounts(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 5)
	for i := range 5 {
		l.after(time.Second)
		l.leave(i, lock.RemovedOnServer, l.now.Add(-time.Millisecond)) // it was looked at just now
		l.must(l.Stage == Holding, "lost at server %d", i)
		l.after(time.Millisecond)
		h := l.grant(i)
		l.must(h.Joined == l.now, "it joined at %v", h.Joined)
		l.after(time.Millisecond)
	}
	l.must(l.Ending == nil && len(l.logged) == 0, "lost: %v", l.Ending)
}

// Which votes count when one is lost depends on how long it may have been missing.
func TestMembership_VoteIsLost_WhatCounts(t *testing.T) {
	t.Parallel()
	const (
		before = iota // the vote of server 0 has joined before the lost one was there
		after
	)
	for _, c := range []struct {
		why   lock.Loss
		there int
		stays bool
		again bool // it is asked again
	}{
		{lock.RemovedOnServer, before, true, true},
		{lock.RemovedOnServer, after, false, false},
		{lock.KeyOverwritten, before, true, false},
		{lock.KeyOverwritten, after, false, false},
		{lock.NotRenewed, before, true, true},
		{lock.NotRenewed, after, false, false},
		{lock.LeaseEnded, before, true, false},
		{lock.LeaseEnded, after, false, false},
		{lock.EngineClosed, before, true, false},
		{lock.EngineClosed, after, true, false}, // it was there until now
		{lock.MaxHoldReached, after, true, false},
		{0, after, true, false},
	} {
		l := heldBy(t, 3)
		l.after(time.Minute)
		l.leave(0, lock.RemovedOnServer, l.now)
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
func TestMembership_MissingBeforeItWasHeld_DoesNotMatter(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 3)
	l.leave(0, lock.RemovedOnServer, l.now)
	l.grant(0) // at that moment still
	l.leave(1, lock.RemovedOnServer, l.now.Add(-time.Millisecond))
	l.is(Holding)
}

func TestMembership_Loss_IsLoggedUnlessItWasWanted(t *testing.T) {
	t.Parallel()
	for why, logged := range map[lock.Loss]int{
		lock.NotRenewed: 1, lock.LeaseEnded: 1, lock.MaxHoldReached: 1, lock.EngineClosed: 0, 0: 0,
	} {
		l := heldBy(t, 3)
		l.leave(1, why, l.now)
		if l.tries[1] == nil {
			l.leave(2, why, l.now)
		} else { // it is asked again, and does not answer
			l.leave(2, why, l.now)
			l.did("ask [once 1] give [0] cancel [1] look []")
		}
		l.is(Over)
		l.must(len(l.logged) == logged, "loss %d is logged %d times", why, len(l.logged))
		if why == 0 && l.Ending != lockerr.ErrReleased {
			t.Errorf("released: %v", l.Ending)
		}
	}
}

// A re-entry does not follow to a server that has lost the lock: it would be a hold of its own.
func TestMembership_Reentry_IsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	for i := range 3 {
		l.grantWithin(i, i < 2)
	}
	l.is(Holding)
	l.leave(0, lock.RemovedOnServer, l.now)
	l.is(Holding)
	l.must(l.tries[0] == nil, "it is asked again")
	l.leave(2, lock.NotRenewed, l.now)
	l.is(Over)

	l = newContender(t, 3) // before the whole is held, it is
	l.grantWithin(0, true)
	l.leave(0, lock.RemovedOnServer, l.now)
	l.grant(1)
	l.grant(2)
	l.is(Holding)
	l.must(l.tries[0] != nil, "it is not asked again")
}

// With one grant more since the loss, left is still fewer than a majority.
func TestMembership_Loss_NeverSaysThatEnoughAreLeft(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 3)
	l.Expired([]End{endOf(1, errors.New("lost"), lock.NotRenewed)})
	loss := l.Ending.(*lossError).Loss
	l.must(loss.Left == 1, "%+v", loss)
}

// A loss has what became of each server that is not left.
func TestMembership_Loss_SaysWhatBecameOfEachServer(t *testing.T) {
	t.Parallel()
	l := newContender(t, 5)
	for i := range 3 {
		l.grant(i)
	}
	l.refuse(3, forGood)
	l.leave(0, lock.EngineClosed, l.now)
	loss := l.Ending.(*lossError).Loss
	l.must(loss.Last == lock.EngineClosed && loss.Left == 2 && len(loss.Each) == 3, "%+v", loss)
	for i, want := range []MemberResult{{0, l.Members[0].lost}, {3, forGood.Why}, {4, lockerr.ErrNotGranted}} {
		l.must(loss.Each[i] == want, "%+v, want %+v", loss.Each[i], want)
	}
	l.did("ask [once 0 once 1 once 2 once 3 once 4] give [1 2] cancel [4] look []")
}

// It was on its way when the whole was held, and comes within 250 ms: it is as the others. Later,
// somebody else may have had the lock there, and the others are looked at.
func TestMembership_VoteComesLate_CountsFromThen(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	l.grant(0)
	l.grant(1)
	l.news()
	l.after(onItsWay)
	h := l.grant(2)
	l.must(h.Joined == 0, "it joined at %v", h.Joined)
	l.did(nothing)

	l = newContender(t, 3)
	l.grant(0)
	l.grant(1)
	l.news()
	l.after(onItsWay + 1)
	h = l.grant(2)
	l.must(h.Joined == l.now, "it joined at %v, want %v", h.Joined, l.now)
	l.did("ask [] give [] cancel [] look [0 1]")
}

// A server that missed the lock is asked when the whole is held, and at each renewal after a refusal that
// may pass.
func TestMembership_ServerMissedTheLock_IsAskedAtEachRenewal(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		said  Refusal
		again bool
	}{
		"held": {held, true}, "away": {away, true}, "full": {full, true}, "late": {late, true},
		"wrong type": {forGood, false}, "closed": {closed, false},
	} {
		for _, before := range []bool{false, true} {
			if what == "closed" && before {
				continue // then it fails
			}
			l := newContender(t, 3)
			l.grant(0)
			l.news()
			if before {
				l.refuse(2, c.said)
				l.grant(1)
				if c.again {
					l.did("ask [once 2] give [] cancel [] look []")
					l.refuse(2, c.said)
				}
			} else {
				l.grant(1)
				l.refuse(2, c.said)
			}
			l.is(Holding)
			l.did(nothing)
			if !c.again {
				l.must(l.Due == 0, "%s: it is due in %v", what, l.Due.Sub(l.now))
				continue
			}
			for range 3 {
				l.ring(renewal)
				l.did("ask [once 2] give [] cancel [] look []")
				l.refuse(2, c.said)
			}
			for i := range 2 {
				l.holds[i].until = l.now.Add(time.Minute)
			}
			l.ring(renewal)
			l.news()
			h := l.grant(2)
			l.must(h.Joined == l.now && l.Due == 0, "%s: it joined at %v, due %v", what, h.Joined, l.Due)
			l.did("ask [] give [] cancel [] look [0 1]")
		}
	}
}

// A server that lost the lock is asked at once, and at each renewal after that.
func TestMembership_ServerLostTheLock_IsAskedAgain(t *testing.T) {
	t.Parallel()
	l := heldBy(t, 5)
	l.leave(1, lock.RemovedOnServer, l.now)
	l.refuse(1, held)
	l.after(renewal / 2)
	l.leave(2, lock.NotRenewed, l.now)
	l.refuse(2, away)
	l.did("ask [once 1 once 2] give [] cancel [] look [0 2 3 4]")
	l.ring(renewal / 2)
	l.did("ask [once 1 once 2] give [] cancel [] look []")
	l.grant(1)
	l.refuse(2, away)
	l.news()
	l.ring(renewal)
	l.did("ask [once 2] give [] cancel [] look []")
	l.refuse(2, away)
	var do Ready
	l.Release(&do)
	l.must(do.Timer && l.Due == 0, "%+v", do)
}

// A fixed lease is not renewed: no server is asked again.
func TestMembership_FixedLease_NoServerIsAskedAgain(t *testing.T) {
	t.Parallel()
	l := lockWith(t, 5, Config{})
	l.refuse(4, held)
	for i := range 3 {
		l.grant(i)
	}
	l.did("ask [once 0 once 1 once 2 once 3 once 4 once 4] give [] cancel [] look []")
	l.refuse(4, held)
	l.grant(3)
	l.leave(0, lock.RemovedOnServer, l.now)
	l.is(Holding)
	l.must(l.Due == 0, "it is due in %v", l.Due.Sub(l.now))
	l.did("ask [] give [] cancel [] look [1 2 3]")
}

// MaxHold bounds the whole: what joins ends with it.
func TestMembership_MaxHold_WhatJoinsEndsWithTheOthers(t *testing.T) {
	t.Parallel()
	l := newContender(t, 3)
	var first clock.Instant
	for i := range 3 {
		h := &hold{lab: l, until: l.now.Add(time.Minute)}
		h.Port, h.Member, h.MaxEnd = h, i, l.now.Add(time.Hour-time.Duration(i))
		if i == 1 {
			first = h.MaxEnd
		}
		l.tell(i, h, Refusal{})
	}
	l.must(l.joins == first, "it ends in %v", l.bound.Sub(l.now))
}
