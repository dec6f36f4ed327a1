package resp

import (
	"fmt"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/exchangetest"
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
		r := exchangetest.NewRecorder()
		ch := NewChannel(fmt.Sprint("x", i), r)
		c.Subscribe(ch)
		r.Await(t, Subscribed)
		c.Unsubscribe(ch)
		n.WaitFor(i+1, fakenode.Is("SUNSUBSCRIBE"))
	}
	r := exchangetest.NewRecorder()
	c.Subscribe(NewChannel("y", r))
	r.Await(t, Subscribed)
	if got := c.Stats().Reconnects; got != 0 {
		t.Errorf("%d reconnects", got)
	}
}
