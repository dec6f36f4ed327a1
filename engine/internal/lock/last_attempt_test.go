package lock

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lockerr"
)

// cancelError is what a request is told that has waited as long as it may.
func (l *lab) gaveUp(c *caller) error {
	l.t.Helper()
	l.does(func(rd *Ready) { c.Cancel(lockerr.Cancel{Cause: lockerr.ErrWaited, TimedOut: true}, rd) })
	if !c.Ended() {
		l.t.Fatal("it goes on")
	}
	return c.err
}

// isHeld and isAway fail the test unless the error says the one, and not the other.
func (l *lab) isHeld(err error) { l.t.Helper(); l.says(err, true) }
func (l *lab) isAway(err error) { l.t.Helper(); l.says(err, false) }

func (l *lab) says(err error, held bool) {
	l.t.Helper()
	if errors.Is(err, lockerr.ErrHeld) != held || errors.Is(err, lockerr.ErrUnavailable) == held {
		l.t.Errorf("held is to be %t: %v", held, err)
	}
}

// permitsAsleep has somebody be granted permits without an answer, so that they are to be given
// back, and others be refused.
//
//	head                 what is given back     the server
//	                                            another has the permits
//	refused, sleeps
//	                     released: no answer
//	                     released: answered
func permitsAsleep(l *lab) (r *Entry, head, next *caller) {
	r = l.name()
	lost := l.wantPermits(r, 1, false)
	l.does(func(rd *Ready) { lost.Cancel(lockerr.Cancel{Cause: lockerr.ErrAbandoned}, rd) })
	head, next = l.wantPermits(r, 1, false), l.wantPermits(r, 1, false)
	l.reply(r, Outcome{Result: Unknown, Err: errors.New("the connection was lost")})
	for r.Cmd.Action == Compensating {
		l.reply(r, Outcome{Reply: NotOwner})
	}
	l.is(r, Acquiring)
	l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Hour})
	return r, head, next
}

// What is given back says nothing of who has the lock: its answer is no try's.
func TestObstacle_AfterAReleaseWithoutAnAnswer_IsTheLatestTrys(t *testing.T) {
	t.Parallel()
	for way, answers := range map[string][]Outcome{
		"no answer":               {{Result: Unknown, Err: errors.New("the connection was lost")}},
		"no answer, and then one": {{Result: Unknown, Err: errors.New("the connection was lost")}, {Reply: NotOwner}},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			r, head, next := permitsAsleep(l)
			l.is(r, NoCommand)
			l.now = l.now.Add(2 * l.cfg.Lease)
			for _, o := range answers {
				d := r.compensations
				if d == nil {
					t.Fatal("nothing is to be given back")
				}
				l.does(func(rd *Ready) { d.Fired(l.now, rd) })
				l.is(r, Compensating)
				l.reply(r, o)
			}
			l.isHeld(l.gaveUp(next))
			l.isHeld(l.gaveUp(head))
		})
	}
}

// A grant leaves the name of permits at once, and the others know from it that the server is there.
func TestObstacle_BehindAGrantOfPermits_IsHeld(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	l.wantPermits(r, 1, false)
	next := l.wantPermits(r, 1, false)
	l.reply(r, Outcome{})
	l.is(r, Acquiring)
	l.isHeld(l.gaveUp(next))
}

// A hold that is lost leaves nobody who is known to have the lock, and so does a grant that is too
// late.
func TestObstacle_NobodyIsKnownToHaveIt_IsUnavailable(t *testing.T) {
	t.Parallel()
	for way, happens := range map[string]func(l *lab, r *Entry, head *caller){
		"the first try is out": func(*lab, *Entry, *caller) {},
		"granted too late": func(l *lab, r *Entry, _ *caller) {
			sent := l.now
			l.now = l.now.Add(2 * l.cfg.Lease)
			l.reply(r, Outcome{Sent: sent})
		},
		"lost": func(l *lab, r *Entry, head *caller) {
			l.reply(r, Outcome{})
			l.now = l.now.Add(2 * l.cfg.Lease)
			l.does(func(rd *Ready) { head.hold.Check(l.now, rd) })
		},
		"no answer, and nothing is sent": func(l *lab, r *Entry, _ *caller) {
			l.reply(r, Outcome{Result: RetryLater, Err: errors.New("LOADING")})
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			r := l.name()
			head, next := l.ask(r, false), l.ask(r, false)
			happens(l, r, head)
			l.isAway(l.gaveUp(next))
		})
	}
}
