package resp

import (
	"context"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/pubsub"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// topologyClient is what the explorer sees of a Client.
type topologyClient Client

// Counting implements topology.Client.
func (f *topologyClient) Counting() bool { return f.counting.Load() }

// Impaired implements topology.Client.
func (f *topologyClient) Impaired() bool { return (*Client)(f).impaired() }

// Searched implements topology.Client.
func (f *topologyClient) Searched() { (*Client)(f).changed() }

// Follow implements topology.Client.
func (f *topologyClient) Follow(ctx context.Context, l *topology.Layout) (changed, gaps bool, err error) {
	c := (*Client)(f)
	if err := c.sharding(ctx, l); err != nil {
		return false, false, err
	}
	changed = c.follow(l)
	c.count(l.Groups) // a new primary has been in the group of the old one
	return changed, c.Clustered() && !l.Complete() || c.uncounted(), nil
}

// Lost implements topology.Client. MOVED makes nodes and changes routes, whether searches find
// something or not.
func (f *topologyClient) Lost() (changed bool) {
	c := (*Client)(f)
	changed = c.routes.Moved()
	c.applyRoutes(changed)
	return changed
}

// follow makes the routes those of a layout: nodes for new primaries, and an end for
// those that serve nothing any more. Called by the explorer only; it returns whether
// anything changed.
func (c *Client) follow(l *topology.Layout) (changed bool) {
	changed = c.routes.Moved() // since the last time
	nodes := c.nodesOf(l)
	if nodes == nil {
		return false // closing
	}
	changed = c.routes.Follow(l.Shards, nodes) || changed
	c.applyRoutes(changed)
	return changed
}

// applyRoutes follows a change of routes, and closes nodes that serve nothing any more.
func (c *Client) applyRoutes(changed bool) {
	if changed {
		c.changedAt.Store(int64(c.cfg.Clock.Now()))
		c.moveChannels() // while the nodes that they leave are still known
	}
	c.retire()
	if changed && c.cfg.OnRoutes != nil {
		c.cfg.OnRoutes()
	}
}

// nodesOf returns the nodes of a layout, made if need be, by address; nil if the Client is
// being closed. All others are unlisted from now on.
func (c *Client) nodesOf(l *topology.Layout) map[string]*node {
	nodes := make(map[string]*node)
	var fresh []*node
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return nil
	}
	for _, addr := range l.Primaries() {
		n := c.mu.nodes[addr]
		if n == nil {
			n = c.newNodeLocked(addr)
			fresh = append(fresh, n)
		}
		n.idleSince = 0
		nodes[addr] = n
	}
	c.mu.unlisted = 0
	for addr, n := range c.mu.nodes {
		if n.unlisted = nodes[addr] == nil; n.unlisted {
			c.mu.unlisted++
		}
	}
	c.mu.Unlock()
	for _, n := range fresh {
		n.open()
	}
	return nodes
}

func (c *Client) newNodeLocked(addr string) *node {
	n := newNode(c, topology.NetworkOf(addr), addr)
	c.mu.nodes[addr] = n
	return n
}

// maxUnlisted bounds how many nodes there are that the latest layout does not name. A
// cluster whose slots move has a few until the next search; a server that sends everybody
// to ever new addresses must not have the client connect to all of them.
const maxUnlisted = 32

// nodeAt returns the node of an address that a server sends a command on to, made if need
// be. It is not retired for a while. It is nil if the Client is being closed, or if there
// are too many unlisted nodes.
func (c *Client) nodeAt(addr string) *node {
	return c.nodeFor(addr, func(*node) {})
}

// patch is nodeAt, and gives that node a slot, as MOVED says. It is one step with retire,
// or a slot might be left with a node that has just been closed.
func (c *Client) patch(slot uint16, addr string) *node {
	return c.nodeFor(addr, func(n *node) {
		c.routes.Move(slot, n)
	})
}

// nodeFor is nodeAt; use is called with the node under mu.
func (c *Client) nodeFor(addr string, use func(*node)) *node {
	c.mu.Lock()
	n := c.mu.nodes[addr]
	fresh := n == nil
	if c.mu.closed || fresh && c.mu.unlisted >= maxUnlisted {
		c.mu.Unlock()
		return nil
	}
	if fresh {
		n = c.newNodeLocked(addr)
		n.unlisted = true
		c.mu.unlisted++
	}
	n.idleSince = 0
	use(n)
	c.mu.Unlock()
	if fresh {
		n.open()
	}
	return n
}

// retireAfter is how long a node that serves nothing keeps its connections: slots
// that are moved back and forth must not cost a handshake each time.
const retireAfter = 5 * time.Second

// retire closes the nodes that have served nothing for a while. Where there is one
// primary, the one before goes at once: it may be alive, and is wrong.
func (c *Client) retire() {
	now := c.cfg.Clock.Now()
	var gone []*node
	c.mu.Lock()
	serving := c.routes.Serving()
	for addr, n := range c.mu.nodes {
		switch {
		case serving[n]:
			n.idleSince = 0
		case n.idleSince == 0 && c.routes.Divided():
			n.idleSince = now
		case !c.routes.Divided() || now.Sub(n.idleSince) >= retireAfter:
			delete(c.mu.nodes, addr)
			if n.unlisted {
				c.mu.unlisted--
			}
			gone = append(gone, n)
		}
	}
	c.mu.Unlock()
	for _, n := range gone {
		n.close(errRetired)
		c.retired.add(n)
	}
}

// sharding decides, once, which kind of channels to use: by what the server says, and
// not by a connection that failed while it was asked.
func (c *Client) sharding(ctx context.Context, l *topology.Layout) error {
	if !c.routes.Divided() || c.shardingKnown {
		return nil
	}
	on := c.cfg.Sharding == ShardingOn
	if c.cfg.Sharding == ShardingAuto {
		var err error
		if on, err = c.explorer.Sharded(ctx, l.Primaries()); err != nil {
			return err
		}
	}
	c.sharded.Store(on)
	c.shardingKnown = true
	return nil
}

// Sharded reports whether Channels are sharded ones: then messages must be sent with
// SPUBLISH. It is settled before the first command of a route finds a node.
func (c *Client) Sharded() bool { return c.sharded.Load() }

// moveChannels takes the Channels along that are subscribed at a node that does not
// serve their slot any more.
func (c *Client) moveChannels() {
	var endpoints []*pubsub.Endpoint
	for _, n := range c.nodes() {
		endpoints = append(endpoints, n.pubsub)
	}
	c.channels.Move(endpoints)
}
