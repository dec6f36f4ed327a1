package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// A reader that is granted beside a writer must not stand beside the next one.
func TestAWriterWithAReaderBesideItIsNotHandedOver(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r, cell := l.name(), l.cell()
	c := l.ask(r, false)
	l.reply(r, Outcome{})
	ask := func() *caller {
		reader := new(caller)
		reader.Init(reader)
		reader.More().Writer = &c.hold.Hold
		l.does(func(rd *Ready) { cell.Admit(&reader.Request, rd) })
		return reader
	}
	reader := ask()
	if h := cell.Cmd.Writer(); h != &c.hold.Hold {
		t.Fatalf("it is asked for beside %v", h)
	}
	l.reply(cell, Outcome{})
	next := l.ask(r, false)
	l.unlock(c.hold)
	if l.is(r, Releasing); next.hold != nil {
		t.Error("it was handed over")
	}
	// One that comes later is beside nobody.
	l.unlock(reader.hold)
	l.reply(cell, Outcome{})
	ask()
	if l.is(cell, Acquiring); cell.Cmd.Writer() != nil {
		t.Error("beside one that has ended")
	}
}

// Who reads stays behind a writer of its process that waits, and comes before the next one.
func TestReadersAndWritersTakeTurns(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r, cell := l.name(), l.cell()
	first := l.ask(r, false)
	l.reply(r, Outcome{})
	next := l.ask(r, false)
	reader := l.ask(cell, false)
	if cell.Blocked() != BehindWriter || cell.Cmd.Action != NoCommand {
		t.Fatalf("it does not stay behind: %+v", cell.View())
	}
	if err := reader.Blocking(false); !errors.Is(err, lockerr.ErrHeld) {
		t.Errorf("in its way is %v", err)
	}
	try := l.ask(cell, true)
	if !errors.Is(try.err, lockerr.ErrHeld) {
		t.Errorf("a TryLock is told %v", try.err)
	}
	l.unlock(first.hold)
	if l.is(r, Releasing); next.hold != nil {
		t.Error("it was handed over, with a reader behind")
	}
	var rd Ready
	o := Outcome{Sent: l.now, Now: l.now}
	r.Replied(&o, &rd)
	l.settle()
	tell(&rd)
	if rd.AdvanceReaders != r || rd.Send != nil || r.Blocked() != YieldingToReaders {
		t.Fatalf("the readers do not come first: %+v", r.View())
	}
	l.does(func(rd *Ready) { cell.AdvanceReader(nil, rd) })
	l.is(cell, Acquiring)
	l.does(func(rd *Ready) { r.AdvanceWriter(rd) })
	l.is(r, Acquiring)
}

// Those behind a writer that gives up go on; one that gives up itself is gone.
func TestReadersBehindAWriterThatGivesUpGoOn(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"the writer", "the reader"} {
		l := newHandOverLab(t)
		r, cell := l.name(), l.cell()
		w := l.ask(r, false)
		l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Hour})
		reader := l.ask(cell, false)
		var rd Ready
		if who == "the reader" {
			reader.Cancel(lockerr.Cancel{Cause: lockerr.ErrWaited}, &rd)
			if cell.Blocked() != NotBlocked || !cell.Detached {
				t.Errorf("the name of a reader that is gone: %+v", cell.View())
			}
			continue
		}
		w.Cancel(lockerr.Cancel{Cause: lockerr.ErrWaited}, &rd)
		if rd.AdvanceReaders != r || r.Detached {
			t.Errorf("the readers do not go on: %+v", r.View())
		}
		l.does(func(rd *Ready) { cell.AdvanceReader(nil, rd) })
		l.is(cell, Acquiring)
		l.does(func(rd *Ready) { r.AdvanceWriter(rd) })
	}
}

// In an outage as well: the name of the writer is listed by recovery then.
func TestReadersBehindAWriterThatGivesUpInAnOutageGoOn(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r, cell := l.name(), l.cell()
	w := l.ask(r, false)
	reader := l.ask(cell, false)
	l.reply(r, Outcome{Result: NotSent})
	if r.Blocked() != Disconnected {
		t.Fatalf("%+v", r.View())
	}
	var rd Ready
	w.Cancel(lockerr.Cancel{Cause: lockerr.ErrWaited}, &rd)
	if rd.AdvanceReaders != r || r.Detached {
		t.Fatalf("the readers do not go on: %+v", r.View())
	}
	l.does(func(rd *Ready) { cell.AdvanceReader(nil, rd) })
	l.is(cell, Acquiring)
	l.does(func(rd *Ready) { r.AdvanceWriter(rd) })
	if !r.Detached || reader.Ended() {
		t.Errorf("the name is %+v", r.View())
	}
}

// Nobody else of the process hears of it if a writer loses its lock to a ForceUnlock.
func TestAWriterListensForReadersThatAreBehindIt(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r, cell := l.name(), l.cell()
	w := l.ask(r, false)
	l.reply(r, Outcome{})
	reader := l.ask(cell, false)
	if v := r.View(); v.Head == "" || !bellOf(r.sub).listening {
		t.Fatalf("it does not listen: %+v", v)
	}
	l.does(func(rd *Ready) { r.sub.Subscribed(rd) })
	l.now, w.hold.soon = l.now.Add(time.Second), false
	if l.does(func(rd *Ready) { r.sub.OnMessage(rd) }); !w.hold.soon {
		t.Error("after a message it is not looked at")
	}
	l.does(func(rd *Ready) { reader.Cancel(lockerr.Cancel{Cause: lockerr.ErrWaited}, rd) })
	l.unlock(w.hold)
	l.reply(r, Outcome{})
	if r.View().Head != Lingers {
		t.Errorf("nobody waits: %+v", r.View())
	}
}

// If the server refuses the channel, those that are behind are told so. The name does not listen
// again for them, to be refused again and again.
func TestReadersBehindAWriterThatMayNotListenFail(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r, cell := l.name(), l.cell()
	w := l.ask(r, false)
	l.reply(r, Outcome{})
	reader := l.ask(cell, false)
	bell := bellOf(r.sub)
	bell.listening = false // as the server says
	var rd Ready
	r.sub.ChannelRefused("channel", errors.New("NOPERM"), &rd)
	if rd.AdvanceReaders != r || bell.listening {
		t.Fatalf("they go on: %v; it listens again: %v", rd.AdvanceReaders == r, bell.listening)
	}
	l.does(func(then *Ready) { cell.AdvanceReader(rd.Err, then) })
	l.does(func(rd *Ready) { r.AdvanceWriter(rd) })
	if !errors.Is(reader.err, lockerr.ErrInvalid) || !cell.Detached || w.hold.state != live {
		t.Errorf("the reader is told %v, its name is %+v", reader.err, cell.View())
	}
	if bell.listening {
		t.Error("it listens for nobody")
	}
}

// A reader that went on and was refused, for another process had the lock by then, is behind the
// writer of its process that gets the lock after that one.
func TestAReaderThatAWriterOvertakesIsBehindItAgain(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r, cell := l.name(), l.cell()
	reader := l.ask(cell, false)
	l.reply(cell, Outcome{Reply: HeldByOther, TTL: time.Hour}) // by another process
	if v := cell.View(); v.Head != Asleep {
		t.Fatalf("nobody of its process writes, and it does not sleep: %+v", v)
	}
	first, next := l.ask(r, false), l.ask(r, false)
	l.reply(r, Outcome{}) // that has left, and the writer was sooner than the reader
	alarm := bellOf(cell.sub)
	l.does(func(rd *Ready) { cell.sub.OnMessage(rd) })
	l.is(cell, Acquiring)
	l.reply(cell, Outcome{Reply: HeldByOther, TTL: time.Hour})
	if v := cell.View(); v.Held != BehindWriter || v.Head != "" || alarm.listening || alarm.at != 0 {
		t.Fatalf("the reader is not behind the writer: %+v", v)
	}
	l.unlock(first.hold)
	if l.is(r, Releasing); next.hold != nil {
		t.Error("it was handed over, with a reader behind")
	}
	var rd Ready
	o := Outcome{Sent: l.now, Now: l.now}
	r.Replied(&o, &rd)
	if rd.AdvanceReaders != r || r.Blocked() != YieldingToReaders {
		t.Fatalf("the reader does not come first: %+v", r.View())
	}
	l.does(func(rd *Ready) { cell.AdvanceReader(nil, rd) })
	l.reply(cell, Outcome{})
	if reader.hold == nil {
		t.Error("it has nothing")
	}
}
