package resp

import (
	"testing"
	"testing/synctest"
	"time"
)

// Searches end after a second, connecting does not: else a slow network were none.
func TestServersThatTakeLongToConnectToAreAsked(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				for addr, answer := range line.servers {
					net.on(addr, answer)
					net.set(addr, func(s *bubbleServer) { s.slow = 3 * time.Second })
				}
				line.cfg.Sharding = ShardingAuto
				c, end := net.open(t, line.cfg)
				defer end()
				// A sentinel, the primary that it names, and the node's own connections.
				within(t, 3*4*time.Second, "the primary serves", served(c, 0, "a:1"))
			})
		})
	}
}

// A process without a processor, or a server without: each answer takes longer than a
// search waits.
func TestServersThatTakeLongToAnswerAreHeard(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				for addr, answer := range line.servers {
					net.on(addr, answer)
					net.set(addr, func(s *bubbleServer) { s.lag = 1500 * time.Millisecond })
				}
				line.cfg.Sharding, line.cfg.DialTimeout = ShardingAuto, 20*time.Second
				c, end := net.open(t, line.cfg)
				defer end()
				// A handshake has half a dozen answers, and there are up to three after another.
				within(t, time.Minute, "the primary serves", served(c, 0, "a:1"))
			})
		})
	}
}

// In a cluster and with sentinels a search leaves no connection behind; the watch has one.
func TestConnectionsOfASearchEndWithIt(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		if line.cfg.Topology == Replicas {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				for addr, answer := range line.servers {
					net.on(addr, answer)
				}
				c, end := net.open(t, line.cfg)
				defer end()
				within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
				time.Sleep(5 * time.Second)
				synctest.Wait()
				want := c.Stats().Connections
				if line.cfg.Topology == Sentinel {
					want++
				}
				if n := net.conns(); n != want {
					t.Errorf("%d connections, want %d", n, want)
				}
			})
		})
	}
}

func TestCloseWaitsForNoDial(t *testing.T) {
	t.Parallel()
	for name, line := range timelines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				net := newBubbleNet()
				for addr, answer := range line.servers {
					net.on(addr, answer)
				}
				c, end := net.open(t, line.cfg)
				within(t, time.Second, "the primary serves", served(c, 0, "a:1"))
				for addr := range line.servers {
					net.vanish(addr)
				}
				c.explorer.RefreshNow("a:1")
				time.Sleep(2 * time.Second)
				start := time.Now()
				end()
				if took := time.Since(start); took > 0 || net.out() > 0 {
					t.Errorf("Close took %v, %d dials are out", took, net.out())
				}
			})
		})
	}
}

// Five sentinels name a primary whose machine is gone: it is dialled once, and what they
// say a moment later is heard.
func TestPrimaryThatAllSentinelsNameIsDialledOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		sentinels := []string{"s1:1", "s2:1", "s3:1", "s4:1", "s5:1"}
		name := func(primary string) {
			for _, s := range sentinels {
				net.on(s, func(words []string) string {
					switch {
					case words[0] != "SENTINEL":
						return ""
					case words[1] == "SENTINELS":
						return "*0\r\n"
					}
					return hostPortReply(primary)
				})
			}
		}
		name("gone:1")
		net.vanish("gone:1")
		net.on("new:1", says("ROLE", primaryReply()))
		c, end := net.open(t, Config{Topology: Sentinel, Master: "m", Addrs: sentinels})
		defer end()
		time.Sleep(4900 * time.Millisecond)
		synctest.Wait()
		if n := net.get("gone:1").dials; n != 1 {
			t.Errorf("dialled %d times within one DialTimeout", n)
		}
		name("new:1")
		took := within(t, 2500*time.Millisecond, "the new primary serves", served(c, 0, "new:1"))
		t.Logf("after %v", took)
	})
}
