package resp

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

// databases has a node serve ECHO only in a database other than 0, as each connection has chosen it.
type databases struct {
	mu       sync.Mutex
	selected map[*fakenode.Conn]string
}

func (d *databases) play(n *fakenode.Node, answer string) {
	n.On(fakenode.Is("SELECT"), fakenode.Func(func(c *fakenode.Conn, cmd fakenode.Command) {
		d.mu.Lock()
		d.selected[c] = cmd.Words[1]
		d.mu.Unlock()
		c.Write([]byte("+OK\r\n"))
	}))
	n.On(echoes, fakenode.Func(func(c *fakenode.Conn, _ fakenode.Command) {
		d.mu.Lock()
		db := d.selected[c]
		d.mu.Unlock()
		if db != "5" {
			c.Write([]byte("-ERR in database " + db + "\r\n"))
			return
		}
		c.Write([]byte(answer + "\r\n"))
	}))
}

// Clusters may have more databases than one. So the server is asked for it, on every connection: those that
// MOVED and ASK lead to as well.
func TestClient_DatabaseOfACluster_IsChosenWhereverACommandGoes(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"none", "MOVED", "ASK"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			d := &databases{selected: make(map[*fakenode.Conn]string)}
			f := newFakeCluster(t, 1)
			stranger := fakenode.New(t) // which no layout names
			d.play(stranger, ":1")
			at := ":1"
			if code != "none" {
				at = fmt.Sprintf("-%s 7 %s", code, stranger.Addr())
			}
			d.play(f.nodes[0], at)
			c := f.client(t, func(cfg *Config) { cfg.DB = 5 })
			eventually(t, "it is executed", func() bool { // once the stranger is connected
				call := requesttest.NewCall(1)
				c.Submit(7, call)
				r := call.Await(t)
				if refused := (*ServerError)(nil); errors.As(r.Err, &refused) {
					t.Fatal(refused)
				}
				return r.Err == nil && r.Value.Int == 1
			})
			if n := len(f.nodes[0].Commands(fakenode.Is("SELECT"))); n < 3 {
				t.Errorf("%d connections chose a database", n)
			}
		})
	}
}

// The server judges, and its refusal says what is wrong.
func TestClient_DatabaseRefusedByACluster_SaysSo(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"ERR SELECT is not allowed in cluster mode", "ERR DB index is out of range"} {
		f := newFakeCluster(t, 1)
		f.nodes[0].On(fakenode.Is("SELECT"), fakenode.Error(line))
		c := open(t, Config{Topology: Cluster, Addrs: []string{f.nodes[0].Addr()}, DB: 5, Sharding: ShardingOff})
		if err := c.WaitReady(testContext(t)); err == nil || !strings.Contains(err.Error(), line) || !strings.Contains(err.Error(), "SELECT") {
			t.Errorf("%s: %v", line, err)
		}
	}
}
