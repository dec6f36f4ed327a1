package pubsub

import (
	"testing"

	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
	"github.com/pawl-lock/pawl/resp/wire"
)

// FuzzPubSubBytes feeds a pub/sub connection with commands in flight whatever
// the network may bring. It must not panic, and must not believe what it has not
// asked for.
func FuzzPubSubBytes(f *testing.F) {
	f.Add([]byte("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"))
	f.Add([]byte("*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n"))
	f.Add([]byte("-NOPERM no\r\n-NOPERM no\r\n-NOPERM no\r\n"))
	f.Add([]byte("-BUSY no\r\n+PONG\r\n"))
	f.Add(wire.AppendCommand(nil, "message", "a", "hi"))
	f.Add([]byte("*2\r\n$4\r\npong\r\n$0\r\n\r\n"))
	f.Add([]byte("*3\r\n*1\r\n:1\r\n$-1\r\n*-1\r\n"))
	f.Add(wire.AppendCommand(nil, "subscribe", "a"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var all requesttest.EventCounter
		s := newSubs()
		tr := new(meagreTransport)
		c := newSubConn(s, tr, func(error) {})
		a, b := NewChannel("a", &all), NewChannel("b", &all)
		s.subscribe(a)
		s.subscribe(b)
		c.OnWake()
		for i := range in { // byte by byte, the hardest way to cut it
			c.OnBytes(in[i : i+1])
			c.OnWake()
			if len(tr.closed) > 0 {
				break
			}
		}
		if n := all.Count(request.Subscribed); n > 2 || n == 0 && all.Count(request.Message) > 0 {
			t.Fatalf("%d confirmations, %d messages", n, all.Count(request.Message))
		}
		delivered := all.Count(request.Subscribed)
		c.OnClose(wire.ErrProtocol)
		if all.Count(request.Disconnected) != delivered {
			t.Fatalf("%d were Subscribed, %d Disconnected", delivered, all.Count(request.Disconnected))
		}
	})
}
