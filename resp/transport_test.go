package resp

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// earSink notes its events and checks the order that sink promises.
type earSink struct {
	t         testing.TB
	tr        transport
	opened    atomic.Bool
	closed    atomic.Bool
	bytes     chan string
	wakes     chan struct{}
	done      chan error
	hearBytes func(string)
	hearWake  func()
}

func newEarSink(t testing.TB) *earSink {
	return &earSink{t: t, bytes: make(chan string, 1024), wakes: make(chan struct{}, 1024), done: make(chan error, 1)}
}

func (s *earSink) check(event string) {
	if !s.opened.Load() || s.closed.Load() {
		s.t.Errorf("%s outside of the connection's life", event)
	}
}

func (s *earSink) onOpen(t transport) {
	if s.opened.Swap(true) {
		s.t.Error("opened twice")
	}
	s.tr = t
}

func (s *earSink) onBytes(b []byte) {
	s.check("onBytes")
	if s.hearBytes != nil {
		s.hearBytes(string(b))
	}
	s.bytes <- string(b)
}

func (s *earSink) onWake() {
	s.check("onWake")
	if s.hearWake != nil {
		s.hearWake()
	}
	s.wakes <- struct{}{}
}

func (s *earSink) onClose(err error) {
	s.check("onClose")
	s.closed.Store(true)
	s.done <- err
}

func (w *world) adopted(s *earSink) (transport, net.Conn) {
	w.t.Helper()
	client, server := w.connect(nil)
	tr, err := w.loops.adopt(client, s)
	if err != nil {
		w.t.Fatal(err)
	}
	if tr != s.tr {
		w.t.Fatal("onOpen was given another transport than adopt returned")
	}
	return tr, server
}

func TestTransportCarriesBytesBothWays(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		s := newEarSink(t)
		s.hearWake = func() {
			if n, err := s.tr.write([]byte("hello")); n != 5 || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
		}
		tr, server := w.adopted(s)
		tr.wake()
		receive(t, s.wakes, "onWake")
		buf := make([]byte, 5)
		if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "hello" {
			t.Fatalf("the server read %q, %v", buf, err)
		}
		if got := tr.sent(); got != 5 {
			t.Errorf("sent is %d, want 5", got)
		}
		io.WriteString(server, "welcome")
		if got := receive(t, s.bytes, "onBytes"); got != "welcome" {
			t.Errorf("got %q", got)
		}
	})
}

func TestTransportTellsWhyItEnded(t *testing.T) {
	mine := errors.New("mine")
	for _, end := range []struct {
		name string
		end  func(tr transport, server net.Conn)
		want []error
	}{
		{"own close", func(tr transport, server net.Conn) { tr.close(mine); tr.close(io.ErrNoProgress) }, []error{mine}},
		{"server closes", func(tr transport, server net.Conn) { server.Close() }, []error{io.EOF}},
		{"server resets", func(tr transport, server net.Conn) {
			if c, ok := server.(*net.TCPConn); ok {
				c.SetLinger(0)
			}
			server.Close()
		}, []error{syscall.ECONNRESET, io.EOF /* unix, TLS */}},
		{"panic in onBytes", func(tr transport, server net.Conn) { io.WriteString(server, "panic") }, nil},
		{"panic in onWake", func(tr transport, server net.Conn) { tr.wake() }, nil},
	} {
		t.Run(end.name, func(t *testing.T) {
			eachCarrier(t, func(t *testing.T, w *world) {
				s := newEarSink(t)
				s.hearBytes = func(b string) { panic(b) }
				s.hearWake = func() { panic("panic") }
				tr, server := w.adopted(s)
				end.end(tr, server)
				err := receive(t, s.done, "onClose")
				ok := end.want == nil && strings.Contains(err.Error(), "panic")
				for _, want := range end.want {
					ok = ok || errors.Is(err, want)
				}
				if !ok {
					t.Errorf("ended with %v, want %v", err, end.want)
				}
				// All of these may come late.
				tr.close(io.ErrUnexpectedEOF)
				tr.wake()
				if n, _ := tr.tryWrite([]byte("x")); n != 0 {
					t.Error("a write after the end was taken")
				}
			})
		})
	}
}

// Bytes behind those that made the sink close must not be taken for an answer to
// anything.
func TestTransportDeliversNothingAfterClose(t *testing.T) {
	mine := errors.New("mine")
	eachCarrier(t, func(t *testing.T, w *world) {
		s := newEarSink(t)
		servers := make(chan net.Conn, 1)
		s.hearBytes = func(b string) {
			if b == "more" {
				t.Error("bytes were delivered after close")
			}
			s.tr.close(mine)
			if n, _ := s.tr.tryWrite([]byte("x")); n != 0 {
				t.Error("a write after close was taken")
			}
			s.tr.wake()
			io.WriteString(<-servers, "more") // may fail: the connection may be gone
		}
		s.hearWake = func() { t.Error("onWake after close") }
		_, server := w.adopted(s)
		servers <- server
		io.WriteString(server, "bad")
		if err := receive(t, s.done, "onClose"); err != mine {
			t.Errorf("ended with %v, want %v", err, mine)
		}
	})
}

func TestTransportEndsAtOnceWhenTheServerHasLeft(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		client, server := w.connect(nil)
		server.Close()
		s := newEarSink(t)
		if _, err := w.loops.adopt(client, s); err == nil {
			receive(t, s.done, "onClose")
		} else if s.opened.Load() {
			t.Errorf("adopt failed after onOpen: %v", err)
		}
	})
}

func TestLoopsCloseEndsEveryConnection(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		var sinks []*earSink
		for range 5 {
			s := newEarSink(t)
			w.adopted(s)
			sinks = append(sinks, s)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := w.loops.close(); err != nil {
					t.Error(err)
				}
				for _, s := range sinks {
					if !s.closed.Load() {
						t.Error("close returned before an onClose")
					}
				}
			})
		}
		all.Wait()
		for _, s := range sinks {
			if err := receive(t, s.done, "onClose"); err != ErrClosed {
				t.Errorf("ended with %v, want ErrClosed", err)
			}
		}
		client, _ := w.connect(nil)
		s := newEarSink(t)
		if _, err := w.loops.adopt(client, s); err != ErrClosed || s.opened.Load() {
			t.Errorf("adopt after close: %v, want ErrClosed and no event", err)
		}
		if _, err := client.Write([]byte("x")); err == nil {
			t.Error("adopt failed and left the connection open")
		}
	})
}

func TestTransportWritesNothingAfterItsEnd(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		var dead []transport
		for range 20 {
			s := newEarSink(t)
			tr, _ := w.adopted(s)
			tr.close(io.EOF)
			receive(t, s.done, "onClose")
			dead = append(dead, tr)
		}
		w.adopted(newEarSink(t)) // the loop has closed the descriptors before it comes to this
		var fresh []net.Conn
		for range 20 {
			client, server := w.connectPlain() // these have the numbers now
			fresh = append(fresh, client, server)
		}
		for _, tr := range dead {
			if n, _ := tr.tryWrite([]byte("x")); n != 0 {
				t.Error("a write after the end was taken")
			}
			tr.wake()
		}
		wantSilence(t, fresh)
	})
}

// wantSilence checks, with both ends of some connections, that nothing has been
// sent over them, and closes them.
func wantSilence(t *testing.T, conns []net.Conn) {
	t.Helper()
	for _, c := range conns {
		if c, ok := c.(interface{ CloseWrite() error }); ok {
			c.CloseWrite()
		}
	}
	for _, c := range conns {
		if b, _ := io.ReadAll(c); len(b) > 0 {
			t.Fatalf("a stranger's connection got %q", b)
		}
		c.Close()
	}
}

// A late write must not reach a descriptor that the kernel has given to another
// connection in the meantime. Each round ends a connection under the feet of
// writers, and opens new ones, which take over its number.
func TestTransportNeverWritesToAReusedDescriptor(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		for range 50 {
			l, server := w.attached(nil, nil)
			go echo(server)
			var writers sync.WaitGroup
			for range 4 {
				writers.Go(func() {
					for i := 0; ; i++ {
						c := newCall(i)
						l.submit(c)
						if c.await(t).Err != nil {
							return
						}
					}
				})
			}
			pollUntil(t, "traffic", func() bool { return l.counters().Commands > 20 })
			server.Close()
			var fresh []net.Conn
			for range 4 {
				client, server := w.connectPlain()
				fresh = append(fresh, client, server)
			}
			writers.Wait()
			wantSilence(t, fresh)
		}
	})
}

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
		client, _ := w.connect(nil)
		if err := l.attach(w.loops, deceptive{client}); err != nil {
			t.Fatal(err)
		}
		c := newCall(1)
		l.submit(c)
		if err := c.await(t).Err; !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	})
}
