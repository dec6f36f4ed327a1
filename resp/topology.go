package resp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// topology finds out which servers hold which part of the keys. One goroutine calls
// it.
type topology interface {
	// find asks the deployment for its present layout. hint is the address of a
	// server that is likely to know, or "".
	find(ctx context.Context, hint string) (*layout, error)
	// watch calls changed whenever it learns that the layout may have changed, until
	// ctx ends.
	watch(ctx context.Context, changed func())
}

// layout is who serves what, at one moment.
type layout struct {
	shards []Shard // in a cluster sorted by slot, without overlap; else one
}

// Shard is a primary, and the slots that it serves: all, where there are none.
type Shard struct {
	First, Last uint16
	Primary     string // as it is dialled from here
}

// Shards asks a deployment who serves what, on connections of its own. It blocks, at
// most as long as ctx lives.
func Shards(ctx context.Context, cfg Config) ([]Shard, error) {
	cfg = cfg.withDefaults()
	t := newTopology(&cfg)
	if t == nil {
		return []Shard{{Last: slotCount - 1, Primary: cfg.Addr}}, nil
	}
	l, err := t.find(ctx, "")
	if err != nil {
		return nil, err
	}
	return l.shards, nil
}

// check sorts the shards and finds slots that two of them serve.
func (l *layout) check() error {
	slices.SortFunc(l.shards, func(a, b Shard) int { return cmp.Compare(a.First, b.First) })
	for i, s := range l.shards {
		if s.Last < s.First || s.Last >= slotCount {
			return fmt.Errorf("%w: slots %d to %d", ErrProtocol, s.First, s.Last)
		}
		if i > 0 && s.First <= l.shards[i-1].Last {
			return fmt.Errorf("%w: slot %d is served twice", ErrProtocol, s.First)
		}
	}
	return nil
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
	return next == slotCount
}

// newTopology returns what finds the layout; nil for a Standalone, whose layout is
// known.
func newTopology(c *Config) topology {
	switch c.Topology {
	case Cluster:
		return &clusterTopology{cfg: c}
	case Sentinel:
		return newSentinelTopology(c)
	case Replicas:
		return &replicaTopology{cfg: c}
	}
	return nil
}

// mapped translates an address that a server told of.
func (c *Config) mapped(addr string) string {
	if c.AddrMap == nil {
		return addr
	}
	return c.AddrMap(addr)
}

// candidates lists addresses to ask, each once: hint, known ones, and the seeds.
func candidates(hint string, known, seeds []string) []string {
	var list []string
	for _, addr := range append(append([]string{hint}, shuffled(known)...), shuffled(seeds)...) {
		if addr != "" && !slices.Contains(list, addr) {
			list = append(list, addr)
		}
	}
	return list
}
