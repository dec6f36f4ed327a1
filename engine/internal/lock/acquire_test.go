package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

var errLoading = errors.New("LOADING Redis is loading the dataset in memory")

// A TryLock is for one answer of the server: who has the lock. A refusal that says "not now" is no
// such answer, nor is a connection that was lost.
func TestRequest_OnceNotNow_TriesAgainUntilItsPatienceIsOver(t *testing.T) {
	t.Parallel()
	for what, no := range map[string]Outcome{
		"refused for now": {Result: RetryLater, Err: errLoading},
		"no answer":       {Result: Unknown, Err: errLoading},
	} {
		for end, last := range map[string]Outcome{"granted": {}, "held": {Reply: HeldByOther, TTL: time.Minute}, "nothing": no} {
			l := newLab(t)
			r := l.name()
			c := l.ask(r, true)
			if c.giveUp != 0 {
				t.Errorf("%s: one that is answered costs a timer", what)
			}
			begun := l.now
			for range 3 {
				l.now = l.now.Add(100 * time.Millisecond)
				l.reply(r, no)
				if c.settled != 0 || c.giveUp == 0 {
					t.Fatalf("%s: settled %d times, with %v; given up at %v", what, c.settled, c.err, c.giveUp)
				}
				l.goesOn(r)
				l.is(r, Acquiring)
			}
			if want := begun.Add(100*time.Millisecond + l.cfg.CommandTimeout); c.giveUp > want || c.giveUp < begun.Add(l.cfg.CommandTimeout) {
				t.Errorf("%s: it is given up %v after it was asked for", what, c.giveUp.Sub(begun))
			}
			l.reply(r, last)
			switch end {
			case "granted":
				if c.hold == nil {
					t.Errorf("%s, then granted: %v", what, c.err)
				}
			case "held":
				if !errors.Is(c.err, lockerr.ErrHeld) {
					t.Errorf("%s, then held: %v", what, c.err)
				}
			default:
				l.now = c.giveUp
				l.does(func(rd *Ready) { c.Cancel(lockerr.Cancel{TimedOut: true}, rd) })
				if !errors.Is(c.err, lockerr.ErrUnavailable) || !errors.Is(c.err, errLoading) {
					t.Errorf("%s, until its patience was over: %v", what, c.err)
				}
			}
		}
	}
}

// goesOn is the end of a pause, and the answers to what is owed.
func (l *lab) goesOn(r *Entry) {
	l.t.Helper()
	l.does(r.PauseOver)
	for range 10 {
		if r.Cmd.Action == Compensating {
			l.reply(r, Outcome{Reply: NotOwner})
		}
	}
}

// The same for one that re-enters.
func TestRequest_OnceReentersNotNow_TriesAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	h := l.ask(r, false)
	l.reply(r, Outcome{})
	c := new(caller)
	c.Init(c)
	c.Persists, c.Parent = UntilAnswered, &h.hold.Hold
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
	for _, no := range []Outcome{{Result: RetryLater, Err: errLoading}, {Result: Unknown, Err: errLoading}} {
		l.is(r, Reentering)
		l.reply(r, no)
		if c.settled != 0 || c.giveUp == 0 {
			t.Fatalf("settled %d times, with %v", c.settled, c.err)
		}
		l.does(r.PauseOver)
	}
	l.reply(r, Outcome{})
	if c.hold == nil {
		t.Errorf("not granted: %v", c.err)
	}
}

// One of several locks of a Lock is not patient: others are held meanwhile.
func TestRequest_HastyNotNow_EndsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := new(caller)
	c.Init(c)
	c.Persists = UntilRefused
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
	l.reply(r, Outcome{Result: RetryLater, Err: errLoading})
	if !errors.Is(c.err, lockerr.ErrUnavailable) || !errors.Is(c.err, errLoading) {
		t.Errorf("refused for now: %v", c.err)
	}
}

// While a TryLock is patient, another of its process gets the lock: that is its answer.
func TestRequest_OnceNotNowThenHeldHere_IsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := l.ask(r, true)
	l.ask(r, false)
	l.reply(r, Outcome{Result: RetryLater, Err: errLoading})
	l.goesOn(r) // the turn of the one that waits
	l.reply(r, Outcome{})
	if !errors.Is(c.err, lockerr.ErrHeld) {
		t.Errorf("held by this process: %v", c.err)
	}
}
