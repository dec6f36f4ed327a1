package resp

import (
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
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
