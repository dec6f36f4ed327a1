package resp

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// Whatever servers say, no socket of this machine is dialled, and no port 0.
func TestServersCannotHaveASocketDialled(t *testing.T) {
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

func TestRefusalThatNamesASocketIsAnAnswer(t *testing.T) {
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

func TestServerThatNamesThousandsOfOthersHasFewDialled(t *testing.T) {
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
