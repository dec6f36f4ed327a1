package machine

import (
	"testing"
	"time"
)

// What the timer of a debt does, and when.
func TestTimerOfADebt(t *testing.T) {
	t.Parallel()
	const lease = time.Hour
	for name, c := range map[string]struct {
		grade   grade
		due     bool          // nobody has answered since it was last to be sent
		set     time.Duration // when its timer is set to, from the time that it fires at
		until   time.Duration // likewise, until when the server may have the owner
		out     bool          // a command of the owner is out
		queued  bool          // it may have a place in a queue
		shared  bool          // it is of a writer that readers are beside
		moving  bool          // it was refused because the slot moves
		closing bool          // nothing new is admitted
		forgets bool
		sends   bool
		again   time.Duration // when the timer fires next, from then
	}{
		"was set anew while it waited for the lock":        {grade: doubtful, set: time.Second, again: time.Second},
		"nobody has answered, and the server may have it":  {due: true, until: 3 * lease, again: 3 * lease},
		"nobody has answered, and the server cannot":       {due: true, forgets: true},
		"nobody has answered, its command is out":          {due: true, until: -lease, out: true, again: lease + 2*time.Second},
		"nobody has answered, its place may be kept":       {due: true, until: -lease, queued: true, again: lease + 2*time.Second},
		"the same, and a Shutdown waits for it":            {due: true, until: -lease, queued: true, closing: true, forgets: true},
		"nobody has answered, readers may keep it there":   {due: true, until: -lease, shared: true, again: lease + 2*time.Second},
		"the same, with a Shutdown that waits":             {due: true, until: -lease, shared: true, closing: true, forgets: true},
		"it is refused while the slot moves":               {due: true, until: -lease, moving: true, again: lease + 2*time.Second},
		"its acquire may be executed yet":                  {grade: doubtful, due: true, until: -100 * lease, again: lease + 2*time.Second},
		"may be executed yet, and a Shutdown waits for it": {grade: doubtful, due: true, until: -lease, closing: true, forgets: true},
		"its acquire may be executed yet, if hardly":       {grade: again, due: true, until: -100 * lease, again: lease + 2*time.Second},
		"a second after the first release":                 {grade: again, until: 2 * lease, sends: true, again: lease + 2*time.Second},
		"a lease after the second release":                 {grade: certain, until: lease, sends: true, again: lease + 2*time.Second},
		"the machine slept, after the first release":       {grade: again, until: -100 * lease, sends: true, again: lease + 2*time.Second},
		"the machine slept, after the second release":      {grade: certain, until: -lease, sends: true, again: lease + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			r := l.name()
			r.held = Paused // nothing is sent before the test looks
			kind := uint8(0)
			if c.queued {
				kind = queued
			}
			d := r.owe(1, kind, c.grade, lease, l.now)
			d.due, d.until, d.shared, d.moving = c.due, l.now.Add(c.until), c.shared, c.moving
			d.wakeAt(l.now.Add(c.set))
			l.closing = c.closing
			if c.out {
				r.Cmd = Command{What: Reentering, ID: d.ID}
			}
			var fx Effects
			d.Fired(l.now, &fx)
			if forgets := r.debts == nil; forgets != c.forgets {
				t.Errorf("it is forgotten: %v", forgets)
			} else if sends := d.due && !c.due; sends != c.sends {
				t.Errorf("it is to be sent: %v", sends)
			} else if at := d.at.Sub(l.now); !forgets && at != c.again {
				t.Errorf("its timer fires in %v, want %v", at, c.again)
			}
		})
	}
}

// The release of a hold was refused while its slot moves, and then nobody could be asked until its lease
// was over. What it owes is asked for however late: others may have kept it in the hash.
func TestTheDebtOfAReleaseThatWasRefusedInAMoveOutlastsItsLease(t *testing.T) {
	t.Parallel()
	for _, moving := range []bool{false, true} {
		l := newLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		l.unlock(c.hold)
		l.reply(r, Outcome{Verdict: Busy, Moving: moving})
		var fx Effects
		c.hold.giveUpRelease(&fx)
		if r.debts == nil || r.debts.outlasts() != moving {
			t.Errorf("moving %v: %+v", moving, r.debts)
		}
	}
}

// The server has said that it does not have the owner, so there is nothing to release. Waiters elsewhere
// ask by themselves: see LongestSleep.
func TestHold_GoneOnServer_LeavesNoCompensation(t *testing.T) {
	t.Parallel()
	for _, why := range []Loss{GoneOnServer, TakenOnServer} {
		l := newLab(t)
		r := l.name()
		c := l.ask(r, false)
		l.reply(r, Outcome{})
		l.does(func(fx *Effects) {
			c.hold.Tenure.Gone(why, fx)
			r.GoOn(fx)
		})
		if l.is(r, Nothing); r.debts != nil {
			t.Errorf("%v: a compensation is left", why)
		}
	}
}
