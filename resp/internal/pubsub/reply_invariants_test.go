//go:build pawl_invariants

package pubsub

import (
	"bytes"
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/request"
)

// keeper is a ChannelHandler that keeps what it was lent.
type keeper struct{ kept []byte }

func (k *keeper) ChannelEvent(ev request.ChannelEvent, payload []byte, _ error) {
	if ev == request.Message {
		k.kept = payload
	}
}

func (k *keeper) wantsPoison(t *testing.T) {
	t.Helper()
	if len(k.kept) == 0 || !bytes.Equal(k.kept, bytes.Repeat([]byte{0xDB}, len(k.kept))) {
		t.Errorf("bytes kept too long are %q, want poison", k.kept)
	}
}

func TestSubs_BorrowedPayload_IsPoisonedAfterwards(t *testing.T) {
	t.Parallel()
	var k keeper
	subs := newSubs()
	mt := &meagreTransport{}
	c := newSubConn(subs, mt, nil)
	subs.subscribe(NewChannel("c", &k))
	c.OnWake()
	c.OnBytes([]byte("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n"))
	k.wantsPoison(t)
}
