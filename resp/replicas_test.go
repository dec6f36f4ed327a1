package resp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

func TestLatest_GroupsKnown_OutlastSilence(t *testing.T) {
	t.Parallel()
	old, fresh := new(topology.Groups), new(topology.Groups)
	busy := &topology.Groups{Err: errors.New("busy")}
	busier := &topology.Groups{Err: errors.New("busier")}
	denied := &topology.Groups{Err: &ServerError{Code: "NOPERM", Message: "NOPERM no right to sentinel|replicas"}}
	for name, c := range map[string]struct{ known, found, want *topology.Groups }{
		"nobody was asked":               {nil, nil, nil},
		"nobody was asked this time":     {old, nil, old},
		"the first":                      {nil, fresh, fresh},
		"the next":                       {old, fresh, fresh},
		"the first fails":                {nil, busy, busy},
		"the next fails":                 {old, busy, old},
		"the next is denied":             {old, denied, denied},
		"it fails again, and says why":   {busy, busier, busier},
		"it was denied, and nobody asks": {denied, nil, denied},
		"it was denied, and fails":       {denied, busy, busy},
		"it was denied, and is allowed":  {denied, fresh, fresh},
	} {
		if got := latest(c.known, c.found); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

var keptGroup *topology.Group

// It is asked for with each group of durable requests, on the event loop.
func TestClient_GroupUnlisted_AllocatesNothing(t *testing.T) {
	group := new(Client).group
	if n := testing.AllocsPerRun(100, func() { keptGroup, _ = group("a:1") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// watched is a fake sentinel deployment: one sentinel, one primary, and the replicas that
// the sentinel lists.
type watched struct {
	sentinel, primary *fakenode.Node
}

func newWatched(t *testing.T, replicas ...string) *watched {
	w := &watched{sentinel: fakenode.New(t), primary: primary(t, 0)}
	host, port, _ := net.SplitHostPort(w.primary.Addr())
	w.sentinel.On(fakenode.Is("SENTINEL", "GET-MASTER-ADDR-BY-NAME"), fakenode.Raw("*2\r\n"+bulk(host)+bulk(port)))
	w.sentinel.On(fakenode.Is("SENTINEL", "SENTINELS"), fakenode.Raw("*0\r\n"))
	w.list(replicas...)
	return w
}

var asksForReplicas = fakenode.Is("SENTINEL", "REPLICAS")

func (w *watched) list(replicas ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(replicas))
	for _, r := range replicas {
		host, port, _ := net.SplitHostPort(r)
		b.WriteString("*8\r\n" + bulk("name") + bulk(r) + bulk("ip") + bulk(host) + bulk("port") + bulk(port) + bulk("flags") + bulk("s_down,slave"))
	}
	w.sentinel.On(asksForReplicas, fakenode.Raw(b.String()))
}

func (w *watched) client(t *testing.T, durable bool) *Client {
	return ready(t, Config{Topology: Sentinel, Master: "m", Addrs: []string{w.sentinel.Addr()}, Durable: durable})
}

// attach has the primary list these replicas, all of which acknowledge.
func attach(n *fakenode.Node, replicas ...string) {
	n.On(roles, roleOfPrimaryOf(replicas...))
	n.On(waits, fakenode.Int(int64(len(replicas))))
}

// expect sends calls until the answer is so many of so many, by whom else.
func expect(t *testing.T, c *Client, want Acks, acks, wanted int, away ...string) {
	t.Helper()
	var got Ack
	eventually(t, fmt.Sprintf("Acks(%d): %d of %d, away %v", want, acks, wanted, away), func() bool {
		r := acked(t, c, want)
		got = ackOf(r)
		return r.Err == nil && got.Err == nil && got.Acked == acks && got.Wanted == wanted && slices.Equal(got.Away, away)
	})
}

// The sentinels begin a failover on command by detaching the one that they promote.
func TestClient_ReplicaOfSentinelsAway_Counts(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "10.0.0.2:1", "10.0.0.3:1")
	c := w.client(t, true)
	attach(w.primary, "10.0.0.3:1")
	for range 3 {
		expect(t, c, AllReplicas, 1, 2, "10.0.0.2:1")
	}
	expect(t, c, MajorityOfReplicas, 1, 2, "10.0.0.2:1")
	expect(t, c, 1, 1, 1)
	attach(w.primary, "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1")
	expect(t, c, AllReplicas, 3, 3) // more than the sentinel has heard of
	expect(t, c, MajorityOfReplicas, 3, 2)
	attach(w.primary, "10.0.0.2:1", "10.0.0.3:1")
	expect(t, c, AllReplicas, 2, 3) // the other was there a moment ago
}

// After a reset they have forgotten it.
func TestClient_ReplicaForgottenBySentinels_CountsNoMore(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "10.0.0.2:1", "10.0.0.3:1")
	c := w.client(t, true)
	attach(w.primary, "10.0.0.3:1")
	expect(t, c, AllReplicas, 1, 2, "10.0.0.2:1")
	w.list("10.0.0.3:1")
	c.explorer.RefreshNow("")
	expect(t, c, AllReplicas, 1, 1)
}

// Rights for these questions are needed by callers that wait for replicas, and by nobody
// else.
func TestClient_FirstDurableRequest_AsksForGroups(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "10.0.0.2:1", "10.0.0.3:1")
	c := w.client(t, false)
	attach(w.primary, "10.0.0.3:1")
	eventually(t, "a number is acknowledged", func() bool { return ackOf(acked(t, c, 1)).Acked == 1 })
	looks := len(w.sentinel.Commands(fakenode.Is("SENTINEL")))
	c.explorer.RefreshNow("")
	eventually(t, "it looks again", func() bool { return len(w.sentinel.Commands(fakenode.Is("SENTINEL"))) > looks })
	if n := len(w.sentinel.Commands(asksForReplicas)); n != 0 {
		t.Fatalf("the sentinel was asked for replicas %d times", n)
	}
	first := acked(t, c, AllReplicas)
	if !errors.Is(first.Err, ErrNotSent) || !errors.Is(first.Err, request.ErrNotCounted) {
		t.Errorf("the first: %+v", first)
	}
	expect(t, c, AllReplicas, 1, 2, "10.0.0.2:1")
}

// It never counts for less than was asked: without the right "all" has no meaning.
func TestClient_GroupsForbidden_IsAnError(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.sentinel.On(asksForReplicas, fakenode.Error("NOPERM no right to sentinel|replicas"))
	c := w.client(t, true)
	attach(w.primary, "10.0.0.3:1")
	for _, want := range []Acks{AllReplicas, MajorityOfReplicas} {
		if r := acked(t, c, want); r.Err != nil || ackOf(r).Acked != 0 || ackOf(r).Err == nil || !strings.Contains(ackOf(r).Err.Error(), "sentinel|replicas") {
			t.Errorf("%+v", r)
		}
	}
	expect(t, c, 1, 1, 1)
	w.list("10.0.0.2:1", "10.0.0.3:1") // the right has been given
	c.explorer.RefreshNow("")
	expect(t, c, AllReplicas, 1, 2, "10.0.0.2:1")
	// What is known stands while nobody answers.
	looks := len(w.sentinel.Commands(asksForReplicas))
	w.sentinel.On(asksForReplicas, fakenode.Error(fakenode.Busy))
	c.explorer.RefreshNow("")
	w.sentinel.WaitFor(looks+1, asksForReplicas)
	expect(t, c, AllReplicas, 1, 2, "10.0.0.2:1")
}

// CLUSTER SLOTS hides replicas that have failed, CLUSTER NODES does not.
func TestClient_ReplicaOfAClusterAway_CountsUntilForgotten(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 1)
	n := f.nodes[0]
	nodes := fakenode.Is("CLUSTER", "NODES")
	three := fmt.Sprintf("p %s@1 myself,master - 0 0 1 connected 0-16383\na 10.0.0.2:1@2 slave,fail p 0 0 1 disconnected\nb 10.0.0.3:1@2 slave p 0 0 1 connected\n", n.Addr())
	n.On(nodes, fakenode.Raw(bulk(three)))
	n.On(echoes, fakenode.Int(1))
	attach(n, "10.0.0.3:1")
	c := f.client(t, func(cfg *Config) { cfg.Durable = true })
	expect(t, c, AllReplicas, 1, 2, "10.0.0.2:1")
	expect(t, c, 1, 1, 1)
	n.On(nodes, fakenode.Raw(bulk(strings.Replace(three, "a 10.0.0.2:1@2 slave,fail p 0 0 1 disconnected\n", "", 1))))
	c.explorer.RefreshNow("")
	expect(t, c, AllReplicas, 1, 1)
}

// A cluster may keep the addresses of its nodes to itself: each is where it was asked. But
// CLUSTER NODES has them.
func TestClient_PrimaryWithAnotherAddress_IsFoundByItsID(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	_, port, _ := net.SplitHostPort(n.Addr())
	n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Raw("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$-1\r\n:"+port+"\r\n"+bulk("p")))
	n.On(fakenode.Is("CLUSTER", "NODES"), fakenode.Raw(bulk(
		"p 10.0.0.1:1@1 myself,master - 0 0 1 connected 0-16383\na 10.0.0.2:1@2 slave p 0 0 1 connected\nb 10.0.0.3:1@2 slave p 0 0 1 connected\n")))
	n.On(echoes, fakenode.Int(1))
	attach(n, "10.0.0.3:1")
	c := ready(t, Config{Topology: Cluster, Addrs: []string{n.Addr()}, Sharding: ShardingOff, Durable: true})
	expect(t, c, AllReplicas, 1, 2, "10.0.0.2:1")
}

// MOVED leads to the replica that was promoted before the next look. Its group is that of
// the old primary.
func TestClient_ReplicaPromoted_HasTheGroupOfItsPrimary(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	f.serve(0)
	for _, n := range f.nodes {
		n.On(fakenode.Is("CLUSTER", "NODES"), fakenode.Raw(bulk(fmt.Sprintf("p %s@1 master - 0 0 1 connected 0-16383\na %s@2 slave p 0 0 1 connected\nb 10.0.0.3:1@2 slave p 0 0 1 connected\n",
			f.nodes[0].Addr(), f.nodes[1].Addr()))))
		n.On(echoes, fakenode.Int(1))
	}
	attach(f.nodes[0], f.nodes[1].Addr(), "10.0.0.3:1")
	attach(f.nodes[1], "10.0.0.3:1")
	c := f.client(t, func(cfg *Config) { cfg.Durable = true })
	expect(t, c, AllReplicas, 2, 2)
	f.nodes[0].On(echoes, f.moved(int(slot.Count-1), 1))
	eventually(t, "it answers", func() bool {
		call := newDurableCall(1, AllReplicas)
		c.SubmitDurable(slot.Count-1, call)
		r := call.Await(t)
		if got := ackOf(r); r.Err == nil && (got.Acked != 1 || got.Wanted != 2 || !slices.Equal(got.Away, []string{f.nodes[0].Addr()})) {
			t.Fatalf("%+v, %+v", r, got)
		}
		return r.Err == nil // it has just been connected
	})
	// A server that nobody has listed has no group.
	stranger := primary(t, 1)
	f.nodes[1].On(echoes, fakenode.Error(fmt.Sprintf("MOVED %d %s", slot.Count-2, stranger.Addr())))
	f.nodes[0].On(echoes, fakenode.Error(fmt.Sprintf("MOVED %d %s", slot.Count-2, stranger.Addr())))
	eventually(t, "a stranger answers", func() bool {
		call := newDurableCall(2, AllReplicas)
		c.SubmitDurable(slot.Count-2, call)
		r := call.Await(t)
		if r.Err == nil && !errors.Is(ackOf(r).Err, topology.ErrNotListed) {
			t.Fatalf("%+v", ackOf(r))
		}
		return r.Err == nil
	})
}

// Where replicas are promoted by hand, those count that the user has named.
func TestClient_ConfiguredReplicaAway_Counts(t *testing.T) {
	t.Parallel()
	a, b := primary(t, 0), fakenode.New(t)
	attach(a, b.Addr())
	a.On(infos, fakenode.Raw(leader("A", b.Addr()).info))
	follower(a.Addr(), "A", true).play(b)
	c := ready(t, Config{Topology: Replicas, Addrs: []string{a.Addr(), b.Addr(), "127.0.0.1:1"}, Durable: true})
	expect(t, c, AllReplicas, 1, 2, "127.0.0.1:1")
	expect(t, c, 1, 1, 1)
	// More than the user has named: the most that were there.
	attach(a, b.Addr(), "10.0.0.2:1", "10.0.0.3:1")
	expect(t, c, AllReplicas, 3, 3)
	attach(a, b.Addr())
	expect(t, c, AllReplicas, 1, 3, "127.0.0.1:1")
}

// Nobody keeps a list, so the client does.
func TestClient_ReplicaOfAPlainServer_CountsOnceSeen(t *testing.T) {
	t.Parallel()
	n := primary(t, 0)
	attach(n, "10.0.0.2:1")
	c := durableClient(t, n)
	expect(t, c, AllReplicas, 1, 1)
	attach(n, "10.0.0.2:1", "10.0.0.3:1")
	expect(t, c, AllReplicas, 2, 2)
	attach(n, "10.0.0.3:1")
	expect(t, c, AllReplicas, 1, 2)
	expect(t, c, MajorityOfReplicas, 1, 2)
	if other := durableClient(t, n); true { // as after a restart
		expect(t, other, AllReplicas, 1, 1)
	}
}

var (
	waits = fakenode.Is("WAIT")
	roles = fakenode.Is("ROLE")
)

// roleOfPrimary is the answer to ROLE of a primary with n replicas.
func roleOfPrimary(n int) fakenode.Action {
	var replicas []string
	for i := range n {
		replicas = append(replicas, fmt.Sprint("10.0.0.2:", 7001+i))
	}
	return roleOfPrimaryOf(replicas...)
}

type durableCall = requesttest.DurableCall

func newDurableCall(n int, want Acks) *durableCall { return requesttest.NewDurableCall(n, want) }

func ackOf(r Reply) Ack { return requesttest.AckOf(r) }

// primary is a fake node with so many replicas, all of which acknowledge, that
// answers commands with 1.
func primary(t *testing.T, replicas int) *fakenode.Node {
	n := fakenode.New(t)
	n.On(echoes, fakenode.Int(1))
	n.On(roles, roleOfPrimary(replicas))
	n.On(waits, fakenode.Int(int64(replicas)))
	return n
}

func durableClient(t *testing.T, n *fakenode.Node) *Client {
	return ready(t, Config{Addr: n.Addr(), Durable: true})
}

// acked sends one call and returns its outcome.
func acked(t *testing.T, c *Client, want Acks) Reply {
	t.Helper()
	call := newDurableCall(1, want)
	c.SubmitDurable(0, call)
	return call.Await(t)
}

func TestClient_DurableRequests_AskForReplicas(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		want                  Acks
		attached, acknowledge int
		wanted, asked         int
	}{
		{want: 2, attached: 2, acknowledge: 2, wanted: 2, asked: 2},
		{want: 2, attached: 3, acknowledge: 3, wanted: 2, asked: 2},
		{want: 2, attached: 1, acknowledge: 1, wanted: 2, asked: 1}, // no use in waiting for two
		{want: AllReplicas, attached: 3, acknowledge: 2, wanted: 3, asked: 3},
		{want: AllReplicas, attached: 0, acknowledge: 0, wanted: 1, asked: 0},
		{want: MajorityOfReplicas, attached: 1, acknowledge: 1, wanted: 1, asked: 1},
		{want: MajorityOfReplicas, attached: 2, acknowledge: 1, wanted: 2, asked: 2},
		{want: MajorityOfReplicas, attached: 5, acknowledge: 4, wanted: 3, asked: 3},
		{want: MajorityOfReplicas, attached: 0, acknowledge: 0, wanted: 1, asked: 0},
	} {
		t.Run(fmt.Sprintf("%d of %d", test.want, test.attached), func(t *testing.T) {
			t.Parallel()
			n := primary(t, test.attached)
			n.On(waits, fakenode.Int(int64(test.acknowledge)))
			c := durableClient(t, n)
			acked(t, c, test.want) // the client learns how many there are
			r := acked(t, c, test.want)
			if r.Err != nil || ackOf(r).Err != nil || r.Value.Int != 1 || ackOf(r).Acked != test.acknowledge || ackOf(r).Wanted != test.wanted {
				t.Errorf("%+v", r)
			}
			all := n.Commands(waits)
			last := all[len(all)-1].Words
			if got := last[1] + " " + last[2]; got != fmt.Sprint(test.asked, " 1000") {
				t.Errorf("WAIT %s, want %d replicas", got, test.asked)
			}
		})
	}
}

// While a group is out the next one gathers; it takes one WAIT, however many it has.
func TestClient_DurableRequests_ShareAWait(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	c := durableClient(t, n)
	first := newDurableCall(0, 1)
	c.SubmitDurable(0, first)
	n.WaitFor(1, waits)
	const many = 100
	var calls []*durableCall
	for i := range many {
		calls = append(calls, newDurableCall(i+1, AllReplicas))
		c.SubmitDurable(0, calls[i])
	}
	// An ordinary command passes by, and nothing was sent behind the WAIT.
	plain := requesttest.NewCall(1000)
	c.Submit(0, plain)
	plain.Await(t)
	if got := len(n.Commands(echoes)); got != 2 {
		t.Fatalf("%d commands have been sent, want the first and the ordinary one", got)
	}
	gate.Open()
	for _, call := range append(calls, first) {
		if r := call.Await(t); r.Err != nil || ackOf(r).Err != nil || ackOf(r).Acked != 1 || ackOf(r).Wanted != 1 {
			t.Fatalf("call %d: %+v", call.N, r)
		}
	}
	if got := len(n.Commands(waits)); got != 2 {
		t.Errorf("%d WAITs for two groups", got)
	}
	for _, cmd := range n.Commands(waits) {
		if cmd.Conn == n.Commands(fakenode.Is("ECHO", "1000"))[0].Conn {
			t.Error("a WAIT was sent on the ordinary lane")
		}
	}
}

// A deployment that is asked for nothing durable has no connection for it.
func TestClient_DurableConnections_AreMadeAtFirstUse(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	c := ready(t, Config{Addr: n.Addr(), Lanes: 1})
	if got := c.Stats().Connections; got != 3 {
		t.Fatalf("%d connections", got)
	}
	first := newDurableCall(0, 1)
	c.SubmitDurable(0, first)
	if r := first.Await(t); r.Err != nil && !errors.Is(r.Err, ErrNotSent) {
		t.Errorf("the first, most likely before there is a connection: %+v", r)
	}
	eventually(t, "the connection is up", func() bool { return c.Up(RoleDurable, 0) })
	if r := acked(t, c, 1); r.Err != nil || ackOf(r).Acked != 1 {
		t.Errorf("%+v", r)
	}
	if c.Up(RoleDurableRenewal, 0) || c.Stats().Connections != 4 {
		t.Error("the other durable connection was made, too")
	}
	renewal := newDurableCall(1, 1)
	c.SubmitDurableRenewal(0, renewal)
	renewal.Await(t)
	eventually(t, "both are up", func() bool { return c.Up(RoleDurableRenewal, 0) && c.Stats().Connections == 5 })
}

// MOVED leads to the durable connection of the other node, and its replicas.
func TestClient_DurableCommandRedirected_JoinsAGroupThere(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	for i, n := range f.nodes {
		n.On(roles, roleOfPrimary(i))
		n.On(waits, fakenode.Int(int64(i)))
	}
	c := f.client(t, func(cfg *Config) { cfg.Durable = true })
	f.serve(1, 0) // the look that MOVED causes must not lead back
	f.nodes[0].On(echoes, f.moved(7, 1))
	f.nodes[1].On(echoes, fakenode.Int(5))
	call := newDurableCall(1, AllReplicas)
	c.SubmitDurable(7, call)
	if r := call.Await(t); r.Err != nil || r.Value.Int != 5 || ackOf(r).Acked != 1 || ackOf(r).Wanted != 1 {
		t.Fatalf("%+v", r)
	}
	// ASK: announced, and acknowledged over there.
	f.nodes[1].On(echoes, fakenode.Error("ASK 7 "+f.nodes[0].Addr()))
	f.nodes[0].On(echoes, fakenode.Int(6))
	f.nodes[0].On(roles, roleOfPrimary(2))
	f.nodes[0].On(waits, fakenode.Int(2))
	call = newDurableCall(2, AllReplicas)
	c.SubmitDurable(7, call)
	if r := call.Await(t); r.Err != nil || r.Value.Int != 6 || ackOf(r).Acked != 2 || !r.Moving {
		t.Fatalf("%+v", r)
	}
	for _, conn := range f.nodes[0].Conns() { // what others carry may be recorded in between
		all := f.nodes[0].Commands(fakenode.OnConn(conn.ID, fakenode.Any))
		for i, cmd := range all {
			if cmd.Name() == "ECHO" && cmd.Words[1] == "2" && all[i-1].Name() != "ASKING" {
				t.Errorf("before it went %v", all[i-1].Words)
			}
		}
	}
	// Nodes that send each other everything do so in vain.
	f.nodes[0].On(echoes, f.moved(9, 1))
	f.nodes[1].On(echoes, f.moved(9, 0))
	call = newDurableCall(3, 1)
	c.SubmitDurable(9, call)
	var refused *ServerError
	if r := call.Await(t); !errors.As(r.Err, &refused) || refused.Code != "MOVED" {
		t.Fatalf("%+v", r)
	}
}

func TestClient_Closed_RefusesDurableRequests(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	n.On(waits, fakenode.Drop())
	c := durableClient(t, n)
	out := newDurableCall(0, 1)
	c.SubmitDurable(0, out)
	n.WaitFor(1, waits)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if r := out.Await(t); !errors.Is(cmp.Or(r.Err, ackOf(r).Err), ErrClosed) { // its answer had come, or not
		t.Errorf("out: %+v", r)
	}
	if r := acked(t, c, 1); !errors.Is(r.Err, ErrClosed) {
		t.Errorf("later: %+v", r)
	}
}

// Whatever a proxy answers to WAIT and ROLE, the next group goes out.
func TestClient_WaitRedirected_IsAnError(t *testing.T) {
	t.Parallel()
	for _, question := range []fakenode.Match{waits, roles} {
		f := newFakeCluster(t, 2)
		for _, n := range f.nodes {
			n.On(roles, roleOfPrimary(1))
			n.On(waits, fakenode.Int(1))
			n.On(echoes, fakenode.Int(1))
		}
		f.nodes[0].OnNext(1, question, f.moved(7, 1))
		c := f.client(t, func(cfg *Config) { cfg.Durable = true })
		if r := acked(t, c, AllReplicas); r.Err != nil || ackOf(r).Err == nil {
			t.Errorf("%+v", r)
		}
		if r := acked(t, c, AllReplicas); r.Err != nil || ackOf(r).Err != nil || ackOf(r).Acked != 1 {
			t.Errorf("afterwards: %+v", r)
		}
	}
}

// A node is in the routes before it is opened: using it then does not make its durable
// connection twice.
func TestNode_New_StartsItsDurableLinkOnce(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	c := ready(t, Config{Addr: n.Addr()})
	fresh := newNode(c, "tcp", n.Addr())
	t.Cleanup(func() { fresh.close(ErrClosed) })
	fresh.link(RoleDurable, 0).wake()
	fresh.open()
	for _, l := range fresh.links[:len(fresh.links)-1] {
		eventually(t, "every link that was started is up", func() bool { up, _, _ := l.status(); return up })
	}
	if _, connects, _ := fresh.link(RoleDurable, 0).status(); connects != 1 {
		t.Errorf("it connected %d times", connects)
	}
	conns := len(n.Conns())
	if want := 2*len(fresh.lanes) + 2*2 + 1; conns != want {
		t.Errorf("%d connections, want %d", conns, want)
	}
}

func TestClient_DurableQueueFull_Refuses(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	gate := fakenode.NewGate()
	n.OnNext(1, waits, fakenode.Hold(gate, fakenode.Int(1)))
	c := ready(t, Config{Addr: n.Addr(), Durable: true, MaxInFlight: 10})
	calls := []*durableCall{newDurableCall(0, 1)}
	c.SubmitDurable(0, calls[0])
	n.WaitFor(1, waits)
	for i := range 11 {
		calls = append(calls, newDurableCall(i+1, 1))
		c.SubmitDurable(0, calls[i+1])
	}
	if r := calls[11].Await(t); !errors.Is(r.Err, ErrLaneFull) || !errors.Is(r.Err, ErrNotSent) {
		t.Errorf("%+v", r)
	}
	gate.Open()
	for i, call := range calls[:11] {
		if r := call.Await(t); r.Err != nil {
			t.Errorf("call %d: %+v", i, r)
		}
	}
}

// The limit of commands in flight is that of the queue. What ends a group has room.
func TestClient_SmallestLimit_ServesDurableRequests(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	c := ready(t, Config{Addr: n.Addr(), Durable: true, MaxInFlight: 1})
	for range 10 {
		if r := acked(t, c, AllReplicas); r.Err != nil || ackOf(r).Err != nil || ackOf(r).Acked != 1 {
			t.Fatalf("%+v", r)
		}
	}
}

func TestClient_DurableRenewals_HaveATimeoutOfTheirOwn(t *testing.T) {
	t.Parallel()
	n := primary(t, 1)
	c := ready(t, Config{Addr: n.Addr(), Durable: true, AckTimeout: 2 * time.Second, RenewalAckTimeout: 3 * time.Second})
	acked(t, c, 1)
	renewal := newDurableCall(2, 1)
	c.SubmitDurableRenewal(0, renewal)
	renewal.Await(t)
	var times []string
	for _, cmd := range n.Commands(waits) {
		times = append(times, cmd.Words[2])
	}
	if got := strings.Join(times, " "); got != "2000 3000" {
		t.Errorf("WAIT lasts %s", got)
	}
}
