package redisadmin

import (
	"context"
	"fmt"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/serverconfig"
	"github.com/pawl-lock/pawl/resp"
)

// Fleet is a connection to every primary of a deployment, as it was when the run began:
// a run does not go on through a failover.
type Fleet struct {
	Sharded bool // it is a cluster, of Redis 7 or later
	shards  []resp.Shard
	Conns   map[string]*Conn // by address
}

// DialFleet finds the primaries and connects to each.
func DialFleet(ctx context.Context, cfg engine.Config) (*Fleet, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience(cfg))
	defer cancel()
	find := serverconfig.Config(cfg)
	shards, err := resp.Shards(ctx, find)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	f := &Fleet{shards: shards, Conns: make(map[string]*Conn)}
	for _, s := range shards {
		if f.Conns[s.Primary] != nil {
			continue
		}
		at := cfg
		at.Addrs = []string{s.Primary}
		a, err := Dial(ctx, at)
		if err != nil {
			f.Close()
			return nil, err
		}
		f.Conns[s.Primary] = a
	}
	if find.Topology == resp.Cluster {
		_, err := f.First().Do("PUBSUB", "SHARDNUMSUB")
		f.Sharded = err == nil
	}
	return f, nil
}

// Close closes all connections.
func (f *Fleet) Close() {
	for _, a := range f.Conns {
		a.Close()
	}
}

// of returns the connection to the server of a lock.
func (f *Fleet) of(name string) *Conn {
	slot := resp.SlotOf(name)
	for _, s := range f.shards {
		if slot >= s.First && slot <= s.Last {
			return f.Conns[s.Primary]
		}
	}
	return f.First() // nobody serves it; that one says so
}

// First is one of the connections, always the same.
func (f *Fleet) First() *Conn { return f.Conns[f.shards[0].Primary] }

// parts groups names by their server.
func (f *Fleet) parts(names []string) map[*Conn][]string {
	parts := make(map[*Conn][]string)
	for _, name := range names {
		a := f.of(name)
		parts[a] = append(parts[a], name)
	}
	return parts
}

// Each asks every server the same, and adds up what f makes of the answers.
func (f *Fleet) Each(count func(a *Conn) (int, error)) (sum int, err error) {
	for _, a := range f.Conns {
		n, err := count(a)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
