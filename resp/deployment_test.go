package resp

import (
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// behindNAT is a cluster of two, which announces itself as inside:1 and inside:2, and a
// client that translates.
func behindNAT(t *testing.T, translate func(addr string) string) (*fakeCluster, *Client) {
	f := newFakeCluster(t, 2)
	slots := "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$6\r\ninside\r\n:1\r\n*3\r\n:8192\r\n:16383\r\n*2\r\n$6\r\ninside\r\n:2\r\n"
	f.layout.Store(&slots)
	outside := map[string]string{"inside:1": f.nodes[0].Addr(), "inside:2": f.nodes[1].Addr(), "inside:3": f.nodes[1].Addr()}
	return f, f.client(t, func(cfg *Config) {
		cfg.AddrMap = func(addr string) string {
			if to := translate(addr); to != "" {
				return to
			}
			return outside[addr]
		}
	})
}

// sentOn submits until the command has an answer that is not MOVED.
func sentOn(t *testing.T, c *Client) Reply {
	t.Helper()
	for i, start := 0, cputime.Now(); ; i++ {
		call := requesttest.NewCall(i)
		c.Submit(7, call)
		r := call.Await(t)
		var refused *ServerError
		if !errors.As(r.Err, &refused) || refused.Code != "MOVED" {
			return r
		}
		if start.Elapsed() > 20*time.Second { // however many that are: a search is due in half a second
			t.Fatalf("still refused: %v", r.Err)
		}
	}
}

// It is the user's code: it may be slow, or lock what the goroutine holds that waits for
// the answer.
func TestConfig_AddrMap_IsNotCalledOnAnEventLoop(t *testing.T) {
	t.Parallel()
	f, c := behindNAT(t, func(string) string {
		if stack := string(debug.Stack()); strings.Contains(stack, "OnBytes") {
			t.Errorf("called on a loop:\n%s", stack)
		}
		return ""
	})
	for _, n := range f.nodes { // which would lead the route back
		n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Error("ERR later"))
	}
	f.nodes[0].On(echoes, fakenode.Error("MOVED 7 inside:3")) // which no layout has named
	if r := sentOn(t, c); r.Err != nil || r.Value.Int != 1 {
		t.Fatalf("%+v", r)
	}
}

func TestConfig_AddrMapPanics_CostsNoCommand(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	f, c := behindNAT(t, func(string) string {
		if broken.Load() {
			panic("no map today")
		}
		return ""
	})
	// A layout must not be what shows that the third is there.
	for _, n := range f.nodes {
		n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Error("ERR later"))
	}
	broken.Store(true)
	f.nodes[0].On(echoes, fakenode.Error("MOVED 7 inside:3"))
	var refused *ServerError
	eventually(t, "the refusal says why", func() bool {
		call := requesttest.NewCall(1)
		c.Submit(7, call)
		r := call.Await(t)
		return errors.As(r.Err, &refused) && strings.Contains(refused.Message, "no map today")
	})
	durable := func() Reply {
		call := newDurableCall(2, 0)
		c.SubmitDurable(7, call)
		return call.Await(t)
	}
	for range 3 {
		eventually(t, "a durable command is refused, too", func() bool { return errors.As(durable().Err, &refused) })
	}
	broken.Store(false)
	eventually(t, "the durable lane goes on", func() bool { return durable().Err == nil })
	if r := sentOn(t, c); r.Err != nil {
		t.Fatalf("%+v", r)
	}
}

// The layout cannot be read then, and it is said why.
func TestConfig_AddrMapPanicsInASearch_FailsTheSearch(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 1)
	c := open(t, Config{
		Topology: Cluster, Addrs: []string{f.nodes[0].Addr()},
		AddrMap: func(string) string { panic("no map today") },
	})
	eventually(t, "the search reports it", func() bool {
		_, _, err := c.explorer.Progress()
		return err != nil && strings.Contains(err.Error(), "no map today")
	})
	if _, err := net.Dial("tcp", f.nodes[0].Addr()); err != nil {
		t.Fatal(err) // the server is not the reason
	}
}

// Whatever servers say, no socket of this machine is dialled, and no port 0.
func TestNodes_SocketAnnounced_IsNotDialled(t *testing.T) {
	t.Parallel()
	const path, port = "/run/x", "1"
	sentinels := func(words []string) string {
		switch {
		case words[0] != "SENTINEL":
			return ""
		case words[1] == "SENTINELS":
			return sentinelsReply(path + ":" + port)
		}
		return "*2\r\n" + bulk(path) + bulk(port)
	}
	for name, c := range map[string]struct {
		cfg    Config
		answer func([]string) string
		serves bool
	}{
		"CLUSTER SLOTS": {
			cfg: Config{Topology: Cluster, Sharding: ShardingOff},
			answer: says("CLUSTER", "*2\r\n*3\r\n:0\r\n:9\r\n*2\r\n"+bulk(path)+":"+port+"\r\n"+
				"*3\r\n:10\r\n:16383\r\n*2\r\n"+bulk("n")+":1\r\n"),
		},
		"SENTINEL": {cfg: Config{Topology: Sentinel, Master: "m"}, answer: sentinels},
		"INFO of primary": {cfg: Config{Topology: Replicas}, serves: true,
			answer: replicationState{role: primaryReply(), info: bulk("role:master\r\nslave0:ip=" + path + ",port=" + port + ",state=online,lag=0\r\n")}.answer},
		"INFO of replica": {cfg: Config{Topology: Replicas},
			answer: says("INFO", bulk("role:slave\r\nmaster_host:"+path+"\r\nmaster_port:"+port+"\r\nmaster_link_status:up\r\n"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				net.set(path+":"+port, func(*bubbleServer) {})
				net.on("n:1", c.answer)
				c.cfg.Addrs = []string{"n:1"}
				client, end := net.open(t, c.cfg)
				defer end()
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if net.get(path+":"+port).dials > 0 {
					t.Error("the socket was dialled")
				}
				if n := net.get("n:1"); n.dials == 0 || c.serves && !served(client, 0, "n:1")() {
					t.Error("the server itself is not used")
				}
				if name == "CLUSTER SLOTS" && (!served(client, 10, "n:1")() || client.AddrOf(0) != "") {
					t.Errorf("slots 10 and 0 are served by %q and %q", client.AddrOf(10), client.AddrOf(0))
				}
			})
		})
	}
}

func TestRedirect_RefusalNamesASocket_IsAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 1)
	c := f.client(t)
	for i, text := range []string{"MOVED 7 /run/x:0", "MOVED 7 /run/x:1", "ASK 7 /run/x:1", "MOVED 7 h:0", "ASK 7 h:65536"} {
		rule := f.nodes[0].On(echoes, fakenode.Error(text))
		call := requesttest.NewCall(i)
		c.Submit(7, call)
		var refused *ServerError
		if r := call.Await(t); !errors.As(r.Err, &refused) || refused.Message != text {
			t.Errorf("%s: %+v", text, r)
		}
		rule.Remove()
	}
	if n := c.Stats().Nodes; n != 1 {
		t.Errorf("%d nodes", n)
	}
}

func TestNodes_ThousandsAnnounced_FewAreDialled(t *testing.T) {
	t.Parallel()
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.%d.%d:1", i>>8, i&255)
	}
	for name, c := range map[string]struct {
		cfg     Config
		servers map[string]func([]string) string
	}{
		"replicas of a primary": {Config{Topology: Replicas, Addrs: []string{"n:1"}},
			map[string]func([]string) string{"n:1": leader("A", many...).answer}},
		"sentinels": {Config{Topology: Sentinel, Master: "m", Addrs: []string{"s:1"}},
			map[string]func([]string) string{
				"n:1": says("ROLE", primaryReply()),
				"s:1": func(words []string) string {
					switch {
					case words[0] != "SENTINEL":
						return ""
					case words[1] == "SENTINELS":
						return sentinelsReply(many...)
					}
					return hostPortReply("n:1")
				}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				for _, addr := range many {
					net.vanish(addr)
				}
				for addr, answer := range c.servers {
					net.on(addr, answer)
				}
				client, end := net.open(t, c.cfg)
				defer end()
				within(t, time.Second, "the primary serves", served(client, 0, "n:1"))
				net.vanish("s:1") // so that the other sentinels are asked
				for range 30 {
					time.Sleep(time.Second)
					synctest.Wait()
					if n := net.out(); n > topology.MaxAnnounced+1 {
						t.Fatalf("%d dials at a time", n)
					}
				}
			})
		})
	}
}

// Searches end after a second, connecting does not: else a slow network were none.
func TestDeployment_SlowToConnect_IsAsked(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				for addr, answer := range line.servers {
					net.on(addr, answer)
					net.set(addr, func(s *bubbleServer) { s.slow = 3 * time.Second })
				}
				line.cfg.Sharding = ShardingAuto
				c, end := net.open(t, line.cfg)
				defer end()
				// A sentinel, the primary that it names, and the node's own connections.
				within(t, 3*4*time.Second, "the primary serves", served(c, 0, "a:1"))
			})
		})
	}
}

// A process without a processor, or a server without: each answer takes longer than a
// search waits.
func TestDeployment_SlowToAnswer_Counts(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				for addr, answer := range line.servers {
					net.on(addr, answer)
					net.set(addr, func(s *bubbleServer) { s.lag = 1500 * time.Millisecond })
				}
				line.cfg.Sharding, line.cfg.DialTimeout = ShardingAuto, 20*time.Second
				c, end := net.open(t, line.cfg)
				defer end()
				// A handshake has half a dozen answers, and there are up to three after another.
				within(t, time.Minute, "the primary serves", served(c, 0, "a:1"))
			})
		})
	}
}

// In a cluster and with sentinels a search leaves no connection behind; the watch has one.
func TestDeployment_SearchEnds_ConnectionsEnd(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		if line.cfg.Topology == Replicas {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				for addr, answer := range line.servers {
					net.on(addr, answer)
				}
				c, end := net.open(t, line.cfg)
				defer end()
				within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
				time.Sleep(5 * time.Second)
				synctest.Wait()
				want := c.Stats().Connections
				if line.cfg.Topology == Sentinel {
					want++
				}
				if n := net.conns(); n != want {
					t.Errorf("%d connections, want %d", n, want)
				}
			})
		})
	}
}

func TestDeployment_DialHangs_CloseReturns(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				for addr, answer := range line.servers {
					net.on(addr, answer)
				}
				c, end := net.open(t, line.cfg)
				within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
				for addr := range line.servers {
					net.vanish(addr)
				}
				c.explorer.RefreshNow("a:1")
				time.Sleep(2 * time.Second)
				start := time.Now()
				end()
				if took := time.Since(start); took > 0 || net.out() > 0 {
					t.Errorf("Close took %v, %d dials are out", took, net.out())
				}
			})
		})
	}
}

// Five sentinels name a primary whose machine is gone: it is dialled once, and what they
// say a moment later counts.
func TestDeployment_PrimaryOfAllSentinels_IsDialledOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		sentinels := []string{"s1:1", "s2:1", "s3:1", "s4:1", "s5:1"}
		name := func(primary string) {
			for _, s := range sentinels {
				net.on(s, func(words []string) string {
					switch {
					case words[0] != "SENTINEL":
						return ""
					case words[1] == "SENTINELS":
						return "*0\r\n"
					}
					return hostPortReply(primary)
				})
			}
		}
		name("gone:1")
		net.vanish("gone:1")
		net.on("new:1", says("ROLE", primaryReply()))
		c, end := net.open(t, Config{Topology: Sentinel, Master: "m", Addrs: sentinels})
		defer end()
		time.Sleep(4900 * time.Millisecond)
		synctest.Wait()
		if n := net.get("gone:1").dials; n != 1 {
			t.Errorf("dialled %d times within one DialTimeout", n)
		}
		name("new:1")
		took := within(t, 2500*time.Millisecond, "the new primary serves", served(c, 0, "new:1"))
		t.Logf("after %v", took)
	})
}
