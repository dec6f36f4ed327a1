package socket

import (
	"net"
	"runtime"
	"testing"

	"github.com/pawl-lock/pawl/internal/sockettest"
)

// undescribed is a connection of a custom dialer that does not show its socket.
type undescribed struct{ net.Conn }

// A reader that has no time is seen from outside: what it has not read lies in the
// socket, below TLS too.
func TestStdTransport_ReaderBehind_HasUnread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		carrier sockettest.Carrier
		dialled func(net.Conn) net.Conn
		blind   bool // it cannot tell
	}{
		{name: "tcp", carrier: sockettest.Carrier{Network: "tcp", ForceStd: true}},
		{name: "unix", carrier: sockettest.Carrier{Network: "unix", ForceStd: true}},
		{name: "tls", carrier: sockettest.Carrier{Network: "tcp", ForceStd: true, TLS: true}},
		{name: "a dialer's own, with a socket", carrier: sockettest.Carrier{Network: "tcp"},
			dialled: func(c net.Conn) net.Conn { return struct{ *net.TCPConn }{c.(*net.TCPConn)} }},
		{name: "a dialer's own", carrier: sockettest.Carrier{Network: "tcp"}, blind: true,
			dialled: func(c net.Conn) net.Conn { return undescribed{c} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !c.blind {
				needsPeek(t)
			}
			w := newWorld(t, c.carrier)
			client, server := w.Connect(nil)
			if c.dialled != nil {
				client = c.dialled(client)
			}
			s := newRecordingSink(t)
			b := s.stopAtOne()
			tr, err := w.loops.Adopt(client, s)
			if err != nil {
				t.Fatal(err)
			}
			// What TLS sends of itself after its handshake is read soon.
			sockettest.PollUntil(t, "nothing lies there", func() bool { return !tr.Unread() })
			b.check(t, tr, server, c.blind)
		})
	}
}

// needsPeek skips where no socket shows what lies in it.
func needsPeek(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("NOT TESTED HERE: on Windows no socket shows what lies in it")
	}
}
