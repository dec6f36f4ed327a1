package resp

import (
	"errors"
	"net"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

// behindNAT is a cluster of two, which announces itself as inside:1 and inside:2, and a
// client that translates.
func behindNAT(t *testing.T, translate func(addr string) string) (*fakeCluster, *Client) {
	f := newFakeCluster(t, 2)
	slots := "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$6\r\ninside\r\n:1\r\n*3\r\n:8192\r\n:16383\r\n*2\r\n$6\r\ninside\r\n:2\r\n"
	f.layout.Store(&slots)
	outside := map[string]string{"inside:1": f.nodes[0].Addr(), "inside:2": f.nodes[1].Addr(), "inside:3": f.nodes[1].Addr()}
	return f, f.client(t, func(cfg *Config) {
		cfg.AddrMap = func(addr string) string {
			if to := translate(addr); to != "" {
				return to
			}
			return outside[addr]
		}
	})
}

// sentOn submits until the command has an answer that is not MOVED.
func sentOn(t *testing.T, c *Client) Reply {
	t.Helper()
	for i, start := 0, cputime.Now(); ; i++ {
		call := requesttest.NewCall(i)
		c.Submit(7, call)
		r := call.Await(t)
		var refused *ServerError
		if !errors.As(r.Err, &refused) || refused.Code != "MOVED" {
			return r
		}
		if start.Elapsed() > 20*time.Second { // however many that are: a search is due in half a second
			t.Fatalf("still refused: %v", r.Err)
		}
	}
}

// It is the user's code: it may be slow, or lock what the goroutine holds that waits for
// the answer.
func TestAddrMapIsNotCalledOnAnEventLoop(t *testing.T) {
	t.Parallel()
	f, c := behindNAT(t, func(string) string {
		if stack := string(debug.Stack()); strings.Contains(stack, "OnBytes") {
			t.Errorf("called on a loop:\n%s", stack)
		}
		return ""
	})
	for _, n := range f.nodes { // which would lead the route back
		n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Error("ERR later"))
	}
	f.nodes[0].On(echoes, fakenode.Error("MOVED 7 inside:3")) // which no layout has named
	if r := sentOn(t, c); r.Err != nil || r.Value.Int != 1 {
		t.Fatalf("%+v", r)
	}
}

func TestAddrMapThatPanicsCostsNoCommand(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	f, c := behindNAT(t, func(string) string {
		if broken.Load() {
			panic("no map today")
		}
		return ""
	})
	// A layout must not be what tells that the third is there.
	for _, n := range f.nodes {
		n.On(fakenode.Is("CLUSTER", "SLOTS"), fakenode.Error("ERR later"))
	}
	broken.Store(true)
	f.nodes[0].On(echoes, fakenode.Error("MOVED 7 inside:3"))
	var refused *ServerError
	eventually(t, "the refusal says why", func() bool {
		call := requesttest.NewCall(1)
		c.Submit(7, call)
		r := call.Await(t)
		return errors.As(r.Err, &refused) && strings.Contains(refused.Message, "no map today")
	})
	durable := func() Reply {
		call := newDurableCall(2, 0)
		c.SubmitDurable(7, call)
		return call.Await(t)
	}
	for range 3 {
		eventually(t, "a durable command is refused, too", func() bool { return errors.As(durable().Err, &refused) })
	}
	broken.Store(false)
	eventually(t, "the durable lane goes on", func() bool { return durable().Err == nil })
	if r := sentOn(t, c); r.Err != nil {
		t.Fatalf("%+v", r)
	}
}

// The layout cannot be read then, and it is said why.
func TestAddrMapThatPanicsInASearchIsAnErrorOfIt(t *testing.T) {
	t.Parallel()
	f := newFakeCluster(t, 1)
	c := open(t, Config{
		Topology: Cluster, Addrs: []string{f.nodes[0].Addr()},
		AddrMap: func(string) string { panic("no map today") },
	})
	eventually(t, "the search tells", func() bool {
		_, _, err := c.explorer.Progress()
		return err != nil && strings.Contains(err.Error(), "no map today")
	})
	if _, err := net.Dial("tcp", f.nodes[0].Addr()); err != nil {
		t.Fatal(err) // the server is not the reason
	}
}
