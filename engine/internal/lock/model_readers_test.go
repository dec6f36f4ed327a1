package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// A: a reader joins a grant that is not joint: released under it. TWO HOLDERS.
//
//	A's grant                              a: Lock(WithoutCancel(A's ctx), Lease)     b: Lock
//	its time is over, no timer has run
//	                                       Admit: A is lost; a waits in A's entry
//	                                       granted: a fixed lease, s.grant is this entry still
//	                                                                                  joins a's owner
//	                                       Unlock: release is sent                    live
func TestReaders_JoinsAFixedLease(t *testing.T) {
	l := newReadersLab(t)
	a := l.granted()
	l.now = l.now.Add(time.Hour) // a suspend
	x := l.under(a.hold, func(a *Request) { a.Lease = 10 * time.Second })
	r := x.res
	for r.Cmd.Action == Compensating {
		l.reply(r, Outcome{})
	}
	if r.Cmd.Action == Acquiring {
		l.reply(r, Outcome{BatchAnswers: 1})
	}
	if x.hold == nil {
		t.Fatalf("%+v %v", r.View(), x.err)
	}
	b := l.come()
	if b.res.Cmd.Action == Acquiring {
		return // right: asks on its own
	}
	if b.hold == nil { // it sleeps for 10 ms, as after a turn
		l.now = l.now.Add(releaseFor)
		l.does(func(rd *Ready) { b.res.sub.AlarmFired(rd) })
	}
	if b.hold == nil {
		return
	}
	t.Errorf("a plain reader joins a fixed lease: joint %v, watchdog %v", b.hold.joint, b.hold.watchdog)
	l.unlock(x.hold)
	if x.hold.Entry.Cmd.Action == Releasing && b.hold.IsLive() {
		t.Errorf("TWO HOLDERS: release of owner %d is sent while a reader of that owner is live", x.hold.Entry.Cmd.ID)
		l.reply(r, Outcome{})
		t.Errorf("after the release: live %v, valid for %v, Held %d, resource out %v, hold %v", b.hold.IsLive(), b.hold.Until().Sub(l.now), l.Count.Held, r.Detached, r.hold != nil)
	}
}

// B: the queue points to an entry that has gone; the next reader is admitted to another name.
func TestReaders_QueueDangles(t *testing.T) {
	l := newReadersLab(t)
	a := l.granted()
	own := l.granted(func(a *Request) { a.Lease = 2 * time.Hour }) // keeps the crowd
	_ = own
	l.now = l.now.Add(time.Hour)
	x := l.under(a.hold)
	r := x.res
	l.does(func(rd *Ready) { x.Cancel(lockerr.Cancel{Cause: errors.New("its context, which A's hold ended")}, rd) })
	for r.Cmd.Action != NoCommand {
		l.reply(r, Outcome{BatchAnswers: 1})
	}
	if !r.Detached {
		t.Fatalf("%+v", r.View())
	}
	if l.common().queue == r {
		t.Error("the queue of the name points to a resource that is out (and serves another name next)")
	}
	if r, _ = l.Get("another name", 0, 7, nil, false); r.member != 0 {
		t.Error("it reads")
	}
	b := l.come()
	if b.res == r {
		t.Errorf("a reader of x acquires %q", b.res.Name)
	}
}

// D: a reader that comes while the process holds the lock sleeps with those who wait for another process's message.
func TestReaders_SleepsThoughTheGrantIsOpen(t *testing.T) {
	l := newReadersLab(t)
	a := l.come()
	l.reply(a.res, Outcome{Reply: HeldByOther, TTL: time.Hour}) // a writer elsewhere
	l.does(func(rd *Ready) { a.res.sub.Subscribed(rd) })
	if a.res.Cmd.Action == Acquiring {
		l.reply(a.res, Outcome{Reply: HeldByOther, TTL: time.Hour})
	}
	try := l.come(once)
	var rd Ready // it has left, or was deleted
	try.res.Replied(&Outcome{Sent: l.now, Now: l.now}, &rd)
	l.settle()
	tell(&rd)
	if try.hold == nil {
		t.Fatal(try.err)
	}
	b := l.come()
	if b.hold == nil {
		t.Errorf("a reader that comes while the process reads sleeps until %v from now", bellOf(b.res.sub).at.Sub(l.now))
	}
	if a.hold == nil {
		t.Errorf("one that came before, too: %v", bellOf(a.res.sub).at.Sub(l.now))
	}
}

// E: a refused channel fails all who wait behind the writer.
func TestReaders_ForbiddenFailsOnlyTheFirst(t *testing.T) {
	l := newReadersLab(t)
	w := l.ask(l.writers, false)
	l.reply(l.writers, Outcome{})
	if w.hold == nil {
		t.Fatal(w.err)
	}
	a, b, c := l.come(), l.come(), l.come()
	var rd Ready
	l.writers.sub.ChannelRefused("ch", errors.New("NOPERM"), &rd)
	l.settle()
	tell(&rd)
	if rd.AdvanceReaders == nil {
		t.Fatal("no forward")
	}
	l.does(func(fx2 *Ready) { a.res.AdvanceReader(rd.Err, fx2) })
	l.does(func(fx2 *Ready) { l.writers.AdvanceWriter(fx2) })
	if a.err == nil || b.err == nil || c.err == nil {
		t.Errorf("%v | %v | %v; %+v", a.err, b.err, c.err, b.res.View())
	}
}

// G: more than 65,535 joins.
func TestReaders_ManyJoins(t *testing.T) {
	l := newReadersLab(t)
	a := l.granted()
	all := []*caller{a}
	for range 70000 {
		all = append(all, l.joined(a))
	}
	for i, c := range all {
		l.unlock(c.hold)
		if last := i == len(all)-1; last != (a.hold.Entry.Cmd.Action == Releasing) {
			t.Fatal(i)
		}
	}
	if l.Count.Held != 0 || a.hold.handOvers != 65535 {
		t.Error(l.Count, a.hold.handOvers)
	}
}

// H: the Unlock of the last hold after A never ends.
func TestReaders_UnlockHangsAfterAJoinOfAFixedLease(t *testing.T) {
	l := newReadersLab(t)
	a := l.granted()
	l.now = l.now.Add(time.Hour)
	x := l.under(a.hold, func(a *Request) { a.Lease = 10 * time.Second })
	r := x.res
	for r.Cmd.Action == Compensating {
		l.reply(r, Outcome{})
	}
	if r.Cmd.Action == Acquiring {
		l.reply(r, Outcome{BatchAnswers: 1})
	}
	b := l.come(once)
	if b.hold == nil {
		return
	}
	l.unlock(x.hold)
	l.reply(r, Outcome{})
	u := l.unlock(b.hold)
	if u.delivered == 0 && r.Cmd.Action == NoCommand {
		t.Errorf("Unlock of b waits, and nothing is sent: %+v", r.View())
	}
}

// I: a writer of this process that was waiting is told when the last reader leaves, by its own message or by a refused one.
func TestReaders_AReleaseThatIsMuteWakesTheWriter(t *testing.T) {
	l := newReadersLab(t)
	a := l.granted()
	b := l.joined(a)
	l.ask(l.writers, false)
	l.reply(l.writers, Outcome{Reply: HeldByOther, TTL: time.Hour})
	l.unlock(b.hold)
	l.unlock(a.hold)
	var rd Ready
	a.hold.Entry.Replied(&Outcome{Reply: NotPublished, Sent: l.now, Now: l.now}, &rd)
	if rd.Wake != l.writers {
		t.Error("nobody wakes it")
	}
}

// Two who hold, in any order, and any who come and go: the server's owner is there until the last has gone.
func TestReaders_InAnyOrder_TheLastReleases(t *testing.T) {
	t.Parallel()
	for seed := range 200 {
		l := newReadersLab(t)
		a := l.granted()
		have := []*caller{a}
		for step := 0; len(have) > 0; step++ {
			if (seed>>(step%8))&1 == 0 && step < 12 {
				have = append(have, l.joined(a))
				continue
			}
			i := (seed*7 + step*5) % len(have)
			u := l.unlock(have[i].hold)
			have = append(have[:i], have[i+1:]...)
			if last := len(have) == 0; last != (a.hold.Entry.Cmd.Action == Releasing) || last == (u.delivered == 1) || a.hold.holders() != max(len(have), 1) {
				t.Fatalf("seed %d, step %d: %d are left, %+v", seed, step, len(have), a.hold.Entry.View())
			}
			for _, c := range have {
				if !c.hold.IsLive() {
					t.Fatalf("seed %d, step %d: one has ended", seed, step)
				}
			}
		}
	}
}
