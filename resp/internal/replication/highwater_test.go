package replication

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

func TestHighWater_Observe_RemembersTheMost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		forever bool
		steps   [][3]int // seconds, attached, most
	}{
		"for a while": {false, [][3]int{{0, 2, 2}, {1, 1, 2}, {29, 1, 2}, {31, 1, 2}, {59, 1, 2}, {61, 1, 1}, {62, 3, 3}, {63, 0, 3}, {500, 0, 0}}},
		"for ever":    {true, [][3]int{{0, 1, 1}, {1, 3, 3}, {100_000, 2, 3}}},
		"in steps":    {false, [][3]int{{0, 3, 3}, {31, 2, 3}, {35, 1, 3}, {62, 1, 2}, {93, 1, 1}}},
	} {
		s := &HighWater{Forever: test.forever}
		start := clock.Instant(5 * time.Hour)
		for _, step := range test.steps {
			if got := s.Observe(step[1], start.Add(time.Duration(step[0])*time.Second)); got != step[2] {
				t.Errorf("%s: after %d s, with %d attached: %d, want %d", name, step[0], step[1], got, step[2])
			}
		}
	}
}
