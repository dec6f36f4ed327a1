//go:build (linux || darwin || freebsd) && !pawl_nognet

package socket

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/request"
)

var gnetTCP = sockettest.Carrier{Name: "gnet-tcp", Network: "tcp"}

// gnet calls OnClose inside a Write that fails.
func TestGnetTransport_EndsDuringAnEvent_OnCloseFollowsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gnetTCP)
	s := newRecordingSink(t)
	s.hearWake = func() {
		conn := s.tr.(*gnetTransport).mu.conn
		conn.EventLoop().Close(conn)
		if s.closed.Load() {
			t.Error("OnClose inside of OnWake")
		}
		if n, err := s.tr.Write([]byte("x")); n != 0 || err == nil {
			t.Errorf("write after the end: %d, %v", n, err)
		}
	}
	tr, _ := w.adopted(s)
	tr.Wake()
	sockettest.Receive(t, s.done, "OnClose")
}

// Urgent data that nobody reads would have the loop look for it without a pause.
func TestGnetTransport_UrgentData_IsData(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gnetTCP)
	s := newRecordingSink(t)
	_, server := w.adopted(s)
	socket, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = socket.Control(func(fd uintptr) {
		if err := unix.Sendto(int(fd), []byte("!"), unix.MSG_OOB, nil); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if b := sockettest.Receive(t, s.bytes, "the urgent byte"); b != "!" {
		t.Errorf("%q instead", b)
	}
}

func TestGnetTransport_LoopBehind_HasUnread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gnetTCP)
	s := newRecordingSink(t)
	b := s.stopAtOne()
	tr, server := w.adopted(s)
	if tr.Unread() {
		t.Error("bytes before any were sent")
	}
	b.check(t, tr, server, false)
}

// A loop that does not answer costs the connection that it was to open. The next ones
// do without it: a machine that was busy for too long must not cost the client.
func TestLoops_LoopDoesNotAnswer_IsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gnetTCP)
	s := newRecordingSink(t)
	entered, release := make(chan struct{}), make(chan struct{})
	s.hearBytes = func(string) {
		close(entered)
		<-release
	}
	_, server := w.adopted(s)
	io.WriteString(server, "x")
	sockettest.Receive(t, entered, "OnBytes")

	w.loops.limit = 20 * time.Millisecond
	late := newRecordingSink(t)
	client, lateServer := w.Connect(nil)
	if _, err := w.loops.Adopt(client, late); err != errStuck {
		t.Errorf("adopt by a stuck loop: %v, want errStuck", err)
	}
	next := newRecordingSink(t)
	client, nextServer := w.Connect(nil)
	if _, err := w.loops.Adopt(client, next); err != nil {
		t.Fatalf("the next adopt: %v", err)
	}
	io.WriteString(nextServer, "y")
	if got := sockettest.Receive(t, next.bytes, "OnBytes of the next"); got != "y" {
		t.Errorf("the next connection got %q", got)
	}
	if err := w.loops.Close(); err != errStuck {
		t.Errorf("close of a stuck loop: %v, want errStuck", err)
	}

	close(release)
	w.loops.limit = stopTimeout
	sockettest.Receive(t, s.done, "OnClose")
	if b, err := io.ReadAll(lateServer); len(b) > 0 || err != nil {
		t.Errorf("the connection that came too late: read %q, %v, want its end", b, err)
	}
	if late.opened.Load() {
		t.Error("a sink got a connection that adopt had refused")
	}
}

func TestLoops_CloseDuringAdopt_EndsTheConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gnetTCP)
	busy := newRecordingSink(t)
	entered, release := make(chan struct{}), make(chan struct{})
	busy.hearBytes = func(string) {
		close(entered)
		<-release
	}
	_, server := w.adopted(busy)
	io.WriteString(server, "x")
	sockettest.Receive(t, entered, "OnBytes")

	late := newRecordingSink(t)
	client, _ := w.Connect(nil)
	adopted, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := w.loops.Adopt(client, late)
		adopted <- err
	}()
	live := func() int {
		w.loops.mu.Lock()
		defer w.loops.mu.Unlock()
		return len(w.loops.mu.live)
	}
	sockettest.PollUntil(t, "adopt to have begun", func() bool { return live() == 2 })
	go func() { closed <- w.loops.Close() }()
	sockettest.PollUntil(t, "close to have begun", func() bool {
		w.loops.mu.Lock()
		defer w.loops.mu.Unlock()
		return w.loops.mu.closed
	})
	close(release)
	if err := sockettest.Receive(t, adopted, "adopt"); err != nil {
		t.Errorf("adopt: %v", err)
	}
	if err := sockettest.Receive(t, closed, "close"); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := sockettest.Receive(t, late.done, "OnClose"); err != request.ErrClosed {
		t.Errorf("ended with %v, want ErrClosed", err)
	}
}

// With a zone, gnet would put a string of Go's net package into a pool of
// writable bytes.
func TestReactor_ZonesAndWrappedConnections_AreNotTaken(t *testing.T) {
	t.Parallel()
	r := new(reactor)
	for _, network := range []string{"tcp", "unix"} {
		w := newWorld(t, sockettest.Carrier{Network: network})
		client, _ := w.ConnectPlain()
		t.Cleanup(func() { client.Close() })
		if !r.takes(client) {
			t.Errorf("a plain %s connection is refused", network)
		}
		if r.takes(struct{ net.Conn }{client}) {
			t.Errorf("a wrapped %s connection is taken", network)
		}
	}
	zoned := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[fe80::1%eth0]:1"))
	plain := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[fe80::2]:1"))
	if hasZone(plain) || !hasZone(zoned) {
		t.Error("zones are not seen")
	}
}

func TestLoops_FirstConnectionThatNeedsThem_StartsThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sockettest.Carrier{Network: "tcp"})
	near, far := net.Pipe()
	t.Cleanup(func() { far.Close() })
	if _, err := w.loops.Adopt(near, newRecordingSink(t)); err != nil {
		t.Fatal(err)
	}
	if w.loops.start.reactor != nil {
		t.Error("event loops run for a pipe that they cannot serve")
	}
	client, _ := w.ConnectPlain()
	if _, err := w.loops.Adopt(client, newRecordingSink(t)); err != nil {
		t.Fatal(err)
	}
	if w.loops.start.reactor == nil {
		t.Error("no event loops run for a TCP connection")
	}
}
