package resp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/greet"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// WaitReady returns nil once every connection has been up. An error that needs a
// human (a wrong password, a database that does not exist, a missing permission) is
// returned at once and wraps a *ServerError; the Client goes on trying anyway.
// When ctx ends, the error has its cause and the latest error of a connection.
func (c *Client) WaitReady(ctx context.Context) error { return c.wait(ctx, false) }

// WaitFirst is WaitReady for callers that do not want to wait for a server to start: it
// fails at once if the first round of attempts reaches no server. If one answers, the
// attempts go on for DialTimeout: it may be loading its data, or a failover may be
// under way. So they do if one has yet to answer; and the layout is looked for once more
// after that, since silence may decide it.
func (c *Client) WaitFirst(ctx context.Context) error { return c.wait(ctx, true) }

// wait returns nil once every connection has been up, or why not: if that will not change
// by itself, or, with first, after the first round.
func (c *Client) wait(ctx context.Context, first bool) error {
	begun := c.cfg.Clock.Now()
	look := time.AfterFunc(c.cfg.DialTimeout, c.changed)
	defer look.Stop()
	for {
		c.mu.Lock()
		closed, change := c.mu.closed, c.mu.change
		c.mu.Unlock()
		if closed {
			return ErrClosed
		}
		p := c.progress()
		if p.ready {
			return nil
		}
		late := p.asOf.Sub(begun) >= c.cfg.DialTimeout
		hopeless := greet.Lasting(p.err) || first && (late || !p.answered)
		if p.err != nil && hopeless && (late || !p.open) {
			return p.err
		}
		select {
		case <-change:
		case <-ctx.Done():
			if p.err == nil {
				return fmt.Errorf("resp: %s is not ready: %w", c.cfg.where(), context.Cause(ctx))
			}
			return fmt.Errorf("resp: %s is not ready: %w: %w", c.cfg.where(), context.Cause(ctx), p.err)
		}
	}
}

// progress is how far the connections of a Client, or of a node, have come.
type progress struct {
	ready    bool  // all have been up
	answered bool  // some server has answered, if only that it is not ready
	open     bool  // some server that was asked for the layout has yet to answer
	err      error // why one has not been up, nil before its first attempt has ended
	asOf     clock.Instant
}

func (c *Client) progress() progress {
	found, asOf, err := c.explorer.Progress()
	if !found {
		return progress{answered: answeredIn(err), open: errors.Is(err, topology.ErrSilent), err: err, asOf: asOf}
	}
	p := progress{ready: true, answered: c.explorer != nil, asOf: c.cfg.Clock.Now()}
	for _, n := range c.awaited() {
		q := n.progress()
		p.ready, p.answered = p.ready && q.ready, p.answered || q.answered
		if p.err == nil || greet.Lasting(q.err) {
			p.err = q.err
		}
	}
	return p
}

// awaited are the nodes that serve something. The others have been replaced, and go soon.
func (c *Client) awaited() (nodes []*node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.mu.nodes {
		if n.idleSince == 0 {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// answeredIn reports whether the error came from a server.
func answeredIn(err error) bool {
	return errors.As(err, new(*ServerError)) || errors.As(err, new(*topology.NotYet))
}

// progress reports whether every link has been up, and else the error that tells
// most about why not: a lasting one before a passing one.
func (n *node) progress() progress {
	p := progress{ready: true}
	for _, l := range n.links {
		_, connects, last := l.status()
		if connects > 0 || l.dormant.Load() {
			p.answered = p.answered || connects > 0
			continue
		}
		p.ready, p.answered = false, p.answered || answeredIn(last)
		if p.err == nil || greet.Lasting(last) {
			p.err = last
		}
	}
	return p
}
