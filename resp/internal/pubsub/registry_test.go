package pubsub

import (
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/wire"
)

// The connection of a channel dies at the same moment as its slot leaves: one of the
// two tells.
func TestRegistry_MoveWhileTheConnectionEnds_DeliversDisconnected(t *testing.T) {
	t.Parallel()
	a, unserved := newSubs(), newSubs()
	unserved.mu.Mutex = a.mu.Mutex
	r := requesttest.NewRecorder()
	ch := NewChannel("x", r)
	a.subscribe(ch)
	conn := a.connected()
	a.flush(new(flusher), conn, nil, 1)
	v, _, err := new(wire.Decoder).Decode([]byte("*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.reply(new(listener), conn, v); err != nil {
		t.Fatal(err)
	}
	r.Await(t, request.Subscribed)
	// disconnected has begun, and lets others in before it walks.
	a.mu.Lock()
	a.mu.up = false
	delivered := a.evictLocked(unserved, func(uint16) bool { return true })
	a.mu.Unlock()
	deliver(delivered, request.Disconnected, nil, nil)
	a.disconnected()
	r.Await(t, request.Disconnected)
}
