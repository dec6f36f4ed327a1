package counter

import (
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// open has a message come that says that the latch has opened. A look finds it closed again.
func (l *lab) open() {
	l.t.Helper()
	l.do(func(rd *Ready) { l.counter.OnChannel(serial.Message, 0, true, rd) })
}

// looked answers a look, if one is out: the latch is closed.
func (l *lab) looked() {
	l.t.Helper()
	if l.counter.Cmd.out {
		l.answer(1)
	}
}

// awaits has somebody await the latch, which is closed.
func (l *lab) awaits(name string) *caller {
	l.t.Helper()
	c := l.ask(name, "w")
	l.looked()
	return c
}

// confirm confirms the channel as it was asked for last.
func (l *lab) confirm() { l.t.Helper(); l.subscribed(); l.looked() }

func (l *lab) wantHeard(want string) {
	l.t.Helper()
	if got := l.heard(); got != want {
		l.t.Fatalf("told: %q, want %q", got, want)
	}
}

// A latch opens, and is closed before anybody looks. Who listens is told.
func TestWhoListensLearnsOfALatchThatIsClosedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	a, b := l.awaits("a"), l.awaits("b")
	l.open() // before it listens, it may be an older message
	l.looked()
	l.wantHeard("")
	l.confirm() // of what was asked for before b came
	l.confirm()
	l.announce()
	l.looked()
	l.wantHeard("")
	l.open()
	l.wantHeard("a b")
	if a.why != nil || b.why != nil {
		t.Errorf("%v, %v", a.why, b.why)
	}
}

// A message may be under way when somebody comes. It is for those who listened before; the others have
// the channel asked for once more, and are told of what comes after that.
func TestWhoComesLaterDoesNotLearnOfAnEarlierOpening(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.awaits("a")
	l.confirm()
	l.awaits("b")
	l.awaits("c") // while the channel is asked for, for b
	if l.channels != 2 {
		t.Fatalf("the channel was asked for %d times", l.channels)
	}
	l.open()
	l.looked()
	l.wantHeard("a")
	l.took()
	l.confirm()
	l.wantSent("0 v") // another node may have confirmed it, and a message been missed
	if l.channels != 3 {
		t.Fatalf("the channel was asked for %d times, once for c", l.channels)
	}
	l.open()
	l.looked()
	l.wantHeard("b")
	l.confirm()
	l.open()
	l.wantHeard("c")
	l.ring() // lingers no more
	if l.listens {
		t.Error("it listens still")
	}
}

// The connection is lost while the channel is asked for once more. What is confirmed on the next one is
// what was asked for.
func TestAnOpeningAfterALostConnectionIsReported(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	l.awaits("a")
	l.confirm()
	l.awaits("b")
	l.do(func(rd *Ready) { l.counter.OnChannel(serial.Lost, 0, false, rd) })
	l.resume()
	l.looked()
	l.awaits("c")
	l.do(func(rd *Ready) { l.counter.OnChannel(serial.Confirmed, 0, false, rd) }) // the former
	l.looked()
	l.open()
	l.looked()
	l.wantHeard("a")
	l.confirm()
	l.open()
	l.looked()
	l.wantHeard("b")
	l.confirm()
	l.open()
	l.wantHeard("c")
}

// Waiters of a semaphore listen once.
func TestASemaphoreAsksForItsChannelOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	l.ask("a", "a1")
	l.answer(0)
	l.subscribed()
	l.answer(0)
	l.ask("b", "a1")
	l.ask("c", "a1")
	l.open()
	l.answer(0, 0, 0)
	if l.channels != 1 || l.heard() != "" {
		t.Errorf("the channel was asked for %d times", l.channels)
	}
}
