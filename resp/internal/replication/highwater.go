package replication

import (
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// highWaterFor is for how long at least a replica that was attached counts where the
// deployment keeps a list: long enough for that to have it.
const highWaterFor = 30 * time.Second

// HighWater is the most replicas that were attached at a time: of the last highWaterFor, up to
// twice that; where nobody keeps a list, since the beginning. A failover on command begins
// with detaching the replica that is to be promoted, while the primary goes on.
type HighWater struct {
	Forever bool
	mu      struct {
		sync.Mutex
		before, now int
		since       clock.Instant // of now
	}
}

// Observe notes how many are attached, and returns the most.
func (s *HighWater) Observe(n int, at clock.Instant) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := at.Sub(s.mu.since); !s.Forever && age >= highWaterFor {
		s.mu.before, s.mu.now, s.mu.since = s.mu.now, 0, at
		if age >= 2*highWaterFor {
			s.mu.before = 0
		}
	}
	s.mu.now = max(s.mu.now, n)
	return max(s.mu.before, s.mu.now)
}
