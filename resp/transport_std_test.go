package resp

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// treacherous is a connection of a custom dialer that becomes deceptive.
type treacherous struct {
	net.Conn
	turned atomic.Bool
}

func (c *treacherous) Write(b []byte) (int, error) {
	if c.turned.Load() {
		return deceptive{c.Conn}.Write(b)
	}
	return c.Conn.Write(b)
}

// TLS tells how much of a command it gave to the connection below. What that one did
// with it, nobody knows, unless it is the operating system's.
func TestTransportDoubtsAFailedWriteOfTLSOverAnUnknownConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, carrier{network: "tcp"})
	client, server := w.connectPlain()
	below := &treacherous{Conn: client}
	front := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{testCertificate()}})
	got := make(chan []string, 1)
	go readCommands(front, func(words []string) bool { got <- words; return false })
	secure := tls.Client(below, &tls.Config{InsecureSkipVerify: true})
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	l := w.newLane(nil)
	if err := l.attach(w.loops, secure); err != nil {
		t.Fatal(err)
	}
	below.turned.Store(true)
	c := newCall(1)
	l.submit(c)
	if err := c.await(t).Err; !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v, want an unknown outcome: the server received %q", err, receive(t, got, "the command"))
	}
}

// undescribed is a connection of a custom dialer that does not show its socket.
type undescribed struct{ net.Conn }

// A reader that has no time is seen from outside: what it has not read lies in the
// socket, below TLS too.
func TestStdTransportKnowsThatItsReaderIsBehind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		carrier carrier
		dialled func(net.Conn) net.Conn
		blind   bool // it cannot tell
	}{
		{name: "tcp", carrier: carrier{network: "tcp", forceStd: true}},
		{name: "unix", carrier: carrier{network: "unix", forceStd: true}},
		{name: "tls", carrier: carrier{network: "tcp", forceStd: true, tls: true}},
		{name: "a dialer's own, with a socket", carrier: carrier{network: "tcp"},
			dialled: func(c net.Conn) net.Conn { return struct{ *net.TCPConn }{c.(*net.TCPConn)} }},
		{name: "a dialer's own", carrier: carrier{network: "tcp"}, blind: true,
			dialled: func(c net.Conn) net.Conn { return undescribed{c} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !c.blind {
				needsPeek(t)
			}
			w := newWorld(t, c.carrier)
			client, server := w.connect(nil)
			if c.dialled != nil {
				client = c.dialled(client)
			}
			s := newEarSink(t)
			entered, release := make(chan struct{}), make(chan struct{})
			s.hearBytes = func(b string) {
				if b == "one" {
					close(entered)
					<-release
				}
			}
			tr, err := w.loops.adopt(client, s)
			if err != nil {
				t.Fatal(err)
			}
			// What TLS sends of itself after its handshake is read soon.
			eventually(t, "nothing lies there", func() bool { return !tr.unread() })
			io.WriteString(server, "one")
			receive(t, entered, "onBytes")
			if tr.unread() {
				t.Error("what onBytes has been given counts as unread")
			}
			io.WriteString(server, "two")
			if !c.blind {
				eventually(t, "the bytes behind it are seen", tr.unread)
			} else if tr.unread() {
				t.Error("bytes are seen where nobody can know")
			}
			close(release)
			receive(t, s.bytes, "the first bytes")
			receive(t, s.bytes, "the others")
			if tr.unread() {
				t.Error("bytes that were read count as unread")
			}
			tr.close(io.EOF)
			receive(t, s.done, "onClose")
			if tr.unread() {
				t.Error("bytes after the end")
			}
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

// Below TLS is a connection of the operating system: a command that it took in part
// was not sent, for nobody can read half a record.
func TestTransportKnowsWhatTLSDidNotSend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, carrier{network: "tcp", tls: true})
	l, server := w.attached(nil, nil)
	c := newCall(1)
	c.pad = strings.Repeat("x", 16<<20) // more than the kernel takes while nobody reads
	l.submit(c)
	pollUntil(t, "the kernel is full", func() bool { return l.counters().InFlight == 1 })
	server.(*tls.Conn).NetConn().Close()
	if err := c.await(t).Err; !errors.Is(err, ErrNotSent) {
		t.Errorf("got %v, want not sent", err)
	}
}
