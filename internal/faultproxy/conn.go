package faultproxy

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/respio"
	"github.com/tidwall/redcon"
)

// conn is one client's connection and the one to the server behind it.
//
//	client -> readUp: parse, decide -> up queue   -> writeUp   -> server
//	client <- writeDown             <- down queue <- readDown: match <- server
//
// Invariants:
//
//  1. expected holds, in the order of the client's commands, one entry per
//     command that has not been answered into the down queue. An entry is pushed
//     before its command is put into the up queue, so every reply finds its own.
//  2. The head of expected is never a canned reply or a cut: settleLocked turns
//     those into items of the down queue as soon as they get there. So answers
//     that the proxy makes up take exactly the place that the server's would.
//  3. Faults that hold or swallow act in the writers, the last place before the
//     wire: they hit bytes that are under way, too.
//
// Lock order: conn.mu, then Proxy.mu or queue.mu; never the other way.
type conn struct {
	proxy  *Proxy
	id     int
	client net.Conn
	over   chan struct{} // closed when the connection is over
	once   sync.Once
	up     *queue
	down   *queue

	mu         sync.Mutex
	server     net.Conn // nil until dialled
	expected   []expect
	subscribes bool // has sent SUBSCRIBE or a relative, so messages may come

	// Guarded by Proxy.mu.
	name     string
	commands map[string]int
	lost     bool // bytes were swallowed: the streams have holes
}

// expect is a command awaiting its reply.
type expect struct {
	trap    *Trap // decides, if not nil
	replies int   // still to come; untilZero: until one counts 0 subscriptions
}

const untilZero = -1

// ending is how a connection ends.
type ending bool

const (
	orderly ending = false
	reset   ending = true
)

func newConn(p *Proxy, id int, client net.Conn) *conn {
	return &conn{
		proxy:    p,
		id:       id,
		client:   client,
		over:     make(chan struct{}),
		up:       newQueue(),
		down:     newQueue(),
		commands: make(map[string]int),
	}
}

func (c *conn) infoLocked() Info {
	return Info{ID: c.id, ClientName: c.name, Commands: c.commands}
}

// end closes both sides. It may be called several times; the first one decides.
func (c *conn) end(how ending) {
	c.once.Do(func() {
		close(c.over)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, nc := range []net.Conn{c.client, c.server} {
			if tcp, ok := nc.(*net.TCPConn); ok && how == reset {
				_ = tcp.SetLinger(0)
			}
			if nc != nil {
				nc.Close()
			}
		}
		c.proxy.forget(c)
	})
}

// dial connects to the server; false: the connection is over.
func (c *conn) dial() bool {
	server, err := new(net.Dialer).DialContext(c.proxy.ctx, c.proxy.upNetwork, c.proxy.upAddr)
	if err != nil {
		c.end(reset)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server
	select {
	case <-c.over: // end came first and has not seen it
		server.Close()
		return false
	default:
		return true
	}
}

func (c *conn) run() {
	if !c.dial() {
		return
	}
	c.proxy.wg.Go(c.readUp)
	c.proxy.wg.Go(c.writeUp)
	c.proxy.wg.Go(c.readDown)
	c.proxy.wg.Go(c.writeDown)
}

// readUp reads commands and decides what becomes of each.
func (c *conn) readUp() {
	r := respio.NewReader(c.client)
	for {
		c.up.waitForRoom(c.over)
		raw, words, err := r.Command()
		if err != nil {
			c.up.end()
			return
		}
		name, trap, delay := c.receive(words)
		c.mu.Lock()
		c.subscribes = c.subscribes || strings.HasSuffix(name, "SUBSCRIBE")
		c.expected = append(c.expected, expect{trap, replies(name, len(words)-1)})
		c.settleLocked()
		c.mu.Unlock()
		switch {
		case trap == nil:
			c.up.put(item{due: after(delay), bytes: raw, command: name})
		case trap.verb == cutAfter:
			c.up.put(item{due: after(delay), bytes: raw, command: name})
			return // the server never sees what is behind it
		case trap.verb == cutBefore:
			return
		}
	}
}

// receive books a command and finds its trap.
func (c *conn) receive(words [][]byte) (name string, t *Trap, delay time.Duration) {
	p := c.proxy
	name = strings.ToUpper(string(words[0]))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Received[name]++
	c.commands[name]++
	if c.commands[name] == 1 {
		p.notifyLocked() // Carried may pick it from now on
	}
	if name == "CLIENT" && len(words) == 3 && strings.EqualFold(string(words[1]), "SETNAME") {
		c.name = string(words[2])
		p.notifyLocked()
	}
	if len(p.traps) > 0 {
		cmd := Command{Conn: c.id, Words: make([]string, len(words))}
		for i, w := range words {
			cmd.Words[i] = string(w)
		}
		t = p.caughtLocked(cmd)
	}
	return name, t, p.lagLocked(c).up
}

// replies returns how many replies a command has.
func replies(name string, args int) int {
	switch name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		return max(args, 1) // none: one error
	case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		if args == 0 {
			return untilZero
		}
		return args
	}
	return 1
}

// settleLocked deals with the entries at the head that wait for no reply.
func (c *conn) settleLocked() {
	for len(c.expected) > 0 && c.expected[0].trap != nil {
		t := c.expected[0].trap
		switch {
		case t.verb == replace:
			c.answerLocked(item{bytes: t.reply, then: t})
		case t.verb == cutBefore, c.expected[0].replies == 0: // cutAfter, executed
			c.answerLocked(item{cut: true, then: t})
		default:
			return
		}
		c.expected = c.expected[1:]
	}
}

// answerLocked puts an item into the down queue.
func (c *conn) answerLocked(it item) {
	c.proxy.mu.Lock()
	it.due = after(c.proxy.lagLocked(c).down)
	c.proxy.mu.Unlock()
	c.down.put(it)
}

// readDown reads replies and matches them to commands.
func (c *conn) readDown() {
	r := respio.NewReader(c.server)
	for {
		c.down.waitForRoom(c.over)
		raw, reply, err := r.Reply()
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				c.down.end()
			} else {
				c.mu.Lock()
				c.answerLocked(item{cut: true}) // behind the replies that did arrive
				c.mu.Unlock()
			}
			return
		}
		c.mu.Lock()
		if c.matchLocked(reply) {
			c.answerLocked(item{bytes: raw})
		}
		c.settleLocked()
		c.mu.Unlock()
	}
}

// matchLocked books a reply to the command at the head of the line. It reports
// whether the client shall see it.
func (c *conn) matchLocked(reply redcon.RESP) bool {
	var push string
	var count int64
	if c.subscribes {
		push, count = pushOf(reply)
	}
	if len(c.expected) == 0 || strings.HasSuffix(push, "message") {
		return true // nobody's reply
	}
	head := &c.expected[0]
	visible := head.trap == nil
	switch {
	case head.replies == untilZero && strings.HasSuffix(push, "unsubscribe") && count > 0:
		return visible // more to come
	case head.replies > 1 && reply.Type != redcon.Error:
		head.replies--
		return visible
	}
	head.replies = 0
	if visible {
		c.expected = c.expected[1:]
	}
	return visible
}

// pushOf returns the kind of a pub/sub reply and the integer at its end, "" for
// any other reply.
func pushOf(reply redcon.RESP) (kind string, count int64) {
	if reply.Type != redcon.Array || reply.Count < 3 {
		return "", 0
	}
	i := 0
	reply.ForEach(func(e redcon.RESP) bool {
		switch {
		case i == 0 && e.Type == redcon.Bulk:
			kind = e.String()
		case i == 2 && e.Type == redcon.Integer:
			count = e.Int()
		}
		i++
		return i < 3
	})
	return kind, count
}

func (c *conn) writeUp() {
	if c.write(c.up, c.server) && c.proxy.clear(c) {
		// The client has said all it had to say; the server may still answer.
		if half, ok := c.server.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
}

func (c *conn) writeDown() {
	if c.write(c.down, c.client) && c.proxy.clear(c) {
		c.end(orderly)
	}
}

// write carries a queue to its end; true: everything has been written, or
// swallowed, and nothing more follows.
func (c *conn) write(q *queue, to net.Conn) bool {
	for {
		items := q.take(c.over)
		if items == nil {
			select {
			case <-c.over:
				return false
			default:
				return true
			}
		}
		for len(items) > 0 {
			n := 1 // items that go in one write: all that are due
			if !c.waitUntil(items[0].due) {
				return false
			}
			for now := time.Now(); n < len(items) && !items[n].due.After(now) && !items[n-1].cut; n++ {
			}
			if !c.writeBatch(items[:n], to) {
				return false
			}
			items = items[n:]
		}
	}
}

// writeBatch writes items of which at most the last is a cut; false: the
// connection is over, or the server has hung up.
func (c *conn) writeBatch(items []item, to net.Conn) bool {
	if !c.proxy.clear(c) {
		return true // swallowed, a cut too: nobody is told
	}
	parts := make(net.Buffers, len(items))
	for i, it := range items {
		parts[i] = it.bytes
	}
	if _, err := parts.WriteTo(to); err != nil {
		if to == c.client {
			c.end(reset)
		}
		// Else readDown learns why, and passes on what the server said before.
		return false
	}
	c.proxy.forwarded(items)
	cut := items[len(items)-1].cut
	if cut {
		c.end(reset)
	}
	for _, it := range items {
		it.then.tell()
	}
	return !cut
}

// forwarded books commands that have been written to the server.
func (p *Proxy) forwarded(items []item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, it := range items {
		if it.command != "" {
			p.stats.Forwarded[it.command]++
		}
	}
}

// waitUntil waits for an item's time; false: the connection is over.
func (c *conn) waitUntil(due time.Time) bool {
	d := time.Until(due)
	if due.IsZero() || d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.over:
		return false
	}
}

// after is when something that takes d from now is due.
func after(d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}
