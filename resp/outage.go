package resp

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/greet"
)

// Outage is the time from when the first connection to a server was lost, or could not be made,
// until all are up, or nothing needs that server any more.
type Outage struct {
	Addr  string
	Since clock.Instant
	Err   error // why it began
	Over  bool
}

// outage is that of a node. Its node's mu guards it.
type outage struct {
	on      bool
	lasting bool // a refusal that needs a human has been logged
	since   clock.Instant
}

// outageBegins is called when a connection was lost or could not be made. It reports whether
// that begins an outage.
func (n *node) outageBegins(err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.outage.on || n.ctx.Err() != nil {
		return false
	}
	n.mu.outage = outage{on: true, since: n.cfg.Clock.Now(), lasting: greet.Lasting(err)}
	n.tellLocked(Outage{Addr: n.cfg.Addr, Since: n.mu.outage.since, Err: err})
	return true
}

// outageMayEnd is called when a connection came up, and when the node is closed.
func (n *node) outageMayEnd() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if was := n.mu.outage; was.on && (n.ctx.Err() != nil || !n.impaired() && !n.older()) {
		n.mu.outage = outage{}
		if n.client.ctx.Err() == nil {
			n.tellLocked(Outage{Addr: n.cfg.Addr, Since: was.since, Over: true})
		}
	}
}

// firstLasting reports whether a failure is the first in this outage that needs a human.
func (n *node) firstLasting(err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.outage.lasting || !greet.Lasting(err) {
		return false
	}
	n.mu.outage.lasting = true
	return true
}

// tellLocked tells of the beginning and the end of an outage, in order.
func (n *node) tellLocked(o Outage) {
	switch {
	case n.cfg.OnOutage != nil:
		n.cfg.OnOutage(o)
	case o.Over:
		n.cfg.Logger.Info("resp: a server is back", "addr", o.Addr, "after", n.cfg.Clock.Now().Sub(o.Since).Round(time.Millisecond))
	default:
		n.cfg.Logger.Log(n.ctx, slog.LevelWarn, "resp: no connection to a server, trying again", "addr", o.Addr, "err", o.Err)
	}
}

// missing returns since when the node has not had all its connections, and why; 0 if it has.
func (n *node) missing() (since clock.Instant, why error) {
	for _, l := range n.links {
		up, _, last := l.status()
		if up || l.dormant.Load() {
			continue
		}
		if down := l.downSince(); since == 0 || down < since {
			since = down
		}
		if why == nil || greet.Lasting(last) {
			why = last
		}
	}
	return since, why
}

// downSince returns since when the link has had no connection; 0 while it has one.
func (l *link) downSince() clock.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.down
}

// DownSince returns since when the lane of a route has had no connection; 0 while it has one. If
// no node is known that serves the route, that counts from when the Client lost it.
func (c *Client) DownSince(route uint64) clock.Instant {
	n := c.routes.Of(route)
	if n == nil {
		return clock.Instant(c.changedAt.Load())
	}
	return n.links[n.laneIndex(route)].downSince()
}

// Pausing returns why the latest attempt to connect the lane of a route has failed, if the next one
// is not due yet; else nil.
func (c *Client) Pausing(route uint64) error {
	n := c.routes.Of(route)
	if n == nil {
		_, _, err := c.explorer.Progress()
		return err
	}
	l := n.links[n.laneIndex(route)]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.pausing {
		return l.mu.last
	}
	return nil
}

// RenewalError is LaneError for the renewal connection of a route.
func (c *Client) RenewalError(route uint64) error {
	n := c.routes.Of(route)
	if n == nil {
		return errNowhere
	}
	_, _, err := n.link(RoleRenewal, 0).status()
	return err
}

// Missing returns the servers that do not have all their connections, by address, and since when;
// and how many have.
func (c *Client) Missing() (since map[string]clock.Instant, connected int) {
	for _, n := range c.awaited(nil) {
		if at, _ := n.missing(); at == 0 {
			connected++
		} else {
			if since == nil {
				since = make(map[string]clock.Instant)
			}
			since[n.cfg.Addr] = at
		}
	}
	return since, connected
}

// missingAddrs are their addresses.
func (c *Client) missingAddrs() []string {
	since, _ := c.Missing()
	return slices.Sorted(maps.Keys(since))
}

// Ready returns nil if a primary has all its connections, as WaitFirst would after DialTimeout at
// the latest; else why none has. It does no I/O.
func (c *Client) Ready() error {
	found, _, err := c.explorer.Progress()
	if !found {
		if err == nil {
			err = errNotYet
		}
		return err
	}
	var errs []error
	for _, n := range c.awaited(nil) {
		at, why := n.missing()
		if at == 0 {
			return nil
		}
		if why == nil {
			why = errNotYet
		}
		errs = append(errs, why)
	}
	if errs == nil {
		return errNowhere
	}
	return together(errs)
}
