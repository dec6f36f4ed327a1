package resp

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/wire"
)

// testLane is a lane whose down calls can be awaited.
type testLane struct {
	*lane
	downs chan error
}

func (w *world) newLane(change func(*laneConfig)) *testLane {
	tl := &testLane{downs: make(chan error, 16)}
	cfg := laneConfig{
		clock:          clock.System(),
		commandTimeout: 3 * time.Second,
		maxInFlight:    1 << 14,
		maxQueuedBytes: 4 << 20,
		inlineDepth:    w.Carrier.InlineDepth,
		down:           func(err error) { tl.downs <- err },
	}
	if change != nil {
		change(&cfg)
	}
	tl.lane = newLane(cfg)
	return tl
}

// attached returns a lane that is up, and the server's end of its connection.
func (w *world) attached(change func(*laneConfig), tune func(client, server net.Conn)) (*testLane, net.Conn) {
	w.t.Helper()
	l := w.newLane(change)
	client, server := w.Connect(tune)
	if err := l.attach(w.loops, client); err != nil {
		w.t.Fatal(err)
	}
	return l, server
}

// call is a Request that asks the server to echo a number.
type call struct {
	n     int
	pad   string
	done  chan struct{}
	reply exchange.Reply
	times int
	then  func(exchange.Reply)
}

func newCall(n int) *call { return &call{n: n, done: make(chan struct{})} }

func (c *call) AppendCommand(dst []byte, form exchange.Form) []byte {
	word := "ECHO"
	if form == exchange.Whole {
		word = "WHOLE"
	}
	return wire.AppendCommand(dst, word, strconv.Itoa(c.n), c.pad)
}

func (c *call) Complete(r exchange.Reply) {
	c.times++
	if c.times > 1 {
		panic("completed twice")
	}
	c.reply = r
	c.reply.Value = r.Value.Clone()
	if c.then != nil {
		c.then(r)
	}
	close(c.done)
}

// await waits for the outcome.
func (c *call) await(t testing.TB) exchange.Reply {
	t.Helper()
	sockettest.Receive(t, c.done, "the outcome of call "+strconv.Itoa(c.n))
	return c.reply
}
