package faults

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/fakenode"
)

// replaced is a server whose connections lead to a machine that is not the one behind its
// address any more, from switchOver on: there the old machine refuses what m matches. New
// connections are served.
type replaced struct {
	*fakenode.Node
	last atomic.Int64 // the latest connection to the old machine
	free atomic.Bool  // what the waiters wait for
}

func newReplaced(t *testing.T, refusal func(host, port string) string, m fakenode.Match) *replaced {
	n := &replaced{Node: fakenode.New(t)}
	host, port, _ := net.SplitHostPort(n.Addr())
	n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Raw(fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)))
	n.On(fakenode.Is("ROLE"), fakenode.Raw("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"))
	n.On(testkit.Calls(script.Acquire), fakenode.Int(script.Granted))
	n.On(waitsFor, fakenode.Func(func(c *fakenode.Conn, _ fakenode.Command) {
		if n.free.Load() {
			c.Write([]byte(fmt.Sprintf(":%d\r\n", script.Granted)))
		} else {
			c.Write([]byte(":3600000\r\n"))
		}
	}))
	n.On(testkit.Calls(script.Release), fakenode.Int(script.Done))
	n.On(testkit.Calls(script.Renew), fakenode.Func(func(c *fakenode.Conn, cmd fakenode.Command) {
		keys, _ := strconv.Atoi(cmd.Words[2])
		c.Write([]byte(fmt.Sprintf("*%d\r\n", keys) + strings.Repeat(":1\r\n", keys)))
	}))
	n.On(func(c fakenode.Command) bool { return int64(c.Conn) <= n.last.Load() && m(c) }, fakenode.Error(refusal(host, port)))
	return n
}

// waitsFor matches the tries of those that wait for a lock which somebody else has.
func waitsFor(c fakenode.Command) bool {
	return testkit.Calls(script.Acquire)(c) && len(c.Words) > 3 && strings.HasPrefix(c.Words[3], "wait")
}

func (n *replaced) switchOver() {
	last := 0
	for _, c := range n.Conns() {
		last = max(last, c.ID)
	}
	n.last.Store(int64(last))
}

// fresh is what has come to the new machine.
func (n *replaced) fresh(m fakenode.Match) int {
	return len(n.Commands(func(c fakenode.Command) bool { return int64(c.Conn) > n.last.Load() && m(c) }))
}

// The machine behind an address is replaced, and the old one goes on and refuses, each in its
// way. Holds are renewed, a new Lock gets through, and the waiters are subscribed again.
func TestMutex_ServerReplacedBehindItsAddress_GoesOnAtTheNewOne(t *testing.T) {
	t.Parallel()
	scripts := fakenode.Is("EVALSHA")
	always := func(text string) func(host, port string) string { return func(string, string) string { return text } }
	const cluster, alone = "redis+cluster://%s?sharded_pubsub=off", "redis://:secret@%s"
	for name, c := range map[string]struct {
		url     string
		refusal func(host, port string) string
		of      fakenode.Match
	}{
		"moved to the same address":         {cluster, func(host, port string) string { return "MOVED 1 " + net.JoinHostPort(host, port) }, scripts},
		"moved, endpoint unknown":           {cluster, func(_, port string) string { return "MOVED 1 :" + port }, scripts},
		"asked to come back":                {cluster, func(host, port string) string { return "ASK 1 " + net.JoinHostPort(host, port) }, scripts},
		"out of its cluster":                {cluster, always(fakenode.ClusterDown), scripts},
		"a replica without a link":          {cluster, always(fakenode.MasterDown), scripts},
		"a replica, alone":                  {alone, always(fakenode.ReadOnly), scripts},
		"a node of a cluster":               {alone, always("MOVED 1 127.0.0.1:1"), scripts},
		"nobody is logged in":               {alone, always(fakenode.NoAuth), fakenode.Any},
		"the password is another":           {alone, always(fakenode.WrongPass), scripts},
		"nobody is logged in, in a cluster": {cluster, always(fakenode.NoAuth), fakenode.Any},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Steady(t, func(tb testing.TB) {
				n := newReplaced(t, c.refusal, c.of)
				var engines []*engine.Engine
				var holds []*engine.Hold
				var waits []*engine.Future[*engine.Hold]
				for i := range 2 {
					e := testkit.Open(t, fmt.Sprintf(c.url, n.Addr()), testkit.LeaseOf(4*time.Second))
					engines = append(engines, e)
					holds = append(holds, testkit.MustLock(tb, e.Mutex(fmt.Sprint("held", i))))
					waits = append(waits, e.Mutex(fmt.Sprint("wait", i)).LockAsync(testkit.Ctx(tb)))
				}
				n.WaitFor(2, fakenode.Is("SUBSCRIBE"))
				n.switchOver()
				for i, e := range engines {
					h, err := e.Mutex(fmt.Sprint("new", i)).Lock(testkit.Within(tb, 4*time.Second))
					if err != nil {
						tb.Fatal("a new Lock does not get through, though a new connection would be served: ", err)
					}
					holds = append(holds, h)
				}
				testkit.Eventually(tb, "the waiters are subscribed again", func() bool { return n.fresh(fakenode.Is("SUBSCRIBE")) >= 2 })
				testkit.Eventually(tb, "all is renewed", func() bool { return n.fresh(testkit.Calls(script.Renew)) >= 4 })
				for i, h := range holds {
					if err := h.Err(); err != nil {
						tb.Errorf("hold %d: %v", i, err)
					}
				}
				n.free.Store(true)
				for _, sub := range n.Commands(fakenode.Is("SUBSCRIBE")) {
					n.Publish(sub.Words[1], "0")
				}
				for i, w := range waits {
					if _, err := w.Await(testkit.Ctx(tb)); err != nil {
						tb.Errorf("waiter %d: %v", i, err)
					}
					if s := engines[i].Stats(); s.UnknownOutcomes != 0 || len(s.Lost) != 0 {
						tb.Errorf("stats: %+v", s)
					}
				}
			})
		})
	}
}

// What authenticated the connection of messages alone is gone. A waiter is subscribed over
// another one, whichever command learns of it.
func TestMutex_NoAuthForMessagesOnly_SubscribesAgain(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]fakenode.Match{"SUBSCRIBE": fakenode.Is("SUBSCRIBE"), "PING": fakenode.Is("PING")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newReplaced(t, func(string, string) string { return fakenode.NoAuth }, of)
			e := testkit.Open(t, "redis://:secret@"+n.Addr(), func(c *engine.Config) { c.CommandTimeout = time.Second })
			if name == "SUBSCRIBE" {
				n.switchOver()
			}
			w := e.Mutex("wait").LockAsync(testkit.Ctx(t))
			if name != "SUBSCRIBE" {
				n.WaitFor(1, fakenode.Is("SUBSCRIBE"))
				n.switchOver()
			}
			testkit.Eventually(t, "it is subscribed again", func() bool { return n.fresh(fakenode.Is("SUBSCRIBE")) > 0 })
			n.free.Store(true)
			n.Publish(n.Commands(fakenode.Is("SUBSCRIBE"))[0].Words[1], "0")
			if _, err := w.Await(testkit.Ctx(t)); err != nil {
				t.Fatal(err)
			}
		})
	}
}
