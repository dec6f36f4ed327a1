package resp

import (
	"testing"
	"testing/synctest"
	"time"
)

// A replica that is not configured is promoted, and the other follows it, one after the other;
// nobody tells the old primary. Only the other replica names the new one by then. A client that
// was there before follows it as a new one does.
func TestPromotionOfAServerThatOnlyAReplicaNamesIsFollowed(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"new client": false, "client that was there": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				net.on("a:1", leader("A", "b:1", "c:1").answer)
				net.on("b:1", follower("a:1", "A", true).answer)
				net.on("c:1", follower("a:1", "A", true).answer)
				promote := func() {
					net.on("a:1", leader("A").answer)
					net.on("b:1", follower("c:1", "C", true).answer)
					net.on("c:1", leader("C<A", "b:1").answer)
				}
				if !before {
					promote()
				}
				c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"a:1", "b:1"}})
				defer end()
				if before {
					within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
					time.Sleep(5 * time.Second)
					net.on("a:1", leader("A", "b:1").answer)
					net.on("c:1", leader("C<A").answer)
					stays(t, c, "a:1", 5*time.Second)
					promote()
				}
				// A look notices it, within a second, and another decides, up to one after four seconds.
				within(t, 7*time.Second, "the new one serves", served(c, 0, "c:1"))
			})
		})
	}
}

// The only server that is configured is the replica of a replica.
func TestPrimaryOfAChainIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("a:1", leader("A", "b:1").answer)
		net.on("b:1", follower("a:1", "A", true).answer)
		net.on("c:1", follower("b:1", "A", true).answer)
		net.on("d:1", follower("c:1", "A", true).answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"d:1"}})
		defer end()
		within(t, 3*time.Second, "the primary serves", served(c, 0, "a:1"))
	})
}
