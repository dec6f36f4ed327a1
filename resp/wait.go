package resp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/handshake"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// WaitReady returns nil once every connection of every primary has been up. An error that needs a
// human (a wrong password, a database that does not exist, a missing permission) is
// returned at once and wraps a *ServerError; the Client goes on trying anyway.
// When ctx ends, the error has its cause and the latest error of a connection.
func (c *Client) WaitReady(ctx context.Context) error { return c.wait(ctx, false) }

// WaitFirst is WaitReady for callers that do not want to wait for a server to start: it
// fails at once if the first round of attempts reaches no server. If one answers, the
// attempts go on for DialTimeout: it may be loading its data, or a failover may be
// under way. So they do if one has yet to answer; and the layout is looked for once more
// after that, since silence may decide it.
//
// Then it is enough if one of several primaries serves: the others are named in the log, and
// tried on. A refusal that needs a human is returned at once only if it is that of all.
func (c *Client) WaitFirst(ctx context.Context) error { return c.wait(ctx, true) }

type namesKey struct{}

// ForNames returns a context for a caller that needs the servers of these names only: what
// WaitReady and WaitFirst say under it is about those. They are names as they stand on the server.
func ForNames(ctx context.Context, names ...string) context.Context {
	return context.WithValue(ctx, namesKey{}, names)
}

// wait returns nil once every connection has been up, or why not: if that will not change
// by itself, or, with first, after the first round.
func (c *Client) wait(ctx context.Context, first bool) error {
	names, _ := ctx.Value(namesKey{}).([]string)
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
		p := c.progress(names)
		late := p.asOf.Sub(begun) >= c.cfg.DialTimeout
		switch {
		case p.ready:
			return nil
		case first && late && p.serves:
			c.cfg.Logger.Warn("resp: not all servers can be reached, going on without them", "missing", c.missingAddrs(), "err", p.err)
			return nil
		}
		hopeless := handshake.Lasting(p.err) && (p.lasting || !first) || first && (late || !p.answered)
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
	serves   bool  // all of some node have been
	answered bool  // some server has answered, if only that it is not ready
	open     bool  // some server that was asked for the layout has yet to answer
	lasting  bool  // no node has been ready, and all say Lasting
	err      error // why some have not been up, nil before the first attempt of one has ended
	asOf     clock.Instant
}

// progress is that of the nodes of these names; without names of all.
func (c *Client) progress(names []string) progress {
	found, asOf, err := c.explorer.Progress()
	if !found {
		return progress{answered: answeredIn(err), open: errors.Is(err, topology.ErrSilent), lasting: true, err: err, asOf: asOf}
	}
	p := progress{ready: true, answered: c.explorer != nil, lasting: true, asOf: c.cfg.Clock.Now()}
	var errs []error
	for _, n := range c.awaited(names) {
		q := progress{err: errNowhere}
		if n != nil {
			q = n.progress()
		}
		p.ready, p.serves, p.answered = p.ready && q.ready, p.serves || q.ready, p.answered || q.answered
		p.lasting = p.lasting && handshake.Lasting(q.err)
		if q.err != nil {
			errs = append(errs, q.err)
		}
	}
	p.err = together(errs)
	return p
}

// together is one error of several nodes: a lasting one comes first.
func together(errs []error) error {
	slices.SortStableFunc(errs, func(a, b error) int {
		switch la, lb := handshake.Lasting(a), handshake.Lasting(b); {
		case la == lb:
			return strings.Compare(a.Error(), b.Error())
		case la:
			return -1
		}
		return 1
	})
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return &several{errs}
}

// several is the errors of several servers, on one line.
type several struct{ errs []error }

func (e *several) Unwrap() []error { return e.errs }

func (e *several) Error() string {
	text := make([]string, len(e.errs))
	for i, err := range e.errs {
		text[i] = strings.TrimPrefix(err.Error(), "resp: ")
	}
	return "resp: " + strings.Join(text, "; ")
}

// awaited are the nodes that serve something, or these names; nil for a name that no node serves.
// The others have been replaced, and go soon.
func (c *Client) awaited(names []string) (nodes []*node) {
	for _, name := range names {
		if n := c.routes.Of(c.Route(name)); !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	if len(names) > 0 {
		return nodes
	}
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

// progress reports whether every link has been up, and else the error that says
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
		if p.err == nil || handshake.Lasting(last) {
			p.err = last
		}
	}
	return p
}

// missing returns since when the node has not had all its connections, and why; 0 if it has.
func (n *node) missing() (since clock.Instant, why error) {
	for _, l := range n.links {
		up, _, last := l.status()
		if up || l.dormant.Load() {
			continue
		}
		l.mu.Lock()
		down, lasting := l.mu.down, l.mu.lasting
		l.mu.Unlock()
		if since == 0 || down < since {
			since = down
		}
		if why == nil || lasting {
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
