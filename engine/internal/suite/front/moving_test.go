package front

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Ten engines wait while the slot of the lock is migrated, and the lock and the queue are at different nodes
// meanwhile. They have their turns. The administrator's MIGRATE never
// meets a key that an engine has made at the new node.
func TestMutex_SlotMoves_WaitersAreServed(t *testing.T) {
	t.Parallel()
	isQueue := func(key string) bool { return key == queue }
	for name, x := range map[string]struct {
		first   func(key string) bool // these keys go first
		sharded string
		kind    func(*engine.Engine) engine.Mutex
		during  bool // all have their turns before the move ends: without the queue a lock has one key
	}{
		"the queue goes first":          {isQueue, "auto", mutex, true},
		"the lock goes first":           {func(key string) bool { return key == "x" }, "off", mutex, true},
		"fenced, the tokens stay":       {func(key string) bool { return key != tokens }, "off", fenced, false},
		"both, while nobody has a turn": {nil, "auto", mutex, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, false)
			at := testkit.Clustered(cluster)
			at.URL += "?sharded_pubsub=" + x.sharded
			c := newContest(t, at)
			c.lock = x.kind
			h := testkit.MustLock(t, c.lock(c.open(1)[0]))
			list := c.line(c.open(10)...)
			c.awaitAsleep()

			slot := cluster.Slot("x")
			from, to := cluster.AwaitOwner(slot), cluster.Primaries()[0]
			if to == from {
				to = cluster.Primaries()[1]
			}
			cluster.BeginMove(slot, from, to)
			if x.first != nil {
				cluster.MoveSome(slot, from, to, x.first)
				testkit.MustUnlock(t, h)
			}
			if x.during {
				c.wantServed(list...)
			} else {
				testkit.Pause(nil, time.Second) // the time itself is wanted: they try ten times
			}
			cluster.EndMove(slot, from, to)
			if x.first == nil {
				testkit.MustUnlock(t, h)
			}
			if !x.during {
				c.wantServed(list...)
			}
			c.loop(5, c.engines...)
			at.Do(tokens, "DEL", tokens)
			c.wantOnlyTheDead()
		})
	}
}
