package resp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/wire"
)

// kind is how the servers of a deployment are arranged.
type kind uint8

const (
	// kindCluster is a Redis Cluster.
	kindCluster kind = iota
	// kindSentinel is a primary with replicas, watched by sentinels.
	kindSentinel
	// kindReplicas is a primary with replicas that somebody promotes by hand.
	kindReplicas
)

// findConfig says which servers know the layout of a deployment, and how they are reached.
type findConfig struct {
	Kind    kind
	Addrs   []string    // to ask at first: servers, or sentinels
	Master  string      // what the sentinels call the primary
	AddrMap *addressMap // of what servers announce; nil: it is dialled as it is
	// Servers and Sentinels have credentials of their own.
	Servers, Sentinels reach
	DialTimeout        time.Duration // what silence is judged by; Connect takes no longer
	Clock              clock.Clock
	Logger             *slog.Logger
}

// reach is how servers of one kind are reached. It is comparable.
type reach interface {
	// Connect returns a connection that has been greeted. It blocks, for DialTimeout at
	// most; ctx ends it at once.
	Connect(ctx context.Context, addr string) (net.Conn, error)
	// MayListen reports whether a server may be asked to announce something: if it has
	// refused, it is left alone for a while.
	MayListen(addr string) bool
	// Listened takes down whether it has refused: err is its refusal, or nil.
	Listened(addr string, asked clock.Instant, err error)
}

// topology finds out which servers hold which part of the keys. One goroutine calls
// it.
type topology interface {
	// find asks the deployment for its present layout. hint is the address of a
	// server that is likely to know, or "". It asks several servers at a time, and
	// waits for none that is silent while another has answered. With count it asks for
	// the groups, too.
	find(ctx context.Context, hint string, count bool) (*layout, error)
	// watch calls changed whenever it learns that the layout may have changed, with the
	// server that said so as the hint, until ctx ends.
	watch(ctx context.Context, changed func(hint string))
}

// newTopology returns what finds the layout, by the scouts.
func newTopology(c *findConfig, s *scouts) topology {
	switch c.Kind {
	case kindCluster:
		return &clusterTopology{cfg: c, scouts: s}
	case kindSentinel:
		return newSentinelTopology(c, s)
	default:
		return newReplicaTopology(c, s)
	}
}

// findLayout asks a deployment once who serves what. It blocks, at most as long as ctx lives.
func findLayout(ctx context.Context, c *findConfig) (*layout, error) {
	s := newScouts(ctx, c, c.DialTimeout)
	defer s.close()
	return newTopology(c, s).find(ctx, "", false)
}

// layout is who serves what, at one moment.
type layout struct {
	shards []shard // in a cluster sorted by slot, without overlap; else one
	groups *groups // nil: nobody was asked
	epoch  int64   // by the word of a sentinel
}

// shard is a primary, and the slots that it serves: all, where there are none.
type shard struct {
	First, Last uint16
	Primary     string // as it is dialled from here
	id          string // of the primary, in a cluster
}

// check sorts the shards and finds slots that two of them serve.
func (l *layout) check() error {
	slices.SortFunc(l.shards, func(a, b shard) int { return cmp.Compare(a.First, b.First) })
	for i, s := range l.shards {
		if s.Last < s.First || s.Last >= slot.Count {
			return fmt.Errorf("%w: slots %d to %d", wire.ErrProtocol, s.First, s.Last)
		}
		if i > 0 && s.First <= l.shards[i-1].Last {
			return fmt.Errorf("%w: slot %d is served twice", wire.ErrProtocol, s.First)
		}
	}
	return nil
}

// primaries returns the addresses, each once.
func (l *layout) primaries() []string {
	addrs := make([]string, len(l.shards))
	for i, s := range l.shards {
		addrs[i] = s.Primary
	}
	return unique(addrs)
}

// whole reports whether every slot is served.
func (l *layout) whole() bool {
	next := 0
	for _, s := range l.shards {
		if int(s.First) != next {
			return false
		}
		next = int(s.Last) + 1
	}
	return next == slot.Count
}

// notYet marks an error after which another attempt may do: servers have answered, but
// do not agree, or are about to change.
type notYet struct{ err error }

func (e *notYet) Error() string { return e.err.Error() }
func (e *notYet) Unwrap() error { return e.err }

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

// at returns the group of the server at an address.
func (gs *groups) at(addr string) (*group, error) {
	switch {
	case gs.err != nil:
		return nil, gs.err
	case gs.of[addr] == nil:
		return nil, errNotListed
	}
	return gs.of[addr], nil
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
