package resp

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/pawl-lock/pawl/resp/internal/slot"
)

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

// layout is who serves what, at one moment.
type layout struct {
	shards []Shard // in a cluster sorted by slot, without overlap; else one
	groups *groups // nil: nobody was asked
	epoch  int64   // by the word of a sentinel
}

// Shard is a primary, and the slots that it serves: all, where there are none.
type Shard struct {
	First, Last uint16
	Primary     string // as it is dialled from here
	id          string // of the primary, in a cluster
}

// Shards asks a deployment who serves what, on connections of its own. It blocks, at
// most as long as ctx lives.
func Shards(ctx context.Context, cfg Config) ([]Shard, error) {
	cfg = cfg.withDefaults()
	s := newScouts(ctx, &cfg, cfg.DialTimeout)
	defer s.close()
	t := newTopology(&cfg, s)
	if t == nil {
		return []Shard{{Last: slot.Count - 1, Primary: cfg.Addr}}, nil
	}
	l, err := t.find(ctx, "", false)
	if err != nil {
		return nil, err
	}
	return l.shards, nil
}

// check sorts the shards and finds slots that two of them serve.
func (l *layout) check() error {
	slices.SortFunc(l.shards, func(a, b Shard) int { return cmp.Compare(a.First, b.First) })
	for i, s := range l.shards {
		if s.Last < s.First || s.Last >= slot.Count {
			return fmt.Errorf("%w: slots %d to %d", ErrProtocol, s.First, s.Last)
		}
		if i > 0 && s.First <= l.shards[i-1].Last {
			return fmt.Errorf("%w: slot %d is served twice", ErrProtocol, s.First)
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

// newTopology returns what finds the layout, by the scouts; nil for a Standalone, whose
// layout is known.
func newTopology(c *Config, s *scouts) topology {
	switch c.Topology {
	case Cluster:
		return &clusterTopology{cfg: c, scouts: s}
	case Sentinel:
		return newSentinelTopology(c, s)
	case Replicas:
		return newReplicaTopology(c, s)
	}
	return nil
}
