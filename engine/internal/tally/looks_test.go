package tally

import (
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/machine"
)

// While a cluster moves the slot, what needs the mark may have to wait. Who only looks need not.
func TestLooksDoNotWaitForASlotThatMoves(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.ask("a", "c")
	b := l.ask("b", "w")
	l.wantSent("1 c0")
	l.reply(Outcome{Verdict: machine.Busy, Err: errLab, Moving: true})
	l.do(l.tally.PauseOver)
	l.wantSent("0 v")
	l.answer(0)
	if b.settled != 1 {
		t.Error("it awaits a latch that is open")
	}
	l.wantSent("2 c0")
}

// A server without memory, or with too few replicas, refuses the mark each time. It answers who only looks.
func TestLooksDoNotWaitForAServerThatRefusesWrites(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.ask("a", "l3")
	b, c := l.ask("b", "w"), l.ask("c", "v")
	l.wantSent("1 l3")
	for range 3 {
		l.fail(machine.Busy)
		l.do(l.tally.PauseOver)
		l.took()
	}
	if l.answer(0, 0); b.settled+c.settled != 2 {
		t.Errorf("the look: %d, the await: %d", c.settled, b.settled)
	}
}

// A user who may not write may look. The operation alone is refused.
func TestALookIsNotRefusedBesideWhatIs(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.ask("first", "c")
	a, b, c := l.ask("a", "c"), l.ask("b", "w"), l.ask("c", "v")
	l.answer(1)
	l.wantSent("1 c0, 2 c0 v0 v")
	l.fail(machine.Denied)
	if a.why != errLab || b.settled+c.settled > 0 {
		t.Errorf("the count down: %v, the await: %v, the look: %v", a.why, b.why, c.why)
	}
	l.wantSent("0 v0 v")
	l.answer(0, 0)
	if b.why != nil || c.why != nil || b.settled+c.settled != 2 {
		t.Errorf("the await: %v, the look: %v", b.why, c.why)
	}
}

// A look alone that is refused is told so.
func TestALookThatIsRefusedIsTold(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	b := l.ask("b", "w")
	c := l.ask("c", "v")
	l.fail(machine.Denied)
	l.wantSent("0 v, 0 v0")
	l.fail(machine.Denied)
	if b.why != errLab || c.why != errLab {
		t.Errorf("the await: %v, the look: %v", b.why, c.why)
	}
}

// A count down needs no memory if it is the first of its command.
func TestACountDownGoesFirst(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.ask("a", "v")
	l.ask("b", "v")
	l.ask("c", "l3")
	l.ask("d", "c")
	l.answer(1)
	l.wantSent("0 v0, 1 c0 v0 l3")
}
