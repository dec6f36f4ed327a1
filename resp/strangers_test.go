package resp

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// A server sends everybody to ever new addresses while the layout cannot be had.
func TestNodesThatOnlyMovedNamesAreFew(t *testing.T) {
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
func TestChannelsOfANodeThatIsGivenUpWithoutALayoutMoveOn(t *testing.T) {
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
