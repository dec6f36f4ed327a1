package counter

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"

	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// While a cluster moves the slot, what needs the mark may have to wait. Who only looks need not.
func TestLooksDoNotWaitForASlotThatMoves(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.ask("a", "c")
	b := l.ask("b", "w")
	l.wantSent("1 c0")
	l.reply(Outcome{Verdict: lock.RetryLater, Err: errLab, Moving: true})
	l.wantSent("0 v")
	l.answer(0)
	if b.settled != 1 {
		t.Error("it awaits a latch that is open")
	}
	l.wantSent("")
	l.pauseOver()
	l.wantSent("2 c0")
}

// A server without memory, or with too few replicas, refuses the mark each time. It answers who only
// looks: at once, and also when a message comes during the pause. What it refuses is sent no more
// often for that.
func TestLooksDoNotWaitForAServerThatRefusesWrites(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.ask("a", "l3")
	b, c := l.ask("b", "w"), l.ask("c", "v")
	l.wantSent("1 l3")
	l.fail(lock.RetryLater)
	l.wantSent("0 v0 v")
	l.answer(2, 2)
	if c.settled != 1 || b.settled != 0 {
		t.Fatalf("the look: %d, the await: %d", c.settled, b.settled)
	}
	last := l.counter.pauseEnds.Sub(l.now)
	for number := 2; number < 6; number++ {
		l.announce()
		l.wantSent("0 v")
		l.answer(2)
		l.now = l.counter.pauseEnds
		l.pauseOver()
		l.wantSent(fmt.Sprint(number, " l3 v"))
		l.fail(lock.RetryLater)
		l.wantSent("0 v")
		l.answer(2)
		if d := l.counter.pauseEnds.Sub(l.now); d < 2*last {
			t.Fatalf("a pause of %v after one of %v", d, last)
		} else {
			last = d
		}
	}
	l.announce()
	l.answer(0)
	if b.settled != 1 {
		t.Error("it awaits a latch that is open")
	}
}

// As soon as the server answers looks no more, nothing is sent before the pause is over.
func TestLooksThatFailWaitForTheEndOfThePause(t *testing.T) {
	t.Parallel()
	for _, v := range []lock.Result{lock.RetryLater, lock.NotSent, lock.LaneFull, lock.Unknown} {
		l := newLab(t, Latch)
		l.ask("a", "l3")
		l.ask("b", "w")
		l.fail(lock.RetryLater)
		l.wantSent("1 l3, 0 v")
		l.fail(v)
		l.ask("c", "v")
		l.wantSent("")
		if l.stalled {
			t.Errorf("verdict %d: recovery and the pause both have it", v)
		}
		l.pauseOver()
		l.wantSent("2 l3 v0 v")
	}
}

// Many names may look after a lost connection. One with a pause does at its end.
func TestLooksAfterALostConnectionWaitForTheEndOfThePause(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.ask("a", "l3")
	l.ask("b", "w")
	l.fail(lock.RetryLater)
	l.answer(2)
	l.took()
	l.do(func(rd *Ready) { l.counter.OnChannel(serial.Lost, 0, false, rd) })
	l.wantSent("")
	l.pauseOver()
	l.wantSent("2 l3 v")
}

// The back-off of looks alone ends when one is answered.
func TestAnAnsweredLookEndsTheBackOffOfLooks(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.ask("a", "v")
	var long time.Duration
	for range 4 {
		l.fail(lock.RetryLater)
		long = l.counter.pauseEnds.Sub(l.now)
		l.pauseOver()
	}
	l.answer(1)
	l.ask("b", "v")
	l.fail(lock.RetryLater)
	if d := l.counter.pauseEnds.Sub(l.now); d > long/4 {
		t.Errorf("a pause of %v after an answer, %v before", d, long)
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
	l.fail(lock.Refused)
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
func TestALookThatIsRefusedIsReported(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	b := l.ask("b", "w")
	c := l.ask("c", "v")
	l.fail(lock.Refused)
	l.wantSent("0 v, 0 v0")
	l.fail(lock.Refused)
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
