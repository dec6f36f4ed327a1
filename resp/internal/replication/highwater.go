package replication

import (
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// seenFor is for how long at least a replica that was attached counts where the
// deployment keeps a list: long enough for that to have it.
const seenFor = 30 * time.Second

// MostSeen is the most replicas that were attached at a time: of the last seenFor, up to
// twice that; where nobody keeps a list, since the beginning. A failover on command begins
// with detaching the replica that is to be promoted, while the primary goes on.
type MostSeen struct {
	Forever bool
	mu      struct {
		sync.Mutex
		before, now int
		since       clock.Instant // of now
	}
}

// See notes how many are attached, and returns the most.
func (s *MostSeen) See(n int, at clock.Instant) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := at.Sub(s.mu.since); !s.Forever && age >= seenFor {
		s.mu.before, s.mu.now, s.mu.since = s.mu.now, 0, at
		if age >= 2*seenFor {
			s.mu.before = 0
		}
	}
	s.mu.now = max(s.mu.now, n)
	return max(s.mu.before, s.mu.now)
}
