package resp

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/exchange"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/wire"
)

// laneConfig is what a lane needs to know; every field but inlineDepth must be
// set.
type laneConfig struct {
	clock          clock.Clock
	commandTimeout time.Duration // a longer silence with commands in flight costs the connection
	maxInFlight    int           // commands without an answer, queued ones included
	maxQueuedBytes int           // bytes that the kernel has not taken

	// down is called when an attached connection has ended, once for each, on its
	// loop, after every one of its requests has been completed. It must not block.
	down func(err error)

	// redirect is asked what to do with a command that the server refused: it sends
	// the command on and answers true, or false. nil: nothing is sent on.
	redirect func(a answer, e *wire.ServerError) bool

	// inlineDepth overrides defaultInlineDepth; negative: never write inline.
	inlineDepth int
}

// lane is a stream of pipelined commands to one node that outlives its
// connections: each connection is a pipeline of its own, born in attach and dead
// for good when the connection ends. Nothing is carried over from one to the
// next, so no late event of an old connection can touch a new one.
//
// Invariants:
//
//  1. At most one pipeline is current. It becomes so in its OnOpen and stops
//     being so at the start of its OnClose; in between the lane is up.
//  2. A request is handed to exactly one pipeline, or refused on the spot. The
//     pipeline completes it exactly once, whatever happens.
//  3. After close no pipeline becomes current.
//
// The order of commands and replies, and what is known of a command when the
// connection dies, is the pipeline's matter; see there.
type lane struct {
	cfg     laneConfig
	current atomic.Pointer[pipeline]
	mu      struct {
		sync.Mutex
		closed  bool
		err     error        // the argument of close
		retired laneCounters // of the connections that have ended
	}
}

// laneCounters count from the lane's birth.
type laneCounters struct {
	Commands uint64 // accepted by the lane; sent again after NOSCRIPT: once more
	Resent   uint64 // of these, sent again after NOSCRIPT
	BytesOut uint64 // taken by the kernel
	BytesIn  uint64
	InFlight int // now: accepted and unanswered
}

func (c *laneCounters) add(o laneCounters) {
	c.Commands += o.Commands
	c.Resent += o.Resent
	c.BytesOut += o.BytesOut
	c.BytesIn += o.BytesIn
	c.InFlight += o.InFlight
}

// newLane returns a lane without a connection.
func newLane(cfg laneConfig) *lane {
	if cfg.inlineDepth == 0 {
		cfg.inlineDepth = defaultInlineDepth
	}
	return &lane{cfg: cfg}
}

// attach gives the lane a fresh connection, greeted and without unread bytes. An
// error means that c is closed and down will not be called for it. After nil the
// lane is up, until down is called, which can be at once. The connection before
// must have ended: attach is called before the first one or after down, by one
// goroutine at a time, never by a sink.
func (l *lane) attach(ls *socket.Loops, c net.Conn) error {
	l.mu.Lock()
	closed := l.mu.closed
	l.mu.Unlock()
	if closed {
		c.Close()
		return exchange.ErrClosed
	}
	_, err := ls.Adopt(c, newPipeline(l))
	return err
}

// up reports whether the lane has a connection.
func (l *lane) up() bool { return l.current.Load() != nil }

// submit takes r over. Any goroutine; it never blocks. A lane that is down,
// closed or full completes r before it returns, with ErrNotSent and the cause.
// Commands of one goroutine keep their order.
func (l *lane) submit(r exchange.Request) { l.send(r, 0, false) }

// send is submit for a command that has been sent on so often, and has to be
// announced with ASKING if asking.
func (l *lane) send(r exchange.Request, hops uint8, asking bool) {
	l.sendOn(l.current.Load(), entry{request: r, hops: hops, asked: asking})
}

// sendOn sends on a connection of the lane; nil is none.
func (l *lane) sendOn(p *pipeline, e entry) {
	if p == nil {
		l.refuse(e, l.refusal())
		return
	}
	p.submit(e)
}

// drop ends the present connection, if there is one; the next is made.
func (l *lane) drop(err error) {
	if p := l.current.Load(); p != nil {
		p.t.Close(err)
	}
}

func (l *lane) refusal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.mu.closed:
		return exchange.RefusedDown
	case l.mu.err == exchange.ErrClosed:
		return exchange.RefusedClosed
	default:
		return &exchange.Failure{Class: exchange.ErrNotSent, Cause: l.mu.err}
	}
}

func (l *lane) refuse(e entry, err error) {
	e.request.Complete(exchange.Reply{Err: err, Now: l.cfg.clock.Now(), Moving: e.asked})
}

// checkAge ends the connection if it has been silent for longer than commandTimeout
// with commands in flight, and sends a PING on an idle one. It is called a few times
// per commandTimeout, by one goroutine at a time.
func (l *lane) checkAge(now clock.Instant) {
	if p := l.current.Load(); p != nil {
		p.checkAge(now)
	}
}

// close ends the lane for good. Its connection ends soon, with err as the cause
// of whatever is in flight; after that, requests are refused with ErrClosed.
func (l *lane) close(err error) {
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
func (l *lane) opened(p *pipeline) (ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return false, l.mu.err
	}
	l.current.Store(p)
	return true, nil
}

// ended is the counterpart of opened.
func (l *lane) ended(p *pipeline) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current.CompareAndSwap(p, nil)
	c := p.counters()
	c.InFlight = 0 // the caller is about to complete them
	l.mu.retired.add(c)
}

// counters returns the sums over all connections.
func (l *lane) counters() laneCounters {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.mu.retired
	if p := l.current.Load(); p != nil {
		sum.add(p.counters())
	}
	return sum
}
