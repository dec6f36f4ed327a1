package machine

import (
	"testing"
	"time"
)

// In a cluster a message may be missed, so the head tries now and then; elsewhere it sleeps until
// the lease ends that it was told of.
func TestWhereAMessageMayBeMissedASleepIsBounded(t *testing.T) {
	t.Parallel()
	for _, clustered := range []bool{false, true} {
		l := newLab(t)
		l.clustered = clustered
		r := l.name()
		l.ask(r, false)
		l.reply(r, Outcome{Answer: Taken, TTL: time.Hour})
		l.does(r.wait.Subscribed)
		l.is(r, Acquiring)
		l.reply(r, Outcome{Answer: Taken, TTL: time.Hour})
		d := r.wait.Port.(*bell).at.Sub(l.now)
		if (d <= MissedPoll) != clustered || d < MissedPoll/2 || d > time.Hour+time.Second {
			t.Errorf("in a cluster %t: it sleeps for %v", clustered, d)
		}
	}
}

// Behind a hold of its process the head hears of its removal, or looks if it may have missed that.
func TestWhereAMessageMayBeMissedAHoldIsLookedAt(t *testing.T) {
	t.Parallel()
	for _, clustered := range []bool{false, true} {
		l := newLab(t)
		l.clustered = clustered
		r := l.name()
		l.ask(r, false)
		l.reply(r, Outcome{})
		l.ask(r, false)
		l.does(r.wait.Subscribed)
		l.does(r.wait.Rang) // it is looked at once, for earlier messages
		w := r.wait.Port.(*bell)
		if (w.at != 0) != clustered {
			t.Fatalf("in a cluster %t: its alarm is at %v", clustered, w.at)
		}
		if !clustered {
			continue
		}
		if d := w.at.Sub(l.now); d < MissedPoll/2 || d > MissedPoll {
			t.Errorf("it is looked at in %v", d)
		}
		l.now = w.at
		l.does(func(fx *Effects) {
			if r.wait.Rang(fx); fx.Look == nil {
				t.Error("the hold is not looked at")
			}
		})
	}
}
