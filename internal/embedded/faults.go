package embedded

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// faults are what goes wrong on the way to a server that is up. They concern the commands of
// locks only, which are scripts: a client that connects is served as always.
type faults struct {
	delay   atomic.Int64 // of each reply
	drops   atomic.Int64 // how many replies are still to be lost
	refusal atomic.Pointer[string]
	late    sync.WaitGroup // replies that are delayed
}

// Delay has each reply, and each message, arrive so much later. Several may be under way.
func (s *Server) Delay(d time.Duration) { s.faults.delay.Store(int64(d)) }

// DropReplies has the next n scripts executed, and the connection cut in place of their replies.
func (s *Server) DropReplies(n int) { s.faults.drops.Store(int64(n)) }

// Refuse has every script refused with that error, "READONLY ..." say, and not executed; with an
// empty one no more.
func (s *Server) Refuse(text string) {
	if text == "" {
		s.faults.refusal.Store(nil)
		return
	}
	s.faults.refusal.Store(&text)
}

// lostMark begins a reply that is to be lost. The server writes a reply at once; see conn.
const lostMark = "embedded: this reply is lost"

var lostReply = []byte("+" + lostMark + "\r\n")

// meet is asked before each command. It returns what answers it, nil if it is to be executed.
func (f *faults) meet(c *server.Peer, cmd string) (answer func()) {
	if cmd != "EVAL" && cmd != "EVALSHA" {
		return nil
	}
	if text := f.refusal.Load(); text != nil {
		return func() { c.WriteError(*text) }
	}
	for n := f.drops.Load(); n > 0; n = f.drops.Load() {
		if f.drops.CompareAndSwap(n, n-1) {
			c.WriteInline(lostMark)
			break
		}
	}
	return nil
}

// slow is the half of a connection that writes. Invariants, under mu:
//
//  1. While there are replies in late, a goroutine writes them in order, each when it is due.
//  2. Nothing is written past them.
type slow struct {
	net.Conn
	faults *faults
	mu     sync.Mutex
	late   []lateReply
	closed chan struct{}
	once   sync.Once
}

type lateReply struct {
	due   time.Time
	reply []byte
}

func newSlow(c net.Conn, f *faults) *slow {
	return &slow{Conn: c, faults: f, closed: make(chan struct{})}
}

func (c *slow) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *slow) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, lostReply) {
		c.Close()
		return 0, net.ErrClosed
	}
	d := time.Duration(c.faults.delay.Load())
	c.mu.Lock()
	defer c.mu.Unlock()
	if d == 0 && len(c.late) == 0 {
		return c.writeNow(b)
	}
	c.late = append(c.late, lateReply{time.Now().Add(d), slices.Clone(b)})
	if len(c.late) == 1 {
		c.faults.late.Go(c.writeLate)
	}
	return len(b), nil
}

// writeLate writes what is delayed, until there is nothing.
func (c *slow) writeLate() {
	for {
		c.mu.Lock()
		if len(c.late) == 0 {
			c.mu.Unlock()
			return
		}
		next := c.late[0]
		c.mu.Unlock()
		timer := time.NewTimer(time.Until(next.due))
		select {
		case <-timer.C:
		case <-c.closed:
			timer.Stop()
			return
		}
		_, _ = c.writeNow(next.reply)
		c.mu.Lock()
		c.late = c.late[1:]
		c.mu.Unlock()
	}
}

func (c *slow) writeNow(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
