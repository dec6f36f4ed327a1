package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// While its slot moves, the queue of a fair lock cannot be had: its release is repeated until the slot has
// moved, after 100 ms at most.
func TestFairMutex_UnlockWhileItsSlotMoves_IsRepeated(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := new(caller)
	c.Init(c)
	c.Kind = queued
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
	l.reply(r, Outcome{})
	u := l.unlock(c.hold)
	for range 20 {
		l.is(r, Releasing)
		l.reply(r, Outcome{Result: RetryLater, Moving: true, Err: errors.New("TRYAGAIN")})
		if d := l.paused.Sub(l.now); d <= 0 || d > movingPoll {
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
	c := new(caller)
	c.Init(c)
	c.Kind = queued
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
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
	c := new(caller)
	c.Init(c)
	c.Kind = queued
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute})
	old, owner := r.sub.Port.(*bell), c.owner()
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
	w := r.sub.Port.(*bell)
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
		c := new(caller)
		c.Init(c)
		c.Kind = queued
		l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
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
