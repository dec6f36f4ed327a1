package pipeline

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

// Config is what a lane needs to know; every field but inlineDepth must be
// set.
type Config struct {
	Clock          clock.Clock
	CommandTimeout time.Duration // a longer silence with commands in flight costs the connection
	MaxInFlight    int           // commands without an answer, queued ones included
	MaxQueuedBytes int           // bytes that the kernel has not taken

	// Down is called when an attached connection has ended, once for each, on its
	// loop, after every one of its requests has been completed. It must not block.
	Down func(err error)

	// Redirect is asked what to do with a command that the server refused: it sends
	// the command on and answers true, or false. nil: nothing is sent on.
	Redirect func(a Answer, e *wire.ServerError) bool

	// inlineDepth overrides defaultInlineDepth; negative: never write inline.
	inlineDepth int
}

// Lane is a stream of pipelined commands to one node that outlives its
// connections: each connection is a pipeline of its own, born in Attach and dead
// for good when the connection ends. Nothing is carried over from one to the
// next, so no late event of an old connection can touch a new one.
//
// Invariants:
//
//  1. At most one pipeline is current. It becomes so in its OnOpen and stops
//     being so at the start of its OnClose; in between the lane is up, until Leave.
//  2. A request is handed to exactly one pipeline, or refused on the spot. The
//     pipeline completes it exactly once, whatever happens.
//  3. After Close no pipeline becomes current.
//
// The order of commands and replies, and what is known of a command when the
// connection dies, is the pipeline's matter; see there.
type Lane struct {
	cfg     Config
	current atomic.Pointer[Pipeline]
	mu      struct {
		sync.Mutex
		closed  bool
		err     error    // the argument of Close
		lost    error    // why the latest connection ended
		retired Counters // of the connections that have ended
	}
}

// Counters count from the lane's birth.
type Counters struct {
	Commands uint64 // accepted by the lane; sent again whole: once more
	Resent   uint64 // of these, sent again whole
	BytesOut uint64 // taken by the kernel
	BytesIn  uint64
	InFlight int // now: accepted and unanswered
}

func (c *Counters) add(o Counters) {
	c.Commands += o.Commands
	c.Resent += o.Resent
	c.BytesOut += o.BytesOut
	c.BytesIn += o.BytesIn
	c.InFlight += o.InFlight
}

// NewLane returns a lane without a connection.
func NewLane(cfg Config) *Lane {
	if cfg.inlineDepth == 0 {
		cfg.inlineDepth = defaultInlineDepth
	}
	l := &Lane{cfg: cfg}
	l.mu.lost = request.ErrDown
	return l
}

// Attach gives the lane a fresh connection, after its handshake and without unread bytes. An
// error means that c is closed and Down will not be called for it. After nil the
// lane is up, until Down is called, which can be at once. The connection before
// must have ended: Attach is called before the first one or after Down, by one
// goroutine at a time, never by a sink.
func (l *Lane) Attach(ls *socket.Loops, c net.Conn) error {
	l.mu.Lock()
	closed := l.mu.closed
	l.mu.Unlock()
	if closed {
		c.Close()
		return request.ErrClosed
	}
	_, err := ls.Adopt(c, newPipeline(l))
	return err
}

// Connection returns the pipeline of the present connection, nil if there is none.
func (l *Lane) Connection() *Pipeline { return l.current.Load() }

// Err returns why the lane has no connection that takes commands, nil if it has one.
func (l *Lane) Err() error {
	if p := l.current.Load(); p != nil {
		return p.left()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.lost
}

// Submit takes r over. Any goroutine; it never blocks. A lane that is down,
// closed or full completes r before it returns, with ErrNotSent and the cause.
// Commands of one goroutine keep their order.
func (l *Lane) Submit(r request.Request) { l.Send(r, 0, false) }

// Send is Submit for a command that has been sent on so often, and has to be
// announced with ASKING if asking.
func (l *Lane) Send(r request.Request, hops uint8, asking bool) {
	l.SendOn(l.current.Load(), Entry{Request: r, Hops: hops, Asked: asking})
}

// SendOn sends on a connection of the lane; nil is none.
func (l *Lane) SendOn(p *Pipeline, e Entry) {
	if p == nil {
		l.Refuse(e, l.Refusal())
		return
	}
	p.submit(e)
}

// Leave ends the present connection, if there is one, with err as the cause, once everything
// in flight is answered; the next one is made then. Meanwhile the lane is down, and refuses
// commands as not sent. So no outcome is unknown for it.
func (l *Lane) Leave(err error) {
	if p := l.current.Load(); p != nil {
		p.leave(err)
	}
}

// Refusal is why a lane that is down takes nothing.
func (l *Lane) Refusal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.mu.closed:
		return request.RefusedDown
	case l.mu.err == request.ErrClosed:
		return request.RefusedClosed
	default:
		return &request.Failure{Class: request.ErrNotSent, Cause: l.mu.err}
	}
}

// Refuse completes what was not sent.
func (l *Lane) Refuse(e Entry, err error) {
	e.Request.Complete(request.Reply{Err: err, Now: l.cfg.Clock.Now(), Moving: e.Asked})
}

// CheckAge ends the connection if it has been silent for longer than CommandTimeout
// with commands in flight, and sends a PING on an idle one. It is called a few times
// per CommandTimeout, by one goroutine at a time.
func (l *Lane) CheckAge(now clock.Instant) {
	if p := l.current.Load(); p != nil {
		p.checkAge(now)
	}
}

// Close ends the lane for good. Its connection ends soon, with err as the cause
// of whatever is in flight; after that, requests are refused with ErrClosed.
func (l *Lane) Close(err error) {
	l.mu.Lock()
	if !l.mu.closed {
		l.mu.closed, l.mu.err = true, err
	}
	p := l.current.Load()
	l.mu.Unlock()
	if p != nil {
		p.t.Close(err)
	}
}

// opened makes p current; false if the lane has been closed, and why.
func (l *Lane) opened(p *Pipeline) (ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return false, l.mu.err
	}
	l.current.Store(p)
	return true, nil
}

// ended is the counterpart of opened.
func (l *Lane) ended(p *Pipeline, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.lost = err
	l.current.CompareAndSwap(p, nil)
	c := p.counters()
	c.InFlight = 0 // the caller is about to complete them
	l.mu.retired.add(c)
}

// Counters returns the sums over all connections.
func (l *Lane) Counters() Counters {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.mu.retired
	if p := l.current.Load(); p != nil {
		sum.add(p.counters())
	}
	return sum
}
