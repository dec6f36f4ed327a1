package resp

import (
	"fmt"
	"log/slog"
	stdnet "net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// member is a node of a cluster: where it is, and who.
type member struct{ addr, id string }

// clusterOf is what a node of a cluster answers: who it is, and that these have equal parts.
func clusterOf(id string, members ...member) func([]string) string {
	return func(words []string) string {
		switch strings.Join(words, " ") {
		case "CLUSTER MYID":
			return bulk(id)
		case "CLUSTER SLOTS":
			return slotsOf(members...)
		}
		return ""
	}
}

// slotsOf is slotsReply with ids.
func slotsOf(members ...member) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(members))
	for i, m := range members {
		host, port, _ := stdnet.SplitHostPort(m.addr)
		fmt.Fprintf(&b, "*3\r\n:%d\r\n:%d\r\n*3\r\n%s:%s\r\n%s", slot.Count*i/len(members), slot.Count*(i+1)/len(members)-1, bulk(host), port, bulk(m.id))
	}
	return b.String()
}

// logged opens a client whose log is kept.
func logged(t *testing.T, net *bubbleNet, cfg Config) (c *Client, log *syncBuffer, end func()) {
	log = new(syncBuffer)
	cfg.Logger, cfg.Sharding = slog.New(slog.NewTextHandler(log, nil)), ShardingOff
	c, end = net.open(t, cfg)
	return c, log, end
}

// echo sends a command, and does not wait for it long.
func echo(c *Client, route uint64) {
	call := requesttest.NewCall(1)
	c.Submit(route, call)
	select {
	case <-call.Done:
	case <-time.After(100 * time.Millisecond):
	}
}

// refused checks that a server of somebody else got no command for a minute, and that this was
// reported once.
func refused(t *testing.T, net *bubbleNet, c *Client, log *syncBuffer, addr string) {
	t.Helper()
	for range 300 {
		echo(c, 0)
		time.Sleep(200 * time.Millisecond)
	}
	if n := net.get(addr).asked["ECHO"]; n != 0 {
		t.Errorf("%s got %d commands", addr, n)
	}
	if n := log.count("another deployment"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}

const home = "10.0.0.1:1"

func TestIdentity_ForeignClusterAtALearntAddress_IsNotFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		here := clusterOf("A", member{home, "A"})
		net.on("seed:1", here)
		net.on(home, here)
		c, log, end := logged(t, net, Config{Topology: Cluster, Addrs: []string{"seed:1"}})
		defer end()
		within(t, time.Second, "A serves", served(c, 0, home))

		moved := clusterOf("A", member{"10.0.0.2:1", "A"})
		net.on("seed:1", moved)
		net.on("10.0.0.2:1", moved)
		net.on(home, clusterOf("B", member{home, "B"}))
		net.set(home, func(s *bubbleServer) { s.hangUp() })
		within(t, 2*time.Second, "A serves at its new address", served(c, 0, "10.0.0.2:1"))
		for range 10 {
			c.explorer.RefreshNow(home) // as if somebody named it
			time.Sleep(time.Second)
		}
		refused(t, net, c, log, home)
		if got := c.AddrOf(0); got != "10.0.0.2:1" {
			t.Errorf("%s serves", got)
		}
	})
}

// While nobody knows where A is the engine waits, and does not take B.
func TestIdentity_ForeignClusterAndNobodyElse_IsNotServedBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("seed:1", clusterOf("A", member{home, "A"}))
		net.on(home, clusterOf("A", member{home, "A"}))
		c, log, end := logged(t, net, Config{Topology: Cluster, Addrs: []string{"seed:1"}})
		defer end()
		within(t, time.Second, "A serves", served(c, 0, home))
		net.vanish("seed:1")
		net.on(home, clusterOf("B", member{home, "B"}))
		net.set(home, func(s *bubbleServer) { s.hangUp() })
		time.Sleep(time.Second)
		for range 60 {
			echo(c, 0)
			time.Sleep(time.Second)
		}
		if n := net.get(home).asked["ECHO"]; n != 0 {
			t.Errorf("B got %d commands", n)
		}
		if n := log.count("a server is not used"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
		if _, up, err := c.explorer.Progress(); up == 0 || err == nil || !strings.Contains(err.Error(), "another deployment") {
			t.Errorf("the search says: %v", err)
		}
		// The configured address leads to B by now: that is what was asked for.
		net.set("seed:1", func(s *bubbleServer) { s.gone = false })
		net.on("seed:1", clusterOf("B", member{home, "B"}))
		within(t, 10*time.Second, "B serves", served(c, 0, home)) // a dial from before may hang for so long
	})
}

func TestIdentity_ForeignNodeThatMovedNames_GetsNoCommand(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"MOVED", "ASK"} {
		synctest.Test(t, func(t *testing.T) {
			net := newBubbleNet()
			here := clusterOf("A", member{home, "A"})
			net.on(home, func(words []string) string {
				if words[0] == "ECHO" {
					return "-" + code + " 0 10.0.0.9:1\r\n" // which it has been told of, and has not lost yet
				}
				return here(words)
			})
			net.on("10.0.0.9:1", clusterOf("B", member{"10.0.0.9:1", "B"}))
			c, log, end := logged(t, net, Config{Topology: Cluster, Addrs: []string{home}})
			defer end()
			within(t, time.Second, "A serves", served(c, 0, home))
			refused(t, net, c, log, "10.0.0.9:1")
			if got := c.AddrOf(99); got != home && code == "ASK" {
				t.Errorf("%s serves", got)
			}
		})
	}
}

// A machine is replaced behind a name that stays: the new one has another id, and belongs to the
// cluster. It need not wait for a search.
func TestIdentity_NewNodeBehindAStableName_IsServedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		before := []member{{"n1:1", "A1"}, {"n2:1", "A2"}}
		net.on("n1:1", clusterOf("A1", before...))
		net.on("n2:1", clusterOf("A2", before...))
		c, log, end := logged(t, net, Config{Topology: Cluster, Addrs: []string{"n2:1"}})
		defer end()
		within(t, time.Second, "A1 serves", served(c, 0, "n1:1"))
		net.on("n1:1", clusterOf("A3", member{"n1:1", "A3"}, member{"n2:1", "A2"}))
		net.on("n2:1", func(words []string) string {
			if words[0] == "CLUSTER" && words[1] == "SLOTS" {
				return "-CLUSTERDOWN later\r\n" // and nobody else tells
			}
			return ""
		})
		net.set("n1:1", func(s *bubbleServer) { s.hangUp() })
		within(t, 100*time.Millisecond, "A3 serves", served(c, 0, "n1:1"))
		if n := log.count("another deployment"); n != 0 {
			t.Errorf("%d lines in the log", n)
		}
	})
}

// A node without slots is in no layout before it has got its first slot.
func TestIdentity_NodeThatImportsItsFirstSlot_ServesAfterAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		here := clusterOf("A", member{home, "A"})
		net.on(home, func(words []string) string {
			if words[0] == "ECHO" {
				return "-ASK 0 new:1\r\n"
			}
			return here(words)
		})
		net.on("new:1", clusterOf("N", member{home, "A"}))
		c, _, end := logged(t, net, Config{Topology: Cluster, Addrs: []string{home}})
		defer end()
		within(t, time.Second, "A serves", served(c, 0, home))
		within(t, time.Second, "the command is served after ASK", func() bool {
			echo(c, 0)
			return net.get("new:1").asked["ECHO"] > 0
		})
	})
}

// All nodes are others, at once: a configured address is believed.
func TestIdentity_ClusterThatWasSetUpAnew_IsFollowedFromAConfiguredAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("seed:1", clusterOf("A", member{home, "A"}))
		net.on(home, clusterOf("A", member{home, "A"}))
		c, log, end := logged(t, net, Config{Topology: Cluster, Addrs: []string{"seed:1"}})
		defer end()
		within(t, time.Second, "A serves", served(c, 0, home))
		net.on("seed:1", clusterOf("B", member{home, "B"}))
		net.on(home, clusterOf("B", member{home, "B"}))
		net.each(func(s *bubbleServer) { s.hangUp() })
		within(t, 2*time.Second, "B serves", func() bool { echo(c, 0); return net.get(home).asked["ECHO"] > 0 })
		if n := log.count("another deployment"); n != 0 {
			t.Errorf("%d lines in the log", n)
		}
	})
}

// Proxies, and users without the right to ask: nothing is checked, and one line says so. What is no
// id is checked by the layout of the server.
func TestIdentity_ServersThatDoNotSayWhoTheyAre_AreServed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		lines  int
	}{
		"forbidden":                         {"-NOPERM this user has no permissions to run the 'cluster|myid' command\r\n", 1},
		"a proxy":                           {"-ERR unsupported command\r\n", 1},
		"an id that contradicts the layout": {bulk("proxy"), 0},
		"an array":                          {"*1\r\n" + bulk("CLUSTER"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				net.on(home, func(words []string) string {
					if words[0] == "CLUSTER" && words[1] == "MYID" {
						return c.answer
					}
					return clusterOf("", member{home, "A"})(words)
				})
				client, log, end := logged(t, net, Config{Topology: Cluster, Addrs: []string{home}})
				defer end()
				within(t, time.Second, "it serves", served(client, 0, home))
				net.set(home, func(s *bubbleServer) { s.hangUp() })
				within(t, time.Second, "it serves again", served(client, 0, home))
				if n := log.count("not checked"); n != c.lines {
					t.Errorf("%d lines in the log", n)
				}
			})
		})
	}
}

// Nodes before Redis 4, and some proxies, give no ids in their layout.
func TestIdentity_LayoutWithoutIDs_IsBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		answer := func(words []string) string {
			switch {
			case words[0] != "CLUSTER":
				return ""
			case words[1] == "MYID":
				return bulk("x")
			}
			return slotsReply("n2:1", "n1:1")
		}
		net.on("n1:1", answer)
		net.on("n2:1", answer)
		c, _, end := logged(t, net, Config{Topology: Cluster, Addrs: []string{"n1:1"}})
		defer end()
		within(t, time.Second, "n2 serves", served(c, 0, "n2:1"))
		net.set("n1:1", func(s *bubbleServer) { s.refuses = true; s.hangUp() })
		c.explorer.RefreshNow("n2:1")
		time.Sleep(time.Minute)
		if _, _, err := c.explorer.Progress(); err != nil || !served(c, 0, "n2:1")() {
			t.Errorf("%v", err)
		}
	})
}

// twoGroups are two groups of sentinels, with a primary each: ours, which has two sentinels of
// which one is configured, and somebody else's, of a higher epoch.
func twoGroups(net *bubbleNet) Config {
	net.on(home, leader("A").answer)
	net.on("sa:1", sentinelReply(home, 1, "sb:1"))
	net.on("sb:1", sentinelReply(home, 1, "sa:1"))
	net.on("foreign:1", leader("F", "10.9.9.9:1").answer)
	return Config{Topology: Sentinel, Master: "m", Addrs: []string{"sa:1"}}
}

func TestIdentity_ForeignSentinelAtALearntAddress_IsNotBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		cfg := twoGroups(net)
		net.vanish("sa:1") // so that it is sb that is listened to
		net.on("sc:1", sentinelReply(home, 1, "sb:1"))
		cfg.Addrs = append(cfg.Addrs, "sc:1")
		c, log, end := logged(t, net, cfg)
		defer end()
		within(t, 5*time.Second, "A serves", served(c, 0, home))
		time.Sleep(30 * time.Second)
		net.set("sa:1", func(s *bubbleServer) { s.gone = false })
		net.on("sb:1", sentinelReply("foreign:1", 99, "sx:1"))
		net.set("sb:1", func(s *bubbleServer) { s.hangUp() })
		refused(t, net, c, log, "foreign:1")
		if got := c.AddrOf(0); got != home {
			t.Errorf("%s serves", got)
		}
		// Nobody listens to it, and a failover of ours is followed.
		if n := len(net.get("sb:1").conns); n != 0 {
			t.Errorf("%d connections to the foreign sentinel", n)
		}
		net.on("10.0.0.2:1", leader("A2<A").answer)
		net.on("sa:1", sentinelReply("10.0.0.2:1", 2, "sb:1"))
		net.on("sc:1", sentinelReply("10.0.0.2:1", 2, "sb:1"))
		within(t, 2*topology.Sentinel.Period(), "the new primary serves", served(c, 0, "10.0.0.2:1"))
	})
}

// It is one of ours again later, and believed as before.
func TestIdentity_SentinelThatIsOursAgain_IsBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		c, log, end := logged(t, net, twoGroups(net))
		defer end()
		within(t, time.Second, "A serves", served(c, 0, home))
		net.on("sb:1", sentinelReply("foreign:1", 99, "sx:1"))
		time.Sleep(time.Minute)
		if n := log.count("another deployment"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
		net.on("sb:1", sentinelReply("10.0.0.2:1", 2, "sa:1"))
		net.on("10.0.0.2:1", leader("A2<A").answer)
		net.vanish("sa:1")
		within(t, 3*topology.Sentinel.Period(), "the new primary serves", served(c, 0, "10.0.0.2:1"))
	})
}

// The old primary's address is somebody else's by now, and the sentinels have not noticed yet that
// ours is dead: one of them still names it, and was only learnt.
func TestIdentity_ForeignPrimaryAtTheAddressOfTheOldOne_GetsNoCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		c, log, end := logged(t, net, twoGroups(net))
		defer end()
		within(t, time.Second, "A serves", served(c, 0, home))
		net.set("sa:1", func(s *bubbleServer) { s.refuses = true; s.hangUp() })
		net.on(home, leader("F").answer)
		net.set(home, func(s *bubbleServer) { s.hangUp() })
		for range 100 {
			echo(c, 0)
			time.Sleep(200 * time.Millisecond)
		}
		if n := net.get(home).asked["ECHO"]; n != 0 {
			t.Errorf("the foreign primary got %d commands", n)
		}
		if n := log.count("a server is not used"); n > 2 { // the primary, and the sentinel that names it
			t.Errorf("%d lines in the log", n)
		}
		net.on("10.0.0.2:1", leader("A2<A").answer)
		net.on("sb:1", sentinelReply("10.0.0.2:1", 2, "sa:1"))
		within(t, 2*topology.Sentinel.Period(), "the new primary serves", served(c, 0, "10.0.0.2:1"))
	})
}

// A primary that restarts without its data has another id: a configured sentinel has to name it.
func TestIdentity_PrimaryThatRestartsEmpty_IsServedAgainByTheWordOfAConfiguredSentinel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		c, log, end := logged(t, net, twoGroups(net))
		defer end()
		within(t, time.Second, "A serves", served(c, 0, home))
		time.Sleep(time.Minute)
		net.on(home, leader("A2").answer)
		net.set(home, func(s *bubbleServer) { s.hangUp() })
		took := within(t, 2*time.Second, "it serves again", func() bool { echo(c, 0); return net.get(home).asked["ECHO"] > 0 })
		t.Logf("after %v", took)
		if n := log.count("another deployment"); n != 0 {
			t.Errorf("%d lines in the log", n)
		}
	})
}

// A user of before may not ask for INFO: nothing is checked, and one line says so.
func TestIdentity_UserWithoutTheRightToINFO_IsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		cfg := twoGroups(net)
		forbidden := func(words []string) string {
			if words[0] == "INFO" {
				return "-NOPERM this user has no permissions to run the 'info' command\r\n"
			}
			return leader("A").answer(words)
		}
		net.on(home, forbidden)
		net.on("10.0.0.2:1", forbidden)
		c, log, end := logged(t, net, cfg)
		defer end()
		within(t, time.Second, "A serves", served(c, 0, home))
		net.on("sa:1", sentinelReply("10.0.0.2:1", 2, "sb:1"))
		net.on("sb:1", sentinelReply("10.0.0.2:1", 2, "sa:1"))
		within(t, 2*topology.Sentinel.Period(), "the new primary serves", served(c, 0, "10.0.0.2:1"))
		if n := log.count("not checked"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
	})
}

// The primary was promoted, and is not configured. Its address is somebody else's by now.
func TestIdentity_ForeignPrimaryWhereReplicasArePromotedByHand_GetsNoCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("a:1", leader("A", home).answer)
		net.on(home, follower("a:1", "A", true).answer)
		c, log, end := logged(t, net, Config{Topology: Replicas, Addrs: []string{"a:1"}})
		defer end()
		within(t, time.Second, "a serves", served(c, 0, "a:1"))
		net.on("a:1", follower(home, "B", true).answer)
		net.on(home, leader("B<A", "a:1").answer)
		within(t, 10*time.Second, "the new primary serves", served(c, 0, home))

		net.on("a:1", follower(home, "B", false).answer) // it has lost its primary
		net.on(home, leader("F", "10.9.9.9:1", "10.9.9.8:1").answer)
		net.set(home, func(s *bubbleServer) { s.hangUp() })
		before := net.get(home).asked["ECHO"]
		for range 100 {
			echo(c, 0)
			time.Sleep(200 * time.Millisecond)
		}
		if n := net.get(home).asked["ECHO"] - before; n != 0 {
			t.Errorf("the foreign primary got %d commands", n)
		}
		if n := log.count("a server is not used"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
		net.on("a:1", leader("C<B").answer)
		within(t, 10*time.Second, "a serves", served(c, 0, "a:1"))
	})
}

// A primary without replicas begins another history after an hour, and is the same.
func TestIdentity_PrimaryThatBeginsAnotherHistory_IsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("a:1", leader("A", home).answer)
		net.on(home, follower("a:1", "A", true).answer)
		c, log, end := logged(t, net, Config{Topology: Replicas, Addrs: []string{"a:1"}})
		defer end()
		within(t, time.Second, "a serves", served(c, 0, "a:1"))
		net.vanish("a:1")
		net.on(home, leader("B<A").answer)
		within(t, 20*time.Second, "the new primary serves", served(c, 0, home))
		time.Sleep(time.Hour)
		net.on(home, leader("C").answer)
		time.Sleep(10 * time.Second)
		for l := range c.nodes()[0].lanes {
			c.nodes()[0].lanes[l].Leave(errOlder)
		}
		within(t, 2*time.Second, "it serves again", func() bool { echo(c, 0); return net.get(home).asked["ECHO"] > 0 })
		if _, _, err := c.explorer.Progress(); err != nil || log.count("another deployment") > 0 {
			t.Errorf("%v", err)
		}
	})
}

// A plain server at the address of a node says that it is none of a cluster.
func TestIdentity_PlainServerAtTheAddressOfANode_GetsNoCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("seed:1", clusterOf("A1", member{home, "A2"}, member{"seed:1", "A1"}))
		net.on(home, clusterOf("A2", member{home, "A2"}, member{"seed:1", "A1"}))
		c, log, end := logged(t, net, Config{Topology: Cluster, Addrs: []string{"seed:1"}})
		defer end()
		within(t, time.Second, "A2 serves", served(c, 0, home))
		net.on(home, says("CLUSTER", "-ERR This instance has cluster support disabled\r\n"))
		net.set(home, func(s *bubbleServer) { s.hangUp() })
		refused(t, net, c, log, home)
	})
}

// The primary that somebody else's sentinel names cannot be reached from here. Whether it is ours
// nobody can know; the one that is followed stays, and its successor is followed.
func TestIdentity_ForeignSentinelThatNamesASilentServer_DoesNotHinder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		cfg := twoGroups(net)
		c, log, end := logged(t, net, cfg)
		defer end()
		within(t, time.Second, "A serves", served(c, 0, home))
		net.on("sb:1", sentinelReply("foreign:1", 99, "sx:1"))
		net.vanish("foreign:1")
		stays(t, c, home, 5*time.Minute)
		t.Logf("%d times no layout was found", log.count("cannot find the layout"))
		net.on("10.0.0.2:1", leader("A2<A").answer)
		net.on("sa:1", sentinelReply("10.0.0.2:1", 2, "sb:1"))
		took := within(t, 2*topology.Sentinel.Period(), "the new primary serves", served(c, 0, "10.0.0.2:1"))
		t.Logf("after %v", took)
	})
}
