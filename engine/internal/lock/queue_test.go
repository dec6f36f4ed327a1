package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// refuse answers a try: another has the lock, for a minute. In the queue it has so many behind it; -1: it is
// in the front.
func (l *lab) refuse(r *Entry, behind int) {
	l.t.Helper()
	l.is(r, Acquiring)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute, Behind: behind})
}

// othersTurn answers a try: the lock is free for others, and the first of them has that number.
func (l *lab) othersTurn(r *Entry, behind int, first uint32) {
	l.t.Helper()
	l.joins(r)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: -time.Millisecond, Behind: behind, First: first})
}

// joins fails the test unless a try is out that uses the queue.
func (l *lab) joins(r *Entry) {
	l.t.Helper()
	if l.is(r, Acquiring); !r.Cmd.Join {
		l.t.Fatal("the try does not use the queue")
	}
}

// joinsAfter does so unless that try has waited for a first; 0: for nobody.
func (l *lab) joinsAfter(r *Entry, first uint32) {
	l.t.Helper()
	if l.joins(r); r.Cmd.Number != first {
		l.t.Fatalf("it has waited for %d, want %d", r.Cmd.Number, first)
	}
}

// racesAlone fails the test unless a try is out that does not use the queue.
func (l *lab) racesAlone(r *Entry) {
	l.t.Helper()
	if l.is(r, Acquiring); r.Cmd.Join {
		l.t.Fatal("the try uses the queue")
	}
}

// queued has a name wait in the queue, with so many behind it.
func (l *lab) queued(behind int) (*Entry, *caller, *bell) {
	l.t.Helper()
	r := l.name()
	c := l.askAs(r, racer)
	l.refuse(r, 0)
	w := bellOf(r.sub)
	l.does(w.Subscribed)
	l.joins(r)
	l.refuse(r, behind)
	if behind >= 0 {
		l.does(w.CallsConfirmed)
		l.joins(r)
		l.refuse(r, behind)
	}
	return r, c, w
}

// The first try asks for nothing but the lock. The next one joins, once the server has confirmed the channel. Only
// who finds itself behind the front listens for calls, and asks once more then.
func TestQueue_FirstRefusal_JoinsAndListensForCallsOnlyBehindTheFront(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	l.askAs(r, racer)
	l.racesAlone(r)
	l.refuse(r, 0)
	w := bellOf(r.sub)
	l.does(w.Subscribed)
	l.joins(r)
	l.refuse(r, -1)
	if l.is(r, NoCommand); w.calls {
		t.Fatal("it listens for calls in the front")
	}
	l.does(w.OnMessage)
	l.joins(r)
	l.refuse(r, 5)
	if l.is(r, NoCommand); !w.calls || !w.listening || w.at.Sub(l.now) > 5*time.Second/4 {
		t.Fatalf("behind: listens for calls %v, for releases %v, sleeps for %v", w.calls, w.listening, w.at.Sub(l.now))
	}
	l.does(w.CallsConfirmed)
	l.joins(r)
}

// In the front a release wakes it. The grant takes the engine out of the queue.
func TestQueue_InTheFront_RacesAtEachRelease(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, c, w := l.queued(-1)
	for range 3 {
		l.is(r, NoCommand)
		l.does(w.OnMessage)
		l.joins(r)
		l.refuse(r, -1)
	}
	l.does(w.OnMessage)
	l.reply(r, Outcome{})
	if c.hold == nil || r.sub.queued {
		t.Fatalf("granted: %+v; queued %v", c.hold, r.sub.queued)
	}
}

// Behind the front it listens for no release, and tries: after a second if it is the last, else later.
func TestQueue_BehindTheFront_ListensForNoReleaseAndTries(t *testing.T) {
	t.Parallel()
	for behind, most := range map[int]time.Duration{0: time.Second, 3: 4 * time.Second, 9: 10 * time.Second, 10000: 10 * time.Second} {
		l := newLab(t)
		r, _, w := l.queued(behind)
		if d := w.at.Sub(l.now); w.listening || !w.calls || d < most*3/4 || d > most*5/4 {
			t.Fatalf("%d behind it: listens for releases %v, for calls %v, tries after %v", behind, w.listening, w.calls, d)
		}
		l.now = w.at
		l.does(w.AlarmFired)
		l.joins(r)
		l.refuse(r, behind)
		l.is(r, NoCommand)
	}
}

// waitsForTheFirst has a name wait in the queue, with so many behind it, for others whose first has the number 9.
func (l *lab) waitsForTheFirst(behind int) (*Entry, *bell) {
	l.t.Helper()
	r, _, w := l.queued(behind)
	l.now = w.at
	l.does(w.AlarmFired)
	l.joinsAfter(r, 0)
	l.othersTurn(r, behind, 9)
	l.is(r, NoCommand)
	return r, w
}

// A free lock that is for others is theirs for a moment. The try after that names the first of them, whoever else has
// had the lock meanwhile, for as long as that is the first.
func TestQueue_OthersTurn_TheTryAfterwardsNamesTheFirst(t *testing.T) {
	t.Parallel()
	for _, behind := range []int{InFront, 5} {
		l := newLab(t)
		r, w := l.waitsForTheFirst(behind)
		if d := w.at.Sub(l.now); d != firstFor || w.listening != (behind < 0) {
			t.Fatalf("sleeps for %v, listens %v", d, w.listening)
		}
		l.now = w.at
		l.does(w.AlarmFired)
		l.joinsAfter(r, 9)
		l.refuse(r, behind) // somebody who does not queue has it
		l.is(r, NoCommand)
		l.now = w.at
		l.does(w.AlarmFired)
		l.joinsAfter(r, 9)
		l.othersTurn(r, behind, 10) // somebody of the queue has had it
		l.is(r, NoCommand)
		if d := w.at.Sub(l.now); d != firstFor {
			t.Fatalf("it waits for another first for %v", d)
		}
		l.now = w.at
		l.does(w.AlarmFired)
		l.joinsAfter(r, 10)
		if l.reply(r, Outcome{}); r.sub.first != 0 {
			t.Error("after a grant, it waits for a first")
		}
	}
}

// Neither a message nor an old alarm shortens that moment, and neither begins it anew.
func TestQueue_OthersTurn_LastsItsTimeWhateverWakes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, _, w := l.queued(InFront)
	l.does(w.OnMessage)
	l.othersTurn(r, InFront, 9)
	until := w.at
	for _, wake := range []func(*Ready){w.OnMessage, w.AlarmFired, w.Subscribed} {
		l.now = l.now.Add(time.Millisecond)
		l.does(wake)
		l.joinsAfter(r, 0)
		if l.othersTurn(r, InFront, 9); w.at != until {
			t.Fatalf("it sleeps until %v, want %v", w.at, until)
		}
	}
	l.now = until
	l.does(w.AlarmFired)
	l.joinsAfter(r, 9)
}

// An engine that has had the lock meanwhile, by a TryLock, finds it free because it has released it: it lets the first go
// first anew.
func TestQueue_HeldMeanwhile_TheFirstIsForgotten(t *testing.T) {
	t.Parallel()
	for _, behind := range []int{InFront, 50} {
		l := newLab(t)
		r, _ := l.waitsForTheFirst(behind)
		once := l.admit(r, func(c *caller) { c.Kind, c.Persists = racer, UntilAnswered })
		l.racesAlone(r)
		l.reply(r, Outcome{})
		l.now = l.now.Add(2 * firstFor)
		l.unlock(once.hold)
		l.is(r, Releasing)
		l.reply(r, Outcome{})
		l.joinsAfter(r, 0)
	}
}

// Who waits after a pause in which nobody did begins as it should.
func TestQueue_NobodyWaitsMeanwhile_TheFirstIsForgotten(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, c, w := l.queued(InFront)
	l.does(w.OnMessage)
	l.othersTurn(r, InFront, 9)
	l.giveUp(c)
	l.is(r, Withdrawing)
	l.reply(r, Outcome{})
	l.now = l.now.Add(firstFor)
	l.askAs(r, racer)
	l.joinsAfter(r, 0)
}

// One that is called listens, and races when it hears.
func TestQueue_Called_ListensAndThenRaces(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, _, w := l.queued(50)
	l.does(w.Called)
	l.is(r, NoCommand)
	if !w.listening || w.at.Sub(l.now) > time.Second {
		t.Fatalf("listens %v, sleeps for %v", w.listening, w.at.Sub(l.now))
	}
	l.does(w.Subscribed)
	l.joins(r)
}

// What is heard of its place while a try is out is newer than the answer "behind". What is heard of releases
// does not matter then.
func TestQueue_HeardWhileATryIsOut_OutdatesTheAnswer(t *testing.T) {
	t.Parallel()
	for what, outdates := range map[string]bool{"called": true, "confirmed again": true, "a release": false} {
		l := newLab(t)
		r, _, w := l.queued(5)
		l.does(w.Called)
		l.does(w.Subscribed)
		if what == "confirmed again" {
			l.does(w.CallsLost)
		}
		switch l.is(r, Acquiring); what {
		case "called":
			l.does(w.Called)
		case "confirmed again":
			l.does(w.CallsConfirmed)
		default:
			l.does(w.OnMessage)
		}
		l.refuse(r, 7)
		if outdates {
			l.joins(r)
		} else if l.is(r, NoCommand); r.sub.stage != behind || w.listening {
			t.Errorf("%s: stage %d, listens %v", what, r.sub.stage, w.listening)
		}
	}
}

// The place is the engine's: the one that waits next has it.
func TestQueue_HeadGivesUp_TheNextOneKeepsThePlace(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, c, w := l.queued(3)
	second := l.askAs(r, racer)
	l.giveUp(c)
	l.is(r, NoCommand)
	l.now = w.at
	l.does(w.AlarmFired)
	l.joins(r)
	l.reply(r, Outcome{})
	if second.hold == nil {
		t.Error("the second has no hold")
	}
}

// When nobody waits any more, the place is given up, once. The next one begins as it should.
func TestQueue_NobodyWaits_ThePlaceIsGivenUp(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, c, _ := l.queued(3)
	l.giveUp(c)
	l.is(r, Withdrawing)
	l.reply(r, Outcome{})
	l.is(r, NoCommand)
	if r.compensations != nil || len(l.released) != 0 {
		t.Errorf("left: %+v; released %v", r.View(), l.released)
	}
	l.askAs(r, racer) // the subscription is there still, so it joins at once
	l.joins(r)
}

// A try that is out when its caller gives up is answered first.
func TestQueue_GivenUpWhileATryIsOut_IsWithdrawnAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for granted, want := range map[bool]CommandKind{false: Withdrawing, true: Compensating} {
		l := newLab(t)
		r, c, w := l.queued(-1)
		l.does(w.OnMessage)
		l.giveUp(c)
		l.is(r, Acquiring)
		if granted {
			l.reply(r, Outcome{})
		} else {
			l.refuse(r, -1)
		}
		l.is(r, want)
		if l.reply(r, Outcome{}); r.compensations != nil {
			t.Errorf("granted %v: left %+v", granted, r.View())
		}
	}
}

// One who waits next and polls does not sleep as one behind the front.
func TestQueue_NextOnePolls_SleepsBehindNobody(t *testing.T) {
	t.Parallel()
	for _, out := range []bool{false, true} {
		l := newLab(t)
		r, c, w := l.queued(50)
		if out {
			l.now = w.at
			l.does(w.AlarmFired)
			l.is(r, Acquiring)
		}
		poll := l.askAs(r, polling)
		l.giveUp(c)
		if out {
			l.refuse(r, 50)
		}
		l.is(r, Withdrawing)
		l.reply(r, Outcome{})
		if l.racesAlone(r); r.Cmd.req != &poll.Request {
			t.Errorf("its try was out %v: somebody else tries", out)
		}
	}
}

// A call that comes when nobody waits is answered: that place would keep others from the front. A storm of them is
// answered one at a time.
func TestQueue_CalledWhenNobodyWaits_Withdraws(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, c, w := l.queued(3)
	l.giveUp(c)
	l.reply(r, Outcome{})
	for range 5 {
		l.does(w.Called)
	}
	l.is(r, Withdrawing)
	if l.reply(r, Outcome{}); r.compensations != nil {
		t.Errorf("left: %+v", r.View())
	}
}

// A try without an answer may have taken the lock: that is given back, three times. The place is the engine's
// still, and the next try is another owner's.
func TestQueue_TryWithoutAnAnswer_KeepsThePlace(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, _, w := l.queued(-1)
	l.does(w.OnMessage)
	owner := r.Cmd.ID
	l.reply(r, Outcome{Result: Unknown})
	if l.is(r, Compensating); r.Cmd.ID != owner || !r.sub.queued {
		t.Fatalf("%d is given back, and %d was out; queued %v", r.Cmd.ID, owner, r.sub.queued)
	}
	l.reply(r, Outcome{})
	if l.joins(r); r.Cmd.ID == owner {
		t.Error("the next try is the same owner's")
	}
}

// The end of an engine asks no server.
func TestQueue_Dropped_ForgetsThePlace(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, _, _ := l.queued(3)
	l.Phase = Closed
	l.does(r.Drop)
	if l.is(r, NoCommand); r.compensations != nil {
		t.Errorf("left: %+v", r.View())
	}
}

// While the slot moves a script has not both keys: the place is given up, and tries ask for the lock alone.
func TestQueue_SlotMoves_RacesWithoutTheQueue(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, _, w := l.queued(-1)
	l.does(w.OnMessage)
	l.reply(r, Outcome{Result: RetryLater, Moving: true})
	l.is(r, NoCommand)
	l.does(r.PauseOver)
	l.is(r, Withdrawing)
	l.reply(r, Outcome{})
	l.racesAlone(r)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute, Moving: true})
	l.does(w.OnMessage)
	l.racesAlone(r)
	l.refuse(r, 0)
	l.does(w.OnMessage)
	l.joins(r)
}

// One that finds itself behind while the slot moves does not sleep there.
func TestQueue_BehindWhileTheSlotMoves_SleepsNotForLong(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, _, w := l.queued(50)
	l.now = w.at
	l.does(w.AlarmFired)
	l.joins(r)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute, Behind: 50, Moving: true})
	l.is(r, Withdrawing)
	l.reply(r, Outcome{})
	l.racesAlone(r)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute, Moving: true})
	if d := w.at.Sub(l.now); !w.listening || d > serial.MovingPoll {
		t.Errorf("listens %v, sleeps for %v", w.listening, d)
	}
}

// Without a right to the queue, or to the engine's channel, it races.
func TestQueue_Denied_RacesWithoutTheQueue(t *testing.T) {
	t.Parallel()
	for _, channel := range []bool{false, true} {
		l := newLab(t)
		r := l.name()
		c := l.askAs(r, racer)
		l.refuse(r, 0)
		w := bellOf(r.sub)
		l.does(w.Subscribed)
		l.joins(r)
		if channel {
			l.refuse(r, 3)
			l.does(w.CallsRefused)
		} else {
			l.reply(r, Outcome{Result: Refused, Err: errors.New("NOPERM")})
		}
		for r.Cmd.Action == Compensating || r.Cmd.Action == Withdrawing {
			l.reply(r, Outcome{})
		}
		l.racesAlone(r)
		l.refuse(r, 0)
		if l.is(r, NoCommand); !w.listening || c.settled != 0 {
			t.Fatalf("listens for releases %v; settled %d", w.listening, c.settled)
		}
		l.does(w.OnMessage)
		l.racesAlone(r)
	}
}

// A lost connection may have cost it a call: it tries, and polls until it hears again.
func TestQueue_CallsLost_TriesAndPolls(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r, _, w := l.queued(50)
	var listed *Entry
	l.does(func(rd *Ready) { w.CallsLost(rd); listed = rd.Disconnected })
	if listed != r {
		t.Fatal("recovery does not list it")
	}
	l.does(func(rd *Ready) { r.Reconnected(nil, rd) })
	l.joins(r)
	l.refuse(r, 50)
	l.is(r, NoCommand)
	if d := w.at.Sub(l.now); d > 5*time.Second/4 {
		t.Errorf("it tries after %v, and may miss a call", d)
	}
	l.does(func(rd *Ready) { w.CallsConfirmed(rd); listed = rd.Disconnected })
	l.does(func(rd *Ready) { r.Reconnected(nil, rd) })
	l.joins(r)
}

// While its slot moves, the queue of a fair lock cannot be had: its release is repeated until the slot has
// moved, after 100 ms at most.
func TestFairMutex_UnlockWhileItsSlotMoves_IsRepeated(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.askAs(r, queued)
	l.reply(r, Outcome{})
	u := l.unlock(c.hold)
	for range 20 {
		l.is(r, Releasing)
		l.reply(r, Outcome{Result: RetryLater, Moving: true, Err: errors.New("TRYAGAIN")})
		if d := l.paused.Sub(l.now); d <= 0 || d > serial.MovingPoll {
			t.Fatalf("it is repeated after %v", d)
		}
		l.now = l.paused
		l.does(r.PauseOver)
	}
	l.reply(r, Outcome{})
	if u.delivered != 1 || u.Err != nil {
		t.Errorf("unlocked %d times, %v", u.delivered, u.Err)
	}
	l.is(r, NoCommand)
}

// The owner of a fair lock may be gone because a replica was promoted that has not heard of the grant,
// and has the owner in the queue.
func TestALostHoldLeavesTheQueue(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.askAs(r, queued)
	l.reply(r, Outcome{})
	l.does(func(rd *Ready) {
		c.hold.Grant.Gone(RemovedOnServer, rd)
		r.Advance(rd)
	})
	if l.is(r, Compensating); r.Cmd.ID != c.hold.ID {
		t.Errorf("it settles %d", r.Cmd.ID)
	}
	l.reply(r, Outcome{Reply: NotOwner})
	l.is(r, NoCommand)
}

// A try without an answer may have been executed: its owner is given back, and another one comes in its
// place, with a channel of its own.
func TestAnOwnerInAQueueThatIsGivenUpListensNoMore(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.askAs(r, queued)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute})
	old, owner := bellOf(r.sub), c.owner()
	if !old.listening || old.of != owner {
		t.Fatalf("%d waits, and listens for %d", owner, old.of)
	}
	l.does(r.sub.AlarmFired)
	l.is(r, Acquiring)
	l.reply(r, Outcome{Result: Unknown, Err: errors.New("lost")})
	if l.is(r, Compensating); r.Cmd.ID != owner {
		t.Errorf("%d is given back, want %d", r.Cmd.ID, owner)
	}
	l.reply(r, Outcome{Reply: NotOwner})
	l.is(r, Acquiring)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute})
	w := bellOf(r.sub)
	if old.listening || !w.listening || w.of != c.owner() || w.of == owner {
		t.Errorf("%d waits: listens for %d, and %v for %d", c.owner(), w.of, old.listening, owner)
	}
}

// Who gives up while a try is out leaves the queue. If that try gets no answer, it may be executed after
// that: the owner is taken out again later.
func TestAnOwnerThatLeavesAQueueWithATryInDoubtLeavesItAgain(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		answer  Outcome
		pending int // after the first release
	}{
		{Outcome{Reply: HeldByOther, TTL: time.Minute}, 0},
		{Outcome{}, 0},
		{Outcome{Result: Unknown, Err: errors.New("lost")}, 1},
	} {
		l := newLab(t)
		r := l.name()
		c := l.askAs(r, queued)
		owner := r.Cmd.ID
		l.does(func(rd *Ready) { c.Cancel(lockerr.Cancel{Cause: errors.New("given up")}, rd) })
		l.is(r, Acquiring)
		l.reply(r, x.answer)
		if l.is(r, Compensating); r.Cmd.ID != owner {
			t.Errorf("%d leaves, want %d", r.Cmd.ID, owner)
		}
		l.reply(r, Outcome{Reply: NotOwner})
		if v := r.View(); v.Compensations != x.pending {
			t.Errorf("%+v: owes %d more, want %d", x.answer, v.Compensations, x.pending)
		}
	}
}
