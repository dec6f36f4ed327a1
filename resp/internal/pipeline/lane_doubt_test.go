package pipeline

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/requesttest"
)

// deceptive is a connection of a custom dialer: its Write sends, and says it
// did not.
type deceptive struct{ net.Conn }

func (c deceptive) Write(b []byte) (int, error) {
	c.Conn.Write(b)
	return 0, io.ErrShortWrite
}

func TestTransportDoubtsAFailedWriteOfAnUnknownConnection(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		l := w.newLane(nil)
		client, _ := w.Connect(nil)
		if err := l.Attach(w.loops, deceptive{client}); err != nil {
			t.Fatal(err)
		}
		c := requesttest.NewCall(1)
		l.Submit(c)
		if err := c.Await(t).Err; !errors.Is(err, request.ErrOutcomeUnknown) || !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	})
}

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
	w := newWorld(t, sockettest.Carrier{Network: "tcp"})
	client, server := w.ConnectPlain()
	below := &treacherous{Conn: client}
	front := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{sockettest.Certificate()}})
	got := make(chan []string, 1)
	go sockettest.ReadCommands(front, func(words []string) bool { got <- words; return false })
	secure := tls.Client(below, &tls.Config{InsecureSkipVerify: true})
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	l := w.newLane(nil)
	if err := l.Attach(w.loops, secure); err != nil {
		t.Fatal(err)
	}
	below.turned.Store(true)
	c := requesttest.NewCall(1)
	l.Submit(c)
	if err := c.Await(t).Err; !errors.Is(err, request.ErrOutcomeUnknown) || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v, want an unknown outcome: the server received %q", err, sockettest.Receive(t, got, "the command"))
	}
}

// Below TLS is a connection of the operating system: a command that it took in part
// was not sent, for nobody can read half a record.
func TestTransportKnowsWhatTLSDidNotSend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sockettest.Carrier{Network: "tcp", TLS: true})
	l, server := w.attached(nil, nil)
	c := requesttest.NewCall(1)
	c.Pad = strings.Repeat("x", 16<<20) // more than the kernel takes while nobody reads
	l.Submit(c)
	sockettest.PollUntil(t, "the kernel is full", func() bool { return l.Counters().InFlight == 1 })
	server.(*tls.Conn).NetConn().Close()
	if err := c.Await(t).Err; !errors.Is(err, request.ErrNotSent) {
		t.Errorf("got %v, want not sent", err)
	}
}

// A late write must not reach a descriptor that the kernel has given to another
// connection in the meantime. Each round ends a connection under the feet of
// writers, and opens new ones, which take over its number.
func TestTransportNeverWritesToAReusedDescriptor(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		for range 50 {
			l, server := w.attached(nil, nil)
			go sockettest.Echo(server)
			var writers sync.WaitGroup
			for range 4 {
				writers.Go(func() {
					for i := 0; ; i++ {
						c := requesttest.NewCall(i)
						l.Submit(c)
						if c.Await(t).Err != nil {
							return
						}
					}
				})
			}
			sockettest.PollUntil(t, "traffic", func() bool { return l.Counters().Commands > 20 })
			server.Close()
			var fresh []net.Conn
			for range 4 {
				client, server := w.ConnectPlain()
				fresh = append(fresh, client, server)
			}
			writers.Wait()
			sockettest.WantSilence(t, fresh)
		}
	})
}
