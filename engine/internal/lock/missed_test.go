package lock

import (
	"testing"
	"time"
)

// However long the lease is that a head was told of, it asks again: a release may be silent.
func TestWait_HolderElsewhere_SleepIsBounded(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		clustered, confirmed bool
		most                 time.Duration
	}{
		{false, true, LongestSleep},
		{true, true, LongestSleepMissed},
		{false, false, time.Second},
		{true, false, time.Second},
	} {
		l := newLab(t)
		if x.clustered {
			l.cfg.LongestSleep = LongestSleepMissed
		}
		r := l.name()
		l.ask(r, false)
		l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Hour})
		if x.confirmed {
			l.does(r.sub.Subscribed)
			l.is(r, Acquiring)
			l.reply(r, Outcome{Reply: HeldByOther, TTL: time.Hour})
		}
		if d := bellOf(r.sub).at.Sub(l.now); d < x.most/2 || d > x.most {
			t.Errorf("%+v: it sleeps for %v", x, d)
		}
	}
}
