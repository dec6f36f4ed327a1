package resp

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

func TestPulseSkipsTheFirstBeatAfterAStop(t *testing.T) {
	t.Parallel()
	start := clock.Instant(time.Hour)
	p := pulse{allowed: time.Second, last: start}
	for i, beat := range []struct {
		at   time.Duration
		want bool
	}{
		{100 * time.Millisecond, true},
		{1100 * time.Millisecond, true},
		{10 * time.Second, false}, // the process was stopped
		{10*time.Second + 100*time.Millisecond, true},
		{20 * time.Second, false},
		{30 * time.Second, true}, // never two in a row
		{40 * time.Second, false},
	} {
		if got := p.beat(start.Add(beat.at)); got != beat.want {
			t.Errorf("beat %d, at %v: %v, want %v", i, beat.at, got, beat.want)
		}
	}
}
