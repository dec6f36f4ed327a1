package bench

import (
	"context"
	"fmt"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/deploy"
	"github.com/pawl-lock/pawl/resp"
)

// fleet is an admin at every primary of a deployment, as it was when the run began:
// a run does not go on through a failover.
type fleet struct {
	sharded bool // it is a cluster, of Redis 7 or later
	shards  []resp.Shard
	admins  map[string]*admin // by address
}

func dialFleet(ctx context.Context, cfg engine.Config) (*fleet, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	find := deploy.Config(cfg)
	shards, err := resp.Shards(ctx, find)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	f := &fleet{shards: shards, admins: make(map[string]*admin)}
	for _, s := range shards {
		if f.admins[s.Primary] != nil {
			continue
		}
		at := cfg
		at.Addrs = []string{s.Primary}
		a, err := dialAdmin(ctx, at)
		if err != nil {
			f.close()
			return nil, err
		}
		f.admins[s.Primary] = a
	}
	if find.Topology == resp.Cluster {
		_, err := f.first().do("PUBSUB", "SHARDNUMSUB")
		f.sharded = err == nil
	}
	return f, nil
}

func (f *fleet) close() {
	for _, a := range f.admins {
		a.close()
	}
}

// of returns the admin at the server of a lock.
func (f *fleet) of(name string) *admin {
	slot := resp.SlotOf(name)
	for _, s := range f.shards {
		if slot >= s.First && slot <= s.Last {
			return f.admins[s.Primary]
		}
	}
	return f.first() // nobody serves it; that one says so
}

func (f *fleet) first() *admin { return f.admins[f.shards[0].Primary] }

// parts groups names by their server.
func (f *fleet) parts(names []string) map[*admin][]string {
	parts := make(map[*admin][]string)
	for _, name := range names {
		a := f.of(name)
		parts[a] = append(parts[a], name)
	}
	return parts
}

// each asks every server the same, and adds up what f makes of the answers.
func (f *fleet) each(count func(a *admin) (int, error)) (sum int, err error) {
	for _, a := range f.admins {
		n, err := count(a)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
