package resp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

// All processes must decide alike, so a connection that fails while the server is
// asked decides nothing.
func TestShardingIsDecidedByTheServersWord(t *testing.T) {
	t.Parallel()
	asked := fakenode.Is("PUBSUB", "SHARDNUMSUB")
	for name, c := range map[string]struct {
		answer fakenode.Action
		times  int
		want   bool
	}{
		"it has them":                {fakenode.Raw("*0\r\n"), 1, true},
		"it is too old":              {fakenode.Error("ERR Unknown PUBSUB subcommand"), 1, false},
		"this user may not ask":      {fakenode.Error("NOPERM this user has no permissions"), 1, false},
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
func TestSunsubscribeThatCrossesTheEndOfASubscription(t *testing.T) {
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
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(time.Second, func() { cancel(errors.New("enough")) })
	if err := c.WaitReady(ctx); err == nil || !strings.Contains(err.Error(), "set sharding to off") {
		t.Error(err)
	}
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
