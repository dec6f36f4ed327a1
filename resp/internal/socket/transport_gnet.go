//go:build (linux || darwin || freebsd) && !pawl_nognet

package socket

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/pawl-lock/pawl/resp/internal/request"
)

// gnetTransport is a transport on one of gnet's event loops. Its events run on
// the loop; TryWrite writes the descriptor on the goroutine of the caller.
//
// Invariants:
//
//  1. The descriptor is used under mu and not after mu.closed. OnClose sets
//     closed under mu before gnet closes the descriptor, so no write and no wake
//     reaches a descriptor that the kernel has given to somebody else.
//  2. While gnet's outbound buffer holds bytes (backlog), nothing else is
//     written, so bytes keep their order and the buffer holds the rest of one
//     write at most.
//  3. gnet calls OnClose inside a failing Write; sink gets it after its event.
//  4. gnet's Close is a task that the loop comes to later. Between, bytes may
//     arrive; ending keeps them from the sink.
type gnetTransport struct {
	sink    Sink
	tracker *tracker

	mu struct {
		sync.Mutex
		conn   gnet.Conn // set by OnOpen
		closed bool
		cause  error // of the first close
	}
	taken   atomic.Uint64
	backlog atomic.Bool
	ending  atomic.Bool // close has been called

	// Of the loop.
	busy  bool // an event of the sink is running
	ended bool // OnClose came while busy: the sink gets it afterwards
}

func (t *gnetTransport) TryWrite(b []byte) (int, error) {
	if t.backlog.Load() {
		return 0, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed || t.mu.cause != nil {
		return 0, net.ErrClosed
	}
	for {
		n, err := unix.Write(t.mu.conn.Fd(), b)
		switch err {
		case nil:
			t.taken.Add(uint64(n))
			return n, nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, nil
		default:
			return 0, err
		}
	}
}

// Write runs on the loop, where nobody can close the descriptor meanwhile.
func (t *gnetTransport) Write(b []byte) (int, error) {
	n, err := t.TryWrite(b)
	if n == len(b) || err != nil || t.backlog.Load() {
		return n, err
	}
	// Counted first: gnet buffers what the kernel does not take and may send it
	// even while it closes.
	rest := b[n:]
	t.taken.Add(uint64(len(rest)))
	conn := t.mu.conn
	if _, err := conn.Write(rest); err != nil {
		return n, err
	}
	t.backlog.Store(conn.OutboundBuffered() > 0)
	return len(b), nil
}

func (t *gnetTransport) Sent() uint64 { return t.taken.Load() }

func (t *gnetTransport) Unread() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed || t.mu.conn == nil {
		return false
	}
	return hasUnread(t.mu.conn.Fd())
}

func (t *gnetTransport) Wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.closed {
		// It fails when the loop's own descriptor does, and then all is lost.
		_ = t.mu.conn.Wake(nil)
	}
}

func (t *gnetTransport) Close(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.cause != nil || t.mu.closed {
		return
	}
	t.mu.cause = err
	t.ending.Store(true)
	if t.mu.conn != nil { // else OnOpen sees to it
		_ = t.mu.conn.Close() // as in wake
	}
}

// isOpen reports whether OnOpen has run.
func (t *gnetTransport) isOpen() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.conn != nil
}

// giveUp makes a later OnOpen refuse the connection; false if it has run.
func (t *gnetTransport) giveUp() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.conn != nil {
		return false
	}
	t.mu.closed = true
	return true
}

// OnOpen runs on the loop, as do the other events.
func (*reactor) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	t := c.Context().(*gnetTransport)
	t.mu.Lock()
	if t.mu.closed {
		t.mu.Unlock()
		return nil, gnet.Close
	}
	t.mu.conn = c
	ended := t.mu.cause != nil // by loops.close
	t.mu.Unlock()
	t.run(func() { t.sink.OnOpen(t) })
	if ended {
		return nil, gnet.Close
	}
	return nil, gnet.None
}

// OnTraffic is called for bytes that arrived and for a wake, never for both: it
// leaves no byte behind, for gnet would copy what is left, again at each call.
func (*reactor) OnTraffic(c gnet.Conn) gnet.Action {
	t := c.Context().(*gnetTransport)
	if t.backlog.Load() && c.OutboundBuffered() == 0 {
		t.backlog.Store(false)
	}
	switch b, _ := c.Next(-1); {
	case t.ending.Load():
	case len(b) > 0:
		t.run(func() { t.sink.OnBytes(b) })
	default:
		t.run(t.sink.OnWake)
	}
	return gnet.None
}

// OnClose runs before gnet closes the descriptor.
func (*reactor) OnClose(c gnet.Conn, err error) gnet.Action {
	t := c.Context().(*gnetTransport)
	t.mu.Lock()
	t.mu.closed = true
	if t.mu.cause == nil {
		t.mu.cause = err
	}
	if t.mu.cause == nil {
		t.mu.cause = request.ErrClosed // gnet itself is stopping
	}
	opened := t.mu.conn != nil
	t.mu.Unlock()
	switch {
	case !opened: // given up, and the sink has got nothing
	case t.busy:
		t.ended = true
	default:
		t.finish()
	}
	return gnet.None
}

// run runs an event of the sink, and after it the end of the connection, if that
// came meanwhile.
func (t *gnetTransport) run(event func()) {
	t.busy = true
	guard(t, event)
	t.busy = false
	if t.ended {
		t.ended = false
		t.finish()
	}
}

func (t *gnetTransport) finish() {
	guard(t, func() { t.sink.OnClose(t.mu.cause) }) // closed: cause changes no more
	t.tracker.leave(t)
}
