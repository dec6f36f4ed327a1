package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// besideLab has a writer, and a reader that is asked for beside it and whose command is out.
func besideLab(t *testing.T, once bool) (l *lab, writers *Entry, writer *tenant, cell *Entry, reader *caller) {
	l = newLab(t)
	writers, cell = l.name(), l.cell()
	c := l.ask(writers, false)
	l.reply(writers, Outcome{})
	reader = new(caller)
	reader.Init(reader)
	reader.once(once)
	reader.More().Writer = &c.hold.Hold
	l.does(func(rd *Ready) { cell.Admit(&reader.Request, rd) })
	if cell.Cmd.Writer() != &c.hold.Hold {
		t.Fatal("it is not asked for beside the writer")
	}
	return l, writers, c.hold, cell, reader
}

// A reader is refused for now, and its writer unlocks before it asks again. Then it is a reader as any
// other: it waits behind the next writer of its process, which hears of a removal.
func TestAReaderBesideAWriterThatHasEndedIsAsAnyOther(t *testing.T) {
	t.Parallel()
	l, writers, writer, cell, reader := besideLab(t, false)
	next := l.ask(writers, false)
	l.reply(cell, Outcome{Result: RetryLater})
	l.unlock(writer)
	l.reply(writers, Outcome{})
	l.does(func(rd *Ready) { cell.PauseOver(rd) })
	l.is(cell, Acquiring)
	if cell.Cmd.Writer() != nil || reader.writer() != nil {
		t.Error("it is asked for beside a writer that has ended")
	}
	l.reply(writers, Outcome{})
	if next.hold == nil {
		t.Fatal(next.err)
	}
	l.reply(cell, Outcome{Reply: HeldByOther, TTL: 1})
	if cell.Blocked() != BehindWriter {
		t.Errorf("it is not behind the next writer: %+v", cell.View())
	}
}

// The server says that the writer is not there. So it is looked at, and a TryLock fails as under a
// context of what was lost. Lock asks as any other.
func TestReader_BesideAWriterThatIsGone_HasItLookedAt(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		l, _, writer, cell, reader := besideLab(t, once)
		var rd Ready
		cell.Replied(&Outcome{Reply: NotOwner, Sent: l.now, Now: l.now}, &rd)
		l.settle()
		tell(&rd)
		if !writer.soon {
			t.Errorf("once %v: the writer is not looked at", once)
		}
		if failed := errors.Is(reader.err, loss(RemovedOnServer)); failed != once {
			t.Errorf("once %v: the reader is told %v", once, reader.err)
		}
		if !once {
			l.is(cell, Acquiring)
			if cell.Cmd.Writer() != nil {
				t.Error("it is asked for beside that writer again")
			}
		}
	}
}

// A server says so after the writer was unlocked: that says nothing of the lock. And what one server has lost
// does not end a RedLock.
func TestATryLockBesideAWriterThatIsNotThereAsksAsAnyOther(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(l *lab, writer *tenant, reader *caller){
		"the writer was unlocked": func(l *lab, writer *tenant, _ *caller) { l.unlock(writer) },
		"for a RedLock":           func(_ *lab, _ *tenant, reader *caller) { reader.More().Quorum = true },
	} {
		l, _, writer, cell, reader := besideLab(t, true)
		begin(l, writer, reader)
		l.reply(cell, Outcome{Reply: NotOwner})
		if l.is(cell, Acquiring); reader.err != nil || cell.Cmd.Writer() != nil {
			t.Errorf("%s: %v", name, reader.err)
		}
	}
}

// A Shutdown waits for a writer as long as what its readers were given may keep it: by each of their
// commands, before the writer was lost or after it.
func TestTheCompensationOfAWriterStandsAsLongAsItsReaders(t *testing.T) {
	t.Parallel()
	const long = clock.Instant(time.Hour)
	for name, step := range map[string]func(l *lab, cell *Entry){
		"asked for": func(*lab, *Entry) {},
		"granted": func(l *lab, cell *Entry) {
			l.now += long
			l.reply(cell, Outcome{})
		},
		"re-entered or extended": func(l *lab, cell *Entry) {
			l.reply(cell, Outcome{})
			l.now += long
			cell.leaseRaised(cell.hold.ID, l.now.Add(l.cfg.Lease))
		},
		"lost, and extended": func(l *lab, cell *Entry) {
			l.reply(cell, Outcome{})
			id := cell.hold.ID
			l.does(func(rd *Ready) { cell.lose(cell.hold, NotRenewed, rd) })
			l.now += long
			cell.leaseRaised(id, l.now.Add(l.cfg.Lease))
		},
		"renewed": func(l *lab, cell *Entry) {
			l.reply(cell, Outcome{})
			for range 200 { // a lease has three
				l.now = l.now.Add(l.cfg.Lease / 2)
				l.does(func(rd *Ready) {
					cell.hold.Grant.Renewal(l.now, rd)
					cell.hold.Grant.Renewed(l.now, l.now, l.cfg.Lease, 0, rd)
				})
			}
		},
	} {
		for _, before := range []bool{false, true} {
			l, writers, writer, cell, _ := besideLab(t, false)
			if before {
				writers.compensateGrant(&writer.Hold, l.now)
				step(l, cell)
			} else {
				step(l, cell)
				writers.compensateGrant(&writer.Hold, l.now-long) // its own lease was over long ago
			}
			if until := writers.compensations.until; until < l.now.Add(l.cfg.Lease) {
				t.Errorf("%s, lost before %v: it stands %v less than the reader", name, before, l.now.Add(l.cfg.Lease).Sub(until))
			}
		}
	}
}
