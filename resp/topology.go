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
	shards []shard // in a cluster sorted by slot, without overlap; else one
}

// shard is a primary, and the slots that it serves, in a cluster.
type shard struct {
	first, last uint16
	primary     string // as it is dialled from here
}

// check sorts the shards and finds slots that two of them serve.
func (l *layout) check() error {
	slices.SortFunc(l.shards, func(a, b shard) int { return cmp.Compare(a.first, b.first) })
	for i, s := range l.shards {
		if s.last < s.first || s.last >= slotCount {
			return fmt.Errorf("%w: slots %d to %d", ErrProtocol, s.first, s.last)
		}
		if i > 0 && s.first <= l.shards[i-1].last {
			return fmt.Errorf("%w: slot %d is served twice", ErrProtocol, s.first)
		}
	}
	return nil
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
