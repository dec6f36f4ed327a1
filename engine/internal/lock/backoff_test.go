package lock

import (
	"slices"
	"testing"
	"time"
)

// The lab draws half of what it may draw, so a pause is as long as the back-off says.
func TestAHeadThatPollsBacksOffAsItsRequestSays(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	for what, x := range map[string]struct {
		b    Backoff
		ttl  time.Duration
		want []time.Duration
	}{
		"by default":          {want: []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 128, 128}},
		"at a constant rate":  {b: Backoff{64 * ms, 64 * ms}, want: []time.Duration{64, 64, 64}},
		"between two bounds":  {b: Backoff{3 * ms, 20 * ms}, want: []time.Duration{3, 6, 12, 20, 20}},
		"no longer than left": {b: Backoff{64 * ms, 64 * ms}, ttl: 20 * ms, want: []time.Duration{21, 21}}, // and one: the server rounds down
	} {
		l := newLab(t)
		r := l.name()
		c := new(caller)
		c.Init(c)
		c.Kind = polling
		if x.b != (Backoff{}) {
			c.More().Backoff = x.b
		}
		l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
		var got []time.Duration
		for range x.want {
			l.is(r, Acquiring)
			ttl := x.ttl
			if ttl == 0 {
				ttl = time.Hour
			}
			l.reply(r, Outcome{Reply: HeldByOther, TTL: ttl})
			w := bellOf(r.sub)
			if w.listening {
				t.Fatalf("%s: it listens", what)
			}
			got = append(got, w.at.Sub(l.now)/ms)
			l.now = w.at
			l.does(w.AlarmFired)
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: %v ms, want %v", what, got, x.want)
		}
	}
}

// However often it has been doubled.
func TestTheLongestBackoffIsWhatItIsAfterAnyNumberOfTries(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	r := l.name()
	c := new(caller)
	c.Init(c)
	c.Kind = polling
	c.More().Backoff = Backoff{time.Millisecond, time.Second}
	l.does(func(rd *Ready) { r.Admit(&c.Request, rd) })
	var last time.Duration
	for range 300 {
		l.reply(r, Outcome{Reply: HeldByOther, TTL: 24 * time.Hour})
		w := bellOf(r.sub)
		if last = w.at.Sub(l.now); last <= 0 || last > time.Second {
			t.Fatalf("a pause of %v", last)
		}
		l.now = w.at
		l.does(w.AlarmFired)
	}
	if last != time.Second {
		t.Errorf("%v", last)
	}
}
