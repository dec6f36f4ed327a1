package resp

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// All processes must decide alike, so a connection that fails while the server is
// asked decides nothing.
func TestClient_ShardingAuto_ServerDecides(t *testing.T) {
	t.Parallel()
	asked := fakenode.Is("PUBSUB", "SHARDNUMSUB")
	for name, c := range map[string]struct {
		answer fakenode.Action
		times  int
		want   bool
	}{
		"it has them":                {fakenode.Raw("*0\r\n"), 1, true},
		"it is too old":              {fakenode.Error("ERR Unknown PUBSUB subcommand"), -1, false}, // whenever it is asked
		"this user may not ask":      {fakenode.Error("NOPERM this user has no permissions"), -1, false},
		"it has them, after a reset": {fakenode.Reset(), 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeCluster(t, 1)
			f.nodes[0].On(asked, fakenode.Raw("*0\r\n"))
			f.nodes[0].OnNext(c.times, asked, c.answer)
			client := f.client(t, func(cfg *Config) { cfg.Sharding = ShardingAuto })
			if client.Sharded() != c.want {
				t.Errorf("sharded: %v", client.Sharded())
			}
		})
	}
}

// The slot leaves while SUNSUBSCRIBE is on its way: the server ends the subscription by
// itself, and then refuses the command.
func TestClient_SunsubscribeCrossesTheEndOfASubscription_KeepsTheConnection(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 1)
	n := f.nodes[0]
	n.On(fakenode.Is("SSUBSCRIBE"), fakenode.Func(func(c *fakenode.Conn, cmd fakenode.Command) {
		for _, name := range cmd.Words[1:] {
			c.Write([]byte("*3\r\n" + bulk("ssubscribe") + bulk(name) + ":1\r\n"))
		}
	}))
	n.On(fakenode.Is("SUNSUBSCRIBE"), fakenode.Func(func(c *fakenode.Conn, cmd fakenode.Command) {
		c.Write([]byte("*3\r\n" + bulk("sunsubscribe") + bulk(cmd.Words[1]) + ":0\r\n" +
			fmt.Sprintf("-MOVED %d 127.0.0.1:1\r\n", SlotOf(cmd.Words[1]))))
	}))
	c := f.client(t, func(cfg *Config) { cfg.Sharding = ShardingOn })
	for i := range 20 {
		r := requesttest.NewRecorder()
		ch := NewChannel(fmt.Sprint("x", i), r)
		c.Subscribe(ch)
		r.Await(t, Subscribed)
		c.Unsubscribe(ch)
		n.WaitFor(i+1, fakenode.Is("SUNSUBSCRIBE"))
	}
	r := requesttest.NewRecorder()
	c.Subscribe(NewChannel("y", r))
	r.Await(t, Subscribed)
	if got := c.Stats().Reconnects; got != 0 {
		t.Errorf("%d reconnects", got)
	}
}

// A server may answer the question, and have no sharded channels. Whatever it says of SSUBSCRIBE, all
// processes find out before the first lock; what it says for now, or of the rights to one channel, is no
// such answer. Each decision for plain channels is logged once.
func TestClient_ShardedChannelsRefused_TakesPlainOnesAndSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command, answer string
		sharded         bool
		logged          string
	}{
		"asked, unknown":        {"PUBSUB", "ERR unknown subcommand 'SHARDNUMSUB'. Try PUBSUB HELP.", false, "level=INFO"},
		"asked, other words":    {"PUBSUB", "ERR handle request, command 'PUBSUB' is not allowed", false, "level=WARN"},
		"asked, forbidden":      {"PUBSUB", "NOPERM this user has no permissions to run the 'pubsub|shardnumsub' command", false, "Redisson are not heard"},
		"claimed, unknown":      {"SSUBSCRIBE", "ERR unknown command 'SSUBSCRIBE'", false, "level=WARN"},
		"claimed, other words":  {"SSUBSCRIBE", "ERR command is disabled for your plan", false, "level=WARN"},
		"the slot is another's": {"SSUBSCRIBE", "MOVED 1 127.0.0.1:1", true, ""},
		"a slot is nobody's":    {"SSUBSCRIBE", "CLUSTERDOWN Hash slot not served", true, ""},
		"another channel":       {"SSUBSCRIBE", "NOPERM this user has no permissions to access one of the channels used as arguments", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeCluster(t, 2)
			for _, n := range f.nodes {
				n.On(fakenode.Is("PUBSUB"), fakenode.Raw("*0\r\n"))
				n.On(fakenode.Is(c.command), fakenode.Error(c.answer))
			}
			var log syncBuffer
			client := f.client(t, func(cfg *Config) {
				cfg.Sharding, cfg.Logger = ShardingAuto, slog.New(slog.NewTextHandler(&log, nil))
			})
			if client.Sharded() != c.sharded {
				t.Errorf("sharded: %v", client.Sharded())
			}
			if n := log.count("sharded channels"); n != map[bool]int{true: 0, false: 1}[c.sharded] || log.count(c.logged) == 0 {
				t.Errorf("%d lines", n)
			}
			if c.sharded {
				return
			}
			r := requesttest.NewRecorder()
			client.Subscribe(NewChannel("x", r))
			r.Await(t, Subscribed)
		})
	}
}

// Something between client and server may end each connection that subscribes to them. That decides
// nothing, or processes would decide differently; the error says how to decide.
func TestClient_ShardedChannelsEndTheConnection_SaysWhatToSet(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 1)
	f.nodes[0].On(fakenode.Is("PUBSUB"), fakenode.Raw("*0\r\n"))
	f.nodes[0].On(fakenode.Is("SSUBSCRIBE"), fakenode.Reset())
	c := open(t, Config{Topology: Cluster, Addrs: []string{f.nodes[0].Addr()}})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	eventually(t, "the error says so", func() bool { // once somebody has tried
		err := c.WaitReady(ended)
		return err != nil && strings.Contains(err.Error(), "set sharding to off")
	})
}

// The same, and the refusal names no slot: the cluster is down meanwhile, or the words are others.
func TestClient_SunsubscribeCrossesTheEndAndIsRefusedInAnyWords_KeepsTheConnection(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"CLUSTERDOWN Hash slot not served", "ERR the slot is being moved"} {
		f := newFakeCluster(t, 1)
		n := f.nodes[0]
		n.On(fakenode.Is("SUNSUBSCRIBE"), fakenode.Func(func(c *fakenode.Conn, cmd fakenode.Command) {
			c.Write([]byte("*3\r\n" + bulk("sunsubscribe") + bulk(cmd.Words[1]) + ":0\r\n-" + refusal + "\r\n"))
		}))
		c := f.client(t, func(cfg *Config) { cfg.Sharding = ShardingOn })
		for i := range 20 {
			r := requesttest.NewRecorder()
			ch := NewChannel(fmt.Sprint("x", i), r)
			c.Subscribe(ch)
			r.Await(t, Subscribed)
			c.Unsubscribe(ch)
			n.WaitFor(i+1, fakenode.Is("SUNSUBSCRIBE"))
		}
		r := requesttest.NewRecorder()
		c.Subscribe(NewChannel("y", r))
		r.Await(t, Subscribed)
		if got := c.Stats().Reconnects; got != 0 {
			t.Errorf("%s: %d reconnects", refusal, got)
		}
	}
}

// A server that refuses channels, in whatever words, is said to do so once a connection.
func TestClient_ChannelsRefused_SaysSoOnce(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"ERR unknown command 'SUBSCRIBE'", "ERR handle request, command 'SUBSCRIBE' is not allowed", "NOPERM this user has no permissions"} {
		n := fakenode.New(t)
		n.On(fakenode.Is("SUBSCRIBE"), fakenode.Error(line))
		var log syncBuffer
		c := ready(t, Config{Addr: n.Addr(), Lanes: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for i := range 3 {
			c.Subscribe(NewChannel(fmt.Sprint("x", i), requesttest.NewRecorder()))
			eventually(t, line+": the log says so", func() bool { return log.count("channel") > 0 })
		}
		n.WaitFor(3, fakenode.Is("SUBSCRIBE"))
		if got := log.count("level=WARN"); got != 1 {
			t.Errorf("%s: %d lines", line, got)
		}
	}
}

// A server sends everybody to ever new addresses while the layout cannot be had.
func TestLayout_NodesNamedByMoved_AreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		slot func(n int64) int64 // that the n-th answer is about
		left int                 // nodes that still serve something, once nobody asks
	}{
		{"one slot", func(int64) int64 { return 7 }, 2},
		{"all slots", func(n int64) int64 { return n % slot.Count }, 1 + maxUnlisted},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				net.on("n:1", says("CLUSTER", slotsReply("n:1")))
				client, end := net.open(t, Config{Topology: Cluster, Addrs: []string{"n:1"}, Sharding: ShardingOff})
				defer end()
				within(t, time.Second, "the node serves", served(client, 0, "n:1"))
				var n atomic.Int64
				net.on("n:1", func(words []string) string {
					switch words[0] {
					case "CLUSTER":
						return "-ERR later\r\n"
					case "ECHO":
						i := n.Add(1)
						return fmt.Sprintf("-MOVED %d 10.%d.%d.%d:6379\r\n", c.slot(i), i>>16&255, i>>8&255, i&255)
					}
					return ""
				})
				for i := range 100 {
					call := requesttest.NewCall(i)
					client.Submit(9999, call)
					<-call.Done
				}
				if nodes := client.Stats().Nodes; nodes != 1+maxUnlisted {
					t.Errorf("%d nodes", nodes)
				}
				// No layout is found, and yet those that serve nothing go.
				within(t, 2*retireAfter, "idle nodes have gone", func() bool { return client.Stats().Nodes == c.left })
				net.on("n:1", says("CLUSTER", slotsReply("n:1")))
				within(t, 2*retireAfter, "all of them have gone", func() bool { return client.Stats().Nodes == 1 })
			})
		})
	}
}

// MOVED gives a slot to a node that nobody has named, and takes it away again, while the
// layout cannot be had. That node is given up after a while. Waiters on its channels
// must not be left behind with it.
func TestLayout_NodeGivenUpWithoutALayout_ChannelsMoveOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const name = "channel"
		slot := int(SlotOf(name))
		net := newBubbleNet()
		net.on("n:1", says("CLUSTER", slotsReply("n:1")))
		var routed atomic.Int64
		client, end := net.open(t, Config{Topology: Cluster, Addrs: []string{"n:1"}, Sharding: ShardingOff, OnRoutes: func() { routed.Add(1) }})
		defer end()
		within(t, time.Second, "the node serves", served(client, 0, "n:1"))
		movedTo := func(addr string) func([]string) string {
			return func(words []string) string {
				switch words[0] {
				case "CLUSTER":
					return "-ERR later\r\n"
				case "ECHO":
					return fmt.Sprintf("-MOVED %d %s\r\n", slot, addr)
				}
				return ""
			}
		}
		net.on("n:1", movedTo("s:1"))
		net.on("s:1", says("CLUSTER", "-ERR later\r\n"))
		net.on("s:2", says("CLUSTER", "-ERR later\r\n"))
		echo := func() {
			call := requesttest.NewCall(0)
			client.Submit(uint64(slot), call)
			<-call.Done
		}
		echo()
		within(t, time.Second, "the slot is with the first stranger", served(client, uint64(slot), "s:1"))
		r := requesttest.NewRecorder()
		client.Subscribe(NewChannel(name, r))
		within(t, 5*time.Second, "it is subscribed", func() bool { return len(r.Events) > 0 })
		r.Await(t, Subscribed)

		before := routed.Load()
		net.on("s:1", movedTo("s:2"))
		echo()
		within(t, time.Second, "the slot is with the second stranger", served(client, uint64(slot), "s:2"))
		within(t, 5*time.Second, "it is subscribed there", func() bool { return len(r.Events) > 1 })
		r.Await(t, Disconnected)
		r.Await(t, Subscribed)
		if routed.Load() == before {
			t.Error("nobody was told that other nodes serve")
		}
		within(t, 3*retireAfter, "the first stranger is given up", func() bool { return client.Stats().Nodes == 2 })
		if n := len(r.Events); n > 0 {
			t.Errorf("%d more events", n)
		}
	})
}

// Channels come and go while their slots move to and fro and connections break. In
// the end each that is wanted is subscribed at its slot's node, once, and no other.
func TestLayout_SlotsMove_ChannelsComeAndGo(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Log("seed", seed)
	f := newFakeCluster(t, 3)
	c := f.client(t)
	const workers, each = 4, 60
	type place struct {
		ch     *Channel
		wanted bool
	}
	places := make([]place, workers*each)
	var all requesttest.EventCounter
	for i := range places {
		places[i].ch = NewChannel(fmt.Sprint("channel", i), &all)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		mine := places[w*each : (w+1)*each]
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p := &mine[random.IntN(each)]
				if p.wanted = !p.wanted; p.wanted {
					c.Subscribe(p.ch)
				} else {
					c.Unsubscribe(p.ch)
				}
				if random.IntN(20) == 0 {
					time.Sleep(time.Millisecond) // a breath, so that commands get out in between
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 99))
	var owners [3]int
	for range 8 {
		for i := range owners {
			owners[i] = random.IntN(3)
		}
		f.serve(owners[:]...)
		looks := f.count(fakenode.Is("CLUSTER", "SLOTS"))
		c.explorer.RefreshNow("")
		f.nodes[random.IntN(3)].ResetAll()
		eventually(t, "a look", func() bool { return f.count(fakenode.Is("CLUSTER", "SLOTS")) > looks })
	}
	close(stop)
	wg.Wait()
	c.explorer.RefreshNow("")

	for _, p := range places {
		part := 0
		for part < 2 && int(SlotOf(p.ch.Name())) >= slot.Count*(part+1)/3 {
			part++
		}
		owner := owners[part]
		eventually(t, fmt.Sprintf("%s is where it belongs, wanted %v", p.ch.Name(), p.wanted), func() bool {
			right := true
			for i, n := range f.nodes {
				want := 0
				if p.wanted && i == owner {
					want = 1
				}
				right = right && n.Publish(p.ch.Name(), "hi") == want
			}
			return right
		})
	}
	if n := c.channels.Waiting(); n != 0 {
		t.Errorf("%d topics are left without a place", n)
	}
}
