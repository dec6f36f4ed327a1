package resp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// threeReplicas are three servers: a is the primary, b and c follow it.
func threeReplicas(net *bubbleNet) Config {
	net.on("a:1", leader("A", "b:1", "c:1").answer)
	net.on("b:1", follower("a:1", "A", true).answer)
	net.on("c:1", follower("a:1", "A", true).answer)
	return Config{Topology: Replicas, Addrs: []string{"a:1", "b:1", "c:1"}}
}

// Looking every second costs a question, and no handshake.
func TestReplicas_Idle_AsksOnTheSameConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		c, end := net.open(t, threeReplicas(net))
		defer end()
		within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
		time.Sleep(10 * time.Second)
		dials, asked := net.dials(), net.get("b:1").asked["INFO"]
		time.Sleep(time.Minute)
		if n := net.dials() - dials; n != 0 {
			t.Errorf("%d dials in a minute", n)
		}
		if n := net.get("b:1").asked["INFO"] - asked; n < 60 || n > 85 {
			t.Errorf("asked %d times in a minute, want one a second", n)
		}
		// Three connections to the primary, and one to each server for the questions.
		if conns := net.conns(); conns != 3+c.cfg.Lanes+2 {
			t.Errorf("%d connections", conns)
		}
	})
}

// A server that has closed the connection, for it was idle, is asked on another at once.
func TestReplicas_ConnectionClosed_IsReplacedInTheSameSearch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		c, end := net.open(t, threeReplicas(net))
		defer end()
		within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
		time.Sleep(10 * time.Second)
		net.set("b:1", func(s *bubbleServer) { s.hangUp() })
		asked := net.get("b:1").asked["INFO"]
		within(t, 1100*time.Millisecond, "it is asked", func() bool { return net.get("b:1").asked["INFO"] > asked })
		if _, _, err := c.explorer.Progress(); err != nil {
			t.Errorf("the search failed: %v", err)
		}
	})
}

// A server that says that it is the primary, and that nobody follows, is not believed
// while another that may be the primary has yet to answer.
func TestReplicas_LonelyPrimary_WaitsForTheSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("stale:1", leader("A").answer)
		net.on("far:1", leader("B", "replica:1").answer)
		net.set("far:1", func(s *bubbleServer) { s.slow = 4 * time.Second })
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"stale:1", "far:1"}})
		defer end()
		for c.AddrOf(0) == "" {
			time.Sleep(10 * time.Millisecond)
		}
		if got := c.AddrOf(0); got != "far:1" {
			t.Fatalf("%s serves", got)
		}
		if n := net.get("far:1").dials; n != 1+3+c.cfg.Lanes-1 { // the connections of the node among them
			t.Errorf("%d dials", n)
		}
	})
}

// A primary that is gone is left after four seconds: it may be restarting, or slow for a moment.
func TestReplicas_OtherGivenUp_LonelyPrimaryIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("a:1", leader("A", "b:1").answer)
		net.on("b:1", follower("a:1", "A", true).answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"a:1", "b:1"}})
		defer end()
		within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
		time.Sleep(10 * time.Second)
		net.vanish("a:1")
		net.on("b:1", leader("B").answer)
		took := within(t, 8*time.Second, "the other one serves", served(c, 0, "b:1"))
		if took < 4*time.Second {
			t.Errorf("after %v, though a may have been slow for a moment", took)
		}
		t.Logf("after %v", took)
	})
}

// The server that most follow is the primary, no matter what the silent ones would say.
func TestReplicas_PrimaryWithReplicas_DoesNotWaitForTheSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		cfg := threeReplicas(net)
		net.vanish("a:1")
		net.on("b:1", leader("B<A", "c:1").answer)
		net.on("c:1", follower("b:1", "B", true).answer)
		c, end := net.open(t, cfg)
		defer end()
		within(t, topology.SearchTimeout+10*time.Millisecond, "the new primary serves", served(c, 0, "b:1"))
	})
}

// An old primary that was told to follow the new one loads what that sends it. It says so,
// and its role, too; only PING it refuses.
func TestReplicas_DemotedWhileLoading_IsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("a:1", leader("A", "b:1").answer)
		net.on("b:1", follower("a:1", "A", true).answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"a:1", "b:1"}})
		defer end()
		within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
		net.on("a:1", func(words []string) string {
			if reply := follower("b:1", "X", false).answer(words); reply != "" {
				return reply
			}
			return "-LOADING Redis is loading the dataset in memory\r\n"
		})
		net.set("a:1", func(s *bubbleServer) { s.hangUp() }) // it has restarted
		net.on("b:1", leader("B<A").answer)
		within(t, 2*time.Second, "the new primary serves", served(c, 0, "b:1"))
	})
}

// A primary that answers nothing but an error is what it was, until it is shut down, or more follow
// another than followed it.
func TestReplicas_PrimaryRefuses_IsKept(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"-LOADING Redis is loading the dataset in memory\r\n", "-BUSY Redis is busy running a script.\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			net := newBubbleNet()
			c, end := net.open(t, threeReplicas(net))
			defer end()
			within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
			net.on("a:1", func([]string) string { return refusal })
			net.on("b:1", leader("B<A").answer)
			net.on("c:1", follower("a:1", "A", false).answer)
			time.Sleep(30 * time.Second)
			if got := c.AddrOf(0); got != "a:1" {
				t.Fatalf("%q: %s serves, which nobody follows", refusal, got)
			}
			net.on("b:1", leader("B<A", "c:1").answer)
			net.on("c:1", follower("b:1", "B", true).answer)
			stays(t, c, "a:1", 30*time.Second)
			if strings.Contains(refusal, "BUSY") {
				net.set("a:1", func(s *bubbleServer) { s.refuses = true; s.hangUp() })
			} else {
				net.on("b:1", leader("B<A", "c:1", "d:1", "e:1").answer)
			}
			within(t, 7*time.Second, "the new primary serves", served(c, 0, "b:1"))
		})
	}
}

// An old primary that comes back, and that nobody has told yet, is not followed while the
// present one goes on, though only a replica has named that, and has lost it for a while.
func TestReplicas_PresentPrimaryNotConfigured_IsAsked(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(net *bubbleNet){
		"resync":      func(net *bubbleNet) { net.on("replica:1", follower("new:1", "A", false).answer) },
		"unreachable": func(net *bubbleNet) { net.vanish("replica:1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet() // old:1 refuses connections
				net.on("new:1", leader("A", "replica:1").answer)
				net.on("replica:1", follower("new:1", "A", true).answer)
				c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"old:1", "replica:1"}})
				defer end()
				within(t, 2*time.Second, "the primary serves", served(c, 0, "new:1"))
				net.on("old:1", leader("O").answer)
				time.Sleep(10 * time.Second)
				if got := c.AddrOf(0); got != "new:1" {
					t.Fatalf("%s serves, which nobody follows", got)
				}
				net.on("new:1", leader("A").answer)
				lose(net)
				stays(t, c, "new:1", 30*time.Second)
				net.vanish("new:1")
				stays(t, c, "new:1", 4*time.Second)
				within(t, 5*time.Second, "the old one serves when the new one is gone", served(c, 0, "old:1"))
			})
		})
	}
}

// A primary that had to be reached by the address that its replica knows is the same under
// its configured name: it does not rival itself, and goes on under the other name if one ends.
func TestReplicas_PresentPrimaryUnderTwoNames_IsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("10.0.0.1:1", leader("A", "10.0.0.2:1").answer)
		net.on("replica:1", follower("10.0.0.1:1", "A", true).answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"name:1", "replica:1"}})
		defer end()
		within(t, 2*time.Second, "the primary serves", served(c, 0, "10.0.0.1:1"))
		net.on("name:1", leader("A", "10.0.0.2:1").answer)
		stays(t, c, "10.0.0.1:1", 10*time.Second)
		net.vanish("10.0.0.1:1")
		within(t, 2*time.Second, "the primary serves under its name", served(c, 0, "name:1"))
		stays(t, c, "name:1", 10*time.Second)
	})
}

// An old primary comes back, as well followed as the present one, which is not configured:
// with a replica that was not told, while that of the present one knows it by another name;
// or from a partition, with the replica that it has lost, and not noticed yet.
func TestReplicas_PresentPrimaryNotConfigured_IsKept(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]struct {
		known string
		old   replicationState
	}{
		"two names": {"new:1", leader("A", "10.0.0.4:1")},
		"partition": {"10.0.0.2:1", leader("A", "10.0.0.2:1", "10.0.0.3:1").lagging(3)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				net.on("old:1", leader("A", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1").answer)
				c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"old:1"}})
				defer end()
				within(t, 2*time.Second, "the primary serves", served(c, 0, "old:1"))
				net.vanish("old:1")
				for _, addr := range []string{"10.0.0.2:1", back.known} {
					net.on(addr, leader("B<A", "10.0.0.3:1").answer)
				}
				net.on("10.0.0.3:1", follower(back.known, "B", true).answer)
				within(t, 30*time.Second, "the new primary serves", served(c, 0, "10.0.0.2:1"))
				net.on("old:1", back.old.answer)
				net.set("old:1", func(s *bubbleServer) { s.gone = false })
				stays(t, c, "10.0.0.2:1", 30*time.Second)
				net.on("old:1", follower("10.0.0.2:1", "B", true).answer)
				time.Sleep(2 * time.Second)
				if _, _, err := c.explorer.Progress(); err != nil {
					t.Errorf("the search failed: %v", err)
				}
			})
		})
	}
}

// An old primary that comes back from a partition has most replicas by its own account,
// until it notices that they have left: one of them is the present primary. It may know them
// by other names than the client does.
func TestReplicas_PrimaryListsThePresentOne_IsNotFollowed(t *testing.T) {
	t.Parallel()
	for name, names := range map[string][]string{"same names": {"b:1", "c:1"}, "other names": {"10.0.0.2:1", "10.0.0.3:1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				cfg := threeReplicas(net)
				net.on("a:1", leader("A", names...).answer)
				c, end := net.open(t, cfg)
				defer end()
				within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
				net.vanish("a:1")
				for _, b := range []string{"b:1", names[0]} {
					net.on(b, leader("B<A", "c:1").answer)
				}
				net.on("c:1", follower("b:1", "B", true).answer)
				within(t, 30*time.Second, "the new primary serves", served(c, 0, "b:1"))
				net.set("a:1", func(s *bubbleServer) { s.gone = false })
				for lag := range 5 { // that is what it noticed of a short partition
					net.on("a:1", leader("A", names...).lagging(lag).answer)
					stays(t, c, "b:1", time.Second)
				}
				stays(t, c, "b:1", 30*time.Second)
				net.on("a:1", leader("A", "b:1", "c:1").answer)
				for _, replica := range []string{"b:1", "c:1", names[0], names[1]} {
					net.on(replica, follower("a:1", "A", true).answer)
				}
				within(t, 3*time.Second, "the old one serves when all follow it again", served(c, 0, "a:1"))
			})
		})
	}
}

// A new client finds an old primary that has just come back from a partition, with a list that
// is out of date. Before it follows that one it asks who is on the list.
func TestReplicas_NewPrimary_ItsReplicasAreAskedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("old:1", leader("A", "b:1").answer)
		net.on("b:1", leader("B<A", "c:1").answer)
		time.AfterFunc(time.Second, func() { net.on("old:1", leader("A", "b:1").lagging(3).answer) })
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"old:1"}})
		defer end()
		for c.AddrOf(0) == "" {
			time.Sleep(10 * time.Millisecond)
		}
		stays(t, c, "b:1", 10*time.Second)
	})
}

// A primary that sees its replica come from its own address, as behind NAT, lists itself:
// that is no promotion.
func TestReplicas_PrimaryListsItself_IsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		for _, addr := range []string{"a:1", "172.17.0.1:1"} {
			net.on(addr, leader("A", "172.17.0.1:1", "172.17.0.1:1").answer)
		}
		net.on("b:1", follower("a:1", "A", true).answer) // c:1 cannot be reached from here
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"a:1", "b:1", "c:1"}})
		defer end()
		within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
		stays(t, c, "a:1", 10*time.Second)
	})
}

// What answers at an address by which a primary knows its replica may be a server of
// somebody else: behind NAT, or through a tunnel.
func TestReplicas_ForeignServerAtAReplicasAddress_PromotionIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		cfg := threeReplicas(net)
		net.on("127.0.0.1:1", leader("foreign").answer)
		net.on("a:1", leader("A", "127.0.0.1:1", "127.0.0.1:1").answer)
		c, end := net.open(t, cfg)
		defer end()
		within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
		time.Sleep(10 * time.Second)
		if _, _, err := c.explorer.Progress(); err != nil {
			t.Errorf("the search failed: %v", err)
		}
		net.on("b:1", leader("B<A", "127.0.0.1:1").answer)
		net.on("c:1", follower("b:1", "B", true).answer)
		net.vanish("a:1")
		within(t, 10*time.Second, "the new primary serves", served(c, 0, "b:1"))
	})
}

// A planned promotion where only the old primary is configured: its replicas leave it one
// after the other, and then it is shut down, or goes on.
func TestReplicas_ReplicasLeft_AreRemembered(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *bubbleServer){
		"shut down": func(s *bubbleServer) { s.refuses = true; s.hangUp() },
		"goes on":   func(*bubbleServer) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				cfg := threeReplicas(net)
				cfg.Addrs = cfg.Addrs[:1]
				c, closed := net.open(t, cfg)
				defer closed()
				within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
				time.Sleep(5 * time.Second)
				net.on("b:1", leader("B<A").answer)
				net.on("a:1", leader("A", "c:1").answer)
				time.Sleep(2 * time.Second)
				net.on("c:1", follower("b:1", "B", true).answer)
				net.on("b:1", leader("B<A", "c:1").answer)
				net.on("a:1", leader("A").answer)
				time.Sleep(2 * time.Second)
				net.set("a:1", end)
				within(t, 10*time.Second, "the new primary serves", served(c, 0, "b:1"))
			})
		})
	}
}

// A primary that is restarted refuses connections for a moment. Clients do not go to an older
// one for that, which has come back and was not demoted: not all of them would see it.
func TestReplicas_PresentPrimaryRestarts_OlderOneIsNotFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("old:1", leader("A").answer)
		net.on("new:1", leader("B<A", "c:1").answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"old:1", "new:1"}})
		defer end()
		within(t, 6*time.Second, "the one with a replica serves", served(c, 0, "new:1"))
		net.on("new:1", leader("B<A").answer) // and its replica is gone
		time.Sleep(5 * time.Second)
		net.set("new:1", func(s *bubbleServer) { s.refuses = true; s.hangUp() })
		stays(t, c, "new:1", 3*time.Second)
		net.set("new:1", func(s *bubbleServer) { s.refuses = false })
		net.on("new:1", leader("B2").answer)
		stays(t, c, "new:1", 30*time.Second)
		net.set("new:1", func(s *bubbleServer) { s.refuses = true; s.hangUp() })
		within(t, 6*time.Second, "the older one serves when the present one stays away", served(c, 0, "old:1"))
	})
}

// Nor if it was busy until then, as one that is restarted because a script does not end.
func TestReplicas_BusyPrimaryRestarts_OlderOneIsNotFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("old:1", leader("A").answer)
		net.on("new:1", leader("B<A", "c:1").answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"old:1", "new:1"}})
		defer end()
		within(t, 6*time.Second, "the one with a replica serves", served(c, 0, "new:1"))
		net.on("new:1", says("INFO", "-BUSY Redis is busy running a script.\r\n"))
		stays(t, c, "new:1", 20*time.Second)
		net.set("new:1", func(s *bubbleServer) { s.refuses = true; s.hangUp() })
		stays(t, c, "new:1", 3*time.Second)
		net.set("new:1", func(s *bubbleServer) { s.refuses = false })
		net.on("new:1", leader("B2").answer)
		stays(t, c, "new:1", 30*time.Second)
	})
}

// Servers of another make have no replication IDs: a replica is neither taken for one that has
// lost its primary, nor for one that has the data of the primary that it has been.
func TestReplicas_ReplicaWithoutAReplicationID_DecidesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plain := func(r replicationState) func([]string) string {
			r.info = bulk(withoutIDs(r.info))
			return r.answer
		}
		net := newBubbleNet()
		net.on("a:1", plain(leader("A", "b:1")))
		net.on("b:1", plain(follower("a:1", "A", true)))
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"a:1", "b:1"}})
		defer end()
		within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
		net.on("b:1", plain(leader("B")))
		net.on("a:1", plain(follower("b:1", "B", true)))
		within(t, 2*time.Second, "the new one serves", served(c, 0, "b:1"))
	})
}

// withoutIDs is the text of an INFO reply without replication IDs.
func withoutIDs(reply string) string {
	_, text, _ := strings.Cut(reply, "\r\n")
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSuffix(text, "\r\n")) {
		if !strings.HasPrefix(line, "master_replid") {
			b.WriteString(line)
		}
	}
	return b.String()
}
