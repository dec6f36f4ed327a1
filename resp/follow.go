package resp

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// follow makes the routes those of a layout: nodes for new primaries, and an end for
// those that serve nothing any more. Slots that nobody serves keep their node: it
// will tell. Called by the explorer only; it hears whether anything changed.
func (c *Client) follow(l *layout) (changed bool) {
	changed = c.routes.moved.Swap(false) // by MOVED, since the last time
	for _, s := range l.shards {
		n := c.nodeAt(s.Primary)
		if n == nil {
			return false // closing
		}
		if c.routes.slots == nil {
			changed = c.routes.single.Swap(n) != n || changed
			continue
		}
		for slot := int(s.First); slot <= int(s.Last); slot++ {
			if old := &c.routes.slots[slot]; old.Load() != n {
				old.Store(n)
				changed = true
			}
		}
	}
	if changed {
		c.moveChannels() // while the nodes that they leave are still known
	}
	c.retire()
	if changed && c.cfg.OnRoutes != nil {
		c.cfg.OnRoutes()
	}
	return changed
}

// nodeAt returns the node of an address, made if need be; nil if the Client is being
// closed. It is not retired for a while.
func (c *Client) nodeAt(addr string) *node {
	c.mu.Lock()
	n, fresh := c.nodeAtLocked(addr)
	c.mu.Unlock()
	if fresh {
		n.open()
	}
	return n
}

func (c *Client) nodeAtLocked(addr string) (n *node, fresh bool) {
	if c.mu.closed {
		return nil, false
	}
	n = c.mu.nodes[addr]
	if n == nil {
		n, fresh = newNode(c, networkOf(addr), addr), true
		c.mu.nodes[addr] = n
	}
	n.idleSince = 0
	return n, fresh
}

// patch gives one slot to the node of an address, as MOVED says, and returns it; nil
// if the Client is being closed. It is one step with retire, or a slot might be left
// with a node that has just been closed.
func (c *Client) patch(slot uint16, addr string) *node {
	c.mu.Lock()
	n, fresh := c.nodeAtLocked(addr)
	if n != nil && c.routes.slots[slot].Swap(n) != n {
		c.routes.moved.Store(true)
	}
	c.mu.Unlock()
	if fresh {
		n.open()
	}
	return n
}

// retire closes the nodes that have served nothing for a while. Where there is one
// primary, the one before goes at once: it may be alive, and is wrong.
func (c *Client) retire() {
	now := c.cfg.Clock.Now()
	var gone []*node
	c.mu.Lock()
	serving := c.routes.nodes()
	for addr, n := range c.mu.nodes {
		switch {
		case slices.Contains(serving, n):
			n.idleSince = 0
		case n.idleSince == 0 && c.routes.slots != nil:
			n.idleSince = now
		case c.routes.slots == nil || now.Sub(n.idleSince) >= retireAfter:
			delete(c.mu.nodes, addr)
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
func (c *Client) sharding(ctx context.Context, l *layout) error {
	if c.routes.slots == nil || c.shardingKnown {
		return nil
	}
	on := c.cfg.Sharding == ShardingOn
	if c.cfg.Sharding == ShardingAuto {
		var err error
		if on, err = c.hasSharded(ctx, l); err != nil {
			return err
		}
	}
	c.sharded.Store(on)
	c.shardingKnown = true
	return nil
}

// hasSharded asks one primary after the other until one says yes or no. That it is
// loading, busy or full is neither.
func (c *Client) hasSharded(ctx context.Context, l *layout) (yes bool, err error) {
	var asked []string
	var failed []error
	for _, s := range l.shards {
		if slices.Contains(asked, s.Primary) {
			continue
		}
		asked = append(asked, s.Primary)
		_, err := c.cfg.scout(ctx, s.Primary, "PUBSUB", "SHARDNUMSUB", "0")
		var refused *ServerError
		if err == nil {
			return true, nil
		}
		if errors.As(err, &refused) && (refused.Code == "NOPERM" || strings.HasPrefix(refused.Message, "ERR unknown") || strings.HasPrefix(refused.Message, "ERR Unknown")) {
			return false, nil
		}
		failed = append(failed, err)
	}
	return false, errors.Join(failed...)
}

// Sharded reports whether Channels are sharded ones: then messages must be sent with
// SPUBLISH. It is settled before the first command of a route finds a node.
func (c *Client) Sharded() bool { return c.sharded.Load() }

// moveChannels takes the Channels along that are subscribed at a node that does not
// serve their slot any more, and finds a place for those that had none. Their
// handlers hear Disconnected, if they were live, before they can hear Subscribed from
// the new node:
//
//	out of the old node, into limbo      (lock)
//	Disconnected                         (no lock)
//	out of limbo, into the new node      (lock)
//	... SUBSCRIBE, its answer: Subscribed
func (c *Client) moveChannels() {
	var told []ChannelHandler
	var wake []*node
	nodes := c.nodes()
	c.subLock.Lock()
	for _, n := range nodes {
		s := n.pubsub.subs
		if handlers := s.evictLocked(c.limbo, func(slot uint16) bool { return c.routes.of(uint64(slot)) != n }); handlers != nil {
			told = append(told, handlers...)
			wake = append(wake, n)
		}
	}
	c.subLock.Unlock()
	tell(told, Disconnected, nil, nil)

	c.subLock.Lock()
	for _, t := range c.limbo.mu.topics {
		n := c.routes.of(uint64(t.slot))
		if n == nil {
			continue
		}
		for ch := t.first; ch != nil; ch = t.first {
			c.limbo.unsubscribeLocked(ch)
			if n.pubsub.subs.subscribeLocked(ch) && !slices.Contains(wake, n) {
				wake = append(wake, n)
			}
		}
	}
	c.subLock.Unlock()
	for _, n := range wake {
		n.pubsub.wake()
	}
}
