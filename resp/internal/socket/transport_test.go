package socket

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
)

// recordingSink notes its events and checks the order that sink promises.
type recordingSink struct {
	t         testing.TB
	tr        Transport
	opened    atomic.Bool
	closed    atomic.Bool
	bytes     chan string
	wakes     chan struct{}
	done      chan error
	hearBytes func(string)
	hearWake  func()
}

func newRecordingSink(t testing.TB) *recordingSink {
	return &recordingSink{t: t, bytes: make(chan string, 1024), wakes: make(chan struct{}, 1024), done: make(chan error, 1)}
}

func (s *recordingSink) check(event string) {
	if !s.opened.Load() || s.closed.Load() {
		s.t.Errorf("%s outside of the connection's life", event)
	}
}

func (s *recordingSink) OnOpen(t Transport) {
	if s.opened.Swap(true) {
		s.t.Error("opened twice")
	}
	s.tr = t
}

func (s *recordingSink) OnBytes(b []byte) {
	s.check("OnBytes")
	if s.hearBytes != nil {
		s.hearBytes(string(b))
	}
	s.bytes <- string(b)
}

func (s *recordingSink) OnWake() {
	s.check("OnWake")
	if s.hearWake != nil {
		s.hearWake()
	}
	s.wakes <- struct{}{}
}

func (s *recordingSink) OnClose(err error) {
	s.check("OnClose")
	s.closed.Store(true)
	s.done <- err
}

func (w *world) adopted(s *recordingSink) (Transport, net.Conn) {
	w.t.Helper()
	client, server := w.Connect(nil)
	tr, err := w.loops.Adopt(client, s)
	if err != nil {
		w.t.Fatal(err)
	}
	if tr != s.tr {
		w.t.Fatal("OnOpen was given another transport than adopt returned")
	}
	return tr, server
}

func TestTransport_Bytes_GoBothWays(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		s := newRecordingSink(t)
		s.hearWake = func() {
			if n, err := s.tr.Write([]byte("hello")); n != 5 || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
		}
		tr, server := w.adopted(s)
		tr.Wake()
		sockettest.Receive(t, s.wakes, "OnWake")
		buf := make([]byte, 5)
		if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "hello" {
			t.Fatalf("the server read %q, %v", buf, err)
		}
		if got := tr.Sent(); got != 5 {
			t.Errorf("sent is %d, want 5", got)
		}
		io.WriteString(server, "welcome")
		if got := sockettest.Receive(t, s.bytes, "OnBytes"); got != "welcome" {
			t.Errorf("got %q", got)
		}
	})
}

func TestTransport_End_HasItsCause(t *testing.T) {
	mine := errors.New("mine")
	for _, end := range []struct {
		name string
		end  func(tr Transport, server net.Conn)
		want []error
	}{
		{"own close", func(tr Transport, server net.Conn) { tr.Close(mine); tr.Close(io.ErrNoProgress) }, []error{mine}},
		{"server closes", func(tr Transport, server net.Conn) { server.Close() }, []error{io.EOF}},
		{"server resets", func(tr Transport, server net.Conn) {
			if c, ok := server.(*net.TCPConn); ok {
				c.SetLinger(0)
			}
			server.Close()
		}, []error{syscall.ECONNRESET, io.EOF /* unix, TLS */}},
		{"panic in OnBytes", func(tr Transport, server net.Conn) { io.WriteString(server, "panic") }, nil},
		{"panic in OnWake", func(tr Transport, server net.Conn) { tr.Wake() }, nil},
	} {
		t.Run(end.name, func(t *testing.T) {
			eachCarrier(t, func(t *testing.T, w *world) {
				s := newRecordingSink(t)
				s.hearBytes = func(b string) { panic(b) }
				s.hearWake = func() { panic("panic") }
				tr, server := w.adopted(s)
				end.end(tr, server)
				err := sockettest.Receive(t, s.done, "OnClose")
				ok := end.want == nil && strings.Contains(err.Error(), "panic")
				for _, want := range end.want {
					ok = ok || errors.Is(err, want)
				}
				if !ok {
					t.Errorf("ended with %v, want %v", err, end.want)
				}
				// All of these may come late.
				tr.Close(io.ErrUnexpectedEOF)
				tr.Wake()
				if n, _ := tr.TryWrite([]byte("x")); n != 0 {
					t.Error("a write after the end was taken")
				}
			})
		})
	}
}

// Bytes behind those that made the sink close must not be taken for an answer to
// anything.
func TestTransport_Closed_DeliversNothing(t *testing.T) {
	mine := errors.New("mine")
	eachCarrier(t, func(t *testing.T, w *world) {
		s := newRecordingSink(t)
		servers := make(chan net.Conn, 1)
		s.hearBytes = func(b string) {
			if b == "more" {
				t.Error("bytes were delivered after close")
			}
			s.tr.Close(mine)
			if n, _ := s.tr.TryWrite([]byte("x")); n != 0 {
				t.Error("a write after close was taken")
			}
			s.tr.Wake()
			io.WriteString(<-servers, "more") // may fail: the connection may be gone
		}
		s.hearWake = func() { t.Error("OnWake after close") }
		_, server := w.adopted(s)
		servers <- server
		io.WriteString(server, "bad")
		if err := sockettest.Receive(t, s.done, "OnClose"); err != mine {
			t.Errorf("ended with %v, want %v", err, mine)
		}
	})
}

func TestTransport_ServerHasLeft_EndsAtOnce(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		client, server := w.Connect(nil)
		server.Close()
		s := newRecordingSink(t)
		if _, err := w.loops.Adopt(client, s); err == nil {
			sockettest.Receive(t, s.done, "OnClose")
		} else if s.opened.Load() {
			t.Errorf("adopt failed after OnOpen: %v", err)
		}
	})
}

func TestLoops_Close_EndsEveryConnection(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		var sinks []*recordingSink
		for range 5 {
			s := newRecordingSink(t)
			w.adopted(s)
			sinks = append(sinks, s)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := w.loops.Close(); err != nil {
					t.Error(err)
				}
				for _, s := range sinks {
					if !s.closed.Load() {
						t.Error("close returned before an OnClose")
					}
				}
			})
		}
		all.Wait()
		for _, s := range sinks {
			if err := sockettest.Receive(t, s.done, "OnClose"); err != request.ErrClosed {
				t.Errorf("ended with %v, want ErrClosed", err)
			}
		}
		client, _ := w.Connect(nil)
		s := newRecordingSink(t)
		if _, err := w.loops.Adopt(client, s); err != request.ErrClosed || s.opened.Load() {
			t.Errorf("adopt after close: %v, want ErrClosed and no event", err)
		}
		if _, err := client.Write([]byte("x")); err == nil {
			t.Error("adopt failed and left the connection open")
		}
	})
}

func TestTransport_Ended_WritesNothing(t *testing.T) {
	eachCarrier(t, func(t *testing.T, w *world) {
		var dead []Transport
		for range 20 {
			s := newRecordingSink(t)
			tr, _ := w.adopted(s)
			tr.Close(io.EOF)
			sockettest.Receive(t, s.done, "OnClose")
			dead = append(dead, tr)
		}
		w.adopted(newRecordingSink(t)) // the loop has closed the descriptors before it comes to this
		var fresh []net.Conn
		for range 20 {
			client, server := w.ConnectPlain() // these have the numbers now
			fresh = append(fresh, client, server)
		}
		for _, tr := range dead {
			if n, _ := tr.TryWrite([]byte("x")); n != 0 {
				t.Error("a write after the end was taken")
			}
			tr.Wake()
		}
		sockettest.WantSilence(t, fresh)
	})
}

// behind is a sink that stops in its first bytes, "one", until it is released.
type behind struct {
	sink             *recordingSink
	entered, release chan struct{}
}

// stopAtOne makes one of s, which has not been adopted yet.
func (s *recordingSink) stopAtOne() *behind {
	b := &behind{s, make(chan struct{}), make(chan struct{})}
	s.hearBytes = func(got string) {
		if got == "one" {
			close(b.entered)
			<-b.release
		}
	}
	return b
}

// check checks what Unread says while the sink is behind. A blind transport always says no.
func (b *behind) check(t *testing.T, tr Transport, server net.Conn, blind bool) {
	t.Helper()
	io.WriteString(server, "one")
	sockettest.Receive(t, b.entered, "OnBytes")
	if tr.Unread() {
		t.Error("what OnBytes has been given counts as unread")
	}
	io.WriteString(server, "two")
	if !blind {
		sockettest.PollUntil(t, "the bytes behind it are seen", tr.Unread)
	} else if tr.Unread() {
		t.Error("bytes are seen where nobody can know")
	}
	close(b.release)
	sockettest.Receive(t, b.sink.bytes, "the first bytes")
	sockettest.Receive(t, b.sink.bytes, "the others")
	if tr.Unread() {
		t.Error("bytes that were read count as unread")
	}
	tr.Close(io.EOF)
	sockettest.Receive(t, b.sink.done, "OnClose")
	if tr.Unread() {
		t.Error("bytes after the end")
	}
}
