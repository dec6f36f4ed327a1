package socket

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
)

// readBufferSize is what one read of a std transport takes at most; gnet's event
// loops read as much.
const readBufferSize = 64 << 10

// stdTransport is a transport over any net.Conn. A reader goroutine delivers the
// bytes, a writer goroutine runs OnWake; nothing is ever written elsewhere, since
// a net.Conn has no write that cannot block.
//
// Invariants:
//
//  1. OnClose runs on the reader, after the writer has ended: sent is final then.
//  2. The connection is closed exactly once, by the first close, which frees
//     both goroutines from whatever call they are in.
type stdTransport struct {
	conn    net.Conn
	sink    Sink
	tracker *tracker
	exact   bool            // a failed Write of conn tells truly how much it wrote
	socket  syscall.RawConn // where the bytes arrive; nil: unknown
	taken   atomic.Uint64
	wakes   chan struct{} // holds one token while an OnWake is pending
	writer  sync.WaitGroup

	ended chan struct{} // closed by the first close
	end   struct {
		sync.Once
		err error // written before ended is closed
	}
}

func adoptStd(c net.Conn, s Sink, k *tracker) (Transport, error) {
	t := &stdTransport{
		conn:    c,
		sink:    s,
		tracker: k,
		wakes:   make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	below := BelowTLS(c)
	switch below.(type) {
	case *net.TCPConn, *net.UnixConn:
		// Through TLS, too: a record that was written in part cannot be read by the server.
		t.exact = true
	}
	if s, ok := below.(syscall.Conn); ok {
		t.socket, _ = s.SyscallConn() // an error: it has ended already
	}
	if err := k.enter(t); err != nil {
		c.Close()
		return nil, err
	}
	guard(t, func() { s.OnOpen(t) })
	t.writer.Add(1)
	go pprof.Do(context.Background(), pprof.Labels("role", "resp writer"), t.writeLoop)
	go pprof.Do(context.Background(), pprof.Labels("role", "resp reader"), t.readLoop)
	return t, nil
}

// BelowTLS returns the connection that carries c.
func BelowTLS(c net.Conn) net.Conn {
	for {
		secure, ok := c.(*tls.Conn)
		if !ok {
			return c
		}
		c = secure.NetConn()
	}
}

func (t *stdTransport) readLoop(context.Context) {
	buf := make([]byte, readBufferSize)
	for {
		n, err := t.conn.Read(buf)
		// TLS may have bytes in store after the end.
		if n > 0 && !t.hasEnded() {
			guard(t, func() { t.sink.OnBytes(buf[:n]) })
		}
		if err != nil {
			t.Close(err)
			break
		}
	}
	t.writer.Wait()
	guard(t, func() { t.sink.OnClose(t.end.err) })
	t.tracker.leave(t)
}

func (t *stdTransport) writeLoop(context.Context) {
	defer t.writer.Done()
	for {
		select {
		case <-t.wakes:
			if !t.hasEnded() { // select takes either
				guard(t, t.sink.OnWake)
			}
		case <-t.ended:
			return
		}
	}
}

func (t *stdTransport) hasEnded() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

func (t *stdTransport) TryWrite([]byte) (int, error) { return 0, nil }

func (t *stdTransport) Write(b []byte) (int, error) {
	n, err := t.conn.Write(b)
	if err != nil && !t.exact {
		n = len(b) // who knows what lies under a custom dialer's connection
	}
	t.taken.Add(uint64(n))
	return n, err
}

func (t *stdTransport) Sent() uint64 { return t.taken.Load() }

func (t *stdTransport) Unread() (yes bool) {
	if t.socket != nil {
		// An error means that it has ended.
		_ = t.socket.Control(func(fd uintptr) { yes = hasUnread(int(fd)) })
	}
	return yes
}

func (t *stdTransport) Wake() {
	select {
	case t.wakes <- struct{}{}:
	default: // one is pending already
	}
}

func (t *stdTransport) Close(err error) {
	t.end.Do(func() {
		t.end.err = err
		close(t.ended)
		// tls.Conn.Close would wait for a last write of its own.
		BelowTLS(t.conn).Close()
	})
}

// guard runs an event of t's sink. A panic there is our bug; it costs the
// connection and not the process.
func guard(t Transport, event func()) {
	defer func() {
		if p := recover(); p != nil {
			t.Close(fmt.Errorf("resp: BUG: panic on a connection: %v", p))
		}
	}()
	event()
}
