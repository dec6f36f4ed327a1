package quorum

import (
	"testing"
	"time"
)

// It waits at one server. Now and then it asks another: often, if it is the first of its process
// that waits there, else less and less often.
func TestAWaiterAsksAnotherServerNowAndThen(t *testing.T) {
	t.Parallel()
	blocked := func(first bool) *lab {
		l := lock(t, 3)
		l.first = first
		for i := range 3 {
			l.refuse(i, held)
		}
		l.is(Blocked)
		l.did("ask [once 0 once 1 once 2 waits 0] give [] cancel [] look []")
		l.stands[0] = Held
		return l
	}
	l := blocked(true)
	for n, want := range []string{"once 1", "once 2", "once 1"} {
		l.pick = n
		l.ring(LongWait)
		l.did("ask [" + want + "] give [] cancel [] look []")
		l.refuse(l.probed, held)
		l.is(Blocked)
	}
	l.ring(LongWait)
	l.news()
	l.after(80 * time.Millisecond)
	l.grant(l.probed) // the lock is free, and that server far away
	l.is(Asking)
	l.did("ask [once 2] give [] cancel [] look []")
	l.ring(100 * time.Millisecond) // it is patient: the rest may be as far
	l.is(Blocked)
	l.did("ask [] give [1] cancel [] look []")

	l = blocked(false)
	for n := range MaxProbes + 2 {
		d := LongWait
		if n > 0 {
			d = LongWait << min(n, MaxProbes)
		}
		l.ring(d)
		l.refuse(l.probed, held)
	}
	l.does(l.First)
	l.must(l.alarm == l.now.Add(LongWait), "the first asks in %v", l.alarm.Sub(l.now))
	l.alarm = 0
	l.does(l.First)
	l.must(l.alarm == 0, "it is armed twice")
}

// A server took very long for its vote. The others are not waited for longer than for any command.
func TestItIsNotPatientForever(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	for i := range 3 {
		l.refuse(i, held)
	}
	l.stands[0] = Held
	l.ring(LongWait)
	l.after(time.Minute)
	l.alarm = 0
	l.grant(l.probed)
	l.must(l.alarm == l.now.Add(l.CommandTimeout), "it looks in %v", l.alarm.Sub(l.now))
	l.ring(l.CommandTimeout)
	l.is(Blocked)
	l.ring(LongWait)
	l.must(l.alarm == l.now.Add(LongWait), "one was slow, and the next probe is in %v", l.alarm.Sub(l.now))
}

// The server that it waits at is away: then it does not depend on it any more.
func TestAWaiterIsNotHeldUpByTheServerThatItWaitsAt(t *testing.T) {
	t.Parallel()
	l := lock(t, 5)
	for i := range 4 {
		l.refuse(i, held)
	}
	l.refuse(4, away)
	l.news()
	l.stands[0] = Away
	l.ring(LongWait)
	l.is(Asking)
	l.did("ask [waits 4 once 1 once 2 once 3] give [] cancel [] look []")
	l.grant(1)
	l.grant(2)
	l.grant(3)
	l.is(Holding)

	l = lock(t, 3) // the others are no majority
	l.refuse(0, held)
	l.refuse(1, away)
	l.refuse(2, away)
	l.stands[0] = Away
	l.news()
	l.ring(LongWait)
	l.is(Blocked)
	l.did("ask [waits 1 waits 2] give [] cancel [] look []")
}

// It has waited at a server for its owner. That says nothing about how far the others are.
func TestARoundAfterAnOwnerIsNotPatient(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	for i := range 3 {
		l.refuse(i, held)
	}
	l.after(100 * time.Millisecond)
	l.grant(0)
	l.is(Asking)
	l.must(l.alarm == l.now.Add(FirstLook<<1), "it looks in %v", l.alarm.Sub(l.now))
}

// The server that it waits at is away. Then it is not the referee of a round that a probe began.
func TestAServerThatIsAwayIsNotTheReferee(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	for i := range 3 {
		l.refuse(i, held)
	}
	l.stands[0] = Held
	l.ring(LongWait)
	l.grant(1)
	l.is(Asking)
	l.stands[0] = Away
	l.refuse(2, held)
	l.is(Pausing)
	l.hasVotes(1)
}

// A look takes a moment, and much may happen meanwhile.
func TestALookThatIsLate(t *testing.T) {
	t.Parallel()
	l := lock(t, 3) // at tries that have ended: others are out
	l.grant(0)
	seen := l.Asked()
	seen[1].Stand, seen[2].Stand = Away, Away
	l.refuse(1, held)
	l.refuse(2, held)
	l.ring(firstPause)
	l.is(Asking)
	l.news()
	l.does(func(do *Deeds) { l.Look(seen, false, do) })
	l.is(Asking)
	l.hasVotes(0)

	l = lock(t, 3) // as its time was over: another time has begun
	l.grant(1)
	l.Rang()
	seen = l.Asked()
	l.refuse(0, held)
	l.refuse(2, held)
	l.is(Blocked)
	l.news()
	l.does(func(do *Deeds) { l.Look(seen, true, do) })
	l.did(nothing)
}

// A vote of an earlier round that comes while it waits at a server is not wanted alone.
func TestALateVoteIsGivenBackUnlessAMajorityGrantsIt(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.refuse(0, held)
	l.refuse(1, held)
	l.is(Blocked) // the third is slow, and not needed to know
	l.news()
	l.after(500 * time.Millisecond)
	l.grant(2)
	l.is(Blocked)
	l.did("ask [] give [2] cancel [] look []")

	// Three of five grant it, never in one round: another is worth it, and it is patient.
	l = lock(t, 5)
	l.refuse(0, held)
	l.refuse(1, held)
	l.grant(2)
	l.ring(FirstLook)
	l.is(Blocked)
	l.after(40*time.Millisecond - FirstLook)
	l.grant(3)
	l.is(Blocked)
	l.news()
	l.grant(4) // the third
	l.is(Asking)
	l.did("ask [once 1 once 2 once 3] give [] cancel [] look []")
	l.grant(2)
	l.ring(100 * time.Millisecond) // twice as long, and a quarter more
	l.is(Blocked)
	l.again = maxAgain // it has done so a few times
	l.grant(3)
	l.is(Blocked)
	l.hasVotes()
	l.stands[0] = Held
	l.ring(LongWait)
	l.refuse(l.probed, held)
	l.must(l.again == 0, "after the next probe it may not do so again")
}

// Two far servers grant it, one later than the other, and a probe asks the first again between the
// two votes. The second vote is kept until that probe is answered:
//
//	800 ms   vote of 1: alone, given back
//	900 ms   the probe asks 1
//	1000 ms  vote of 2
//	2400 ms  vote of 1
func TestAProbeBetweenTwoLateVotesDoesNotPartThem(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.refuse(0, held)
	l.ring(FirstLook)
	l.is(Blocked)
	l.stands[0] = Held
	l.after(800 * time.Millisecond)
	l.news()
	l.grant(1)
	l.did("ask [] give [1] cancel [] look []")
	l.alarm = l.now.Add(100 * time.Millisecond) // the time of the stage is over then
	l.ring(100 * time.Millisecond)
	l.did("ask [once 1] give [] cancel [] look []")
	l.after(100 * time.Millisecond)
	l.grant(2)
	l.is(Asking)
	l.did("ask [] give [] cancel [] look []")
	l.must(l.alarm.Sub(l.now) > 1400*time.Millisecond, "it waits %v for the other", l.alarm.Sub(l.now))
	l.after(1400 * time.Millisecond)
	l.grant(1)
	l.is(Holding)

	l = lock(t, 3) // refused by the probe: it was not a majority
	l.refuse(0, held)
	l.ring(FirstLook)
	l.stands[0] = Held
	l.after(100 * time.Millisecond)
	l.grant(1)
	l.ring(LongWait - 100*time.Millisecond)
	l.refuse(1, held)
	l.grant(2)
	l.is(Blocked)
	l.hasVotes()
}

// A slow server has granted it once, alone. The vote of another, which a probe gets, is not kept until
// the slow one answers again: an owner of the first may need it.
func TestAProbesVoteIsNotKeptForASlowServer(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	l.refuse(0, held)
	l.refuse(1, held)
	l.is(Blocked)
	l.stands[0] = Held
	l.ring(LongWait)
	l.refuse(1, held)
	l.after(time.Second)
	l.grant(2)
	l.is(Blocked)
	l.hasVotes()
	l.pick, l.alarm = 0, l.now.Add(LongWait)
	l.ring(LongWait)
	l.after(time.Millisecond)
	l.grant(1)
	l.is(Asking)
	l.must(l.alarm.Sub(l.now) <= FirstLook<<MaxLooks, "it keeps the vote for %v", l.alarm.Sub(l.now))
}

// The same server is held for long, by an owner without a majority. Of two that ask the others the
// one with the first vote keeps it.
func TestAServerThatItWaitsAtIsNotTheReferee(t *testing.T) {
	t.Parallel()
	for probed, stage := range map[int]Stage{1: Pausing, 2: Blocked} {
		l := lock(t, 3)
		for i := range 3 {
			l.refuse(i, held)
		}
		l.stands[0] = Held
		l.pick = probed - 1
		l.ring(LongWait)
		l.grant(probed)
		l.is(Asking)
		l.refuse(3-probed, held)
		l.is(stage)
	}
}

// It waits at one server, has the vote of the next, and asks the last, which is far. A pause would
// ask nobody.
func TestItDoesNotPauseUnlessThereIsSomebodyToAsk(t *testing.T) {
	t.Parallel()
	l := lock(t, 3)
	for i := range 3 {
		l.refuse(i, held)
	}
	l.stands[0] = Held
	l.ring(LongWait)
	l.after(100 * time.Millisecond)
	l.grant(1)
	l.look(false)
	l.is(Asking)
	l.must(l.alarm == l.now.Add(125*time.Millisecond), "it looks in %v", l.alarm.Sub(l.now))
	l.after(100 * time.Millisecond)
	l.refuse(2, held)
	l.is(Pausing)
	l.news()
	l.ring(firstPause)
	l.did("ask [once 2] give [] cancel [] look []")
	l.must(l.alarm == l.now.Add(125*time.Millisecond), "after the pause it looks in %v", l.alarm.Sub(l.now))
}

// Probes that come faster than a majority answers take votes from others, and keep none.
func TestFarServersAreProbedMoreRarely(t *testing.T) {
	t.Parallel()
	for trip, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: LongWait, 200 * time.Millisecond: 400 * time.Millisecond, time.Minute: mostFar,
	} {
		l := lock(t, 3)
		l.refuse(0, held)
		l.after(trip)
		l.grant(2)
		l.refuse(1, held)
		l.is(Blocked)
		l.stands[0] = Held
		l.ring(LongWait)
		l.must(l.alarm == l.now.Add(want), "a round trip of %v: the next probe is in %v", trip, l.alarm.Sub(l.now))
		l.after(trip)
		l.refuse(l.probed, held)
		l.Probes = 1
		l.does(l.First)
		l.must(l.alarm == l.now.Add(want), "a round trip of %v: the first asks in %v", trip, l.alarm.Sub(l.now))
	}
}
