package faultproxy

import (
	"net"
	"time"
)

func (c *conn) writeUp() {
	if c.write(c.up, c.server) && c.proxy.clear(c) {
		// The client has said all it had to say; the server may still answer.
		if half, ok := c.server.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
}

func (c *conn) writeDown() {
	if c.write(c.down, c.client) && c.proxy.clear(c) {
		c.end(orderly)
	}
}

// write carries a queue to its end; true: everything has been written, or
// swallowed, and nothing more follows.
func (c *conn) write(q *queue, to net.Conn) bool {
	for {
		items := q.take(c.over)
		if items == nil {
			select {
			case <-c.over:
				return false
			default:
				return true
			}
		}
		for len(items) > 0 {
			n := 1 // items that go in one write: all that are due
			if !c.waitUntil(items[0].due) {
				return false
			}
			for now := time.Now(); n < len(items) && !items[n].due.After(now) && !items[n-1].cut; n++ {
			}
			if !c.writeBatch(items[:n], to) {
				return false
			}
			items = items[n:]
		}
	}
}

// writeBatch writes items of which at most the last is a cut; false: the
// connection is over, or the server has hung up.
func (c *conn) writeBatch(items []item, to net.Conn) bool {
	if !c.proxy.clear(c) {
		return true // swallowed, a cut too: nobody is told
	}
	parts := make(net.Buffers, len(items))
	for i, it := range items {
		parts[i] = it.bytes
	}
	if _, err := parts.WriteTo(to); err != nil {
		if to == c.client {
			c.end(reset)
		}
		// Else readDown learns why, and passes on what the server said before.
		return false
	}
	c.proxy.forwarded(items)
	cut := items[len(items)-1].cut
	if cut {
		c.end(reset)
	}
	for _, it := range items {
		it.then.tell()
	}
	return !cut
}

// forwarded books commands that have been written to the server.
func (p *Proxy) forwarded(items []item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, it := range items {
		if it.command != "" {
			p.stats.Forwarded[it.command]++
		}
	}
}

// waitUntil waits for an item's time; false: the connection is over.
func (c *conn) waitUntil(due time.Time) bool {
	d := time.Until(due)
	if due.IsZero() || d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.over:
		return false
	}
}

// after is when something that takes d from now is due.
func after(d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}
