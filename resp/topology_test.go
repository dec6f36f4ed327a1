package resp

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/slot"
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
func TestChannelsFollowThePrimary(t *testing.T) {
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
func TestReplicaIsPromotedUnderAnotherNameThanItWasKnownBy(t *testing.T) {
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
// is busy, nor in the first four seconds that it does not answer.
func TestStalePrimaryIsNotFollowed(t *testing.T) {
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
			if name == "unreachable" {
				serves(t, c, 0, stale.Addr())
				if took := c.cfg.Clock.Now().Sub(began); took < 4*time.Second {
					t.Errorf("left after %v: it may be restarting", took)
				}
				return
			}
			stale.WaitFor(len(stale.Commands(infos))+6, infos)
			if got := c.AddrOf(0); got != primary.Addr() {
				t.Errorf("%s serves, which nobody follows", got)
			}
		})
	}
}

// The primary of a deployment with one replica is busy: it is alive, and the primary.
func TestBusyPrimaryIsKept(t *testing.T) {
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
func TestPassingErrorDecidesNothingAboutSharding(t *testing.T) {
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
func TestClusterIsUsedThoughThePrimaryOfTheFirstSlotsIsDown(t *testing.T) {
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
func TestGapInTheLayoutIsFilledSoon(t *testing.T) {
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
func TestSearchesThatFindNothingNewComeSeldom(t *testing.T) {
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
func TestPubsubOfAClosedNodeEnds(t *testing.T) {
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
	eventually(t, "the connection has ended", func() bool { return !closed.pubsub.Up() })
}

// A node that is to be known by its hostname, and has none, is "?".
func TestNodeWithoutTheNameThatItShouldHaveIsFoundByItsAddress(t *testing.T) {
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
func TestPrimaryIsFoundByItsReplica(t *testing.T) {
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
func TestSentinelThatIsBehindIsNotBelieved(t *testing.T) {
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
