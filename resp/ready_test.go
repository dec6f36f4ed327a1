package resp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// farAway has servers to which connecting takes longer than a search waits.
func farAway(line timeline) *bubbleNet {
	net := newBubbleNet()
	for addr, answer := range line.servers {
		net.on(addr, answer)
		net.set(addr, func(s *bubbleServer) { s.slow = 3 * topology.SearchPatience / 2 })
	}
	return net
}

// Connecting may take as long as DialTimeout, though a search for the layout waits less.
func TestFirstRoundLastsAsLongAsADial(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := farAway(line)
				c, end := net.open(t, line.cfg)
				defer end()
				if err := c.WaitFirst(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// One address of several leads to somebody else's server by now, which answers first.
func TestRefusalOfOneServerDoesNotDecideBeforeTheOthersHaveAnswered(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := farAway(line)
				net.on("stale:1", says("AUTH", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"))
				cfg := line.cfg
				cfg.Addrs = append([]string{"stale:1"}, cfg.Addrs...)
				cfg.Password, cfg.SentinelPassword = "secret", "secret"
				c, end := net.open(t, cfg)
				defer end()
				if err := c.WaitReady(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// It is not waited for longer.
func TestServersThatNeverAnswerAreGivenUp(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, refusal := range []string{"", "WRONGPASS"} {
				synctest.Test(t, func(t *testing.T) {
					net := newBubbleNet()
					for addr := range line.servers {
						net.vanish(addr)
					}
					cfg := line.cfg
					if refusal != "" {
						net.on("stale:1", says("AUTH", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"))
						cfg.Addrs = append([]string{"stale:1"}, cfg.Addrs...)
						cfg.Password, cfg.SentinelPassword = "secret", "secret"
					}
					c, end := net.open(t, cfg)
					defer end()
					begun := time.Now()
					err := c.WaitFirst(t.Context())
					if took := time.Since(begun); took > c.cfg.DialTimeout+2*time.Second {
						t.Errorf("after %v", took)
					}
					if err == nil || !strings.Contains(err.Error(), refusal) {
						t.Errorf("%q: %v", refusal, err)
					}
				})
			}
		})
	}
}

// The other one's machine is gone, so the primary has no replica. Open has to wait until
// the other one has had the time that a dial may take.
func TestFirstRoundFindsALonelyPrimary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.vanish("a:1")
		net.on("b:1", leader("B").answer)
		c, end := net.open(t, Config{Topology: Replicas, Addrs: []string{"a:1", "b:1"}})
		defer end()
		begun := time.Now()
		if err := c.WaitFirst(t.Context()); err != nil {
			t.Error(err)
		}
		t.Logf("after %v", time.Since(begun))
	})
}

// A failover that has ended is not waited out: the dead server keeps its connections for a
// while, but nobody needs them.
func TestFirstRoundNeedsNoServerThatAnotherHasReplaced(t *testing.T) {
	t.Parallel()
	for _, vanished := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			net := newBubbleNet()
			net.on("a:1", says("CLUSTER", slotsReply("a:1", "dead:1")))
			if vanished {
				net.vanish("dead:1")
			}
			c, end := net.open(t, Config{Topology: Cluster, Addrs: []string{"a:1"}, Sharding: ShardingOff})
			defer end()
			failover := c.cfg.DialTimeout / 2
			time.AfterFunc(failover, func() {
				net.on("a:1", says("CLUSTER", slotsReply("a:1", "b:1")))
				net.on("b:1", says("CLUSTER", slotsReply("a:1", "b:1")))
			})
			begun := time.Now()
			err := c.WaitFirst(t.Context())
			if took := time.Since(begun); err != nil || took < failover || took > c.cfg.DialTimeout {
				t.Errorf("vanished %v: after %v: %v", vanished, took, err)
			}
		})
	}
}

// One sentinel has just been set up, and has yet to be told of the primary. The other one
// knows it, and is in the middle of a failover.
func TestSentinelThatDoesNotKnowThePrimaryDecidesNothing(t *testing.T) {
	t.Parallel()
	for range 10 { // the order in which they are asked is random
		synctest.Test(t, func(t *testing.T) {
			net := newBubbleNet()
			net.on("p:1", says("ROLE", replicaReply("r:1", "connected")))
			net.on("sa:1", says("SENTINEL", "*-1\r\n"))
			net.on("sb:1", sentinelReply("p:1", 1, "sa:1"))
			c, end := net.open(t, Config{Topology: Sentinel, Master: "m", Addrs: []string{"sa:1", "sb:1"}})
			defer end()
			time.AfterFunc(c.cfg.DialTimeout/2, func() { net.on("p:1", says("ROLE", primaryReply())) })
			if err := c.WaitFirst(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("sa:1", says("SENTINEL", "*-1\r\n"))
		c, end := net.open(t, Config{Topology: Sentinel, Master: "m", Addrs: []string{"sa:1", "sb:1"}})
		defer end()
		begun := time.Now()
		err := c.WaitFirst(t.Context())
		if err == nil || !strings.Contains(err.Error(), "No such master") || time.Since(begun) > time.Second {
			t.Errorf("if nobody knows it: %v, after %v", err, time.Since(begun))
		}
	})
}
