package resp

import (
	"fmt"
	"log/slog"
	"maps"
	stdnet "net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/handshake"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

var asksForPrimary = fakenode.Is("SENTINEL", "GET-MASTER-ADDR-BY-NAME")

// naming has a fake sentinel name a primary, of an epoch, and another sentinel.
func naming(sentinel *fakenode.Node, primary string, epoch int, other *fakenode.Node) {
	host, port, _ := stdnet.SplitHostPort(primary)
	sentinel.On(asksForPrimary, fakenode.Raw("*2\r\n"+bulk(host)+bulk(port)))
	sentinel.On(fakenode.Is("SENTINEL", "MASTER"), fakenode.Raw("*4\r\n"+bulk("flags")+bulk("master")+bulk("config-epoch")+bulk(fmt.Sprint(epoch))))
	host, port, _ = stdnet.SplitHostPort(other.Addr())
	sentinel.On(fakenode.Is("SENTINEL", "SENTINELS"), fakenode.Raw("*1\r\n*4\r\n"+bulk("ip")+bulk(host)+bulk("port")+bulk(port)))
}

// split is two sentinels and two servers that both say that they are the primary: for
// seconds after a failover on command, or as long as the network is parted.
type split struct {
	behind, ahead, old, primary *fakenode.Node
	c                           *Client // which knows the primary
}

func newSplit(t *testing.T, epoch ...fakenode.Action) *split {
	s := &split{behind: fakenode.New(t), ahead: fakenode.New(t), old: fakenode.New(t), primary: fakenode.New(t)}
	s.old.On(roles, roleOfPrimaryOf())
	s.primary.On(roles, roleOfPrimaryOf())
	naming(s.ahead, s.primary.Addr(), 2, s.behind)
	naming(s.behind, s.old.Addr(), 1, s.ahead)
	for _, answer := range epoch {
		s.ahead.On(fakenode.Is("SENTINEL", "MASTER"), answer)
	}
	s.c = ready(t, Config{Topology: Sentinel, Master: "m", Addrs: []string{s.ahead.Addr()}})
	serves(t, s.c, 0, s.primary.Addr())
	return s
}

// loseAhead leaves the sentinel that is behind, until that was asked a few times.
func (s *split) loseAhead() {
	s.ahead.Down()
	asked := len(s.behind.Commands(asksForPrimary))
	for i := range 3 {
		s.c.explorer.RefreshNow("")
		s.behind.WaitFor(asked+i+1, asksForPrimary)
	}
}

func TestSentinel_Behind_IsNotFollowed(t *testing.T) {
	t.Parallel()
	s := newSplit(t)
	s.loseAhead()
	if got := s.c.AddrOf(0); got != s.primary.Addr() {
		t.Error("the old primary serves again")
	}
	// It catches up, and the next failover is followed as ever.
	naming(s.behind, s.old.Addr(), 3, s.ahead)
	s.c.explorer.RefreshNow("")
	serves(t, s.c, 0, s.old.Addr())
}

// All clients connect to a new primary at once, so it may be full, or busy. Those that are
// connected have their locks there.
func TestSentinel_BehindWhileThePrimaryIsFullOrBusy_IsNotFollowed(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(primary *fakenode.Node){
		"full": func(n *fakenode.Node) {
			n.On(fakenode.Connect, fakenode.Seq(fakenode.Error("ERR max number of clients reached"), fakenode.Close()))
		},
		"busy":    func(n *fakenode.Node) { n.On(fakenode.Is("PING"), fakenode.Error(fakenode.Busy)) },
		"loading": func(n *fakenode.Node) { n.On(fakenode.Is("PING"), fakenode.Error(fakenode.Loading)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSplit(t)
			refuse(s.primary)
			s.loseAhead()
			if got := s.c.AddrOf(0); got != s.primary.Addr() {
				t.Fatal("the old primary serves again")
			}
			s.primary.Down()
			serves(t, s.c, 0, s.old.Addr())
		})
	}
}

// Sentinels that were set up anew count from the beginning. So the epoch decides nothing
// once the present primary is none any more.
func TestSentinel_EarlierEpochAndPrimaryDemoted_IsBelieved(t *testing.T) {
	t.Parallel()
	s := newSplit(t)
	s.loseAhead()
	s.primary.On(roles, roleOfReplica(s.old.Addr(), "connected"))
	s.c.explorer.RefreshNow("")
	serves(t, s.c, 0, s.old.Addr())
}

var keepsTheEpoch = fakenode.Error("NOPERM this user has no permissions to run the 'sentinel|master' command")

// Where the user may not ask for the epoch, any sentinel that names a primary is believed.
func TestSentinel_NoEpoch_IsBelieved(t *testing.T) {
	t.Parallel()
	s := newSplit(t, keepsTheEpoch)
	s.behind.On(fakenode.Is("SENTINEL", "MASTER"), keepsTheEpoch)
	s.loseAhead()
	serves(t, s.c, 0, s.old.Addr())
}

// Where only some sentinels tell it, those that do not count as behind.
func TestSentinel_NoEpoch_DoesNotLeadBack(t *testing.T) {
	t.Parallel()
	s := newSplit(t)
	s.behind.On(fakenode.Is("SENTINEL", "MASTER"), keepsTheEpoch)
	s.loseAhead()
	if got := s.c.AddrOf(0); got != s.primary.Addr() {
		t.Error("the old primary serves again")
	}
}

// twoSentinels both name p:1, though r:1 is a primary, too.
func twoSentinels(net *bubbleNet) Config {
	net.on("p:1", says("ROLE", primaryReply()))
	net.on("r:1", says("ROLE", primaryReply()))
	net.on("sa:1", sentinelReply("p:1", 1, "sb:1"))
	net.on("sb:1", sentinelReply("p:1", 1, "sa:1"))
	return Config{Topology: Sentinel, Master: "m", Addrs: []string{"sa:1", "sb:1"}}
}

// sentinelReply is what a sentinel says of the primary, and of another sentinel.
func sentinelReply(primary string, epoch int, other string) func([]string) string {
	return func(words []string) string {
		if words[0] != "SENTINEL" {
			return ""
		}
		switch words[1] {
		case "MASTER":
			return "*2\r\n" + bulk("config-epoch") + bulk(fmt.Sprint(epoch))
		case "SENTINELS":
			return sentinelsReply(other)
		}
		return hostPortReply(primary)
	}
}

// The sentinel that announces a failover is asked. Others may not have heard of it yet, and
// the old primary may go on for seconds.
func TestSentinel_AnnouncesAFailover_IsAsked(t *testing.T) {
	t.Parallel()
	for i := range 16 { // without the announcement it is by luck that the right one is asked
		synctest.Test(t, func(t *testing.T) {
			net := newBubbleNet()
			cfg := twoSentinels(net)
			announcing := []string{"sa:1", "sb:1"}[i%2]
			other := map[string]string{"sa:1": "sb:1", "sb:1": "sa:1"}[announcing]
			net.vanish(other) // so that it is not the one that is listened to
			c, end := net.open(t, cfg)
			defer end()
			within(t, 5*time.Second, "the primary serves", served(c, 0, "p:1"))
			net.set(other, func(s *bubbleServer) { s.gone = false })
			time.Sleep(time.Minute)
			net.on(announcing, sentinelReply("r:1", 2, other))
			net.set("r:1", func(s *bubbleServer) { s.slow = 2 * topology.HedgeDelay }) // others answer first
			var listening []stdnet.Conn
			net.set(announcing, func(s *bubbleServer) { listening = slices.Collect(maps.Keys(s.conns)) })
			if len(listening) != 1 {
				t.Fatalf("%d connections", len(listening))
			}
			push := "*3\r\n" + bulk("message") + bulk("+switch-master") + bulk("m p 1 r 1")
			if _, err := listening[0].Write([]byte(push)); err != nil {
				t.Fatal(err)
			}
			within(t, 2*time.Second, "the new primary serves", served(c, 0, "r:1"))
		})
	}
}

// A sentinel that is cut off from the others, and answers the client, is not the only one
// that is asked.
func TestSentinel_OneMissesAFailover_IsFollowed(t *testing.T) {
	t.Parallel()
	for _, cutOff := range []string{"sa:1", "sb:1"} {
		synctest.Test(t, func(t *testing.T) {
			net := newBubbleNet()
			c, end := net.open(t, twoSentinels(net))
			defer end()
			within(t, time.Second, "the primary serves", served(c, 0, "p:1"))
			other := map[string]string{"sa:1": "sb:1", "sb:1": "sa:1"}[cutOff]
			net.on(other, sentinelReply("r:1", 2, cutOff))
			within(t, 2*topology.Sentinel.Period(), "the new primary serves", served(c, 0, "r:1"))
			stays(t, c, "r:1", 60*time.Second)
		})
	}
}

// A sentinel that is behind learns of the failover in the middle of its answers: it has
// named the old primary, and tells the epoch of the present one.
func TestSentinel_CatchesUpBetweenAnswers_DoesNotLeadBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		net.on("p:1", says("ROLE", primaryReply()))
		net.on("r:1", says("ROLE", primaryReply()))
		net.on("sa:1", sentinelReply("r:1", 2, "sb:1"))
		c, end := net.open(t, Config{Topology: Sentinel, Master: "m", Addrs: []string{"sa:1"}})
		defer end()
		within(t, time.Second, "the primary serves", served(c, 0, "r:1"))

		before, after := sentinelReply("p:1", 1, "sa:1"), sentinelReply("r:1", 2, "sa:1")
		var caughtUp atomic.Bool
		net.on("sb:1", func(words []string) string {
			if words[0] == "SENTINEL" && words[1] == "MASTER" {
				caughtUp.Store(true)
			}
			if caughtUp.Load() {
				return after(words)
			}
			return before(words)
		})
		stays(t, c, "r:1", 2*topology.Sentinel.Period())
		if !caughtUp.Load() {
			t.Error("the sentinel was not asked")
		}
	})
}

// The primary is asked on a new connection, and that may take its time though it serves.
func TestSentinel_BehindWhileThePrimaryIsSlow_IsNotFollowed(t *testing.T) {
	t.Parallel()
	for _, hint := range []string{"", "sa:1"} {
		synctest.Test(t, func(t *testing.T) {
			net := newBubbleNet()
			cfg := twoSentinels(net)
			net.on("sa:1", sentinelReply("r:1", 2, "sb:1"))
			c, end := net.open(t, cfg)
			defer end()
			within(t, 2*topology.Sentinel.Period(), "the primary serves", served(c, 0, "r:1"))
			time.Sleep(topology.Sentinel.Period())
			net.set("r:1", func(s *bubbleServer) { s.slow = 5 * topology.SearchTimeout / 2 })
			c.explorer.RefreshNow(hint)
			stays(t, c, "r:1", 2*topology.Sentinel.Period())
			net.vanish("r:1")
			within(t, 2*topology.Sentinel.Period(), "the one that is left serves", served(c, 0, "p:1"))
		})
	}
}

// A sentinel's user may lack the right to hear of failovers. That costs an idle client
// little, and is found out once it has been given.
func TestSentinel_RefusesToAnnounce_BacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := newBubbleNet()
		var log syncBuffer
		cfg := twoSentinels(net)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		var allowed atomic.Bool
		for addr, other := range map[string]string{"sa:1": "sb:1", "sb:1": "sa:1"} {
			answer := sentinelReply("p:1", 1, other)
			net.on(addr, func(words []string) string {
				if words[0] == "SUBSCRIBE" && !allowed.Load() {
					return "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n"
				}
				return answer(words)
			})
		}
		c, end := net.open(t, cfg)
		defer end()
		within(t, time.Second, "the primary serves", served(c, 0, "p:1"))
		subscribes := func() (n int) {
			net.each(func(s *bubbleServer) { n += s.asked["SUBSCRIBE"] })
			return n
		}
		time.Sleep(time.Minute)
		before := subscribes()
		time.Sleep(10 * time.Minute)
		if n := subscribes() - before; n < 30 || n > 82 { // of each one every 15 to 30 s
			t.Errorf("%d attempts in 10 minutes", n)
		}
		if n := log.count("NOPERM"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
		allowed.Store(true)
		time.Sleep(handshake.MaxPause + 2*backoffMax)
		before = subscribes()
		time.Sleep(time.Minute)
		if n := subscribes() - before; n != 0 {
			t.Errorf("%d attempts while one listens", n)
		}
	})
}

// The new primary does not answer within the search that the announcement begins. The old
// one goes on, and is what a sentinel that is behind names.
func TestSentinel_AnnouncedPrimarySlowOrFull_IsFollowed(t *testing.T) {
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
func TestSentinel_ServerNeverAnswersRole_IsGivenUp(t *testing.T) {
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
func TestSentinel_PrimarySlowAfterFull_IsKept(t *testing.T) {
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
