package lock

import (
	"errors"
	"testing"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// unlockBound unlocks a hold whose context is alive until the test calls the function that it returns.
func (l *readersLab) unlockBound(h *tenant) (u *leaver, contextsEnd func()) {
	l.t.Helper()
	h.Bind(new(notified))
	var rd Ready
	u = new(leaver)
	u.Handle = u
	h.Unlock(&u.Unlock, &rd)
	l.settle()
	tell(&rd)
	if rd.Ended != &h.Hold {
		l.t.Fatal("it has no context")
	}
	return u, func() { l.does(func(rd *Ready) { h.Entry.ContextsEnded(&h.Hold, rd) }) }
}

// While a context of one that has left is alive, its Unlock waits, and the last one is not released.
func TestReaders_TheContextsOfOne_KeepTheReleaseBack(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.granted()
	b := l.joined(a)
	left, end := l.unlockBound(a.hold)
	if l.joined(b); left.delivered != 0 || a.hold.notified || b.hold.Entry.hold != &b.hold.Hold {
		t.Fatalf("%+v, %+v", left, a.hold)
	}
	l.unlock(b.hold.Entry.hold.Handle.(*tenant))
	last := l.unlock(b.hold.Entry.hold.Handle.(*tenant))
	if l.is(a.hold.Entry, NoCommand); last.delivered != 0 {
		t.Fatal("a context is alive")
	}
	if end(); left.delivered != 1 || left.Err != nil || !a.hold.notified || a.hold.Entry.hold == nil {
		t.Fatalf("it does not go on: %+v", left)
	}
	l.is(a.hold.Entry, Releasing)
}

// The grant is lost while a context of one that has left is alive: that one was released.
func TestReaders_GrantIsLostAfterOneHasLeft_WhichIsReleased(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.granted()
	b := l.joined(a)
	left, end := l.unlockBound(a.hold)
	l.does(func(rd *Ready) { b.hold.Grant.Gone(RemovedOnServer, rd) })
	if left.delivered != 0 || b.hold.IsLive() || a.hold.ended != 1 {
		t.Fatalf("%+v, %+v", left, b.hold)
	}
	if end(); left.delivered != 1 || left.Err != nil || a.hold.renewed || !a.hold.Entry.Detached || l.Count.Released != 1 {
		t.Errorf("%+v, %+v", left, l.Count)
	}
}

// The contexts of one reader keep the release back, and nothing else of another reader.
func TestReaders_TheContextsOfOne_AreNotThoseOfAnother(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.granted()
	b := l.joined(a)
	inner, next := l.under(b.hold), l.under(b.hold)
	_, end := l.unlockBound(a.hold)
	if u := l.unlock(inner.hold); u.delivered != 1 || u.Err != nil || !inner.hold.notified {
		t.Errorf("the Unlock of a re-entry waits: %+v", u)
	}
	if next.hold == nil {
		t.Fatal("the next re-entry waits")
	}
	if l.unlock(b.hold); !b.hold.notified || !next.hold.notified || a.hold.notified {
		t.Errorf("Done is closed: %v, %v and %v", b.hold.notified, next.hold.notified, a.hold.notified)
	}
	l.is(a.hold.Entry, NoCommand)
	end()
	if l.is(a.hold.Entry, Releasing); !a.hold.notified {
		t.Error("nobody is told")
	}
}

// Done of a hold waits for the contexts of a re-entry that ended before it.
func TestReaders_DoneWaitsForTheContextsOfAReentry(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.granted()
	b := l.joined(a)
	inner := l.under(b.hold)
	u, end := l.unlockBound(inner.hold)
	if l.unlock(b.hold); b.hold.notified || inner.hold.notified {
		t.Error("a context is alive")
	}
	if end(); !b.hold.notified || !inner.hold.notified || u.delivered != 1 || u.Err != nil {
		t.Errorf("%v, %v, %+v", b.hold.notified, inner.hold.notified, u)
	}
}

// TryLocks that wait until the contexts of a re-entry have ended: the first one re-enters, the others are
// refused then, under whichever of the readers.
func TestReaders_TryLocksThatReenter_HaveTheirAnswersTogether(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	first := l.granted()
	second := l.joined(first)
	for _, h := range []*tenant{first.hold, second.hold} {
		inner := l.under(h)
		_, end := l.unlockBound(inner.hold)
		a, b := l.under(h, once), l.under(h, once)
		l.waits(a)
		l.waits(b)
		end()
		if a.hold == nil || a.hold.Parent != &h.Hold {
			t.Errorf("%+v, %v", a.hold, a.err)
		}
		if !errors.Is(b.err, lockerr.ErrHeld) || b.settled != 1 {
			t.Errorf("the second one has %+v, %v", b.hold, b.err)
		}
	}
}
