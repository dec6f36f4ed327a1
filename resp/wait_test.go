package resp

import (
	"fmt"
	"log/slog"
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
		net.set(addr, func(s *bubbleServer) { s.slow = 3 * topology.SearchTimeout / 2 })
	}
	return net
}

// Connecting may take as long as DialTimeout, though a search for the layout waits less.
func TestWaitFirst_SlowDial_WaitsForDialTimeout(t *testing.T) {
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
func TestWaitFirst_OneServerRefuses_WaitsForTheOthers(t *testing.T) {
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
func TestWaitFirst_ServersSilent_Fails(t *testing.T) {
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
func TestWaitFirst_LonelyPrimary_IsFound(t *testing.T) {
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
func TestWaitFirst_ServerReplaced_IsNotNeeded(t *testing.T) {
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
func TestWaitFirst_SentinelWithoutThePrimary_DecidesNothing(t *testing.T) {
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

// threePrimaries is a cluster, one primary of which is as said. Names of it are by slot: a third
// of them for each.
func threePrimaries(third func(s *bubbleServer)) *bubbleNet {
	net := newBubbleNet()
	for _, addr := range []string{"a:1", "b:1"} {
		net.on(addr, says("CLUSTER", slotsReply("a:1", "b:1", "c:1")))
	}
	net.set("c:1", third)
	return net
}

var threeSeeds = Config{Topology: Cluster, Addrs: []string{"a:1"}, Sharding: ShardingOff, Password: "secret"}

const wrongPassword = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"

// One primary of three is dead, is loading, or refuses the password: the others serve, so it is not
// waited for longer than DialTimeout, and named in the log. Later it is there.
func TestWaitFirst_OnePrimaryOfThreeMissing_GoesOnWithTheOthers(t *testing.T) {
	t.Parallel()
	for what, third := range map[string]func(s *bubbleServer){
		"refused":   func(s *bubbleServer) { s.refuses = true },
		"vanished":  func(s *bubbleServer) { s.gone = true },
		"loading":   func(s *bubbleServer) { s.answer = says("PING", "-LOADING Redis is loading the dataset in memory\r\n") },
		"WRONGPASS": func(s *bubbleServer) { s.answer = says("AUTH", wrongPassword) },
	} {
		synctest.Test(t, func(t *testing.T) {
			net := threePrimaries(third)
			var log syncBuffer
			cfg := threeSeeds
			cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			c, end := net.open(t, cfg)
			defer end()
			begun := time.Now()
			err := c.WaitFirst(t.Context())
			if took := time.Since(begun); err != nil || took != c.cfg.DialTimeout {
				t.Errorf("%s: after %v: %v", what, took, err)
			}
			if log.count("going on without them") != 1 || log.count("missing=[c:1]") != 1 {
				t.Errorf("%s: the log does not name it: %s", what, log.b.String())
			}
			net.set("c:1", func(s *bubbleServer) { s.refuses, s.gone, s.answer = false, false, nil })
			within(t, time.Minute, "all are connected", func() bool { return c.Stats().Connections == 9 })
		})
	}
}

// What needs a human is told at once if it is what all say; so is that nobody is there.
func TestWaitFirst_AllRefuse_FailsAtOnce(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		"AUTH " + wrongPassword,
		"AUTH -ERR Client sent AUTH, but no password is set\r\n",
	} {
		command, text, _ := strings.Cut(refusal, " ")
		synctest.Test(t, func(t *testing.T) {
			net := newBubbleNet()
			for _, addr := range []string{"a:1", "b:1", "c:1"} {
				net.on(addr, func(words []string) string {
					switch words[0] {
					case command:
						return text
					case "CLUSTER":
						return slotsReply("a:1", "b:1", "c:1")
					}
					return ""
				})
			}
			c, end := net.open(t, threeSeeds)
			defer end()
			begun := time.Now()
			err := c.WaitFirst(t.Context())
			if took := time.Since(begun); err == nil || took > 0 {
				t.Errorf("%s: after %v: %v", refusal, took, err)
			}
		})
	}
}

// Who needs some names only waits for the servers of these, and fails if they are away, whatever
// the others do.
func TestWaitFirst_ForNames_WaitsForTheirServersOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := threePrimaries(func(s *bubbleServer) { s.gone = true })
		c, end := net.open(t, threeSeeds)
		defer end()
		var healthy, dead string
		for i := 0; healthy == "" || dead == ""; i++ {
			if name := fmt.Sprint("name", i); SlotOf(name) < 10000 {
				healthy = name
			} else if SlotOf(name) > 11000 {
				dead = name
			}
		}
		begun := time.Now()
		if err := c.WaitFirst(ForNames(t.Context(), healthy)); err != nil || time.Since(begun) > 0 {
			t.Errorf("on a server that is up: after %v: %v", time.Since(begun), err)
		}
		err := c.WaitFirst(ForNames(t.Context(), dead))
		if took := time.Since(begun); err == nil || !strings.Contains(err.Error(), "c:1") || took > c.cfg.DialTimeout+time.Second {
			t.Errorf("on one that is dead: after %v: %v", took, err)
		}
	})
}
