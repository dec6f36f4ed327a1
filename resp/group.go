package resp

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/exchange"
)

// group is a primary with its replicas, according to whatever decides about promotions
// (sentinels, cluster nodes, the configuration). Replicas that are away are in it, until
// the deployment itself has dropped them. It does not change once it is made.
type group struct {
	replicas int // beside the primary
	peers    []peer
}

// peer is a server of a group.
type peer struct {
	names   []string // host:port, as the servers know each other
	dialled []string // as they are dialled from here
}

// groups is what a deployment said of all its groups at one moment. They are found by the
// address of every server, since any may be promoted before the next look.
type groups struct {
	of  map[string]*group
	err error // why nothing is known
}

func unknownGroups(err error) *groups {
	return &groups{err: fmt.Errorf("resp: it is not known how many replicas there are: %w", err)}
}

// add puts g in, whose first peer is the primary. Of an address that servers have had one
// after the other, the group counts whose primary has it now.
func (gs *groups) add(g *group) {
	if gs.of == nil {
		gs.of = make(map[string]*group)
	}
	for i, p := range g.peers {
		for _, addr := range p.dialled {
			if i == 0 || gs.of[addr] == nil {
				gs.of[addr] = g
			}
		}
	}
}

var errNotListed = errors.New("resp: it is not known how many replicas there are: the deployment has not listed this server yet")

// group returns that of the server at an address.
func (c *Client) group(addr string) (*group, error) {
	if c.explorer.topology == nil {
		return new(group), nil // nobody keeps a list
	}
	gs := c.groups.Load()
	switch {
	case gs == nil:
		return nil, exchange.ErrNotCounted
	case gs.err != nil:
		return nil, gs.err
	case gs.of[addr] == nil:
		return nil, errNotListed
	}
	return gs.of[addr], nil
}

// counted reports whether the deployment has been asked for its groups. If not, it is
// asked from now on: not before, since the user needs a right for that.
func (c *Client) counted() bool {
	if c.explorer.topology == nil || c.groups.Load() != nil {
		return true
	}
	if !c.counting.Swap(true) {
		c.explorer.kick("")
	}
	return false
}

// count notes what a look has found. If nobody answered, what was known stands.
func (c *Client) count(gs *groups) {
	known := c.groups.Load()
	if gs != nil && (gs.err == nil || known == nil || known.err != nil || lasting(gs.err)) {
		c.groups.Store(gs)
	}
}

// uncounted reports whether the groups are not known, and may be soon.
func (c *Client) uncounted() bool {
	gs := c.groups.Load()
	return gs != nil && gs.err != nil && !lasting(gs.err)
}

// away lists the peers that are not attached to the one at self. If the primary knows its
// replicas by other names than the group does that cannot be told, and the list is nil.
func (g *group) away(self string, attached []string) (list []string) {
	for _, p := range g.peers {
		there := func(name string) bool { return slices.Contains(attached, name) }
		if !slices.Contains(p.dialled, self) && !slices.ContainsFunc(p.names, there) {
			list = append(list, p.names[0])
		}
	}
	if len(list)+len(attached) != g.replicas {
		return nil
	}
	return list
}

// seenFor is for how long at least a replica that was attached counts where the
// deployment keeps a list: long enough for that to have it.
const seenFor = 30 * time.Second

// mostSeen is the most replicas that were attached at a time: of the last seenFor, up to
// twice that; where nobody keeps a list, since the beginning. A failover on command begins
// with detaching the replica that is to be promoted, while the primary goes on.
type mostSeen struct {
	forever bool
	mu      struct {
		sync.Mutex
		before, now int
		since       clock.Instant // of now
	}
}

// see notes how many are attached, and returns the most.
func (s *mostSeen) see(n int, at clock.Instant) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := at.Sub(s.mu.since); !s.forever && age >= seenFor {
		s.mu.before, s.mu.now, s.mu.since = s.mu.now, 0, at
		if age >= 2*seenFor {
			s.mu.before = 0
		}
	}
	s.mu.now = max(s.mu.now, n)
	return max(s.mu.before, s.mu.now)
}
