package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// A readersLab is a name that is read: its writers, and the entries of those who read.
type readersLab struct {
	*lab
	writers *Entry
}

func newReadersLab(t *testing.T) *readersLab {
	l := &readersLab{lab: newHandOverLab(t)}
	l.writers = l.name()
	return l
}

// common is what the readers share.
func (l *readersLab) common() *Readers {
	if s := l.readers(&Entry{Name: "x"}); s != nil {
		return s
	}
	return new(Readers)
}

// come has a reader ask as the engine does, with what change makes of it.
func (l *readersLab) come(change ...func(a *Request)) *caller {
	l.t.Helper()
	c := new(caller)
	c.Init(c)
	c.Kind = reading
	for _, f := range change {
		f(&c.Request)
	}
	r := l.common().For(&c.Request)
	if r == nil {
		r = l.cell()
	}
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
	return c
}

func once(a *Request) { a.Persists = UntilAnswered }

// granted has a reader come and be granted the lock.
func (l *readersLab) granted(change ...func(a *Request)) *caller {
	l.t.Helper()
	c := l.come(change...)
	l.is(c.res, Acquiring)
	l.reply(c.res, Outcome{})
	if c.hold == nil {
		l.t.Fatal(c.err)
	}
	return c
}

// joined has a reader come who joins at once.
func (l *readersLab) joined(of *caller, change ...func(a *Request)) *caller {
	l.t.Helper()
	c := l.come(change...)
	if l.has(c, of); c.Attempts != 0 {
		l.t.Fatal("it has asked the server")
	}
	return c
}

// has fails the test unless c has a hold of the grant of another.
func (l *readersLab) has(c, other *caller) {
	l.t.Helper()
	if c.hold == nil || c.hold.Grant != other.hold.Grant {
		l.t.Fatalf("%+v, %v", c.hold, c.err)
	}
}

// waits fails the test if c has a verdict.
func (l *readersLab) waits(c *caller) {
	l.t.Helper()
	if c.settled != 0 {
		l.t.Fatalf("it has %+v, %v", c.hold, c.err)
	}
}

// holders is how many holds the grant has.
func (t *Grant) holders() (n int) {
	t.Each(func(*Hold) { n++ })
	return n
}

// bellOf is the alarm of an entry.

func TestReaders_AreOneOwner_ReleasedByTheLast(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.come()
	b := l.come() // while the try of the first is out
	if b.res != a.res {
		t.Fatal("it does not wait with the first")
	}
	l.reply(a.res, Outcome{})
	l.has(b, a)
	c, d := l.joined(a), l.joined(a, once)
	grant := a.hold.Entry
	for _, leaves := range []*caller{a, c, d} {
		u := l.unlock(leaves.hold)
		if u.delivered != 1 || u.Err != nil || leaves.hold.Ending() != lockerr.ErrReleased || !leaves.hold.finished() || !leaves.hold.notified {
			t.Fatalf("one of several: %+v, %+v", u, leaves.hold)
		}
		l.is(grant, NoCommand)
		if !b.hold.IsLive() || b.hold.Until() <= l.now || grant.hold == nil {
			t.Fatalf("the others have %+v", b.hold)
		}
	}
	if l.Count.Held != 1 || l.Count.Released != 3 || l.Count.Acquired != 4 || l.Count.HandedOver != 3 {
		t.Errorf("%+v", l.Count)
	}
	u := l.unlock(b.hold)
	l.is(grant, Releasing)
	if u.delivered != 0 || grant.Cmd.ID != a.hold.ID {
		t.Fatalf("the last one: %+v", u)
	}
	l.reply(grant, Outcome{})
	if u.delivered != 1 || u.Err != nil || b.hold.renewed || !grant.Detached || l.common().grant != nil {
		t.Errorf("%+v, %+v", u, grant.View())
	}
	if u := l.unlock(a.hold); !errors.Is(u.Err, lockerr.ErrNotHeld) {
		t.Errorf("a second Unlock: %v", u.Err)
	}
}

// The renewals are those of the grant, whoever of them has left.
func TestReaders_OneRenewalIsForAll(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.granted()
	b, c := l.joined(a), l.joined(a)
	l.unlock(a.hold)
	l.now = l.now.Add(10 * time.Second)
	var rd Ready
	if lease, ok := a.hold.Grant.Renewal(l.now, &rd); !ok || lease != l.cfg.Lease {
		t.Fatal(lease, ok)
	}
	if !a.hold.Grant.Renewed(l.now, l.now, l.cfg.Lease, 0, &rd) {
		t.Fatal("it is not renewed")
	}
	n := a.hold.holders()
	if n != 2 || b.hold.Until() != c.hold.Until() || b.hold.Until() < l.now.Add(20*time.Second) || l.Count.Renewed != 1 {
		t.Errorf("%d holds, until %v and %v", n, b.hold.Until(), c.hold.Until())
	}
}

// Who comes when the release has begun has an owner of its own, though it may be sent later.
func TestReaders_WhoComesAfterTheLastUnlock_DoesNotJoin(t *testing.T) {
	t.Parallel()
	for _, sent := range []bool{true, false} {
		l := newReadersLab(t)
		a := l.granted()
		grant := a.hold.Entry
		if !sent {
			grant.blocked = Disconnected
		}
		l.unlock(a.hold)
		b, c := l.come(), l.come(once)
		if sent {
			l.is(grant, Releasing)
		}
		l.is(b.res, Acquiring)
		l.is(c.res, Acquiring)
		if b.res == grant || c.res == grant || b.res == c.res {
			t.Fatal("it asks in the place of the one that is released")
		}
		l.reply(b.res, Outcome{})
		l.reply(c.res, Outcome{})
		if b.hold.ID == a.hold.ID || b.hold.ID == c.hold.ID {
			t.Errorf("owners %d, %d and %d", a.hold.ID, b.hold.ID, c.hold.ID)
		}
		l.joined(b)
	}
}

// One loss ends them all, with their contexts, before anything is sent.
func TestReaders_ALossIsThatOfAll(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(l *readersLab, h *tenant, rd *Ready){
		"gone":         func(_ *readersLab, h *tenant, rd *Ready) { h.Grant.Gone(RemovedOnServer, rd) },
		"its time":     func(l *readersLab, h *tenant, rd *Ready) { l.now = l.now.Add(time.Hour); h.Check(l.now, rd) },
		"another's":    func(l *readersLab, h *tenant, rd *Ready) { l.now = l.now.Add(time.Hour); h.Grant.Renewal(l.now, rd) },
		"at the close": func(_ *readersLab, h *tenant, rd *Ready) { h.Entry.EndHold(rd) },
		"all is over":  func(_ *readersLab, h *tenant, rd *Ready) { h.Entry.Drop(rd) },
	} {
		l := newReadersLab(t)
		a := l.granted()
		b, c := l.joined(a), l.joined(a)
		l.unlock(a.hold)
		ctx := new(notified)
		b.hold.Bind(ctx)
		var rd Ready
		lose(l, c.hold, &rd)
		l.settle()
		grant := a.hold.Entry
		for _, h := range []*tenant{b.hold, c.hold} {
			if h.IsLive() || h.ended != 1 || h.why == 0 || h.Until() > l.now || !h.finished() || h.renewed {
				t.Errorf("%s: %+v", what, h)
			}
		}
		if rd.Ended != &b.hold.Hold || rd.Send != nil || grant.Cmd.Action != NoCommand || l.Count.Held != 0 {
			t.Fatalf("%s: a context is alive, and %+v is sent", what, grant.View())
		}
		l.does(func(rd *Ready) { grant.ContextsEnded(&b.hold.Hold, rd) })
		if !b.hold.notified || !c.hold.notified {
			t.Errorf("%s: nobody is told", what)
		}
		if pending := what == "its time" || what == "another's" || what == "at the close"; pending != (grant.Cmd.Action == Compensating) {
			t.Errorf("%s: is sent %+v", what, grant.View())
		}
		if d := l.come(); d.hold != nil {
			t.Errorf("%s: what was lost is joined", what)
		}
	}
}

// notified is a context of a test.
type notified struct{ why error }

func (c *notified) End(why error) { c.why = why }

// After its turn a grant is joined by nobody for a moment. If it is released by then, others have a
// chance; if it is not, a new turn begins.
func TestReaders_AfterTheTurn_WaitForTheRelease(t *testing.T) {
	t.Parallel()
	for _, released := range []bool{true, false} {
		l := newReadersLab(t)
		a := l.granted()
		l.joined(a)
		l.now = l.now.Add(l.cfg.HandOverFor)
		b, c := l.come(), l.come()
		l.waits(b)
		l.waits(c)
		l.joined(a, once) // it does not wait
		q := b.res
		if c.res != q || q.Cmd.Action != NoCommand || bellOf(q.sub).at != l.now.Add(releaseFor) || bellOf(q.sub).listening {
			t.Fatalf("%+v, until %v", q.View(), bellOf(q.sub).at)
		}
		if err := b.Blocking(true); !errors.Is(err, lockerr.ErrHeld) {
			t.Errorf("in its way is %v", err)
		}
		if !released {
			l.now = l.now.Add(releaseFor)
			l.does(func(rd *Ready) { q.sub.AlarmFired(rd) })
			l.has(b, a)
			l.has(c, a)
			if l.joined(a); !q.Detached {
				t.Errorf("its place is left: %+v", q.View())
			}
			continue
		}
		for h := a.hold.Entry.hold; h != nil; h = a.hold.Entry.hold {
			l.unlock(h.Handle.(*tenant))
			if h.Entry.Cmd.Action == Releasing {
				break
			}
		}
		began := l.now
		l.now = l.now.Add(time.Millisecond)
		l.reply(a.hold.Entry, Outcome{Sent: began})
		if want := l.now.Add(time.Millisecond + serial.YieldFor); bellOf(q.sub).at != want || q.Cmd.Action != NoCommand {
			t.Fatalf("it skips no turn: %v, want %v; %+v", bellOf(q.sub).at, want, q.View())
		}
		l.does(func(rd *Ready) { q.sub.AlarmFired(rd) })
		l.is(q, Acquiring)
		l.reply(q, Outcome{})
		if b.hold == nil || c.hold == nil || b.hold.Grant != c.hold.Grant || b.hold.ID == a.hold.ID {
			t.Errorf("%+v, %+v", b.hold, c.hold)
		}
	}
}

// A reader that comes as a writer of its process waits does not join, or the writer would wait for
// ever. A TryLock asks nobody whose turn it is.
func TestReaders_WhoComesAsAWriterWaits_IsBehindIt(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.granted()
	w := l.ask(l.writers, false)
	l.reply(l.writers, Outcome{Reply: HeldByOther, TTL: time.Hour})
	b, c := l.come(), l.come()
	l.waits(b)
	if l.joined(a, once); b.res.Blocked() != BehindWriter || c.res != b.res || b.res == a.res {
		t.Fatalf("%+v", b.res.View())
	}
	for range 2 {
		h := a.hold.Entry.hold
		l.unlock(h.Handle.(*tenant))
	}
	l.is(a.hold.Entry, Releasing) // what is behind the writer does not keep it
	l.reply(a.hold.Entry, Outcome{})
	l.does(func(rd *Ready) { l.writers.sub.OnMessage(rd) })
	l.reply(l.writers, Outcome{})
	if w.hold == nil {
		t.Fatal(w.err)
	}
	l.unlock(w.hold)
	var rd Ready
	l.writers.Replied(&Outcome{Sent: l.now, Now: l.now}, &rd)
	if rd.AdvanceReaders != l.writers {
		t.Fatal("they do not come next")
	}
	l.does(func(rd *Ready) { b.res.AdvanceReader(nil, rd) })
	l.reply(b.res, Outcome{})
	l.has(c, b)
}

// Those that wait because of another process are not behind a writer of their own that came later, and
// who comes after that does not wait with them.
func TestReaders_WhoComesAfterAWriter_DoesNotWaitWithThoseBefore(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.come()
	l.reply(a.res, Outcome{Reply: HeldByOther, TTL: time.Hour})
	l.ask(l.writers, false)
	l.reply(l.writers, Outcome{Reply: HeldByOther, TTL: time.Hour})
	b := l.come()
	if b.res == a.res || a.res.Blocked() != NotBlocked || b.res.Blocked() != BehindWriter {
		t.Fatalf("before %+v, after %+v", a.res.View(), b.res.View())
	}
	l.does(func(rd *Ready) { a.res.sub.OnMessage(rd) })
	l.reply(a.res, Outcome{})
	if a.hold == nil {
		t.Fatal(a.err)
	}
	l.waits(b)
}

// A reader beside a writer has an owner of its own, and is joined from the moment the writer is released.
func TestReaders_OneBesideAWriter_IsJoinedWhenThatIsReleased(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	stale := l.granted() // somebody removed it, and nobody here knows
	w := l.ask(l.writers, false)
	l.reply(l.writers, Outcome{})
	behind := l.come()
	r := l.granted(func(a *Request) { a.More().Writer = &w.hold.Hold })
	l.waits(behind)
	l.unlock(w.hold)
	l.is(l.writers, Releasing)
	early := l.come()
	try := l.come(once)
	l.waits(early)
	l.is(try.res, Acquiring) // the answer is not there yet
	var rd Ready
	l.writers.Replied(&Outcome{Sent: l.now, Now: l.now}, &rd)
	l.does(func(rd *Ready) { behind.res.AdvanceReader(nil, rd) })
	l.has(behind, r)
	l.has(early, r)
	l.joined(r)
	if stale.hold.Grant == r.hold.Grant {
		t.Error("they joined what was removed")
	}
}

// What was removed, as a writer of the process has the lock by now, is joined by nobody.
func TestReaders_WhatAWriterOfTheProcessExcludes_IsNotJoined(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	stale := l.granted()
	w := l.ask(l.writers, false)
	l.reply(l.writers, Outcome{})
	l.unlock(w.hold)
	l.reply(l.writers, Outcome{})
	if a := l.come(); a.hold != nil || !stale.hold.IsLive() {
		t.Errorf("%+v", a.hold)
	}
}

func TestReaders_WhoHaveAGrantOfTheirOwn(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(l *readersLab, a *Request){
		"one with a Lease":   func(_ *readersLab, a *Request) { a.Lease = time.Minute },
		"one with a MaxHold": func(_ *readersLab, a *Request) { a.More().MaxHold = time.Minute },
		"one of a RedLock":   func(_ *readersLab, a *Request) { a.More().Quorum = true },
		"one with replicas":  func(_ *readersLab, a *Request) { a.Acks = 1 },
		"replicas for all":   func(l *readersLab, _ *Request) { l.cfg.Replicas = 1 },
		"without HandOver":   func(l *readersLab, _ *Request) { l.cfg.HandOverFor = -1 },
	} {
		for _, try := range []bool{false, true} {
			l := newReadersLab(t)
			a := l.granted()
			b := l.come(func(a *Request) {
				if try {
					once(a)
				}
				change(l, a)
			})
			l.is(b.res, Acquiring)
			if b.res == a.hold.Entry {
				t.Errorf("%s has no place of its own", what)
			}
			l.reply(b.res, Outcome{Acked: 1})
			if b.hold == nil || b.hold.ID == a.hold.ID || b.hold.joint {
				t.Errorf("%s: %+v", what, b.hold)
			}
		}
	}
}

// The server counts one owner. What a reader re-enters is counted here, one at a time, and its lease ends here.
func TestReaders_Reentry_AsksNoServer(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.granted()
	b := l.joined(a)
	grant := a.hold.Entry
	c, d := l.under(b.hold), l.under(b.hold)
	if c.hold == nil || c.hold.Parent != &b.hold.Hold || c.hold.ID != a.hold.ID || d.hold != nil {
		t.Fatalf("%+v, %+v", c.hold, d.hold)
	}
	if try := l.under(b.hold, once); !errors.Is(try.err, lockerr.ErrHeld) {
		t.Errorf("beside another: %v", try.err)
	}
	if other := l.under(a.hold); other.hold == nil {
		t.Error("it is in the way of that of another reader")
	}
	c.hold.Bind(new(notified))
	var rd Ready
	u := new(leaver)
	u.Handle = u
	c.hold.Unlock(&u.Unlock, &rd)
	l.settle()
	tell(&rd)
	if rd.Ended != &c.hold.Hold || u.delivered != 0 || d.hold != nil {
		t.Fatalf("its contexts are alive: %+v", u)
	}
	l.does(func(rd *Ready) { grant.ContextsEnded(&c.hold.Hold, rd) })
	if u.delivered != 1 || d.hold == nil {
		t.Fatalf("%+v, %v", u, d.err)
	}
	l.unlock(d.hold)

	e, f := l.under(b.hold, func(a *Request) { a.Lease = 4 * time.Second }), l.under(b.hold)
	x := new(Extend)
	x.Handle, x.Lease = settler{}, 8*time.Second
	l.does(func(rd *Ready) { e.hold.Extend(x, rd) })
	if x.state != settled || x.Err != nil || e.hold.Until() < l.now.Add(6*time.Second) || e.hold.alarm != e.hold.Until() {
		t.Errorf("%+v, until %v", x, e.hold.Until())
	}
	l.now = l.now.Add(9 * time.Second)
	l.does(func(rd *Ready) { e.hold.Fired(l.now, rd) })
	if e.hold.why != LeaseEnded || f.hold == nil || !b.hold.IsLive() {
		t.Errorf("%+v, and the next one %+v", e.hold, f.hold)
	}
	if bad := l.under(a.hold, func(a *Request) { a.Lease, a.Acks = time.Second, 1 }); !errors.Is(bad.err, lockerr.ErrInvalid) {
		t.Errorf("with replicas: %v", bad.err)
	}
	if l.unlock(b.hold); !errors.Is(f.hold.Ending(), lockerr.ErrReleased) {
		t.Errorf("it outlasts what it re-enters: %v", f.hold.Ending())
	}
	l.is(grant, NoCommand)
	if l.Count.Held != 2 {
		t.Errorf("%+v", l.Count)
	}
}

// under has somebody re-enter a reader.
func (l *readersLab) under(h *tenant, change ...func(a *Request)) *caller {
	c := new(caller)
	c.Init(c)
	c.Kind, c.Parent = reading, &h.Hold
	for _, f := range change {
		f(&c.Request)
	}
	l.does(func(rd *Ready) { h.Entry.Admit(&c.Request, rd) })
	return c
}

// A re-entry whose lease is over has ended, even if its timer is late: the next one re-enters what is outside
// of it, once its contexts have ended. What ends with it meanwhile is counted once.
func TestReaders_ReentryWhoseLeaseIsOver_IsNotReentered(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.granted()
	b := l.joined(a)
	grant := a.hold.Entry
	short := l.under(b.hold, func(a *Request) { a.Lease = time.Second })
	short.hold.Bind(new(notified))
	l.now = l.now.Add(2 * time.Second)
	var rd Ready
	next := new(caller)
	next.Init(next)
	next.Kind, next.Parent = reading, &short.hold.Hold
	grant.Admit(&next.Request, &rd)
	l.settle()
	tell(&rd)
	if short.hold.why != LeaseEnded || rd.Ended != &short.hold.Hold {
		t.Fatalf("%+v", short.hold)
	}
	l.waits(next)
	l.does(func(rd *Ready) { grant.ContextsEnded(&short.hold.Hold, rd) })
	if next.hold == nil || next.hold.Parent != &b.hold.Hold {
		t.Fatalf("%+v, %v", next.hold, next.err)
	}
	l.unlock(next.hold)

	short = l.under(b.hold, func(a *Request) { a.Lease = time.Second })
	short.hold.Bind(new(notified))
	l.now = l.now.Add(2 * time.Second)
	l.does(func(rd *Ready) { short.hold.Fired(l.now, rd) })
	before := l.Count.Released
	u := l.unlock(b.hold)
	if u.delivered != 0 {
		t.Error("a context is alive")
	}
	l.does(func(rd *Ready) { grant.ContextsEnded(&short.hold.Hold, rd) })
	if u.delivered != 1 || l.Count.Released != before+1 {
		t.Errorf("%d were released", l.Count.Released-before)
	}
}

// A place where nobody waits any more is nobody's.
func TestReaders_WhoGivesUp_LeavesNoPlaceToWait(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.granted()
	l.now = l.now.Add(l.cfg.HandOverFor)
	b := l.come()
	l.does(func(rd *Ready) { b.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}, rd) })
	if !b.res.Detached || l.common().queue != nil || l.common().grant != a.hold.Entry {
		t.Errorf("%+v", b.res.View())
	}
}

type settler struct{}

func (settler) OnResult() {}

// Nobody is left waiting when the name is given up.
func TestReaders_StopWaiting_EndsAllThatWaits(t *testing.T) {
	t.Parallel()
	l := newReadersLab(t)
	a := l.granted()
	b := l.joined(a)
	inner := []*caller{l.under(b.hold), l.under(b.hold)}
	l.does(func(rd *Ready) { a.hold.Entry.StopWaiting(rd) })
	if inner[0].hold == nil || !errors.Is(inner[1].err, lockerr.ErrClosed) {
		t.Errorf("%v, %v", inner[0].err, inner[1].err)
	}
	l.does(func(rd *Ready) { a.hold.Entry.EndHold(rd) })
	if b.hold.IsLive() || inner[0].hold.IsLive() || l.Count.Held != 0 {
		t.Errorf("%+v", l.Count)
	}
}

// A TryLock gets the lock while the attempt of those that wait is paused, out, or has no connection. They join.
func TestReaders_WhatATryLockGets_IsJoinedByAllThatWait(t *testing.T) {
	t.Parallel()
	for what, befalls := range map[string]func(l *readersLab, r *Entry){
		"refused, asleep": func(l *readersLab, r *Entry) { l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Hour}) },
		"paused":          func(l *readersLab, r *Entry) { l.reply(r, Outcome{Result: RetryLater}) },
		"in doubt":        func(l *readersLab, r *Entry) { l.reply(r, Outcome{Result: Unknown}) },
		"stalled":         func(l *readersLab, r *Entry) { l.reply(r, Outcome{Result: NotSent}) },
		"out":             func(*readersLab, *Entry) {},
	} {
		l := newReadersLab(t)
		a, b := l.come(), l.come()
		q := a.res
		befalls(l, q)
		try := l.granted(once)
		if a.hold == nil || b.hold == nil {
			t.Errorf("%s: they wait: %+v", what, q.View())
			continue
		}
		l.has(a, try)
		l.has(b, try)
		if l.joined(try); l.common().queue != nil {
			t.Errorf("%s: a place where nobody waits", what)
		}
		switch what {
		case "out":
			l.reply(q, Outcome{})
			l.is(q, Compensating)
			l.reply(q, Outcome{})
		case "paused":
			l.does(func(rd *Ready) { q.PauseOver(rd) })
		case "in doubt":
			continue // it has an owner to give back
		}
		if !q.Detached {
			t.Errorf("%s: it is left: %+v", what, q.View())
		}
	}
}
