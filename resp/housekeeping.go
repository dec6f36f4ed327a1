package resp

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// housekeep is the one timer of the Client.
func (c *Client) housekeep(ctx context.Context) {
	tick := time.NewTicker(housekeepingEvery)
	defer tick.Stop()
	p := pulse{allowed: housekeepingEvery + c.cfg.CommandTimeout/2, last: c.cfg.Clock.Now()}
	for {
		select {
		case <-tick.C:
			now := c.cfg.Clock.Now()
			if !p.beat(now) {
				continue
			}
			for _, n := range c.nodes() {
				for _, l := range n.links {
					l.endpoint.checkAge(now)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// pulse notices that this process has not run for a while: it was stopped, its
// machine slept, or it got no processor. Then every command looks overdue, though
// its answer may lie in the socket, and to give all connections up would be to
// take one's own silence for the server's. So the first beat afterwards does not
// count, and the event loops have until the next one to read.
type pulse struct {
	allowed time.Duration // between two beats of a healthy process
	last    clock.Instant
	skipped bool // the beat before this one did not count
}

// beat reports whether now is good for judging the age of commands. Of two beats
// in a row one is.
func (p *pulse) beat(now clock.Instant) bool {
	late := now.Sub(p.last) > p.allowed
	p.last = now
	p.skipped = late && !p.skipped
	return !p.skipped
}
