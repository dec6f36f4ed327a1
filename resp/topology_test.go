package resp

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// roleOfPrimaryOf is the answer to ROLE of a primary with these replicas.
func roleOfPrimaryOf(replicas ...string) fakenode.Action {
	return fakenode.Raw(primaryReply(replicas...))
}

// roleOfReplica is that of a replica of a primary; state is "connected", or why not.
func roleOfReplica(primary, state string) fakenode.Action {
	return fakenode.Raw(replicaReply(primary, state))
}

// serves waits until a client takes a server for the one of a route.
func serves(t *testing.T, c *Client, route uint64, addr string) {
	t.Helper()
	eventually(t, addr+" serves", func() bool { return c.AddrOf(route) == addr && c.LaneOf(route).Up() })
}

func named(host, addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(host, port)
}

// The channels of waiters go along when another server becomes the primary.
func TestTopology_Failover_ChannelsFollow(t *testing.T) {
	t.Parallel()
	a, b := fakenode.New(t), fakenode.New(t)
	leader("A", b.Addr()).play(a)
	follower(a.Addr(), "A", true).play(b)
	c := ready(t, Config{Topology: Replicas, Addrs: []string{a.Addr(), b.Addr()}})
	r := requesttest.NewRecorder()
	ch := NewChannel("x", r)
	c.Subscribe(ch)
	r.Await(t, Subscribed)
	follower(b.Addr(), "B", true).play(a)
	leader("B<A", a.Addr()).play(b)
	serves(t, c, 0, b.Addr())
	r.Await(t, Disconnected)
	r.Await(t, Subscribed)
	if n := len(b.Commands(fakenode.Is("SUBSCRIBE", "x"))); n != 1 {
		t.Errorf("the new primary was asked %d times", n)
	}
	b.Publish("x", "1")
	r.Await(t, Message)
}

// The configured names and the addresses that servers announce are different words for
// the same servers.
func TestTopology_PromotedUnderAnotherName_IsFollowed(t *testing.T) {
	t.Parallel()
	a, b := fakenode.New(t), fakenode.New(t)
	leader("A", b.Addr()).play(a) // by its number
	follower(a.Addr(), "A", true).play(b)
	first, second := named("localhost", a.Addr()), named("localhost", b.Addr())
	c := ready(t, Config{Topology: Replicas, Addrs: []string{first, second}})
	serves(t, c, 0, first)
	a.On(fakenode.Connect, fakenode.Reset()) // the machine is gone
	leader("B<A").play(b)
	a.ResetAll()
	serves(t, c, 0, second)
}

// A primary that comes back, and that nobody has told yet, is not followed while the one that serves
// is busy, or its replica hears from it.
func TestTopology_StalePrimary_IsNotFollowed(t *testing.T) {
	t.Parallel()
	for name, silence := range map[string]fakenode.Action{
		"busy": fakenode.Error(fakenode.Busy), "unreachable": fakenode.Reset(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stale, primary, replica := fakenode.New(t), fakenode.New(t), fakenode.New(t)
			leader("O").play(stale)
			leader("A", replica.Addr()).play(primary)
			follower(primary.Addr(), "A", true).play(replica)
			c := ready(t, Config{Topology: Replicas, Addrs: []string{stale.Addr(), primary.Addr(), replica.Addr()}})
			began := c.cfg.Clock.Now()
			primary.On(infos, silence)
			eventually(t, "four seconds are over", func() bool { return c.cfg.Clock.Now().Sub(began) > 4*time.Second })
			stale.WaitFor(len(stale.Commands(infos))+6, infos)
			if got := c.AddrOf(0); got != primary.Addr() {
				t.Errorf("%s serves, which nobody follows", got)
			}
			if name == "unreachable" { // the replica notices
				follower(primary.Addr(), "A", false).play(replica)
				serves(t, c, 0, stale.Addr())
			}
		})
	}
}

// The primary of a deployment with one replica is busy: it is alive, and the primary.
func TestTopology_PrimaryBusy_IsKept(t *testing.T) {
	t.Parallel()
	a, b := fakenode.New(t), fakenode.New(t)
	leader("A", b.Addr()).play(a)
	follower(a.Addr(), "A", false).play(b)
	c := ready(t, Config{Topology: Replicas, Addrs: []string{a.Addr(), b.Addr()}})
	a.On(infos, fakenode.Error(fakenode.Loading))
	leader("B<A").play(b)
	b.WaitFor(len(b.Commands(infos))+3, infos)
	if got := c.AddrOf(0); got != a.Addr() {
		t.Errorf("%s serves", got)
	}
}

// That a server is loading says nothing of what it can do.
func TestTopology_PassingError_DecidesNothingAboutSharding(t *testing.T) {
	t.Parallel()
	for _, text := range []string{fakenode.Loading, fakenode.Busy, "ERR max number of clients reached"} {
		f := newFakeCluster(t, 1)
		asked := fakenode.Is("PUBSUB", "SHARDNUMSUB")
		f.nodes[0].On(asked, fakenode.Raw("*0\r\n"))
		f.nodes[0].OnNext(1, asked, fakenode.Error(text))
		if c := f.client(t, func(cfg *Config) { cfg.Sharding = ShardingAuto }); !c.Sharded() {
			t.Errorf("%q: no sharded channels, for good", text)
		}
	}
	for _, text := range []string{"NOPERM no right", "ERR unknown command 'PUBSUB'", "ERR Unknown PUBSUB subcommand"} {
		f := newFakeCluster(t, 2)
		for _, n := range f.nodes {
			n.On(fakenode.Is("PUBSUB", "SHARDNUMSUB"), fakenode.Error(text))
		}
		if c := f.client(t, func(cfg *Config) { cfg.Sharding = ShardingAuto }); c.Sharded() {
			t.Errorf("%q: sharded channels", text)
		}
	}
}

// Two of three primaries are enough to begin with.
func TestTopology_PrimaryOfTheFirstSlotsDown_ClusterIsUsed(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 3)
	for _, n := range f.nodes {
		n.On(fakenode.Is("PUBSUB", "SHARDNUMSUB"), fakenode.Raw("*0\r\n"))
	}
	f.nodes[0].On(fakenode.Connect, fakenode.Reset())
	c := open(t, Config{Topology: Cluster, Addrs: []string{f.nodes[1].Addr(), f.nodes[2].Addr()}})
	serves(t, c, slot.Count-1, f.nodes[2].Addr())
	serves(t, c, slot.Count/2, f.nodes[1].Addr())
	if !c.Sharded() {
		t.Error("nobody asked the others about sharded channels")
	}
}

// While slots are served by nobody somebody looks now and then.
func TestTopology_GapInTheLayout_IsFilledSoon(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	whole := f.layout.Load()
	host, port, _ := net.SplitHostPort(f.nodes[0].Addr())
	half := "*1\r\n*3\r\n:0\r\n:8191\r\n*2\r\n" + bulk(host) + ":" + port + "\r\n"
	f.layout.Store(&half)
	c := f.client(t)
	looks := f.count(fakenode.Is("CLUSTER", "SLOTS"))
	eventually(t, "it looks again though nobody asks", func() bool { return f.count(fakenode.Is("CLUSTER", "SLOTS")) > looks+1 })
	f.layout.Store(whole)
	serves(t, c, slot.Count-1, f.nodes[1].Addr())
}

// A dead node does not have everybody ask all the time.
func TestTopology_NothingNew_SearchesSeldom(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	c := f.client(t)
	f.nodes[1].On(fakenode.Connect, fakenode.Reset())
	f.nodes[1].ResetAll()
	slots := fakenode.Is("CLUSTER", "SLOTS")
	before, start := f.count(slots), time.Now()
	eventually(t, "a few searches", func() bool { return f.count(slots) >= before+5 })
	if d := time.Since(start); d < 2*time.Second {
		t.Errorf("five searches within %v", d)
	}
	// But who knows that something has changed is heard at once.
	f.serve(0, 0)
	asked := time.Now()
	c.explorer.RefreshNow("")
	serves(t, c, slot.Count-1, f.nodes[0].Addr())
	t.Logf("found %v after it was asked for", time.Since(asked))
}

// The connection is made while its node is being closed.
func TestTopology_NodeClosed_PubSubEnds(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	c := ready(t, Config{Addr: n.Addr()})
	closed := newNode(c, "tcp", n.Addr())
	conn, err := closed.cfg.connect(testContext(t), RolePubSub)
	if err != nil {
		t.Fatal(err)
	}
	closed.close(errRetired)
	closed.link(RolePubSub, 0).announce()
	if err := closed.pubsub.Attach(c.loops, conn); err != nil {
		return
	}
	eventually(t, "the connection has ended", func() bool { return closed.pubsub.Err() != nil })
}

// A node that is to be known by its hostname, and has none, is "?".
func TestTopology_NodeWithoutItsHostname_IsFoundByAddress(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	host, port, _ := net.SplitHostPort(n.Addr())
	n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Raw("*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n"+bulk("?")+":"+port+"\r\n"+bulk("id")+
		"*2\r\n"+bulk("ip")+bulk(host)))
	c := ready(t, Config{Topology: Cluster, Addrs: []string{named("localhost", n.Addr())}, Sharding: ShardingOff})
	if got := c.AddrOf(0); got != n.Addr() {
		t.Errorf("%s serves", got)
	}
}

// One replica that can be reached is enough to find the primary that it follows.
func TestTopology_OnlyAReplicaConfigured_PrimaryIsFound(t *testing.T) {
	t.Parallel()
	primary, replica := fakenode.New(t), fakenode.New(t)
	leader("A", replica.Addr()).play(primary)
	follower(primary.Addr(), "A", true).play(replica)
	c := ready(t, Config{Topology: Replicas, Addrs: []string{"127.0.0.1:1", replica.Addr()}})
	if got := c.AddrOf(0); got != primary.Addr() {
		t.Errorf("%s serves", got)
	}
}

// A sentinel that has not heard of a failover names a server that is no primary now.
func TestTopology_SentinelBehind_IsNotBelieved(t *testing.T) {
	t.Parallel()
	behind, ahead, old, primary := fakenode.New(t), fakenode.New(t), fakenode.New(t), fakenode.New(t)
	named := func(addr string) fakenode.Action {
		host, port, _ := net.SplitHostPort(addr)
		return fakenode.Raw("*2\r\n" + bulk(host) + bulk(port))
	}
	behind.On(fakenode.Is("SENTINEL", "GET-MASTER-ADDR-BY-NAME"), named(old.Addr()))
	ahead.On(fakenode.Is("SENTINEL", "GET-MASTER-ADDR-BY-NAME"), named(primary.Addr()))
	for _, s := range []*fakenode.Node{behind, ahead} {
		s.On(fakenode.Is("SENTINEL", "SENTINELS"), fakenode.Raw("*0\r\n"))
	}
	old.On(roles, roleOfReplica(primary.Addr(), "connected"))
	primary.On(roles, roleOfPrimaryOf(old.Addr()))
	asked := fakenode.Is("SENTINEL", "GET-MASTER-ADDR-BY-NAME")
	for range 40 { // they are asked in a random order
		if len(behind.Commands(asked)) > 0 {
			break
		}
		c := ready(t, Config{Topology: Sentinel, Master: "m", Addrs: []string{behind.Addr(), ahead.Addr()}})
		if got := c.AddrOf(0); got != primary.Addr() {
			t.Errorf("%s serves", got)
		}
	}
	if len(behind.Commands(asked)) == 0 {
		t.Error("the one that is behind was never asked")
	}
}

// served reports whether a server is the one of a route, with its connections up.
func served(c *Client, route uint64, addr string) func() bool {
	return func() bool { return c.AddrOf(route) == addr && c.LaneOf(route).Up() }
}

// Four of six nodes have vanished: those that are left know the new primary.
func TestTopology_MostNodesSilent_LayoutIsFound(t *testing.T) {
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

func TestTopology_MachineVanishes_FailoverIsFollowedAtOnce(t *testing.T) {
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

// A replica that is not configured is promoted, and the other follows it, one after the other;
// nobody tells the old primary. Only the other replica names the new one by then. A client that
// was there before follows it as a new one does.
func TestTopology_PromotedNamedByAReplicaOnly_IsFollowed(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"new client": false, "client that was there": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				net.on("a:1", leader("A", "b:1", "c:1").answer)
				net.on("b:1", follower("a:1", "A", true).answer)
				net.on("c:1", follower("a:1", "A", true).answer)
				promote := func() {
					net.on("a:1", leader("A").answer)
					net.on("b:1", follower("c:1", "C", true).answer)
					net.on("c:1", leader("C<A", "b:1").answer)
				}
				if !before {
					promote()
				}
				c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"a:1", "b:1"}})
				defer end()
				if before {
					within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
					time.Sleep(5 * time.Second)
					net.on("a:1", leader("A", "b:1").answer)
					net.on("c:1", leader("C<A").answer)
					stays(t, c, "a:1", 5*time.Second)
					promote()
				}
				// A look notices it, within a second, and another decides, up to one after four seconds.
				within(t, 7*time.Second, "the new one serves", served(c, 0, "c:1"))
			})
		})
	}
}

// The only server that is configured is the replica of a replica.
func TestTopology_ChainOfReplicas_PrimaryIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("a:1", leader("A", "b:1").answer)
		net.on("b:1", follower("a:1", "A", true).answer)
		net.on("c:1", follower("b:1", "A", true).answer)
		net.on("d:1", follower("c:1", "A", true).answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"d:1"}})
		defer end()
		within(t, 3*time.Second, "the primary serves", served(c, 0, "a:1"))
	})
}

// Behind NAT, what answers at the address by which a primary sees its replicas may be
// the primary of another deployment. It is not followed while a replica cannot be reached
// from here, or where one is not configured; and a promotion is.
func TestReplicas_ForeignPrimaryAtAReplicasAddress_IsNotFollowed(t *testing.T) {
	t.Parallel()
	for name, foreign := range map[string]replicationState{"lonely": leader("foreign"), "followed": leader("foreign", "10.9.9.9:1", "10.9.9.8:1", "10.9.9.7:1")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				cfg := threeReplicas(net)
				net.on("172.17.0.1:1", foreign.answer)
				net.on("a:1", leader("A", "172.17.0.1:1", "172.17.0.1:1").answer)
				net.vanish("c:1")
				c, end := net.open(t, cfg)
				defer end()
				within(t, 2*time.Second, "the primary serves", served(c, 0, "a:1"))
				stays(t, c, "a:1", 10*time.Second)
				if _, _, err := c.explorer.Progress(); err != nil {
					t.Errorf("the search failed: %v", err)
				}
				net.on("b:1", leader("B<A", "172.17.0.1:1", "172.17.0.1:1").answer)
				net.on("a:1", follower("b:1", "B", true).answer)
				within(t, 10*time.Second, "the new primary serves", served(c, 0, "b:1"))
			})
		})
	}
}

// Nor is it when the primary crashes: all its replicas are configured, so what answers at
// the addresses by which it has seen them is none that might be promoted.
func TestReplicas_PrimaryCrashes_ForeignPrimaryIsNotFollowed(t *testing.T) {
	t.Parallel()
	for name, reached := range map[string]bool{"all reached": true, "one not reached": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				cfg := threeReplicas(net)
				net.on("172.17.0.1:1", leader("foreign").answer)
				net.on("a:1", leader("A", "172.17.0.1:1", "172.17.0.1:1").answer)
				if !reached {
					net.vanish("c:1")
				}
				c, end := net.open(t, cfg)
				defer end()
				within(t, 2*time.Second, "the primary serves", served(c, 0, "a:1"))
				time.Sleep(10 * time.Second)
				net.vanish("a:1")
				for _, replica := range []string{"b:1", "c:1"} {
					net.on(replica, follower("a:1", "A", false).answer)
				}
				for range 200 {
					time.Sleep(100 * time.Millisecond)
					if got := c.AddrOf(0); got != "a:1" && reached {
						t.Fatalf("%s serves", got)
					}
				}
				for _, addr := range []string{"a:1", "c:1"} {
					net.set(addr, func(s *bubbleServer) { s.gone = false })
				}
				for _, replica := range []string{"b:1", "c:1"} {
					net.on(replica, follower("a:1", "A", true).answer)
				}
				within(t, 10*time.Second, "the primary serves when it is back", served(c, 0, "a:1"))
			})
		})
	}
}

// Nor by the address under which a replica has lost the primary, which may be one inside
// the host of that replica. The replica that is promoted would be but its equal.
func TestReplicas_ForeignPrimaryNamedByALostReplica_IsNotFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("a:1", leader("A", "10.0.0.2:1").answer)
		net.on("b:1", follower("172.17.0.1:1", "A", true).answer)
		net.on("172.17.0.1:1", leader("foreign").answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"a:1", "b:1"}})
		defer end()
		within(t, 2*time.Second, "the primary serves", served(c, 0, "a:1"))
		time.Sleep(10 * time.Second)
		net.vanish("a:1")
		net.on("b:1", follower("172.17.0.1:1", "A", false).answer)
		stays(t, c, "a:1", 20*time.Second)
		net.on("b:1", leader("B<A").answer)
		within(t, 10*time.Second, "the new primary serves", served(c, 0, "b:1"))
	})
}
