package resp

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// housekeep is the one timer of the Client.
func (c *Client) housekeep(ctx context.Context) {
	tick := time.NewTicker(housekeepingEvery)
	defer tick.Stop()
	p := lagMeter{last: c.cfg.Clock.Now()}
	for {
		select {
		case <-tick.C:
			// Queue behind the goroutines that the network has woken: if they wait long
			// for a processor, so does the ticker.
			runtime.Gosched()
			now := p.asOf(c.cfg.Clock.Now())
			for _, n := range c.nodes() {
				for _, l := range n.links {
					l.endpoint.CheckAge(now)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// lagMeter notices that this process does not run as it should: it was stopped, its
// machine slept, or it gets too little CPU. Then every command looks overdue, though its
// answer may be in the socket, or with a goroutine that waits for a processor. Giving up
// the connections would be wrong: it is not the server that was silent. So if a tick is
// late, all may be silent for that much longer, at this tick and the next ones, during
// which the others get to run.
type lagMeter struct {
	last   clock.Instant
	behind [3]time.Duration // by which the latest ticks were late
}

// asOf returns the instant as of which ages are judged: now, if this process keeps up.
func (p *lagMeter) asOf(now clock.Instant) clock.Instant {
	copy(p.behind[1:], p.behind[:])
	p.behind[0] = max(0, now.Sub(p.last)-housekeepingEvery)
	p.last = now
	return now.Add(-slices.Max(p.behind[:]))
}
