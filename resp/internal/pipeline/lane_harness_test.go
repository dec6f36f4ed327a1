package pipeline

import (
	"net"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
)

// testLane is a lane whose down calls can be awaited.
type testLane struct {
	*Lane
	downs chan error
}

func (w *world) newLane(change func(*Config)) *testLane {
	tl := &testLane{downs: make(chan error, 16)}
	cfg := Config{
		Clock:          clock.System(),
		CommandTimeout: 3 * time.Second,
		MaxInFlight:    1 << 14,
		MaxQueuedBytes: 4 << 20,
		inlineDepth:    w.Carrier.InlineDepth,
		Down:           func(err error) { tl.downs <- err },
	}
	if change != nil {
		change(&cfg)
	}
	tl.Lane = NewLane(cfg)
	return tl
}

// attached returns a lane that is up, and the server's end of its connection.
func (w *world) attached(change func(*Config), tune func(client, server net.Conn)) (*testLane, net.Conn) {
	w.t.Helper()
	l := w.newLane(change)
	client, server := w.Connect(tune)
	if err := l.Attach(w.loops, client); err != nil {
		w.t.Fatal(err)
	}
	return l, server
}
