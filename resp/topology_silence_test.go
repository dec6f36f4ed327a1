package resp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// served reports whether a server is the one of a route, with its connections up.
func served(c *Client, route uint64, addr string) func() bool {
	return func() bool { return c.AddrOf(route) == addr && c.LaneOf(route).Up() }
}

// Four of six nodes have vanished: those that are left know the new primary.
func TestLayoutIsFoundWhileMostNodesAreSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		all := []string{"n1:1", "n2:1", "n3:1", "n4:1", "n5:1", "n6:1"}
		for _, addr := range all {
			net.on(addr, says("CLUSTER", slotsReply(all...)))
		}
		c, end := net.open(t, Config{Topology: Cluster, Addrs: all, Sharding: ShardingOff})
		defer end()
		within(t, time.Second, "the first node serves", served(c, 0, "n1:1"))
		time.Sleep(time.Minute)
		net.vanish(all[:4]...)
		for _, addr := range all[4:] {
			net.on(addr, says("CLUSTER", slotsReply(all[4:]...)))
		}
		c.explorer.RefreshNow("n1:1") // which has vanished, too
		took := within(t, 4*topology.HedgeDelay+topology.ExploreEvery, "the fifth node serves", served(c, 0, "n5:1"))
		t.Logf("after %v", took)
	})
}

// timeline is a deployment whose primary vanishes, with the other servers of its machine,
// without a word to anybody; five seconds later another server has taken over.
// How soon a client with the default time-outs is there decides over leases of 10 s.
type timeline struct {
	cfg      Config
	servers  map[string]func([]string) string // before
	vanish   []string
	promoted map[string]func([]string) string // after
	primary  string                           // after
}

func timelines() map[string]timeline {
	sentinel := func(primary string) func([]string) string {
		return func(words []string) string {
			switch {
			case words[0] != "SENTINEL":
				return ""
			case words[1] == "SENTINELS":
				return "*0\r\n"
			}
			return hostPortReply(primary)
		}
	}
	slots := func(addrs ...string) func([]string) string {
		return says("CLUSTER", slotsReply(addrs...))
	}
	role := func(reply string) func([]string) string { return says("ROLE", reply) }
	type answers = map[string]func([]string) string
	return map[string]timeline{
		"cluster": {
			cfg:      Config{Topology: Cluster, Addrs: []string{"a:1", "b:1", "c:1"}, Sharding: ShardingOff},
			servers:  answers{"a:1": slots("a:1", "b:1"), "b:1": slots("a:1", "b:1"), "c:1": slots("a:1", "b:1")},
			vanish:   []string{"a:1"},
			promoted: answers{"b:1": slots("c:1", "b:1"), "c:1": slots("c:1", "b:1")},
			primary:  "c:1",
		},
		"sentinel": {
			cfg: Config{Topology: Sentinel, Master: "m", Addrs: []string{"sa:1", "sb:1", "sc:1"}},
			servers: answers{"sa:1": sentinel("a:1"), "sb:1": sentinel("a:1"), "sc:1": sentinel("a:1"),
				"a:1": role(primaryReply("b:1")), "b:1": role(replicaReply("a:1", "connected"))},
			vanish:   []string{"a:1", "sa:1"},
			promoted: answers{"sb:1": sentinel("b:1"), "sc:1": sentinel("b:1"), "b:1": role(primaryReply())},
			primary:  "b:1",
		},
		"replicas, three": {
			cfg: Config{Topology: Replicas, Addrs: []string{"a:1", "b:1", "c:1"}},
			servers: answers{"a:1": leader("A", "b:1", "c:1").answer,
				"b:1": follower("a:1", "A", true).answer, "c:1": follower("a:1", "A", true).answer},
			vanish:   []string{"a:1"},
			promoted: answers{"b:1": leader("B<A", "c:1").answer, "c:1": follower("b:1", "B", true).answer},
			primary:  "b:1",
		},
		"replicas, two": {
			cfg:      Config{Topology: Replicas, Addrs: []string{"a:1", "b:1"}},
			servers:  answers{"a:1": leader("A", "b:1").answer, "b:1": follower("a:1", "A", true).answer},
			vanish:   []string{"a:1"},
			promoted: answers{"b:1": leader("B<A").answer},
			primary:  "b:1",
		},
	}
}

func TestFailoverOfAVanishedMachineIsFollowedAtOnce(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 10 { // the order in which servers are asked is random
				synctest.Test(t, func(t *testing.T) {
					net := newBubbleNet()
					for addr, answer := range line.servers {
						net.on(addr, answer)
					}
					c, end := net.open(t, line.cfg)
					defer end()
					within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
					time.Sleep(time.Minute)
					net.vanish(line.vanish...)
					for range 100 { // somebody is at work
						c.Submit(0, requesttest.NewCall(1))
						time.Sleep(50 * time.Millisecond)
					}
					for addr, answer := range line.promoted {
						net.on(addr, answer)
					}
					took := within(t, 2500*time.Millisecond, line.primary+" serves", served(c, 0, line.primary))
					t.Logf("followed after %v", took)
				})
			}
		})
	}
}
