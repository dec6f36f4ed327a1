package resp

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// What this process missed counts for nobody's silence, until a few beats have shown
// that it keeps up.
func TestLagMeter_ProcessDidNotRun_LeavesThatTimeOut(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	start := clock.Instant(time.Hour)
	p := lagMeter{last: start}
	for i, beat := range []struct{ at, behind time.Duration }{
		{100 * ms, 0},
		{220 * ms, 20 * ms},
		{300 * ms, 20 * ms},
		{10_000 * ms, 9600 * ms}, // the process was stopped
		{10_100 * ms, 9600 * ms}, // what arrived meanwhile is being read
		{10_200 * ms, 9600 * ms},
		{10_300 * ms, 0},
		{11_500 * ms, 1100 * ms}, // it gets too little of the processor, for long
		{12_700 * ms, 1100 * ms},
		{14_000 * ms, 1200 * ms},
	} {
		now := start.Add(beat.at)
		if got := now.Sub(p.asOf(now)); got != beat.behind {
			t.Errorf("beat %d, at %v: %v are left out, want %v", i, beat.at, got, beat.behind)
		}
	}
}
