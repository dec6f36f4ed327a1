package machine

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// While the slot of a fair lock moves, its queue cannot be had: the hash alone is released, and who is
// next is told later. The answer to that release may be lost, and a copy of it finds nothing.
func TestAReleaseWhileTheSlotMovesTellsTheNextLater(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		l := newLab(t)
		r := l.name()
		c := new(caller)
		c.Init(c)
		c.Kind = queued
		l.does(func(fx *Effects) { r.Admit(&c.Request, fx) })
		l.reply(r, Outcome{})
		u := l.unlock(c.hold)
		l.reply(r, Outcome{Verdict: Busy, Moving: true, Err: errors.New("TRYAGAIN")})
		l.does(r.PauseOver)
		if l.is(r, Unlocking); !r.Cmd.Bare {
			t.Error("it is released with the queue")
		}
		answer := Outcome{}
		if lost {
			l.reply(r, Outcome{Verdict: Unknown, Err: errors.New("lost")})
			l.is(r, Unlocking)
			answer.Answer = Missing
		}
		l.reply(r, answer)
		if u.delivered != 1 || u.Err != nil {
			t.Errorf("lost %t: unlocked %d times, %v", lost, u.delivered, u.Err)
		}
		if l.is(r, Settling); r.Cmd.ID != c.hold.ID || r.Cmd.Bare {
			t.Errorf("lost %t: %+v", lost, r.Cmd)
		}
		l.reply(r, Outcome{Answer: Missing})
		l.is(r, Nothing)
	}
}

// What a fair lock's process owes cannot be given back while its slot moves. The release of its hold
// does not wait for that.
func TestAReleaseWhileTheSlotMovesWaitsForNoDebt(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := new(caller)
	c.Init(c)
	c.Kind = queued
	l.does(func(fx *Effects) { r.Admit(&c.Request, fx) })
	l.reply(r, Outcome{})
	moves := Outcome{Verdict: Busy, Moving: true, Err: errors.New("TRYAGAIN")}
	debt := l.ids + 1000
	l.does(func(fx *Effects) {
		r.owe(debt, queued, certain, 0, l.now.Add(time.Minute))
		r.GoOn(fx)
	})
	if l.is(r, Settling); r.Cmd.ID != debt {
		t.Fatalf("it settles %d", r.Cmd.ID)
	}
	u := l.unlock(c.hold)
	l.reply(r, moves)
	l.does(r.PauseOver)
	l.is(r, Unlocking)
	l.reply(r, moves)
	l.does(r.PauseOver)
	if l.is(r, Unlocking); !r.Cmd.Bare {
		t.Error("it is released with the queue")
	}
	l.reply(r, Outcome{})
	if u.delivered != 1 || u.Err != nil {
		t.Errorf("unlocked %d times, %v", u.delivered, u.Err)
	}
	l.is(r, Settling)
}

// Nor does Close wait for the slot: what is owed is released without the queue, where an owner that has
// died is found.
func TestCloseDoesNotWaitForTheQueueWhileTheSlotMoves(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	debt := l.ids + 1000
	l.does(func(fx *Effects) {
		r.owe(debt, queued, certain, 0, l.now.Add(time.Minute))
		r.GoOn(fx)
	})
	l.is(r, Settling)
	l.reply(r, Outcome{Verdict: Busy, Moving: true, Err: errors.New("TRYAGAIN")})
	l.does(r.PauseOver)
	if l.is(r, Settling); r.Cmd.Bare {
		t.Error("nobody closes, and the queue is left as it is")
	}
	l.closing = true
	l.reply(r, Outcome{Verdict: Busy, Moving: true, Err: errors.New("TRYAGAIN")})
	l.does(r.PauseOver)
	if l.is(r, Settling); r.Cmd.ID != debt || !r.Cmd.Bare {
		t.Errorf("it is closed, and waits for the queue: %+v", r.Cmd)
	}
	l.reply(r, Outcome{Answer: Missing})
	l.is(r, Nothing)
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
	l.does(func(fx *Effects) { r.Admit(&c.Request, fx) })
	l.reply(r, Outcome{})
	l.does(func(fx *Effects) {
		c.hold.Tenure.Gone(GoneOnServer, fx)
		r.GoOn(fx)
	})
	if l.is(r, Settling); r.Cmd.ID != c.hold.ID {
		t.Errorf("it settles %d", r.Cmd.ID)
	}
	l.reply(r, Outcome{Answer: Missing})
	l.is(r, Nothing)
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
	l.does(func(fx *Effects) { r.Admit(&c.Request, fx) })
	l.reply(r, Outcome{Answer: Taken, TTL: time.Minute})
	old, owner := r.wait.Port.(*bell), c.owner()
	if !old.listening || old.of != owner {
		t.Fatalf("%d waits, and listens for %d", owner, old.of)
	}
	l.does(r.wait.Rang)
	l.is(r, Acquiring)
	l.reply(r, Outcome{Verdict: Unknown, Err: errors.New("lost")})
	if l.is(r, Settling); r.Cmd.ID != owner {
		t.Errorf("%d is given back, want %d", r.Cmd.ID, owner)
	}
	l.reply(r, Outcome{Answer: Missing})
	l.is(r, Acquiring)
	l.reply(r, Outcome{Answer: Taken, TTL: time.Minute})
	w := r.wait.Port.(*bell)
	if old.listening || !w.listening || w.of != c.owner() || w.of == owner {
		t.Errorf("%d waits: listens for %d, and %v for %d", c.owner(), w.of, old.listening, owner)
	}
}

// Who gives up while a try is out leaves the queue. If that try gets no answer, it may be executed after
// that: the owner is taken out again later.
func TestAnOwnerThatLeavesAQueueWithATryInDoubtLeavesItAgain(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		answer Outcome
		owed   int // after the first release
	}{
		{Outcome{Answer: Taken, TTL: time.Minute}, 0},
		{Outcome{}, 0},
		{Outcome{Verdict: Unknown, Err: errors.New("lost")}, 1},
	} {
		l := newLab(t)
		r := l.name()
		c := new(caller)
		c.Init(c)
		c.Kind = queued
		l.does(func(fx *Effects) { r.Admit(&c.Request, fx) })
		owner := r.Cmd.ID
		l.does(func(fx *Effects) { c.Cancel(reason.Stop{Cause: errors.New("given up")}, fx) })
		l.is(r, Acquiring)
		l.reply(r, x.answer)
		if l.is(r, Settling); r.Cmd.ID != owner {
			t.Errorf("%d leaves, want %d", r.Cmd.ID, owner)
		}
		l.reply(r, Outcome{Answer: Missing})
		if v := r.View(); v.Debts != x.owed {
			t.Errorf("%+v: owes %d more, want %d", x.answer, v.Debts, x.owed)
		}
	}
}
