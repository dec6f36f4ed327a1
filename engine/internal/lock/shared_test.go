package lock

import (
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// wantPermits has somebody ask for so many permits, by Acquire or TryAcquire.
func (l *lab) wantPermits(r *Entry, n uint8, once bool) *caller {
	l.t.Helper()
	c := new(caller)
	c.Init(c)
	c.Kind, c.Permits = permits, n-1
	c.once(once)
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
	return c
}

// Those who wait share an entry, and a grant leaves it: the next one tries at once.
func TestAPermitIsInNobodysWay(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.ids = 0x1234
	r := l.name()
	callers := []*caller{l.wantPermits(r, 1, false), l.wantPermits(r, 3, false), l.wantPermits(r, 1, true)}
	var owners []int64
	for range callers {
		l.is(r, Acquiring)
		owners = append(owners, r.Cmd.ID)
		l.reply(r, Outcome{})
	}
	for i, c := range callers {
		if c.hold == nil || c.hold.Entry == r || c.hold.Entry.hold != &c.hold.Hold || !c.hold.renewed {
			t.Fatalf("caller %d: %+v", i, c)
		}
	}
	if got := []byte{byte(owners[0]), byte(owners[1]), byte(owners[2])}; !slices.Contains(got, 2) || got[0]+got[1]+got[2] != 2 {
		t.Errorf("owners %x", owners)
	}
	if l.gone != 1 {
		t.Errorf("nobody waits, and %d are gone", l.gone)
	}
	// Each is released by itself.
	for _, c := range callers {
		u := new(leaver)
		u.Handle = u
		sent := l.does(func(rd *Ready) { c.hold.Unlock(&u.Unlock, rd) })
		if sent != c.hold.Entry || sent.Cmd.Action != Releasing || sent.Cmd.ID != c.hold.ID {
			t.Fatalf("%+v", sent)
		}
		l.reply(sent, Outcome{})
		if u.delivered != 1 || u.Err != nil || !sent.Detached {
			t.Errorf("%+v", u)
		}
	}
}

// Of a waiter that is told of no permit, the sleep is bounded, however long the leases are.
func TestAWaiterForPermitsLooksNowAndThen(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	l.wantPermits(r, 1, false)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Hour})
	w := bellOf(r.sub)
	if !w.listening {
		t.Fatal("it does not listen")
	}
	l.does(func(rd *Ready) { r.sub.Subscribed(rd) })
	l.is(r, Acquiring)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Hour})
	if d := w.at.Sub(l.now); d <= 0 || d > LongestSleepMissed {
		t.Errorf("it sleeps for %v", d)
	}
}

// One who wants many was refused, and gives up: the next one, who wants fewer, tries at once. What
// it waits for may be there already, and nobody would tell it.
func TestAfterOneWhoWantsManyTheNextTriesAtOnce(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		what        string
		first, next uint8
		out, tries  bool // the try of the first is out when it gives up
	}{
		{"it sleeps", 3, 1, false, true},
		{"its try is out", 3, 1, true, true},
		{"the next wants as many", 2, 2, false, false},
		{"the next wants as many, and a try is out", 2, 2, true, false},
		{"the next wants more", 1, 2, true, false},
	} {
		l := newLab(t)
		l.ids = 0x1234
		r := l.name()
		first, next := l.wantPermits(r, x.first, false), l.wantPermits(r, x.next, false)
		l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Hour})
		l.does(func(rd *Ready) { r.sub.Subscribed(rd) })
		refuse := func() { l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Hour}) }
		if !x.out {
			refuse()
		}
		l.does(func(rd *Ready) { first.Cancel(lockerr.Cancel{}, rd) })
		if x.out {
			refuse()
		}
		if tries := r.Cmd.Action == Acquiring; tries != x.tries {
			t.Errorf("%s: tries %v", x.what, tries)
			continue
		}
		if !x.tries {
			continue
		}
		if id := byte(r.Cmd.ID); id != x.next-1 {
			t.Errorf("%s: asks for %d permits", x.what, 1+int(id))
		}
		l.reply(r, Outcome{})
		if next.hold == nil {
			t.Errorf("%s: %+v", x.what, next)
		}
	}
}

// If one of several permits is gone, the others are given back. One alone is just gone.
func TestOfSeveralPermitsOneIsGone(t *testing.T) {
	t.Parallel()
	for _, n := range []uint8{1, 2} {
		l := newLab(t)
		r := l.name()
		c := l.wantPermits(r, n, false)
		l.reply(r, Outcome{})
		cell := c.hold.Entry
		l.does(func(rd *Ready) { c.hold.Gone(RemovedOnServer, rd) })
		if c.hold.why != RemovedOnServer {
			t.Errorf("%d permits: %v", n, c.hold.why)
		}
		if want := n > 1; (cell.Cmd.Action == Compensating) != want || cell.Detached == want {
			t.Errorf("%d permits: %+v", n, cell.Cmd)
		}
	}
}

// Permits in doubt are released one owner after the other: no script does it for several.
func TestPermitsInDoubtAreNotBatched(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	l.wantPermits(r, 1, false)
	first := r.Cmd.ID
	r.compensate(first+1<<8, permits, inDoubt, time.Minute, l.now)
	l.reply(r, Outcome{Result: Unknown})
	for range 2 {
		l.is(r, Compensating)
		if r.Cmd.Batched != 0 {
			t.Fatalf("%+v", r.Cmd)
		}
		l.reply(r, Outcome{Reply: NotOwner})
	}
	l.is(r, Acquiring)
	if r.Cmd.Batched != 0 {
		t.Fatalf("%+v", r.Cmd)
	}
}
