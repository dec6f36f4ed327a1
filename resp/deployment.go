package resp

import (
	"context"
	"net"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/handshake"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// Shard is a primary, and the slots that it serves: all, where there are none.
type Shard struct {
	First, Last uint16
	Primary     string // as it is dialled from here
}

// Shards asks a deployment who serves what, on connections of its own. It blocks, at
// most as long as ctx lives.
func Shards(ctx context.Context, cfg Config) ([]Shard, error) {
	cfg = cfg.withDefaults()
	d := cfg.deployment()
	if d == nil {
		return []Shard{{Last: slot.Count - 1, Primary: cfg.Addr}}, nil
	}
	l, err := topology.Find(ctx, d)
	if err != nil {
		return nil, err
	}
	var shards []Shard
	for _, s := range l.Shards {
		shards = append(shards, Shard{s.First, s.Last, s.Primary})
	}
	return shards, nil
}

// deployment is what it takes to find the layout; nil for a Standalone, whose layout is
// known.
func (c *Config) deployment() *topology.Config {
	if c.Topology == Standalone {
		return nil
	}
	d := &topology.Config{
		Kind: c.Topology.kind(), Addrs: c.Addrs, Master: c.Master, AddrMap: c.addrs,
		Identity: c.identity, DialTimeout: c.DialTimeout, Clock: c.Clock, Logger: c.Logger,
		Servers: &nodeDialer{*c},
	}
	if c.Topology == Sentinel {
		own := *c
		own.Username, own.Password, own.Credentials = c.SentinelUsername, c.SentinelPassword, c.SentinelCredentials
		own.DB, own.authBackoff, own.sentinel = 0, handshake.NewAuthBackoff(c.Clock, c.MaxPause), true
		switch c.SentinelTLS {
		case nil: // as the servers
		case NoTLS:
			own.TLS = nil
		default:
			own.TLS = c.SentinelTLS
		}
		d.Sentinels = &nodeDialer{own}
	}
	return d
}

func (t Topology) kind() topology.Kind {
	switch t {
	case Cluster:
		return topology.Cluster
	case Sentinel:
		return topology.Sentinel
	case Replicas:
		return topology.Replicas
	}
	return topology.Standalone
}

// nodeDialer is how servers are reached that are asked for the layout.
type nodeDialer struct{ cfg Config }

// Connect implements topology.Reach.
func (d *nodeDialer) Connect(ctx context.Context, addr string) (net.Conn, error) {
	c := d.cfg
	c.Network, c.Addr = topology.NetworkOf(addr), addr
	return c.connect(ctx, roleProbe)
}

// MayListen implements topology.Reach.
func (d *nodeDialer) MayListen(addr string) bool {
	return d.cfg.authBackoff.Check(addr, handshake.Messages, 0) == nil
}

// Listened implements topology.Reach.
func (d *nodeDialer) Listened(addr string, asked clock.Instant, err error) {
	d.cfg.authBackoff.Note(addr, handshake.Messages, 0, asked, err)
}
