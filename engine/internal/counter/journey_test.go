package counter

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
)

func TestOneCommandAtATimeWithAllThatWaits(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a2")
	l.wantSent("1 a2")
	b, c := l.ask("b", "a1"), l.ask("c", "a1")
	l.ask("d", "v")
	l.wantSent("")
	l.answer(1)
	if a.permits == nil || l.heard() != "a" {
		t.Fatal("a has no permits")
	}
	l.wantSent("2 v0 a1 a1")
	r := l.release(a) // while it is out
	l.answer(5, 1, 1)
	l.wantSent("3 r2")
	if b.permits == nil || c.permits == nil || !a.ended {
		t.Fatal("no permits")
	}
	l.answer(1)
	if r.settled != 1 || r.why != nil {
		t.Error(r.why)
	}
	l.release(b)
	l.answer(1)
	l.release(c)
	l.answer(1)
	l.wantRest()
}

// A release and those who wait go in one command, the release first.
func TestAReleaseServesThoseWhoWait(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	l.answer(1)
	l.took()
	b := l.ask("b", "a1")
	l.answer(0) // it sleeps
	if !l.listens {
		t.Fatal("it does not listen")
	}
	l.took()
	l.ask("c", "a1")
	l.wantSent("")
	l.release(a)
	l.wantSent("3 r1 a1 a1")
	l.answer(1, 1, 0)
	if b.permits == nil || l.heard() != "a release of a b" {
		t.Fatal("b has no permits")
	}
	l.wantSent("")
}

func TestWhatWasNotSentIsChosenAnew(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	l.ask("a", "a1")
	l.wantSent("1 a1")
	l.fail(lock.NotSent)
	b := l.ask("b", "a2")
	l.ask("c", "p3")
	l.wantSent("")
	l.do(func(rd *Ready) { b.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}, rd) })
	if !errors.Is(b.why, lockerr.ErrAbandoned) || errors.Is(b.why, lockerr.ErrOutcomeUnknown) {
		t.Error(b.why)
	}
	l.resume()
	l.wantSent("2 p3 a1")
	l.answer(1, 1)
}

// A command without an answer is repeated as it is, and nothing else is sent before.
func TestADoubtIsRepeatedAsItIs(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a, b := l.ask("a", "a1"), l.ask("b", "a1")
	l.took()
	l.fail(lock.Unknown) // of a alone
	l.wantSent("1 a1")
	l.fail(lock.NotSent)
	l.ask("c", "p9")
	l.resume()
	l.wantSent("1 a1")
	l.fail(lock.RetryLater)
	l.pauseOver()
	l.wantSent("1 a1")
	l.answer(1)
	if a.permits == nil || b.permits != nil || l.counter.Cmd.doubtEnds() != 0 {
		t.Fatal("a has no permits")
	}
	l.wantSent("2 p9 a1")
}

func TestADoubtIsGivenUpAfterAWhile(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	c := l.ask("c", "p1")
	l.fail(lock.Unknown)
	l.took()
	l.fail(lock.NotSent)
	since := l.counter.Cmd.doubtEnds()
	l.now = since.Add(-time.Millisecond)
	l.fired()
	if a.settled != 0 {
		t.Fatal("it is given up too soon")
	}
	l.now = since
	l.trouble = errLab
	l.fired()
	if !errors.Is(a.why, lockerr.ErrOutcomeUnknown) || !errors.Is(a.why, lockerr.ErrUnavailable) || c.settled != 0 {
		t.Fatal(a.why, c.why)
	}
	l.resume()
	l.wantSent("2 p1")
	l.answer(1)
	l.wantRest()
}

// The timer of a doubt may come while a copy is out. Its answer counts, but no other copy is sent.
func TestADoubtThatIsOutWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{true, false} {
		l := newLab(t, Semaphore)
		a := l.ask("a", "a1")
		l.fail(lock.Unknown)
		l.wantSent("1 a1, 1 a1")
		l.now = l.counter.Cmd.since.Add(DoubtFor)
		l.fired()
		if a.settled != 0 {
			t.Fatal("it is given up while it is out")
		}
		if answered {
			l.answer(1)
			if a.permits == nil {
				t.Error("no permits")
			}
			continue
		}
		l.fail(lock.Unknown)
		l.wantSent("")
		if !errors.Is(a.why, lockerr.ErrOutcomeUnknown) {
			t.Error(a.why)
		}
		l.wantRest()
	}
}

// A command that only looks is in no doubt.
func TestALookIsAskedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	l.ask("a", "v")
	l.fail(lock.Unknown)
	l.wantSent("0 v0, 0 v0")
	if l.counter.Cmd.doubtEnds() != 0 {
		t.Error("it is in doubt")
	}
	l.answer(3)
	l.wantRest()
}

func TestWhatIsGrantedToNobodyIsGivenBack(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a4")
	l.took()
	l.do(func(rd *Ready) { a.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}, rd) })
	if l.heard() != "a" || errors.Is(a.why, lockerr.ErrOutcomeUnknown) {
		t.Fatal(a.why)
	}
	l.fail(lock.Unknown)
	l.wantSent("1 a4") // it may have been granted
	l.answer(1)
	l.wantSent("2 r4")
	l.answer(1)
	l.wantRest()
	if l.locks.Count.Acquired != 0 || l.locks.Count.NotAcquired != 1 {
		t.Errorf("%+v", l.locks.Count)
	}
}

// A release goes on when its caller has given up; another operation that the server may have
// does, too, and its caller is told that nobody knows.
func TestOperationsThatGoOnWithoutTheirCallers(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	l.answer(1)
	l.took()
	c := l.ask("c", "p1")
	r := l.release(a)
	d := l.ask("d", "p5")
	for _, one := range []*caller{c, r, d} {
		l.do(func(rd *Ready) { one.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}, rd) })
	}
	if !errors.Is(c.why, lockerr.ErrOutcomeUnknown) || !errors.Is(r.why, lockerr.ErrOutcomeUnknown) || errors.Is(d.why, lockerr.ErrOutcomeUnknown) {
		t.Error(c.why, r.why, d.why)
	}
	l.wantSent("2 p1")
	l.answer(1)
	l.wantSent("3 r1")
	l.answer(1)
	l.wantRest()
}

// One whose time is over is told so, beside that nobody knows what became of it.
func TestAnUnknownOutcomeSaysWhy(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	c := l.ask("c", "p1")
	l.do(func(rd *Ready) { c.Cancel(lockerr.Cancel{TimedOut: true}, rd) })
	if !errors.Is(c.why, lockerr.ErrOutcomeUnknown) || !errors.Is(c.why, lockerr.ErrPatience) {
		t.Error(c.why)
	}
}

// A message between a try and its refusal must not be slept over.
func TestNoMessageIsSleptOver(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	l.ask("a", "a1")
	l.answer(0)
	l.wantSent("1 a1")
	l.subscribed()
	l.wantSent("2 a1")
	l.announce() // while it is out
	l.answer(0)
	l.wantSent("3 a1")
	l.answer(0)
	l.wantSent("")
	l.announce()
	l.wantSent("4 a1")
	l.answer(0)
	if sleeps := l.counter.alarm.Sub(l.now); sleeps > LookEvery || sleeps < LookEvery/2 {
		t.Errorf("it sleeps for %v", sleeps)
	}
	l.ring()
	l.wantSent("5 a1")
	l.answer(0)
	l.do(func(rd *Ready) { l.counter.OnChannel(serial.Lost, 0, false, rd) })
	l.wantSent("")
	l.resume() // paced
	l.wantSent("6 a1")
	l.answer(0)
	if sleeps := l.counter.alarm.Sub(l.now); sleeps > time.Second {
		t.Errorf("it sleeps for %v without a channel", sleeps)
	}
}

func TestTriesAreRefusedBehindThoseWhoWait(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	l.ask("a", "a5")
	l.answer(0)
	l.took()
	b := l.ask("b", "t1")
	l.wantSent("2 a5 t1")
	l.answer(0, 0)
	var held *lockerr.Held
	if !errors.As(b.why, &held) {
		t.Error(b.why)
	}
}

// When the first waiter leaves, the next one tries: it may want less.
func TestTheNextTriesWhenTheFirstLeaves(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a5")
	l.answer(0)
	l.ask("b", "a1")
	l.took()
	l.do(func(rd *Ready) { a.Cancel(lockerr.Cancel{Cause: lockerr.ErrWaited, TimedOut: true}, rd) })
	if !errors.Is(a.why, lockerr.ErrHeld) || !errors.Is(a.why, lockerr.ErrWaited) {
		t.Error(a.why)
	}
	l.wantSent("2 a1")
}

// What a server told a waiter that has left is no answer to the next one.
func TestWhatOneLearntIsNotPassedToTheNext(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a5")
	l.answer(0)
	late := lockerr.Cancel{Cause: lockerr.ErrWaited, TimedOut: true}
	l.do(func(rd *Ready) { a.Cancel(late, rd) })
	b := l.ask("b", "a1")
	l.wantSent("1 a5, 2 a1")
	l.do(func(rd *Ready) { b.Cancel(late, rd) })
	if errors.Is(b.why, lockerr.ErrHeld) || !errors.Is(b.why, lockerr.ErrUnavailable) {
		t.Error(b.why)
	}
}

// Permits go from one to the next here for a turn only. Then others get a chance.
func TestATurnEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	l.answer(1)
	b := l.ask("b", "a1")
	l.answer(0)
	l.ask("c", "a1")
	l.took()
	l.release(a)
	l.wantSent("3 r1 a1 a1")
	l.answer(1, 1, 0)
	l.now = l.now.Add(l.cfg.HandOverFor + time.Millisecond)
	l.release(b)
	l.wantSent("4 r1")
	l.answer(1)
	l.wantSent("")
	l.ask("d", "t1") // it does not take that chance from others either
	l.wantSent("")
	l.announce()
	l.wantSent("")
	if skips := l.counter.alarm.Sub(l.now); skips > serial.YieldMost {
		t.Errorf("it skips for %v", skips)
	}
	l.ring()
	l.wantSent("5 a1 t1")
}

// If those who wait give up while they skip a turn, nobody skips it: one that makes a single
// attempt makes it at once. The alarm is for the subscription by then.
func TestATurnIsNotSkippedForNobody(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	l.answer(1)
	b := l.ask("b", "a1")
	l.answer(0)
	c := l.ask("c", "a1")
	l.release(a)
	l.answer(1, 1, 0)
	l.now = l.now.Add(l.cfg.HandOverFor + time.Millisecond)
	l.release(b)
	l.answer(1)
	l.took()
	d := l.ask("d", "t1")
	l.wantSent("")
	l.do(func(rd *Ready) { c.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}, rd) })
	l.wantSent("5 t1")
	l.answer(1)
	if d.permits == nil {
		t.Error("it has no permits")
	}
}

func TestNoTurnAtAll(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	l.cfg.HandOverFor = 0
	a := l.ask("a", "a1")
	l.answer(1)
	l.ask("b", "a1")
	l.answer(0)
	l.took()
	l.release(a)
	l.wantSent("3 r1")
	l.answer(1)
	l.wantSent("4 a1")
}

func TestALatchAnswersAllWhoAwaitIt(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	a, b := l.ask("a", "w"), l.ask("b", "w")
	l.wantSent("0 v")
	l.answer(0) // b came later
	if a.settled != 1 || b.settled != 0 {
		t.Fatal("a waits, or b does not")
	}
	l.wantSent("0 v")
	l.answer(2)
	l.took()
	c := l.ask("c", "w")
	l.wantSent("")
	if !l.listens {
		t.Fatal("it does not listen")
	}
	l.ask("d", "c")
	l.wantSent("1 c0 v") // both in one round trip
	l.answer(1, 1)
	l.announce()
	l.wantSent("0 v")
	l.answer(0)
	if b.settled != 1 || c.settled != 1 || c.why != nil {
		t.Fatal("they wait still")
	}
	l.ring() // nobody waits any more
	l.wantRest()
}

func TestClosing(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a2")
	l.answer(1)
	b := l.ask("b", "a1")
	l.answer(0)
	c := l.ask("c", "p1") // is out
	d := l.ask("d", "p1")
	l.took()
	l.locks.Phase = lock.Closed
	l.do(l.counter.StopWaiting)
	if !errors.Is(b.why, lockerr.ErrClosed) || !errors.Is(d.why, lockerr.ErrClosed) || c.settled != 0 {
		t.Fatal(b.why, d.why, c.settled)
	}
	l.do(l.counter.End)
	if !a.ended || a.permits.Err() != lockerr.ErrClosed {
		t.Error("a has permits still")
	}
	l.answer(1, 0)
	l.wantSent("4 r2")
	l.answer(1)
	l.wantRest()
}

// A Shutdown lets a latch be counted down, with what was asked for before it and after. Close does not.
func TestALatchIsCountedDownDuringAShutdown(t *testing.T) {
	t.Parallel()
	l := newLab(t, Latch)
	a, b, c, d := l.ask("a", "c"), l.ask("b", "c"), l.ask("c", "v"), l.ask("d", "w")
	l.took()
	l.locks.Phase = lock.ShuttingDown
	l.do(l.counter.StopWaiting)
	if b.settled != 0 || !errors.Is(c.why, lockerr.ErrClosed) || !errors.Is(d.why, lockerr.ErrClosed) {
		t.Errorf("the count down: %v, the look: %v, the await: %v", b.why, c.why, d.why)
	}
	l.answer(1)
	l.wantSent("2 c0")
	e := l.ask("e", "c")
	l.answer(1)
	l.wantSent("3 c0")
	f := l.ask("f", "c")
	l.locks.Phase = lock.Closed
	l.do(l.counter.StopWaiting)
	l.answer(1)
	if a.why != nil || b.why != nil || e.why != nil || !errors.Is(f.why, lockerr.ErrClosed) {
		t.Errorf("%v, %v, %v; when it is closed: %v", a.why, b.why, e.why, f.why)
	}
	l.wantSent("")
	l.wantRest()
}

func TestDroppingLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a2")
	l.answer(1)
	l.ask("b", "p1")
	l.fail(lock.Unknown)
	l.fail(lock.NotSent)
	r := l.release(a)
	l.locks.Phase = lock.Closed
	l.do(l.counter.Drop)
	if !errors.Is(r.why, lockerr.ErrOutcomeUnknown) {
		t.Error(r.why)
	}
	l.wantRest()
}

// No more than 64 operations go in a command, and calls leave room for those who wait.
func TestACommandIsBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	l.ask("first", "p1")
	for range 100 {
		l.ask("c", "p1")
		l.ask("a", "a1")
	}
	l.answer(1)
	calls, acquires := 0, 0
	for _, op := range l.counter.Cmd.Ops {
		if op.Kind == Acquire {
			acquires++
		} else {
			calls++
		}
	}
	if calls != MostOps-forWaiters || acquires != forWaiters {
		t.Errorf("%d calls and %d acquires", calls, acquires)
	}
}

func TestDeniedAndWrongType(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	l.fail(lock.Refused)
	if a.why != errLab {
		t.Error(a.why)
	}
	l.wantRest()
	l = newLab(t, Semaphore)
	a = l.ask("a", "a1")
	l.fail(lock.Unknown)
	l.fail(lock.Refused)
	if !errors.Is(a.why, lockerr.ErrOutcomeUnknown) || !errors.Is(a.why, errLab) {
		t.Error(a.why)
	}
	l.wantRest()
	l = newLab(t, Latch)
	a = l.ask("a", "w")
	l.reply(Outcome{NoCount: true})
	if !errors.Is(a.why, lockerr.ErrWrongType) {
		t.Error(a.why)
	}
	l.wantRest()
}

func TestForbiddenChannelFailsThoseWhoWait(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	l.answer(0)
	l.do(func(rd *Ready) { l.counter.ChannelRefused(errLab, rd) })
	if a.why != errLab {
		t.Error(a.why)
	}
	l.wantRest()
}

// The channel is refused while nobody waits, but somebody has permits: that is all.
func TestForbiddenChannelThatLingers(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	l.answer(0)
	l.subscribed()
	l.answer(1)
	l.do(func(rd *Ready) { l.counter.ChannelRefused(errLab, rd) })
	if l.counter.alarm != 0 {
		l.ring()
	}
	l.release(a)
	l.answer(1)
	l.wantRest()
}

// A doubt may wait for room on a full lane until it is too old: then it is not wanted any more.
func TestADoubtThatWaitsForRoomForTooLong(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a1")
	l.fail(lock.Unknown)
	l.took()
	if !l.counter.Cmd.Wanted(l.now) {
		t.Error("it is not wanted")
	}
	l.now = l.counter.Cmd.since.Add(DoubtFor)
	if l.counter.Cmd.Wanted(l.now) {
		t.Error("it is wanted still")
	}
	l.fail(lock.Cancelled)
	l.wantSent("")
	if !errors.Is(a.why, lockerr.ErrOutcomeUnknown) {
		t.Error(a.why)
	}
	l.wantRest()
}

// One who was refused has given up meanwhile. Those behind want less, and were not asked for: they
// do not sleep because of that.
func TestOneWhoGaveUpPutsNobodyToSleep(t *testing.T) {
	t.Parallel()
	l := newLab(t, Semaphore)
	a := l.ask("a", "a2")
	l.wantSent("1 a2")
	b := l.ask("b", "a1")
	l.do(func(rd *Ready) { a.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}, rd) })
	l.answer(0)
	l.wantSent("2 a1")
	l.answer(1)
	if b.permits == nil {
		t.Fatal("b has no permits")
	}
	l.release(b)
	l.answer(1)
	l.wantRest()
}
