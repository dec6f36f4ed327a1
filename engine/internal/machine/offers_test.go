package machine

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// newReadersLab has a name with so many tenures of readers.
func newReadersLab(t *testing.T, n int) (l *lab, cells []*Resource, readers []*caller) {
	l = newHandOverLab(t)
	l.cfg.ManyReaders, l.offers.Readers = 3, n
	for i := range n {
		cells = append(cells, l.cell(i+1))
		readers = append(readers, l.ask(cells[i], false))
		l.reply(cells[i], Outcome{})
	}
	return l, cells, readers
}

// cell makes the Resource of one reader.
func (l *lab) cell(place int) *Resource {
	r := l.name()
	r.Place = int32(place)
	return r
}

// come has a reader ask as the engine does: for what is on offer, or with a Resource of its own.
func (l *lab) come(a *caller) *Resource {
	a.Init(a)
	r := l.offers.For(&a.Request)
	if r == nil {
		r = l.cell(99)
	}
	l.does(func(fx *Effects) { r.Admit(&a.Request, fx) })
	return r
}

// goOn goes on with what is due, and returns how many sent something.
func (l *lab) goOn() (n int) {
	for goes := true; goes; {
		if l.does(func(fx *Effects) { goes = l.offers.GoOn(fx) }) != nil {
			n++
		}
	}
	return n
}

func TestAReaderIsHandedTheTenureOfOneThatWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	l, cells, readers := newReadersLab(t, 3)
	first := l.unlock(readers[0].hold)
	l.is(cells[0], Unlocking)
	second, third := l.unlock(readers[1].hold), l.unlock(readers[2].hold)
	if cells[1].Held() != Offered || cells[2].Held() != Offered || second.Told {
		t.Fatalf("not on offer: %+v", cells[1].View())
	}
	var a caller
	if r := l.come(&a); r != cells[1] || a.hold == nil || a.hold.ID != readers[1].hold.ID || !second.Told || second.Err != nil {
		t.Fatalf("it was not handed over: %+v, %+v", r.View(), second.Unlock)
	}
	var fx Effects
	o := Outcome{Sent: l.now, Now: l.now}
	cells[0].Replied(&o, &fx)
	fx.Deliver()
	if !first.Told || fx.Offers != &l.offers || l.goOn() != 1 {
		t.Fatal("the answer does not go on with the others")
	}
	l.is(cells[2], Unlocking)
	if third.Told || l.count.HandedOver != 1 {
		t.Errorf("%+v", l.count)
	}
}

// A few would not leave the lock free for others any more, and of a short turn there would be
// more rest than turn.
func TestReadersThatHandNothingOver(t *testing.T) {
	t.Parallel()
	for _, many := range []int{2, 3} {
		l, cells, readers := newReadersLab(t, many)
		if many == 3 {
			l.cfg.HandOverFor = time.Microsecond
		}
		l.unlock(readers[0].hold)
		l.unlock(readers[1].hold)
		l.is(cells[0], Unlocking)
		l.is(cells[1], Unlocking)
	}
}

func TestWhoIsHandedNoTenure(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(l *lab, a *Request){
		"a TryLock":                        func(_ *lab, a *Request) { a.Once = true },
		"one with a lease of its own":      func(_ *lab, a *Request) { a.Lease = time.Second },
		"one that reads beside a writer":   func(_ *lab, a *Request) { a.More().Beside = new(Hold) },
		"one of another kind":              func(_ *lab, a *Request) { a.Kind = 1 },
		"one that comes as a writer waits": func(l *lab, _ *Request) { l.ahead, l.behind = l.name(), l.name(); l.ask(l.ahead, false) },
		"one while the engine closes":      func(l *lab, _ *Request) { l.closing = true },
	} {
		l, cells, readers := newReadersLab(t, 3)
		l.unlock(readers[0].hold)
		l.unlock(readers[1].hold)
		var a Request
		change(l, &a)
		if r := l.offers.For(&a); r != nil {
			t.Errorf("%s: the tenure of %p", what, r)
		}
		if r := l.offers.For(new(Request)); what != "one that comes as a writer waits" && !l.closing && r != cells[1] {
			t.Errorf("%s, but no other either", what)
		}
	}
}

// So writers elsewhere have their turn.
func TestReadersRestAfterTheirTurn(t *testing.T) {
	t.Parallel()
	l, cells, readers := newReadersLab(t, 4)
	l.unlock(readers[0].hold)
	l.unlock(readers[1].hold)
	var a, b caller
	l.come(&a)
	l.unlock(readers[2].hold)
	l.now = l.now.Add(l.cfg.HandOverFor + 2*time.Millisecond)
	l.unlock(readers[3].hold)
	l.is(cells[3], Unlocking) // it is not on offer
	if l.rests <= l.now || l.goOn() != 1 {
		t.Fatalf("no rest, until %v", l.rests)
	}
	l.is(cells[2], Unlocking) // what was on offer is not any more
	r := l.come(&b)
	if r.Held() != Resting || r.Cmd.What != Nothing {
		t.Fatalf("one that comes does not rest: %+v", r.View())
	}
	l.unlock(a.hold)
	l.is(cells[1], Unlocking)
	l.offers.RestOver()
	l.does(r.GoRested)
	l.is(r, Acquiring)
	if l.cell(98).rests(&b.Request) {
		t.Error("the rest is not over")
	}
}

func TestAReaderThatRestsAndGivesUpLeavesNothing(t *testing.T) {
	t.Parallel()
	l, _, readers := newReadersLab(t, 3)
	l.offers.resting = true
	var a caller
	r := l.come(&a)
	l.does(func(fx *Effects) { a.Cancel(reason.Stop{Cause: reason.ErrAbandoned}, fx) })
	if a.err == nil || !r.Out || r.Held() != Freely {
		t.Errorf("%v, %+v", a.err, r.View())
	}
	l.unlock(readers[0].hold)
	l.unlock(readers[1].hold)
	if l.offers.queue.Len() != 0 {
		t.Error("something is on offer in a rest")
	}
}

// The end of a lease ends its release, on offer or not.
func TestATenureOnOfferMayEnd(t *testing.T) {
	t.Parallel()
	l, cells, readers := newReadersLab(t, 3)
	l.unlock(readers[0].hold)
	u := l.unlock(readers[1].hold)
	l.does(func(fx *Effects) { cells[1].Drop(fx) })
	if !u.Told || u.Err == nil || l.offers.queue.Len() != 0 || !cells[1].Out {
		t.Errorf("%+v, %+v", u.Unlock, cells[1].View())
	}
	l.reply(cells[0], Outcome{})
	if l.goOn() != 0 {
		t.Error("it goes on")
	}
}
