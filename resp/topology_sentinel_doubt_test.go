package resp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// The new primary does not answer within the search that the announcement begins. The old
// one goes on, and is what a sentinel that is behind names.
func TestAnnouncedPrimaryThatIsSlowOrFullIsFollowed(t *testing.T) {
	t.Parallel()
	for name, hinder := range map[string]func(net *bubbleNet){
		"slow": func(net *bubbleNet) {
			net.set("r:1", func(s *bubbleServer) { s.slow = 3 * topology.SearchTimeout / 2 })
		},
		"full": func(net *bubbleNet) {
			net.on("r:1", says("PING", "-ERR max number of clients reached\r\n"))
			time.AfterFunc(topology.SearchTimeout, func() { net.on("r:1", says("ROLE", primaryReply())) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				c, end := net.open(t, twoSentinels(net))
				defer end()
				within(t, 5*time.Second, "the primary serves", served(c, 0, "p:1"))
				time.Sleep(time.Minute)
				synctest.Wait()
				hinder(net)
				net.on("sa:1", sentinelReply("r:1", 2, "sb:1"))
				c.explorer.RefreshNow("sa:1")
				t.Log(within(t, time.Minute, "the new primary serves", served(c, 0, "r:1")))
			})
		})
	}
}

// The sentinels were set up anew, so they count from the beginning, but for one that was
// forgotten. It names a server that never says whether it is a primary, and is the one that
// announces. That does not keep the client from following the others.
func TestServerThatNeverSaysWhetherItIsAPrimaryIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	for name, hinder := range map[string]func(net *bubbleNet){
		"vanished": func(net *bubbleNet) { net.vanish("x:1") },
		"loading": func(net *bubbleNet) {
			net.on("x:1", says("PING", "-LOADING Redis is loading the dataset in memory\r\n"))
		},
		"full": func(net *bubbleNet) { net.on("x:1", says("PING", "-ERR max number of clients reached\r\n")) },
		"busy": func(net *bubbleNet) { net.on("x:1", says("PING", "-BUSY Redis is busy running a script\r\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				cfg := twoSentinels(net)
				net.on("forgotten:1", sentinelReply("x:1", 9, "sa:1"))
				cfg.Addrs = append(cfg.Addrs, "forgotten:1")
				hinder(net)
				c, end := net.open(t, cfg)
				defer end()
				within(t, time.Minute, "the primary serves", served(c, 0, "p:1"))
				time.Sleep(time.Minute)
				net.vanish("p:1")
				net.on("sa:1", sentinelReply("r:1", 2, "sb:1"))
				net.on("sb:1", sentinelReply("r:1", 2, "sa:1"))
				c.explorer.RefreshNow("forgotten:1")
				t.Log(within(t, 4*c.cfg.DialTimeout, "the new primary serves", served(c, 0, "r:1")))
			})
		})
	}
}

// The primary is full for longer than DialTimeout, as after a failover, and then slow to
// connect to, since everybody comes. That is not the silence of a server that is gone.
func TestPrimaryThatIsSlowAfterItWasFullIsNotTakenForGone(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]string{
		"full":    "-ERR max number of clients reached\r\n",
		"busy":    "-BUSY Redis is busy running a script\r\n",
		"loading": "-LOADING Redis is loading the dataset in memory\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				cfg := twoSentinels(net)
				net.on("sa:1", sentinelReply("r:1", 2, "sb:1")) // sb:1 is behind
				c, end := net.open(t, cfg)
				defer end()
				within(t, 2*topology.Sentinel.Period(), "the primary serves", served(c, 0, "r:1"))
				time.Sleep(topology.Sentinel.Period())
				synctest.Wait()
				net.on("r:1", says("PING", refusal))
				net.set("r:1", func(s *bubbleServer) { s.hangUp() })
				time.Sleep(2 * c.cfg.DialTimeout)
				net.on("r:1", says("ROLE", primaryReply()))
				net.set("r:1", func(s *bubbleServer) { s.slow = 2 * topology.HedgeDelay })
				for range 2 * topology.Sentinel.Period() / (20 * time.Millisecond) {
					time.Sleep(20 * time.Millisecond)
					if got := c.AddrOf(0); got != "r:1" {
						t.Fatalf("%s serves again", got)
					}
				}
			})
		})
	}
}
