package resp

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// fakeCluster is nodes that share out the slots evenly, by what CLUSTER SLOTS says.
type fakeCluster struct {
	nodes  []*fakenode.Node
	layout atomic.Pointer[string]
}

func newFakeCluster(t *testing.T, n int) *fakeCluster {
	f := &fakeCluster{}
	for range n {
		node := fakenode.New(t)
		node.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Func(func(c *fakenode.Conn, _ fakenode.Command) {
			c.Write([]byte(*f.layout.Load()))
		}))
		node.On(fakenode.Is("CLUSTER", "NODES"), fakenode.Func(func(c *fakenode.Conn, _ fakenode.Command) {
			c.Write([]byte(bulk(f.members())))
		}))
		node.On(fakenode.Is("ECHO"), fakenode.Int(int64(len(f.nodes))))
		f.nodes = append(f.nodes, node)
	}
	owners := make([]int, n)
	for i := range owners {
		owners[i] = i
	}
	f.serve(owners...)
	return f
}

// serve says who serves each of the equal parts of the slots.
func (f *fakeCluster) serve(owners ...int) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(owners))
	for i, o := range owners {
		host, port, _ := net.SplitHostPort(f.nodes[o].Addr())
		fmt.Fprintf(&b, "*3\r\n:%d\r\n:%d\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$2\r\nid\r\n",
			slot.Count*i/len(owners), slot.Count*(i+1)/len(owners)-1, len(host), host, port)
	}
	s := b.String()
	f.layout.Store(&s)
}

// members is CLUSTER NODES: primaries, of which it does not matter here what they serve.
func (f *fakeCluster) members() string {
	var b strings.Builder
	for i, n := range f.nodes {
		fmt.Fprintf(&b, "id%d %s@1 master - 0 0 %d connected %d\n", i, n.Addr(), i, i)
	}
	return b.String()
}

func (f *fakeCluster) client(t *testing.T, change ...func(*Config)) *Client {
	cfg := Config{Topology: Cluster, Addrs: []string{f.nodes[0].Addr()}, Sharding: ShardingOff}
	for _, c := range change {
		c(&cfg)
	}
	return ready(t, cfg)
}

func (f *fakeCluster) moved(slot, to int) fakenode.Action {
	return fakenode.Error(fmt.Sprintf("MOVED %d %s", slot, f.nodes[to].Addr()))
}

func (f *fakeCluster) count(m fakenode.Match) (n int) {
	for _, node := range f.nodes {
		n += len(node.Commands(m))
	}
	return n
}

var echoes = fakenode.Is("ECHO")

func TestClient_Route_LeadsToTheNodeOfItsSlot(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 4)
	c := f.client(t)
	for i := range 100 {
		name := fmt.Sprint("name", i)
		call := requesttest.NewCall(i)
		c.Submit(c.Route(name), call)
		if r := call.Await(t); r.Err != nil || r.Value.Int != int64(SlotOf(name))/(slot.Count/4) {
			t.Fatalf("%s in slot %d: %+v", name, SlotOf(name), r)
		}
	}
}

// One command finds out; the ones after it know, and the layout is asked for.
func TestRedirect_Moved_PatchesTheSlotAndRefreshes(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	c := f.client(t)
	f.serve(1, 1) // the look that MOVED causes must not lead back
	f.nodes[0].On(echoes, f.moved(7, 1))
	looks := f.count(fakenode.Is("CLUSTER", "SLOTS"))
	for i := range 3 {
		call := requesttest.NewCall(i)
		c.Submit(7, call)
		if r := call.Await(t); r.Err != nil || r.Value.Int != 1 || r.Moving {
			t.Fatalf("call %d: %+v", i, r)
		}
	}
	if n := len(f.nodes[0].Commands(echoes)); n != 1 {
		t.Errorf("the old node got %d commands, want the first only", n)
	}
	eventually(t, "the layout was asked for", func() bool { return f.count(fakenode.Is("CLUSTER", "SLOTS")) > looks })
	if n := c.Stats().Redirects; n != 1 {
		t.Errorf("%d redirects", n)
	}
}

func TestRedirect_NodesDisagree_HopsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	c := f.client(t)
	f.nodes[0].On(echoes, f.moved(7, 1))
	f.nodes[1].On(echoes, f.moved(7, 0))
	call := requesttest.NewCall(0)
	c.Submit(7, call)
	var refused *ServerError
	if r := call.Await(t); !errors.As(r.Err, &refused) || refused.Code != "MOVED" {
		t.Fatalf("%+v", r)
	}
	if n := f.count(echoes); n != 1+topology.MaxHops {
		t.Errorf("%d commands", n)
	}
}

// ASKING must be the very command before, and the slot stays where it is.
func TestRedirect_Ask_GoesBehindAsking(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	c := f.client(t)
	f.nodes[0].OnNext(20, echoes, fakenode.Error("ASK 7 "+f.nodes[1].Addr()))
	calls := make([]*requesttest.Call, 40)
	for i := range calls {
		calls[i] = requesttest.NewCall(i)
		if i%2 == 0 {
			c.Submit(7, calls[i])
		} else {
			c.Submit(slot.Count-1, calls[i]) // of the other node, in between
		}
	}
	for i, call := range calls {
		if r := call.Await(t); r.Err != nil || r.Value.Int != 1 || r.Moving != (i%2 == 0) {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	asked := 0
	for _, conn := range f.nodes[1].Conns() { // what others carry may be recorded in between
		all := f.nodes[1].Commands(fakenode.OnConn(conn.ID, fakenode.Any))
		for i, cmd := range all {
			if cmd.Name() != "ASKING" {
				continue
			}
			asked++
			if next := all[i+1]; next.Name() != "ECHO" {
				t.Errorf("behind ASKING comes %v", next)
			}
		}
	}
	if asked != 20 {
		t.Errorf("%d ASKING", asked)
	}
	call := requesttest.NewCall(99)
	c.Submit(7, call)
	if r := call.Await(t); r.Value.Int != 0 || r.Moving {
		t.Errorf("afterwards: %+v", r)
	}
}

// A script that the node behind ASK does not know goes there again, whole and with
// another ASKING.
func TestRedirect_AskAndNoScript_SendsTheScriptWhole(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	c := f.client(t)
	f.nodes[0].On(echoes, fakenode.Error("ASK 7 "+f.nodes[1].Addr()))
	f.nodes[1].On(echoes, fakenode.Error(fakenode.NoScript))
	f.nodes[1].On(fakenode.Is("WHOLE"), fakenode.Int(5))
	call := requesttest.NewCall(0)
	c.Submit(7, call)
	if r := call.Await(t); r.Err != nil || r.Value.Int != 5 || !r.Moving {
		t.Fatalf("%+v", r)
	}
	var words []string
	for _, cmd := range f.nodes[1].Commands(fakenode.Any) {
		if n := cmd.Name(); n == "ASKING" || n == "ECHO" || n == "WHOLE" {
			words = append(words, n)
		}
	}
	if got := strings.Join(words, " "); got != "ASKING ECHO ASKING WHOLE" {
		t.Errorf("the node got %s", got)
	}
}

// A node that cannot be reached has not got the command: that is certain.
func TestRedirect_DeadNode_IsNotSent(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	c := f.client(t)
	f.nodes[0].On(echoes, fakenode.Error("MOVED 7 127.0.0.1:1"))
	call := requesttest.NewCall(0)
	c.Submit(7, call)
	if r := call.Await(t); !errors.Is(r.Err, ErrNotSent) {
		t.Fatalf("%+v", r)
	}
	eventually(t, "the layout corrects the slot", func() bool { return c.LaneOf(7).Up() })
}

func TestRedirect_NotNow_IsAnAnswer(t *testing.T) {
	t.Parallel()
	for text, moving := range map[string]bool{
		fakenode.TryAgain: true, fakenode.ClusterDown: false, fakenode.Loading: false, fakenode.MasterDown: false, fakenode.ReadOnly: false,
		"MOVED nonsense": false, "MOVED 99999 127.0.0.1:1": false, "MOVED 7": false, "ASK 7 :x:": false,
	} {
		f := newFakeCluster(t, 1)
		c := f.client(t)
		f.nodes[0].OnNext(1, echoes, fakenode.Error(text))
		call := requesttest.NewCall(0)
		c.Submit(7, call)
		var refused *ServerError
		if r := call.Await(t); text != "ASK 7 :x:" && (!errors.As(r.Err, &refused) || refused.Message != text || r.Moving != moving) {
			t.Errorf("%s: %+v", text, r)
		}
		again := requesttest.NewCall(1)
		c.Submit(7, again)
		if r := again.Await(t); r.Err != nil {
			t.Errorf("after %s: %+v", text, r)
		}
	}
}

// Without a host, MOVED means the host of the node that says it; AddrMap translates.
func TestClient_AddrMap_TranslatesAddresses(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	outside := map[string]string{"inside:1": f.nodes[0].Addr(), "inside:2": f.nodes[1].Addr()}
	slots := "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$6\r\ninside\r\n:1\r\n*3\r\n:8192\r\n:16383\r\n*2\r\n$6\r\ninside\r\n:2\r\n"
	f.layout.Store(&slots)
	c := f.client(t, func(cfg *Config) {
		cfg.AddrMap = func(addr string) string {
			if to := outside[addr]; to != "" {
				return to
			}
			return addr
		}
	})
	f.nodes[0].OnNext(1, echoes, fakenode.Error("MOVED 7 inside:2"))
	_, port, _ := net.SplitHostPort(f.nodes[0].Addr())
	f.nodes[1].OnNext(1, echoes, fakenode.Error("MOVED 7 :"+port))
	call := requesttest.NewCall(0)
	c.Submit(7, call)
	if r := call.Await(t); r.Err != nil || r.Value.Int != 0 {
		t.Fatalf("%+v", r)
	}
}

// A node that serves nothing any more is closed, and its place taken by another.
func TestClient_LayoutChanges_IsFollowed(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 3)
	c := f.client(t)
	f.serve(0, 0, 1)
	f.nodes[2].On(echoes, f.moved(slot.Count-1, 1))
	call := requesttest.NewCall(0)
	c.Submit(slot.Count-1, call) // finds out
	if r := call.Await(t); r.Value.Int != 1 {
		t.Fatalf("%+v", r)
	}
	eventually(t, "the layout is followed", func() bool { return c.LaneOf(slot.Count/2) == c.LaneOf(0) })
	if n := c.Stats().Nodes; n < 2 || n > 3 {
		t.Errorf("%d nodes", n)
	}
}

// Somebody opens several deployments in a loop, with one slice for their addresses.
func TestConfig_Addrs_AreCopied(t *testing.T) {
	t.Parallel()
	f, stranger := newFakeCluster(t, 1), fakenode.New(t)
	addrs := []string{f.nodes[0].Addr()}
	c := f.client(t, func(cfg *Config) { cfg.Addrs = addrs })
	addrs[0] = stranger.Addr()
	f.nodes[0].Down()
	for range 3 {
		_, before, _ := c.explorer.Progress()
		eventually(t, "a search", func() bool { _, began, _ := c.explorer.Progress(); return began != before })
	}
	if n := len(stranger.Commands(fakenode.Any)); n > 0 {
		t.Errorf("a server of another deployment was asked %d times", n)
	}
}

// Without a single node that answers, nobody waits in vain to learn why.
func TestClient_SeedIsNoCluster_FailsAtOnce(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("CLUSTER"), fakenode.Error("ERR This instance has cluster support disabled"))
	c := open(t, Config{Topology: Cluster, Addrs: []string{n.Addr()}})
	if err := c.WaitReady(testContext(t)); err == nil || !strings.Contains(err.Error(), "cluster support disabled") || strings.Contains(err.Error(), "is not ready") {
		t.Fatalf("WaitReady: %v", err)
	}
	call := requesttest.NewCall(0)
	c.Submit(7, call)
	if r := call.Await(t); !errors.Is(r.Err, ErrNotSent) {
		t.Fatalf("%+v", r)
	}
}

// A layout with a gap is followed by another look as soon as somebody needs what is
// missing, not by chance half a minute later.
func TestClient_GapInTheLayout_IsLookedAtAgain(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	whole := f.layout.Load()
	host, port, _ := net.SplitHostPort(f.nodes[0].Addr())
	half := fmt.Sprintf("*1\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
	f.layout.Store(&half)
	c := f.client(t)
	if c.LaneOf(slot.Count-1) != (LaneID{}) || c.LaneOf(slot.Count-1).Up() {
		t.Fatal("a slot that nobody serves has a lane")
	}
	f.layout.Store(whole)
	call := requesttest.NewCall(0)
	c.Submit(slot.Count-1, call)
	if r := call.Await(t); r.Err != nil && !errors.Is(r.Err, ErrNotSent) { // nil: it has looked by itself
		t.Fatalf("%+v", r)
	}
	eventually(t, "the gap is filled", func() bool { return c.LaneOf(slot.Count - 1).Up() })
}

// Channels of a slot that nobody serves are subscribed when somebody does, and move
// with it.
func TestClient_SlotMoves_ChannelsFollow(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 2)
	c := f.client(t)
	var names []string
	recs := make(map[string]*requesttest.Recorder)
	for i := range 200 {
		name := fmt.Sprint("channel", i)
		names, recs[name] = append(names, name), requesttest.NewRecorder()
		c.Subscribe(NewChannel(name, recs[name]))
	}
	for _, name := range names {
		recs[name].Await(t, Subscribed)
	}
	at := func(n int) int { return len(f.nodes[n].Commands(fakenode.Is("SUBSCRIBE"))) }
	if at(0) == 0 || at(1) == 0 {
		t.Fatal("not every node has its share")
	}
	f.serve(1, 1)
	c.explorer.RefreshNow("")
	for _, name := range names {
		if SlotOf(name) < slot.Count/2 {
			recs[name].Await(t, Disconnected)
			recs[name].Await(t, Subscribed)
		}
	}
	for _, name := range names {
		if f.nodes[1].Publish(name, "hi") != 1 {
			t.Errorf("%s is not subscribed at its node", name)
		}
		recs[name].Await(t, Message)
	}
}
