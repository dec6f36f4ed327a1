package resp

import (
	"testing"
	"testing/synctest"
	"time"
)

// Behind NAT, what answers at the address by which a primary sees its replicas may be
// the primary of another deployment. It is not followed while a replica cannot be reached
// from here, or where one is not configured; and a promotion is.
func TestForeignPrimaryAtTheAddressOfAReplicaIsNotFollowed(t *testing.T) {
	t.Parallel()
	for name, foreign := range map[string]replicationState{"lonely": leader("foreign"), "followed": leader("foreign", "10.9.9.9:1", "10.9.9.8:1", "10.9.9.7:1")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				cfg := threeReplicas(net)
				net.on("172.17.0.1:1", foreign.answer)
				net.on("a:1", leader("A", "172.17.0.1:1", "172.17.0.1:1").answer)
				net.vanish("c:1")
				c, end := net.open(t, cfg)
				defer end()
				within(t, 2*time.Second, "the primary serves", served(c, 0, "a:1"))
				stays(t, c, "a:1", 10*time.Second)
				if _, _, err := c.explorer.Progress(); err != nil {
					t.Errorf("the search failed: %v", err)
				}
				net.on("b:1", leader("B<A", "172.17.0.1:1", "172.17.0.1:1").answer)
				net.on("a:1", follower("b:1", "B", true).answer)
				within(t, 10*time.Second, "the new primary serves", served(c, 0, "b:1"))
			})
		})
	}
}

// Nor is it when the primary crashes: all its replicas are configured, so what answers at
// the addresses by which it has seen them is none that might be promoted.
func TestForeignPrimaryIsNotFollowedWhenThePrimaryCrashes(t *testing.T) {
	t.Parallel()
	for name, reached := range map[string]bool{"all reached": true, "one not reached": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				cfg := threeReplicas(net)
				net.on("172.17.0.1:1", leader("foreign").answer)
				net.on("a:1", leader("A", "172.17.0.1:1", "172.17.0.1:1").answer)
				if !reached {
					net.vanish("c:1")
				}
				c, end := net.open(t, cfg)
				defer end()
				within(t, 2*time.Second, "the primary serves", served(c, 0, "a:1"))
				time.Sleep(10 * time.Second)
				net.vanish("a:1")
				for _, replica := range []string{"b:1", "c:1"} {
					net.on(replica, follower("a:1", "A", false).answer)
				}
				for range 200 {
					time.Sleep(100 * time.Millisecond)
					if got := c.AddrOf(0); got != "a:1" && reached {
						t.Fatalf("%s serves", got)
					}
				}
				for _, addr := range []string{"a:1", "c:1"} {
					net.set(addr, func(s *bubbleServer) { s.gone = false })
				}
				for _, replica := range []string{"b:1", "c:1"} {
					net.on(replica, follower("a:1", "A", true).answer)
				}
				within(t, 10*time.Second, "the primary serves when it is back", served(c, 0, "a:1"))
			})
		})
	}
}

// Nor by the address under which a replica has lost the primary, which may be one inside
// the host of that replica. The replica that is promoted would be but its equal.
func TestForeignPrimaryThatALostReplicaNamesIsNotFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("a:1", leader("A", "10.0.0.2:1").answer)
		net.on("b:1", follower("172.17.0.1:1", "A", true).answer)
		net.on("172.17.0.1:1", leader("foreign").answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"a:1", "b:1"}})
		defer end()
		within(t, 2*time.Second, "the primary serves", served(c, 0, "a:1"))
		time.Sleep(10 * time.Second)
		net.vanish("a:1")
		net.on("b:1", follower("172.17.0.1:1", "A", false).answer)
		stays(t, c, "a:1", 20*time.Second)
		net.on("b:1", leader("B<A").answer)
		within(t, 10*time.Second, "the new primary serves", served(c, 0, "b:1"))
	})
}
