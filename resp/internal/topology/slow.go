package topology

import (
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// slowFor is for how long a slow server is asked last: a machine that is gone costs a head start
// every three seconds. Not longer: who was slow once may know more than the server that
// answers first, as a sentinel does that knows of a failover.
const slowFor = 3 * time.Second

// slowServers are servers that others have overtaken lately: they were asked earlier, and had not
// said a word when another one answered. They are asked last for a while, so a machine that is
// gone costs a head start once, and not in each search. A server that refuses is not slow:
// then the next is asked at once.
type slowServers struct {
	mu struct {
		sync.Mutex
		until map[string]clock.Instant
	}
}

// note takes down how a race ended.
func (l *slowServers) note(now clock.Instant, winner string, silent []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for addr, until := range l.mu.until {
		if addr == winner || !now.Before(until) {
			delete(l.mu.until, addr)
		}
	}
	for _, addr := range silent {
		if l.mu.until == nil {
			l.mu.until = make(map[string]clock.Instant)
		}
		l.mu.until[addr] = now.Add(slowFor)
	}
}

// last returns the addresses in their order, but the slow servers behind the others.
func (l *slowServers) last(now clock.Instant, addrs []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := func(addr string) int {
		if until, ok := l.mu.until[addr]; ok && now.Before(until) {
			return 1
		}
		return 0
	}
	addrs = slices.Clone(addrs)
	slices.SortStableFunc(addrs, func(a, b string) int { return late(a) - late(b) })
	return addrs
}
