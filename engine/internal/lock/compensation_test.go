package lock

import (
	"testing"
	"time"
)

// What the timer of a compensation does, and when.
func TestTimerOfACompensation(t *testing.T) {
	t.Parallel()
	const lease = time.Hour
	for name, c := range map[string]struct {
		grade   certainty
		due     bool          // nobody has answered since it was last to be sent
		set     time.Duration // when its timer is set to, from the time that it fires at
		until   time.Duration // likewise, until when the server may have the owner
		out     bool          // a command of the owner is out
		closing bool          // nothing new is admitted
		forgets bool
		sends   bool
		again   time.Duration // when the timer fires next, from then
	}{
		"was set anew while it waited for the lock":        {grade: inDoubt, set: time.Second, again: time.Second},
		"nobody has answered, and the server may have it":  {due: true, until: 3 * lease, again: 3 * lease},
		"nobody has answered, and the server cannot":       {due: true, until: -lease, again: lease + 2*time.Second},
		"and the server cannot, and a Shutdown waits":      {due: true, until: -lease, closing: true, forgets: true},
		"nobody has answered, its command is out":          {due: true, until: -lease, out: true, again: lease + 2*time.Second},
		"its acquire may be executed yet":                  {grade: inDoubt, due: true, until: -100 * lease, again: lease + 2*time.Second},
		"may be executed yet, and a Shutdown waits for it": {grade: inDoubt, due: true, until: -lease, closing: true, forgets: true},
		"its acquire may be executed yet, if hardly":       {grade: repeat, due: true, until: -100 * lease, again: lease + 2*time.Second},
		"a second after the first release":                 {grade: repeat, until: 2 * lease, sends: true, again: lease + 2*time.Second},
		"a lease after the second release":                 {grade: certain, until: lease, sends: true, again: lease + 2*time.Second},
		"the machine slept, after the first release":       {grade: repeat, until: -100 * lease, sends: true, again: lease + 2*time.Second},
		"the machine slept, after the second release":      {grade: certain, until: -lease, sends: true, again: lease + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			r := l.name()
			r.blocked = BackingOff // nothing is sent before the test looks
			d := r.compensate(1, 0, c.grade, lease, l.now)
			d.due, d.until = c.due, l.now.Add(c.until)
			d.wakeAt(l.now.Add(c.set))
			if c.closing {
				l.Phase = Closed
			}
			if c.out {
				r.Cmd = Command{Action: Reentering, ID: d.ID}
			}
			var rd Ready
			d.Fired(l.now, &rd)
			if forgets := r.compensations == nil; forgets != c.forgets {
				t.Errorf("it is forgotten: %v", forgets)
			} else if sends := d.due && !c.due; sends != c.sends {
				t.Errorf("it is to be sent: %v", sends)
			} else if at := d.at.Sub(l.now); !forgets && at != c.again {
				t.Errorf("its timer fires in %v, want %v", at, c.again)
			}
		})
	}
}

// The server has said that it does not have the owner, so there is nothing to release. Waiters elsewhere
// ask by themselves: see LongestSleep.
func TestHold_RemovedOnServer_LeavesNoCompensation(t *testing.T) {
	t.Parallel()
	for _, why := range []Loss{RemovedOnServer, KeyOverwritten} {
		l := newLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		l.does(func(rd *Ready) {
			c.hold.Grant.Gone(why, rd)
			r.Advance(rd)
		})
		if l.is(r, NoCommand); r.compensations != nil {
			t.Errorf("%v: a compensation is left", why)
		}
	}
}
