package resp

import (
	"context"
	"errors"
	"fmt"

	"github.com/pawl-lock/pawl/resp/internal/pipeline"
	"github.com/pawl-lock/pawl/resp/internal/replication"
	"github.com/pawl-lock/pawl/resp/internal/suspicion"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// errRetired is why the connections of a node end that serves nothing any more.
var errRetired = errors.New("resp: the server serves this part of the keys no longer")

// redirect sends the command of a on, if the refusal e says where to, and reports
// whether it did. topology.ActionOf decides. It runs on the event
// loop of a's node.
func (l *link) redirect(a pipeline.Answer, e *ServerError) bool {
	n, c := l.node, l.node.client
	at := topology.Refused{Kind: c.cfg.Topology.kind(), Addr: n.cfg.Addr, Hops: a.Hops, AddrMap: n.cfg.addrs}
	r := topology.ActionOf(e, at)
	e.Message += r.Advice // before others read it: e may become why connections end
	if r.Doubt != topology.NoDoubt {
		n.doubt(r, a, e, at)
	}
	if _, ok := a.Request.(*replication.Member); l.role >= RoleDurable && !ok {
		return false // ROLE and WAIT are for this node
	}
	if r.Unknown != "" {
		c.explorer.Translate(r.Unknown)
	}
	var to *node
	if r.To != "" {
		if to = c.redirected(r); to == nil {
			c.explorer.RefreshSoon() // a search makes room for others
		}
	}
	switch r.Refresh {
	case topology.RefreshSoon:
		c.explorer.RefreshSoon()
	case topology.RefreshNow:
		c.explorer.RefreshNow(r.Hint)
	}
	if to == nil {
		return false
	}
	c.redirects.Add(1)
	to.forward(l, a.Request, a.Hops+1, !r.Permanent)
	return true
}

// redirected returns the node that a command is sent on to. It gets the slot, too, if that has
// moved.
func (c *Client) redirected(r topology.Action) *node {
	if r.Permanent {
		return c.patch(r.Slot, r.To)
	}
	return c.nodeAt(r.To)
}

// forward sends a request as l did at its node.
func (n *node) forward(l *link, r Request, hops uint8, asking bool) {
	switch l.role {
	case RoleLane:
		n.lanes[l.index].Send(r, hops, asking)
	case RoleRenewal:
		n.renewal.Send(r, hops, asking)
	default:
		r.(*replication.Member).MoveTo(n.durable[l.role-RoleDurable], hops, asking)
	}
}

// doubt takes a refusal that says something of the connection. It runs on the event loop.
func (n *node) doubt(r topology.Action, a pipeline.Answer, e *ServerError, at topology.Refused) {
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	m := n.mu.suspicion.Refused(r.Doubt, e.Message, a.Sent, now)
	n.mu.Unlock()
	switch {
	case m == suspicion.Ask:
		q := suspicion.About(a.Request)
		n.goLabelled("asking", func(ctx context.Context) { n.ask(ctx, q, at, r.To) })
	case m == suspicion.Replace && r.Doubt == topology.Certain:
		n.replace(fmt.Errorf("resp: the connection is refused: %w", e))
	case m == suspicion.Replace:
		n.replace(fmt.Errorf("resp: another server is behind this address by now, the one before refuses: %w", e))
	}
}

// ask asks on a new connection whether it is served better than the others, which were sent to an
// address, or to none.
func (n *node) ask(ctx context.Context, q suspicion.Question, at topology.Refused, sentTo string) {
	v, err := n.cfg.handshakeConfig().Ask(ctx, q)
	served := err == nil && suspicion.Served(v, at, sentTo)
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.suspicion.Answered(served, now)
}
