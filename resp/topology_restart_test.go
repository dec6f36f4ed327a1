package resp

import (
	"testing"
	"testing/synctest"
	"time"
)

// A primary that is restarted refuses connections for a moment. Clients do not go to an older
// one for that, which has come back and was not demoted: not all of them would see it.
func TestOlderPrimaryIsNotFollowedWhileThePresentOneRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("old:1", leader("A").answer)
		net.on("new:1", leader("B<A", "c:1").answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"old:1", "new:1"}})
		defer end()
		within(t, 6*time.Second, "the one with a replica serves", served(c, 0, "new:1"))
		net.on("new:1", leader("B<A").answer) // and its replica is gone
		time.Sleep(5 * time.Second)
		net.set("new:1", func(s *bubbleServer) { s.refuses = true; s.hangUp() })
		stays(t, c, "new:1", 3*time.Second)
		net.set("new:1", func(s *bubbleServer) { s.refuses = false })
		net.on("new:1", leader("B2").answer)
		stays(t, c, "new:1", 30*time.Second)
		net.set("new:1", func(s *bubbleServer) { s.refuses = true; s.hangUp() })
		within(t, 6*time.Second, "the older one serves when the present one stays away", served(c, 0, "old:1"))
	})
}

// Nor if it was busy until then, as one that is restarted because a script does not end.
func TestOlderPrimaryIsNotFollowedWhileABusyOneRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("old:1", leader("A").answer)
		net.on("new:1", leader("B<A", "c:1").answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"old:1", "new:1"}})
		defer end()
		within(t, 6*time.Second, "the one with a replica serves", served(c, 0, "new:1"))
		net.on("new:1", says("INFO", "-BUSY Redis is busy running a script.\r\n"))
		stays(t, c, "new:1", 20*time.Second)
		net.set("new:1", func(s *bubbleServer) { s.refuses = true; s.hangUp() })
		stays(t, c, "new:1", 3*time.Second)
		net.set("new:1", func(s *bubbleServer) { s.refuses = false })
		net.on("new:1", leader("B2").answer)
		stays(t, c, "new:1", 30*time.Second)
	})
}
