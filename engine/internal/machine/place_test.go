package machine

import (
	"errors"
	"testing"
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
