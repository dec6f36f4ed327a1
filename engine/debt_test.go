package engine

import (
	"testing"
	"time"
)

// What the timer of a debt does, and when. The lease is an hour, the clock stands unless
// it is moved, and no connection works but where the test says so.
func TestTimerOfADebt(t *testing.T) {
	t.Parallel()
	const lease = time.Hour
	for name, c := range map[string]struct {
		grade   grade
		due     bool          // nobody has answered since it was last to be sent
		set     time.Duration // when its timer is set to, from the time that it fires at
		until   time.Duration // likewise, until when the server may have the owner
		out     bool          // a command of the owner is out
		forgets bool
		sends   bool
		again   time.Duration // when the timer fires next, from then
	}{
		"was set anew while it waited for the lock":       {grade: doubtful, set: time.Second, again: time.Second},
		"nobody has answered, and the server may have it": {due: true, until: 3 * lease, again: 3 * lease},
		"nobody has answered, and the server cannot":      {due: true, forgets: true},
		"nobody has answered, its command is out":         {due: true, until: -lease, out: true, again: lease + 2*time.Second},
		"its acquire may be executed yet":                 {grade: doubtful, due: true, until: -100 * lease, again: lease + 2*time.Second},
		"its acquire may be executed yet, if hardly":      {grade: again, due: true, until: -100 * lease, again: lease + 2*time.Second},
		"a second after the first release":                {grade: again, until: 2 * lease, sends: true, again: lease + 2*time.Second},
		"a lease after the second release":                {grade: certain, until: lease, sends: true, again: lease + 2*time.Second},
		"the machine slept, after the first release":      {grade: again, until: -100 * lease, sends: true, again: lease + 2*time.Second},
		"the machine slept, after the second release":     {grade: certain, until: -lease, sends: true, again: lease + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, e, clk := behindOn(t, patient)
			m := e.Mutex("x")
			p.Down()
			eventually(t, "the lanes are down", func() bool { return !e.client.LaneOf(m.route).Up() })
			now := clk.clock.Now()
			sh := e.table.shard(m.route)
			sh.mu.Lock()
			r := sh.getLocked(m.key, m.route)
			r.held = paused // nothing is sent before the test looks
			r.owe(1, c.grade, lease, now)
			d := r.debts
			d.due, d.until = c.due, now.Add(c.until)
			d.wakeAt(now.Add(c.set))
			if c.out {
				r.cmd = command{what: reentering, id: d.id}
			}
			sh.mu.Unlock()

			d.Fire(&d.timer, now)

			sh.mu.Lock()
			defer sh.mu.Unlock()
			if forgets := r.debts == nil; forgets != c.forgets {
				t.Errorf("it is forgotten: %v", forgets)
			} else if sends := d.due && !c.due; sends != c.sends {
				t.Errorf("it is to be sent: %v", sends)
			} else if at := d.at.Sub(now); !forgets && at != c.again {
				t.Errorf("its timer fires in %v, want %v", at, c.again)
			}
			r.cmd, r.held = command{}, freely
			for r.debts != nil {
				r.forgive(r.debts)
			}
			r.settled()
		})
	}
}

// An owner whose acquire had no answer is released three times, and then forgotten.
func TestBurnedOwnerIsReleasedThreeTimes(t *testing.T) {
	t.Parallel()
	s, p, e, clk := behindOn(t, patient)
	released := p.Watch(releaseOf("x"))
	cut := p.CutAfterRequest(acquireOf("x"))
	f := e.Mutex("x").TryLockAsync(ctxT(t))
	cut.Wait(1)
	<-f.Done()
	for i, pause := range []time.Duration{0, time.Second, e.cfg.Lease} {
		clk.pass(pause)
		released.Wait(i + 1)
		eventually(t, "it is answered", func() bool { return e.Stats().InFlight == 0 })
	}
	eventually(t, "it is forgotten", func() bool { return e.resources() == 0 })
	clk.pass(time.Hour)
	if n := released.Done(); n != 3 {
		t.Errorf("released %d times", n)
	}
	clean(t, s)
}
