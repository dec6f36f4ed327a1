package redistest

import "strings"

// StartLone is Start of a cluster that this node alone serves. It refuses what would cross
// slots, as every cluster does, and its URL names a cluster.
func StartLone(t TB, opts ...Option) *Server {
	t.Helper()
	alone := func(c *Config) { c.lone = true }
	s := Start(t, append([]Option{Line("cluster-enabled yes", "cluster-config-file nodes.conf"), alone}, opts...)...)
	if v := s.Do(addSlots(s, 0, Slots)...); v != "OK" {
		t.Fatalf("adding all slots: %v", v)
	}
	await(t, "it serves", func() bool { return strings.Contains(s.Info("CLUSTER", "INFO"), "cluster_state:ok") })
	return s
}

// InCluster reports whether it is one that StartLone has started.
func (p *Process) InCluster() bool { return p.cfg.lone }

// Sharded reports whether clients of this URL use sharded channels.
func (p *Process) Sharded() bool { return p.cfg.lone && p.Can(ShardedChannels) }
