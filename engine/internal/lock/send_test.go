package lock

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/serial"
)

// An acquire that was sent and not answered burns its owner. The release of that owner and the
// next try are one command.
func TestAnInDoubtOwnerIsReleasedByTheNextTry(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, false)
	inDoubt := r.Cmd.ID
	l.reply(r, Outcome{Result: Unknown})
	l.is(r, Acquiring)
	if r.Cmd.Batched == 0 || !slices.Equal(slices.Collect(r.Cmd.BatchedIDs), []int64{inDoubt}) || r.Cmd.ID == inDoubt || r.Cmd.Server != 1 {
		t.Fatalf("%+v", r.Cmd)
	}
	l.reply(r, Outcome{BatchAnswers: 1, BatchReplies: [maxBatch]Reply{NotOwner}})
	if c.hold == nil || !slices.Equal(l.released, []int64{inDoubt}) {
		t.Errorf("%+v, released %v", c, l.released)
	}
	// Its bytes may be executed yet: it is released again, in a second.
	d := r.compensations
	if d == nil || d.due || d.certainty != repeat || d.at != l.now.Add(time.Second) {
		t.Fatalf("%+v", d)
	}
	l.now = d.at
	l.does(func(rd *Ready) { d.Fired(l.now, rd) })
	l.is(r, Compensating) // nobody tries now
	if r.Cmd.Batched != 0 {
		t.Errorf("%+v", r.Cmd)
	}
}

// A grant that nobody wants any more is released alone, so that other processes have a turn, and
// that needs no counter of tokens, which may be at another node while a slot moves.
func TestResource_FencedGrantThatNobodyWants_IsReleasedAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	first, second := l.askFenced(r), l.askFenced(r)
	l.does(func(rd *Ready) { first.Cancel(lockerr.Cancel{}, rd) })
	unwanted := r.Cmd.ID
	l.reply(r, Outcome{Token: 7})
	l.is(r, Compensating)
	if r.Cmd.ID != unwanted || r.Cmd.Batched != 0 {
		t.Fatalf("%+v", r.Cmd)
	}
	l.reply(r, Outcome{})
	if l.is(r, Acquiring); r.Cmd.Batched != 0 || r.compensations != nil {
		t.Fatalf("%+v", r.Cmd)
	}
	if l.reply(r, Outcome{Token: 8}); second.hold == nil {
		t.Errorf("%+v", second)
	}
}

// Its answers are those of its parts.
func TestATryMayFailAndWhatItTookAlongBeSettled(t *testing.T) {
	t.Parallel()
	why := errors.New("refused")
	for name, x := range map[string]struct {
		o             Outcome
		compensations int // that are due afterwards
		next          CommandKind
		fails         bool
	}{
		"held":              {Outcome{Reply: HeldByOther, TTL: time.Second, BatchAnswers: 1}, 0, NoCommand, false},
		"no right to take":  {Outcome{Result: Refused, Err: why, BatchAnswers: 1}, 1, Compensating, true}, // what was taken
		"busy for the try":  {Outcome{Result: RetryLater, Err: why, BatchAnswers: 1}, 0, NoCommand, false},
		"busy for all":      {Outcome{Result: RetryLater, Err: why}, 1, NoCommand, false},
		"unanswered":        {Outcome{Result: Unknown, Err: why}, 2, Acquiring, false},
		"not sent":          {Outcome{Result: NotSent, Err: why}, 1, NoCommand, false},
		"an unknown answer": {Outcome{Result: Refused, Err: why}, 1, Compensating, true},
	} {
		l := newLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{Result: Unknown})
		if r.Cmd.Batched == 0 {
			t.Fatalf("%+v", r.Cmd)
		}
		l.reply(r, x.o)
		due := 0
		for d := r.compensations; d != nil; d = d.next {
			if d.due {
				due++
			}
		}
		if due != x.compensations || r.Cmd.Action != x.next || (c.err != nil) != x.fails {
			t.Errorf("%s: %d debts are due, command %d, %v", name, due, r.Cmd.Action, c.err)
		}
	}
}

func TestCompensationsOfANameAreSettledTogether(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	for id := int64(101); id <= 200; id++ {
		r.compensate(id, 0, certain, time.Second, l.now.Add(time.Second))
	}
	l.does(r.Advance)
	l.is(r, Compensating)
	if ids := slices.Collect(r.Cmd.BatchedIDs); len(ids) != maxBatch-1 || slices.Contains(ids, r.Cmd.ID) {
		t.Fatalf("owner %d, and %d: %v", r.Cmd.ID, len(ids), ids)
	}
	gone := r.compensations.next.next
	r.dropCompensation(gone) // meanwhile
	l.reply(r, Outcome{BatchAnswers: 1})
	l.is(r, Compensating)
	if n := r.View().Compensations; n != 100-maxBatch {
		t.Errorf("%d debts are left", n)
	}
	if len(l.released) != maxBatch-1 || slices.Contains(l.released, gone.ID) {
		t.Errorf("released: %v", l.released)
	}
	l.reply(r, Outcome{})
	if !r.Detached {
		t.Errorf("left: %+v", r.View())
	}
}

// A try by way of a durable connection, a MinHold, and a channel of another kind are for
// commands of their own.
func TestWhatIsUnlikeIsNotSettledTogether(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		ask     func(*Request)
		pending func(*Compensation)
	}{
		"replicas":            {ask: func(a *Request) { a.Acks = 1 }},
		"a kind of the try":   {ask: func(a *Request) { a.Kind = 1 }},
		"a kind of the debts": {pending: func(d *Compensation) { d.kind = 1 }},
		"a MinHold":           {pending: func(d *Compensation) { d.minEnd = 1 }},
	} {
		l := newLab(t)
		r := l.name()
		c := new(caller)
		c.Init(c)
		if x.ask != nil {
			x.ask(&c.Request)
		}
		for id := int64(101); id <= 102; id++ {
			d := r.compensate(id, 0, certain, time.Second, l.now.Add(time.Second))
			if x.pending != nil && id == 102 {
				x.pending(d)
			}
		}
		l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
		l.is(r, Compensating)
		if together := r.Cmd.Batched != 0; together != (x.pending == nil) {
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
	l.reply(r, Outcome{Result: Unknown})
	var rd Ready
	c.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}, &rd)
	if !r.Cmd.Wanted() {
		t.Error("it is not wanted")
	}
	id := r.Cmd.ID
	l.reply(r, Outcome{BatchAnswers: 1}) // granted to nobody
	l.is(r, Compensating)
	if r.Cmd.ID != id {
		t.Errorf("owner %d, want %d", r.Cmd.ID, id)
	}
}

// A TryLock would be refused because of a compensation that is left.
func TestATryIsTakenAlongOnlyByAllCompensations(t *testing.T) {
	t.Parallel()
	for compensations, want := range map[int]CommandKind{maxBatch - 1: Acquiring, maxBatch: Compensating} {
		l := newLab(t)
		r := l.name()
		for id := range compensations {
			r.compensate(int64(101+id), 0, certain, time.Second, l.now.Add(time.Second))
		}
		l.ask(r, true)
		if r.Cmd.Action != want || r.Cmd.Batched != maxBatch-1 {
			t.Errorf("%d debts: command %d settles %d more", compensations, r.Cmd.Action, r.Cmd.Batched)
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
		c := l.askAs(r, queued)
		all = append(all, c)
	}
	l.is(r, Acquiring)
	first := r.Cmd.ID
	l.reply(r, Outcome{Result: Unknown}) // owed
	l.is(r, Compensating)
	if r.Cmd.ID != first || r.Cmd.Batched != 0 {
		t.Errorf("the release of %d, with %d more", r.Cmd.ID, r.Cmd.Batched)
	}
	l.reply(r, Outcome{Reply: NotOwner})
	l.is(r, Acquiring)
	second := r.Cmd.ID
	if second == first {
		t.Error("an owner that is owed is used again")
	}
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Minute})
	l.does(func(rd *Ready) { all[0].Cancel(lockerr.Cancel{}, rd) })
	l.is(r, Compensating)
	if r.Cmd.ID != second {
		t.Errorf("%d leaves the queue, want %d", r.Cmd.ID, second)
	}
}

// both makes a hold of a lock with fencing tokens, a waiter behind it, and the command
// that releases the one and acquires for the other.
func (l *lab) both(r *Entry) (first, second *caller, u *leaver) {
	l.t.Helper()
	first, second = l.askFenced(r), l.askFenced(r)
	l.reply(r, Outcome{Token: 7})
	u = l.unlock(first.hold)
	l.is(r, Acquiring)
	c := &r.Cmd
	if ids := slices.Collect(c.BatchedIDs); !slices.Equal(ids, []int64{first.hold.ID}) || c.ID == first.hold.ID || c.Lease != l.cfg.Lease || c.Server != 1 {
		l.t.Fatalf("%d is acquired for %v at %d, and %v released", c.ID, c.Lease, c.Server, ids)
	}
	return first, second, u
}

func (l *lab) askFenced(r *Entry) *caller {
	c := l.askAs(r, fenced)
	return c
}

func TestResource_FencedWithAWaiter_ReleasesAndAcquiresInOneCommand(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	first, second, u := l.both(r)
	if u.delivered != 0 || first.hold.IsLive() || second.settled != 0 {
		t.Fatal("settled before the answer")
	}
	sent, owner := l.now, r.Cmd.ID
	l.now = l.now.Add(2 * time.Millisecond)
	l.reply(r, Outcome{Sent: sent, Token: 8, BatchAnswers: 1})
	l.is(r, NoCommand)
	h := second.hold
	if u.delivered != 1 || u.Err != nil || second.delivered != 1 || h == nil || h.Token() != 8 || h.ID != owner || !h.Local() {
		t.Fatalf("unlocked: %+v, second: %+v", u, second)
	}
	if want := sent.Add(l.cfg.Lease - l.cfg.Margin(l.cfg.Lease)); h.Until() != want || !h.renewed || first.hold.renewed || !first.hold.finished() {
		t.Errorf("it ends at %v, want %v; %+v, %+v", h.Until(), want, h, first.hold)
	}
	if n := l.Count; n.Held != 1 || n.Acquired != 2 || n.Released != 1 || n.HandedOver != 1 || n.Pending != 0 || n.Compensations != 0 {
		t.Errorf("counted: %+v", n)
	}
	if len(l.released) != 1 || l.released[0] != first.hold.ID {
		t.Errorf("released: %v", l.released)
	}
}

// The bounds are those of a grant that is handed over, in number and in time.
func TestResource_Fenced_IsReleasedAloneWhenItsTurnIsOver(t *testing.T) {
	t.Parallel()
	for what, pause := range map[string]time.Duration{"number": 0, "time": 6 * time.Millisecond} {
		l := newHandOverLab(t)
		r := l.name()
		c := l.askFenced(r)
		next := l.askFenced(r)
		l.reply(r, Outcome{Token: 1})
		l.does(r.sub.Subscribed)
		for i := range int64(l.cfg.HandOvers) {
			l.now = l.now.Add(pause)
			l.unlock(c.hold)
			if r.Cmd.Action == Releasing {
				break // its time is over
			}
			l.is(r, Acquiring)
			c, next = next, l.askFenced(r)
			l.reply(r, Outcome{Token: 2 + i, BatchAnswers: 1})
			if at := bellOf(r.sub).at; at.Sub(l.now) <= serial.YieldMost {
				t.Errorf("%s: the next one of this process skips a turn, until %v", what, at)
			}
		}
		if r.Cmd.Action == NoCommand {
			l.now = l.now.Add(pause)
			l.unlock(c.hold)
		}
		if l.is(r, Releasing); (c.hold.handOvers == l.cfg.HandOvers) != (pause == 0) {
			t.Errorf("%s: %d holds in a row", what, c.hold.handOvers)
		}
		l.reply(r, Outcome{})
		l.is(r, NoCommand) // the head skips a turn
		l.does(r.sub.AlarmFired)
		l.is(r, Acquiring)
		l.reply(r, Outcome{Token: 9})
		if next.hold == nil || next.hold.handOvers != 0 {
			t.Errorf("%s: %+v", what, next)
		}
	}
}

// Replicas acknowledge the grant of each holder, so it needs a command.
func TestResource_Acked_ReleasesAndAcquiresInOneCommandIfBothWantAsMany(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	durable := func() *caller {
		c := new(caller)
		c.Init(c)
		c.Acks = 1
		l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
		return c
	}
	first, second, third := durable(), durable(), durable()
	l.reply(r, Outcome{Acked: 1})
	l.unlock(first.hold)
	l.is(r, Acquiring)
	if r.Cmd.Acks != 1 {
		t.Errorf("it wants %d replicas", r.Cmd.Acks)
	}
	l.reply(r, Outcome{Acked: 1, BatchAnswers: 1})
	if second.hold == nil || second.hold.Acked() != 1 {
		t.Fatalf("%+v", second)
	}
	// Too few have it: the release counts, and the grant is given back.
	u := l.unlock(second.hold)
	l.is(r, Acquiring)
	owner := r.Cmd.ID
	l.reply(r, Outcome{Acked: 1, Unacked: errTooFew, BatchAnswers: 1})
	if u.Err != nil || u.delivered != 1 || third.hold != nil || third.err == nil {
		t.Errorf("unlocked: %v, third: %+v", u.Err, third)
	}
	if l.is(r, Compensating); r.Cmd.ID != owner {
		t.Errorf("%d is given back, want %d", r.Cmd.ID, owner)
	}
}

var errTooFew = errors.New("too few replicas")

// What goes wrong with all of it costs one more command: the release alone.
func TestResource_ReleaseAndAcquireInVain_ReleasesAlone(t *testing.T) {
	t.Parallel()
	why := errors.New("no")
	for what, x := range map[string]struct {
		answer  Outcome
		inDoubt bool // the next owner is given back first
		asked   bool // the release may find nothing
		fails   bool // the next one
	}{
		"no answer":        {Outcome{Result: Unknown, Err: why}, true, true, false},
		"no right":         {Outcome{Result: Refused, Err: why}, true, true, true},
		"for now":          {Outcome{Result: RetryLater, Err: why}, false, false, false},
		"the slot moves":   {Outcome{Result: RetryLater, Moving: true, Err: why}, false, false, false},
		"it had begun":     {Outcome{Result: RetryLater, Moving: true, Begun: true, Err: why}, true, true, false},
		"no connection":    {Outcome{Result: NotSent, Err: why}, false, false, false},
		"the lane is full": {Outcome{Result: LaneFull, Err: why}, false, false, false},
	} {
		for _, gone := range []bool{false, true} {
			l := newHandOverLab(t)
			r := l.name()
			first, second, u := l.both(r)
			third := l.askFenced(r)
			next := r.Cmd.ID
			l.reply(r, x.answer)
			if first.hold.alarm != first.hold.serverUntil {
				t.Errorf("%s: the release ends at %v, want %v", what, first.hold.alarm, first.hold.serverUntil)
			}
			switch r.blocked {
			case BackingOff:
				l.now = l.paused
				l.does(r.PauseOver)
			case Disconnected:
				l.does(func(rd *Ready) { r.Reconnected(nil, rd) })
			}
			if x.inDoubt {
				if l.is(r, Compensating); r.Cmd.ID != next {
					t.Errorf("%s: %d is given back, want %d", what, r.Cmd.ID, next)
				}
				l.reply(r, Outcome{Reply: NotOwner})
			}
			if l.is(r, Releasing); r.Cmd.ID != first.hold.ID || u.delivered != 0 || second.state == trying {
				t.Errorf("%s: releases %d, and the Unlock is told %d times", what, r.Cmd.ID, u.delivered)
			}
			o := Outcome{}
			if gone {
				o.Reply = NotOwner
			}
			l.reply(r, o)
			if lost := gone && !x.asked; u.delivered != 1 || lost != errors.Is(u.Err, loss(RemovedOnServer)) || !lost && u.Err != nil {
				t.Errorf("%s, gone %v: unlocked with %v", what, gone, u.Err)
			}
			if second.settled != 0 && !x.fails || x.fails && second.err != why {
				t.Errorf("%s: the second has %v", what, second.err)
			}
			l.is(r, Acquiring)
			l.reply(r, Outcome{Token: 9})
			served := second
			if x.fails {
				served = third
			}
			if served.hold == nil || served.hold.Token() != 9 || served.hold.Local() {
				t.Errorf("%s: %+v", what, served)
			}
		}
	}
}

// The hold was lost without anybody knowing: the Unlock says so. What became of the next one does
// not depend on that.
func TestResource_ReleaseAndAcquireOfALostHold_TellsTheUnlock(t *testing.T) {
	t.Parallel()
	for what, x := range map[string]struct {
		answer Outcome
		why    Loss
		has    bool
		fails  bool
	}{
		"gone":         {Outcome{BatchAnswers: 1, BatchReplies: [maxBatch]Reply{NotOwner}, Token: 8}, RemovedOnServer, true, false},
		"another's":    {Outcome{BatchAnswers: 1, BatchReplies: [maxBatch]Reply{NotOwner}, Reply: HeldByOther, TTL: time.Second}, RemovedOnServer, false, false},
		"another type": {Outcome{Result: WrongType, Err: errors.New("no")}, KeyOverwritten, false, true},
	} {
		l := newHandOverLab(t)
		r := l.name()
		_, second, u := l.both(r)
		l.reply(r, x.answer)
		if u.delivered != 1 || !errors.Is(u.Err, loss(x.why)) {
			t.Errorf("%s: unlocked: %v", what, u.Err)
		}
		if (second.hold != nil) != x.has || (second.err != nil) != x.fails {
			t.Errorf("%s: %+v", what, second)
		}
		if l.is(r, NoCommand); !x.has && !x.fails && r.sub.Ready() {
			t.Errorf("%s: it does not wait", what)
		}
	}
}

// A message that comes while the command is out is not slept through.
func TestResource_ReleaseAndAcquireRefused_TriesAgainIfAMessageCame(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	l.both(r)
	l.does(r.sub.OnMessage)
	l.reply(r, Outcome{BatchAnswers: 1, Reply: HeldByOther, TTL: time.Minute})
	if l.is(r, Acquiring); r.Cmd.Batched != 0 {
		t.Errorf("%+v", r.Cmd)
	}
}

// The one it was for has given up: the lock is given back, and the others are served.
func TestResource_ReleaseAndAcquireForNobody_GivesItBack(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	_, second, u := l.both(r)
	third := l.askFenced(r)
	owner := r.Cmd.ID
	l.does(func(rd *Ready) { second.Cancel(lockerr.Cancel{Cause: errors.New("given up")}, rd) })
	if second.err == nil || !r.Cmd.Wanted() {
		t.Fatal("it is a release, too")
	}
	l.reply(r, Outcome{Token: 8, BatchAnswers: 1})
	if u.delivered != 1 || u.Err != nil || third.hold != nil {
		t.Errorf("unlocked: %v, third: %+v", u.Err, third)
	}
	if l.is(r, Compensating); r.Cmd.ID != owner || r.Cmd.Batched != 0 {
		t.Errorf("%+v is given back, want %d", r.Cmd, owner)
	}
	if l.reply(r, Outcome{}); r.Cmd.Action != Acquiring || r.Cmd.req != &third.Request {
		t.Errorf("%+v", r.Cmd)
	}
}

// The time of the release is over before the answer: what was granted counts.
func TestResource_ReleaseAndAcquireAnsweredLate_GrantsTheNextOne(t *testing.T) {
	t.Parallel()
	l := newHandOverLab(t)
	r := l.name()
	first, second, u := l.both(r)
	l.now = first.hold.serverUntil
	l.does(func(rd *Ready) { first.hold.Fired(l.now, rd) })
	if u.delivered != 1 || !errors.Is(u.Err, lockerr.ErrOutcomeUnknown) {
		t.Fatalf("unlocked: %v", u.Err)
	}
	l.is(r, Acquiring)
	l.reply(r, Outcome{Sent: l.now, Token: 8, BatchAnswers: 1})
	if second.hold == nil || second.hold.Token() != 8 {
		t.Errorf("%+v", second)
	}
	if l.is(r, Compensating); r.Cmd.ID != first.hold.ID {
		t.Errorf("%d is given back, want %d", r.Cmd.ID, first.hold.ID)
	}
}
