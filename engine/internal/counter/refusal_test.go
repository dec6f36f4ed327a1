package counter

import (
	"errors"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

var late = lockerr.Cancel{Cause: lockerr.ErrWaited, TimedOut: true}

func (l *lab) giveUp(c *caller) {
	l.t.Helper()
	l.do(func(rd *Ready) { c.Cancel(late, rd) })
}

// The server answers looks, and refuses the rest: who wanted that is told the refusal.
func TestARefusalIsReportedThoughLooksAreAnswered(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	a, b := l.ask("a", "l3"), l.ask("b", "w")
	l.fail(lock.RetryLater)
	l.answer(2)
	l.giveUp(a)
	if !errors.Is(a.why, errLab) || !errors.Is(a.why, lockerr.ErrUnavailable) {
		t.Errorf("the write: %v", a.why)
	}
	l.giveUp(b)
	if !errors.Is(b.why, lockerr.ErrPending) || errors.Is(b.why, lockerr.ErrUnavailable) {
		t.Errorf("the await: %v", b.why)
	}
}

// Permits were too few once. That the server refuses now does not mean that they still are.
func TestWhoIsRefusedByAServerDoesNotLearnThatPermitsAreHeld(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	l.answer(0)
	l.announce()
	l.fail(lock.RetryLater)
	l.ask("b", "v")
	l.answer(3)
	l.giveUp(a)
	if errors.Is(a.why, lockerr.ErrHeld) || !errors.Is(a.why, errLab) {
		t.Errorf("it is told %v", a.why)
	}
}

// What an operation was refused with says nothing about a later one, whose server hangs.
func TestARefusalIsNotReportedMuchLater(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	l.ask("holder", "a1") // keeps the name
	l.answer(1)
	a := l.ask("a", "a1")
	l.fail(lock.RetryLater)
	l.giveUp(a)
	l.pauseOver()
	b := l.ask("b", "a1")
	l.giveUp(b)
	if errors.Is(b.why, errLab) {
		t.Errorf("it is told %v", b.why)
	}
}

// A look whose caller has gone was not refused. The next one need not wait.
func TestALookThatNobodyWantsEndsNoLooks(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.ask("a", "l3")
	b := l.ask("b", "v")
	l.fail(lock.RetryLater)
	l.giveUp(b)
	l.ask("c", "v")
	l.took()
	l.fail(lock.Cancelled)
	l.wantSent("0 v0")
}

// Callers that come and go cause no more commands than one that stays: the pause outlives them.
func TestANameStaysUntilItsPauseIsOver(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	a := l.ask("a", "l3")
	l.fail(lock.RetryLater)
	l.giveUp(a)
	if l.counter.Out {
		t.Fatal("the pause is forgotten")
	}
	b := l.ask("b", "l3")
	l.wantSent("1 l3")
	l.giveUp(b)
	l.pauseOver()
	l.wantSent("")
	l.wantRest()
}

// Close ends all, in a pause, too.
func TestDropInAPause(t *testing.T) {
	t.Parallel()
	for _, looks := range []bool{false, true} {
		l := newLab(t, Latch)
		a := l.ask("a", "l3")
		var b *caller
		if l.fail(lock.RetryLater); looks {
			b = l.ask("b", "w")
			l.answer(2)
		}
		l.locks.Phase = lock.Closed
		l.do(l.counter.Drop)
		if a.settled != 1 || b != nil && b.settled != 1 {
			t.Error("they wait still")
		}
		l.wantRest()
	}
}

// A script that was refused when it had begun may have done all of it: it is repeated as it is.
func TestCounter_RefusedWhenItHadBegun_IsRepeatedAsItIs(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	l.wantSent("1 a1")
	l.ask("b", "p9")
	l.reply(Outcome{Verdict: lock.RetryLater, Begun: true, Err: errLab})
	l.pauseOver()
	l.wantSent("1 a1")
	l.answer(1)
	if a.permits == nil || l.counter.Cmd.doubtEnds() != 0 {
		t.Error("a has no permits")
	}
	l.wantSent("2 p9")
}
