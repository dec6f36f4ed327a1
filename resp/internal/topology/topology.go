package topology

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Kind is how the servers of a deployment are arranged.
type Kind uint8

const (
	// Standalone is one server: there is nothing to find.
	Standalone Kind = iota
	// Cluster is a Redis Cluster.
	Cluster
	// Sentinel is a primary with replicas, watched by sentinels.
	Sentinel
	// Replicas is a primary with replicas that somebody promotes by hand.
	Replicas
)

// Config says which servers know the layout of a deployment, and how they are reached.
type Config struct {
	Kind    Kind
	Addrs   []string    // to ask at first: servers, or sentinels
	Master  string      // what the sentinels call the primary
	AddrMap *AddressMap // of what servers announce; nil: it is dialled as it is
	// Servers and Sentinels have credentials of their own.
	Servers, Sentinels Reach
	Identity           *Identity     // whom they are believed to be
	DialTimeout        time.Duration // what silence is judged by; Connect takes no longer
	Clock              clock.Clock
	Logger             *slog.Logger
}

// Reach is how servers of one kind are reached. It is comparable.
type Reach interface {
	// Connect returns a connection after its handshake. It blocks, for DialTimeout at
	// most; ctx ends it at once.
	Connect(ctx context.Context, addr string) (net.Conn, error)
	// MayListen reports whether a server may be asked to announce something: if it has
	// refused, it is left alone for a while.
	MayListen(addr string) bool
	// Listened takes down whether it has refused: err is its refusal, or nil.
	Listened(addr string, asked clock.Instant, err error)
}

// finder finds out which servers hold which part of the keys. One goroutine calls
// it.
type finder interface {
	// find asks the deployment for its present layout. hint is the address of a
	// server that is likely to know, or "". It asks several servers at a time, and
	// waits for none that is silent while another has answered. With count it asks for
	// the groups, too.
	find(ctx context.Context, hint string, count bool) (*Layout, error)
	// watch calls changed whenever it learns that the layout may have changed, with the
	// server that said so as the hint, until ctx ends.
	watch(ctx context.Context, changed func(hint string))
}

// newFinder returns what finds the layout, by the probes.
func newFinder(c *Config, s *probes) finder {
	switch c.Kind {
	case Cluster:
		return &clusterFinder{cfg: c, probes: s}
	case Sentinel:
		return newSentinelFinder(c, s)
	default:
		return newReplicaFinder(c, s)
	}
}

// Find asks a deployment once who serves what. It blocks, at most as long as ctx lives.
func Find(ctx context.Context, c *Config) (*Layout, error) {
	s := newProbes(ctx, c, c.DialTimeout)
	defer s.close()
	return newFinder(c, s).find(ctx, "", false)
}

// Layout is who serves what, at one moment.
type Layout struct {
	Shards []Shard  // in a cluster sorted by slot, without overlap; else one
	Groups *Groups  // nil: nobody was asked
	ids    []string // of those who serve, and their replicas: see Identity
	epoch  int64    // by the word of a sentinel
}

// Shard is a primary, and the slots that it serves: all, where there are none.
type Shard struct {
	First, Last uint16
	Primary     string // as it is dialled from here
	id          string // of the primary, in a cluster
}

// check sorts the shards and finds slots that two of them serve.
func (l *Layout) check() error {
	slices.SortFunc(l.Shards, func(a, b Shard) int { return cmp.Compare(a.First, b.First) })
	for i, s := range l.Shards {
		if s.Last < s.First || s.Last >= slot.Count {
			return fmt.Errorf("%w: slots %d to %d", wire.ErrProtocol, s.First, s.Last)
		}
		if i > 0 && s.First <= l.Shards[i-1].Last {
			return fmt.Errorf("%w: slot %d is served twice", wire.ErrProtocol, s.First)
		}
	}
	return nil
}

// Primaries returns the addresses, each once.
func (l *Layout) Primaries() []string {
	addrs := make([]string, len(l.Shards))
	for i, s := range l.Shards {
		addrs[i] = s.Primary
	}
	return unique(addrs)
}

// Complete reports whether every slot is served.
func (l *Layout) Complete() bool {
	next := 0
	for _, s := range l.Shards {
		if int(s.First) != next {
			return false
		}
		next = int(s.Last) + 1
	}
	return next == slot.Count
}

// NotYet marks an error after which another attempt may do: servers have answered, but
// do not agree, or are about to change.
type NotYet struct{ err error }

func (e *NotYet) Error() string { return e.err.Error() }
func (e *NotYet) Unwrap() error { return e.err }
