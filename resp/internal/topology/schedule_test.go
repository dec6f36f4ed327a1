package topology

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// The end of a search is the instant zero. Nothing is left to luck.
func TestSchedule_Events_DecideTheNextSearch(t *testing.T) {
	t.Parallel()
	const (
		ms     = time.Millisecond
		begins = "a search begins"
		finds  = "it finds something new"
		idles  = "it finds nothing new"
		fails  = "it fails"
		nudge  = "something is wrong"
		kick   = "something has changed"
	)
	for name, c := range map[string]struct {
		period time.Duration
		steps  []string
		want   [2]time.Duration // not before, not after, since the end of the last search
	}{
		"without a reason":                      {30 * time.Second, []string{begins, finds}, [2]time.Duration{250 * ms, 30 * time.Second}},
		"something is wrong":                    {30 * time.Second, []string{begins, finds, nudge}, [2]time.Duration{250 * ms, 250 * ms}},
		"something has changed":                 {30 * time.Second, []string{begins, finds, kick}, [2]time.Duration{250 * ms, 250 * ms}},
		"after a failure":                       {30 * time.Second, []string{begins, fails}, [2]time.Duration{250 * ms, 250 * ms}},
		"after two failures":                    {30 * time.Second, []string{begins, fails, begins, fails}, [2]time.Duration{500 * ms, 500 * ms}},
		"wrong while it searches":               {30 * time.Second, []string{begins, nudge, finds}, [2]time.Duration{250 * ms, 250 * ms}},
		"changed while it searches":             {30 * time.Second, []string{begins, idles, begins, idles, begins, idles, begins, kick, idles}, [2]time.Duration{250 * ms, 250 * ms}},
		"asked before it searched":              {30 * time.Second, []string{begins, finds, kick, nudge, begins, idles}, [2]time.Duration{250 * ms, 30 * time.Second}},
		"wrong again and again":                 {30 * time.Second, []string{begins, idles, nudge, begins, idles, nudge}, [2]time.Duration{500 * ms, 500 * ms}},
		"wrong for long":                        {30 * time.Second, []string{begins, idles, begins, idles, begins, idles, begins, idles, begins, idles, begins, idles, nudge}, [2]time.Duration{time.Second, time.Second}},
		"wrong for long, and then it changes":   {30 * time.Second, []string{begins, idles, begins, idles, begins, idles, nudge, kick}, [2]time.Duration{250 * ms, 250 * ms}},
		"two changes are no sooner than one":    {30 * time.Second, []string{begins, idles, begins, idles, begins, idles, kick, kick}, [2]time.Duration{250 * ms, 250 * ms}},
		"after a change it begins anew":         {30 * time.Second, []string{begins, idles, begins, idles, begins, idles, kick, begins, idles, nudge}, [2]time.Duration{250 * ms, 250 * ms}},
		"after something new, too":              {30 * time.Second, []string{begins, idles, begins, idles, begins, finds, nudge}, [2]time.Duration{250 * ms, 250 * ms}},
		"never after the period":                {600 * ms, []string{begins, idles, begins, idles, begins, idles, begins, idles}, [2]time.Duration{600 * ms, 600 * ms}},
		"nor then without ExploreEvery between": {600 * ms, []string{begins, idles, begins, idles, begins, idles, begins, idles, kick, kick}, [2]time.Duration{250 * ms, 250 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s schedule
			now := clock.Instant(time.Hour)
			none := func(time.Duration) time.Duration { return 0 }
			for _, step := range c.steps {
				switch step {
				case begins:
					s.began()
				case nudge:
					s.refreshSoon()
				case kick:
					s.refreshNow()
				default:
					now = now.Add(time.Minute)
					s.ended(now, outcome{news: step == finds, failed: step == fails, period: c.period}, none)
				}
			}
			if got := [2]time.Duration{s.notBefore.Sub(now), s.notAfter.Sub(now)}; got != c.want {
				t.Errorf("not before %v, not after %v; want %v", got[0], got[1], c.want)
			}
		})
	}
}

// Whatever chance says, and in whatever order things happen.
func FuzzSchedule(f *testing.F) {
	f.Add([]byte{0, 3, 1, 0, 4, 2, 0, 2, 5})
	f.Fuzz(func(t *testing.T, steps []byte) {
		var s schedule
		now := clock.Instant(time.Hour)
		searching, searched, asked := false, false, false
		for _, b := range steps {
			luck := func(limit time.Duration) time.Duration { return limit * time.Duration(b) / 256 }
			switch b % 6 {
			case 0:
				if !searching {
					s.began()
					searching, asked = true, false
				}
			case 1:
				s.refreshSoon()
				asked = true
			case 2:
				s.refreshNow()
				asked = true
			default:
				if !searching {
					continue
				}
				o := outcome{news: b%6 == 3, failed: b%6 == 4, period: []time.Duration{time.Second, 30 * time.Second}[b/6%2]}
				s.ended(now, o, luck)
				searching, searched, asked = false, true, asked || o.failed
				if d := s.notAfter.Sub(now); d > o.period {
					t.Fatalf("%v: not after %v, and the period is %v", steps, d, o.period)
				}
			}
			if searching || !searched {
				continue
			}
			first, last := s.notBefore.Sub(now), s.notAfter.Sub(now)
			if first < ExploreEvery || last < first || asked && last != first {
				t.Fatalf("%v: not before %v, not after %v", steps, first, last)
			}
		}
	})
}
