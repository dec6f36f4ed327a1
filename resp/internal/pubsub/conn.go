package pubsub

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/invariants"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

// keepSubBuffer is the size up to which an emptied buffer is kept.
const keepSubBuffer = 64 << 10

// Endpoint is the endpoint of a node's subscriptions: subs and its connections.
type Endpoint struct {
	subs    *subs
	clock   clock.Clock
	timeout time.Duration
	down    func(error) // called when an attached connection has ended
	refused func(error) // called when a server refuses channels, and not only for now; once a connection

	bytesIn, bytesOut atomic.Uint64
	current           atomic.Pointer[subConn] // between its OnOpen and its OnClose
	lost              atomic.Pointer[error]   // why the latest connection ended
	closed            atomic.Pointer[error]   // the argument of Close
}

// Counters count bytes and messages from the endpoint's birth, and channels as they are now.
type Counters struct {
	BytesIn, BytesOut, Messages uint64
	Channels, Confirmed         int
}

// Counters returns them as of now.
func (p *Endpoint) Counters() Counters {
	c := Counters{BytesIn: p.bytesIn.Load(), BytesOut: p.bytesOut.Load()}
	c.Channels, c.Confirmed, c.Messages = p.subs.counts()
	return c
}

// Err returns why it has no connection, nil if it has one.
func (p *Endpoint) Err() error {
	if p.current.Load() != nil {
		return nil
	}
	if lost := p.lost.Load(); lost != nil {
		return *lost
	}
	return request.ErrDown
}

// Attach takes over a connection after its handshake. An error means that down is not called for it.
func (p *Endpoint) Attach(ls *socket.Loops, conn net.Conn) error {
	c := &subConn{endpoint: p, subs: p.subs, conn: p.subs.connected()}
	_, err := ls.Adopt(conn, c)
	if err != nil {
		p.subs.disconnected()
	}
	return err
}

// wake has what subs wants written. Without a connection there is nothing to do, because
// the next one begins with a flush.
func (p *Endpoint) wake() {
	if c := p.current.Load(); c != nil {
		c.transport.Wake()
	}
}

// CheckAge has a silent connection pinged or, if an answer is late, closed. It reports refusals, which
// may run code of the user: so it is not called on an event loop.
func (p *Endpoint) CheckAge(now clock.Instant) {
	c := p.current.Load()
	if c == nil {
		return
	}
	if e := p.subs.complaint(); e != nil {
		p.refused(e)
	}
	lastRead := c.lastRead.Load()
	wake, late := p.subs.tick(now, clock.Instant(lastRead), p.timeout)
	// In this order: bytes go from the socket to OnBytes, and then lastRead moves on.
	if late && !c.transport.Unread() && !c.reading.Load() && c.lastRead.Load() == lastRead {
		c.transport.Close(fmt.Errorf("%w (%v)", request.ErrTimeout, p.timeout))
	} else if wake {
		c.transport.Wake()
	}
}

// Close ends the connection, if there is one, and every later one at birth. The later of
// Close and OnOpen finds the other.
func (p *Endpoint) Close(err error) {
	p.closed.CompareAndSwap(nil, &err)
	p.Leave(err)
}

// Leave ends the present connection, if there is one; the next is made. Nothing is in flight
// whose outcome counts.
func (p *Endpoint) Leave(err error) {
	if c := p.current.Load(); c != nil {
		c.transport.Close(err)
	}
}

// subConn is one connection of an Endpoint: the sink that passes bytes between the transport
// and the state machine. It lives from Adopt to OnClose.
type subConn struct {
	endpoint *Endpoint
	subs     *subs
	conn     uint32 // its number in subs

	transport socket.Transport // set by OnOpen
	lastRead  atomic.Int64     // when bytes were last handled
	reading   atomic.Bool      // OnBytes is running
	stuck     atomic.Bool      // out holds what the transport did not take

	// The reader's: OnBytes.
	in       []byte // the beginning of an unfinished reply
	decoder  wire.Decoder
	listener listener

	// The writer's: OnWake.
	out     []byte
	flusher flusher
}

func (c *subConn) OnOpen(t socket.Transport) {
	c.transport = t
	c.lastRead.Store(int64(c.endpoint.clock.Stamp()))
	c.endpoint.current.Store(c)
	if err := c.endpoint.closed.Load(); err != nil {
		t.Close(*err)
		return
	}
	t.Wake()
}

func (c *subConn) OnBytes(b []byte) {
	c.reading.Store(true)
	c.read(b)
	c.lastRead.Store(int64(c.endpoint.clock.Stamp()))
	c.reading.Store(false)
}

func (c *subConn) read(b []byte) {
	c.endpoint.bytesIn.Add(uint64(len(b)))
	if len(c.in) > 0 {
		c.in = append(c.in, b...)
		b = c.in
	}
	for {
		v, n, err := c.decoder.Decode(b)
		if err == nil && n == 0 {
			break
		}
		if err == nil {
			err = c.subs.reply(&c.listener, c.conn, v)
		}
		if err != nil {
			c.transport.Close(err)
			return
		}
		invariants.Poison(b[:n])
		b = b[n:]
	}
	if len(b) == 0 && cap(c.in) > keepSubBuffer {
		c.in = nil
	}
	c.in = append(c.in[:0], b...) // b may lie in c.in: append moves it down
	if c.stuck.Load() || c.subs.flushable() {
		c.transport.Wake()
	}
}

func (c *subConn) OnWake() {
	for {
		if len(c.out) == 0 {
			c.out = c.subs.flush(&c.flusher, c.conn, c.out, c.endpoint.clock.Stamp())
		}
		if len(c.out) == 0 {
			return
		}
		n, err := c.transport.Write(c.out)
		c.endpoint.bytesOut.Add(uint64(n))
		if err != nil {
			c.transport.Close(err)
			return
		}
		if n < len(c.out) {
			// Moved down, so that the buffer does not creep.
			c.out = append(c.out[:0], c.out[n:]...)
			c.stuck.Store(true)
			return
		}
		c.stuck.Store(false)
		if c.out = c.out[:0]; cap(c.out) > keepSubBuffer {
			c.out = nil
		}
	}
}

func (c *subConn) OnClose(err error) {
	defer c.endpoint.down(err) // even if a handler panics: the next connection mends what it missed
	c.endpoint.lost.Store(&err)
	c.endpoint.current.CompareAndSwap(c, nil)
	c.subs.disconnected()
}
