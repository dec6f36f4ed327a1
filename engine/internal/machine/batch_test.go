package machine

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/reason"
)

// An acquire that was sent and not answered burns its owner. The release of that owner and the
// next try are one command.
func TestABurnedOwnerIsReleasedByTheNextTry(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, false)
	burned := r.Cmd.ID
	l.reply(r, Outcome{Verdict: Unknown})
	l.is(r, Acquiring)
	if r.Cmd.Also == nil || !slices.Equal(r.Cmd.Also.IDs, []int64{burned}) || r.Cmd.ID == burned || r.Cmd.Server != 1 {
		t.Fatalf("%+v", r.Cmd)
	}
	l.reply(r, Outcome{Also: []Answer{Missing}})
	if c.hold == nil || !slices.Equal(l.released, []int64{burned}) {
		t.Errorf("%+v, released %v", c, l.released)
	}
	// Its bytes may be executed yet: it is released again, in a second.
	d := r.debts
	if d == nil || d.due || d.grade != again || d.at != l.now.Add(time.Second) {
		t.Fatalf("%+v", d)
	}
	l.now = d.at
	l.does(func(fx *Effects) { d.Fired(l.now, fx) })
	l.is(r, Settling) // nobody tries now
	if r.Cmd.Also != nil {
		t.Errorf("%+v", r.Cmd)
	}
}

// Its answers are those of its parts.
func TestATryMayFailAndWhatItTookAlongBeSettled(t *testing.T) {
	t.Parallel()
	why := errors.New("refused")
	for name, x := range map[string]struct {
		o     Outcome
		debts int // that are due afterwards
		next  What
		fails bool
	}{
		"held":              {Outcome{Answer: Taken, TTL: time.Second, Also: []Answer{Done}}, 0, Nothing, false},
		"no right to take":  {Outcome{Verdict: Denied, Err: why, Also: []Answer{Done}}, 1, Settling, true}, // what was taken
		"busy for the try":  {Outcome{Verdict: Busy, Err: why, Also: []Answer{Done}}, 0, Nothing, false},
		"busy for all":      {Outcome{Verdict: Busy, Err: why}, 1, Nothing, false},
		"unanswered":        {Outcome{Verdict: Unknown, Err: why}, 2, Acquiring, false},
		"not sent":          {Outcome{Verdict: NotSent, Err: why}, 1, Nothing, false},
		"an unknown answer": {Outcome{Verdict: Denied, Err: why}, 1, Settling, true},
	} {
		l := newLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{Verdict: Unknown})
		if r.Cmd.Also == nil {
			t.Fatalf("%+v", r.Cmd)
		}
		l.reply(r, x.o)
		due := 0
		for d := r.debts; d != nil; d = d.next {
			if d.due {
				due++
			}
		}
		if due != x.debts || r.Cmd.What != x.next || (c.err != nil) != x.fails {
			t.Errorf("%s: %d debts are due, command %d, %v", name, due, r.Cmd.What, c.err)
		}
	}
}

func TestDebtsOfANameAreSettledTogether(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	for id := int64(101); id <= 200; id++ {
		r.owe(id, 0, certain, time.Second, l.now.Add(time.Second))
	}
	l.does(r.GoOn)
	l.is(r, Settling)
	if n := len(r.Cmd.Also.IDs); n != maxBatch-1 || slices.Contains(r.Cmd.Also.IDs, r.Cmd.ID) {
		t.Fatalf("owner %d, and %d: %v", r.Cmd.ID, n, r.Cmd.Also.IDs)
	}
	gone := r.debts.next.next
	also := make([]Answer, len(r.Cmd.Also.IDs))
	r.forgive(gone) // meanwhile
	l.reply(r, Outcome{Also: also})
	l.is(r, Settling)
	if n := r.View().Debts; n != 100-maxBatch {
		t.Errorf("%d debts are left", n)
	}
	if len(l.released) != maxBatch-1 || slices.Contains(l.released, gone.ID) {
		t.Errorf("released: %v", l.released)
	}
	l.reply(r, Outcome{})
	if !r.Out {
		t.Errorf("left: %+v", r.View())
	}
}

// A try by way of a durable connection, a MinHold, and a channel of another kind are for
// commands of their own.
func TestWhatIsUnlikeIsNotSettledTogether(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		ask  func(*Request)
		owed func(*Debt)
	}{
		"replicas":            {ask: func(a *Request) { a.Want, a.AckedGiven = 1, true }},
		"a kind of the try":   {ask: func(a *Request) { a.Kind = 1 }},
		"a kind of the debts": {owed: func(d *Debt) { d.kind = 1 }},
		"a MinHold":           {owed: func(d *Debt) { d.minEnd = 1 }},
	} {
		l := newLab(t)
		r := l.name()
		c := new(caller)
		c.Init(c)
		if x.ask != nil {
			x.ask(&c.Request)
		}
		for id := int64(101); id <= 102; id++ {
			d := r.owe(id, 0, certain, time.Second, l.now.Add(time.Second))
			if x.owed != nil && id == 102 {
				x.owed(d)
			}
		}
		l.does(func(fx *Effects) { r.Admit(&c.Request, fx) })
		l.is(r, Settling)
		if together := r.Cmd.Also != nil; together != (x.owed == nil) {
			t.Errorf("%s: the debts together: %v", name, together)
		}
	}
}

// Nobody waits for the try any more. The releases are sent anyway.
func TestACommandThatSettlesIsWantedThoughNobodyTries(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, false)
	l.reply(r, Outcome{Verdict: Unknown})
	var fx Effects
	c.Cancel(reason.Stop{Cause: reason.ErrAbandoned}, &fx)
	if !r.Cmd.Wanted() {
		t.Error("it is not wanted")
	}
	id := r.Cmd.ID
	l.reply(r, Outcome{Also: []Answer{Done}}) // granted to nobody
	l.is(r, Settling)
	if r.Cmd.ID != id {
		t.Errorf("owner %d, want %d", r.Cmd.ID, id)
	}
}

// A TryLock would be refused because of a debt that is left.
func TestATryIsTakenAlongOnlyByAllDebts(t *testing.T) {
	t.Parallel()
	for debts, want := range map[int]What{maxBatch - 1: Acquiring, maxBatch: Settling} {
		l := newLab(t)
		r := l.name()
		for id := range debts {
			r.owe(int64(101+id), 0, certain, time.Second, l.now.Add(time.Second))
		}
		l.ask(r, true)
		if r.Cmd.What != want || len(r.Cmd.Also.IDs) != maxBatch-1 {
			t.Errorf("%d debts: command %d settles %d more", debts, r.Cmd.What, len(r.Cmd.Also.IDs))
		}
	}
}

// A release of a batch is that of a hash alone. An owner of a queue leaves that, too.
func TestOwnersOfAQueueAreSettledOneByOne(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	var all []*caller
	for range 3 {
		c := new(caller)
		c.Init(c)
		c.Kind = queued
		l.does(func(fx *Effects) { r.Admit(&c.Request, fx) })
		all = append(all, c)
	}
	l.is(r, Acquiring)
	first := r.Cmd.ID
	l.reply(r, Outcome{Verdict: Unknown}) // owed
	l.is(r, Settling)
	if r.Cmd.ID != first || r.Cmd.Also != nil {
		t.Errorf("the release of %d, with %v", r.Cmd.ID, r.Cmd.Also)
	}
	l.reply(r, Outcome{Answer: Missing})
	l.is(r, Acquiring)
	second := r.Cmd.ID
	if second == first {
		t.Error("an owner that is owed is used again")
	}
	l.reply(r, Outcome{Answer: Taken, TTL: time.Minute})
	l.does(func(fx *Effects) { all[0].Cancel(reason.Stop{}, fx) })
	l.is(r, Settling)
	if r.Cmd.ID != second {
		t.Errorf("%d leaves the queue, want %d", r.Cmd.ID, second)
	}
}
