package faultproxy

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/respio"
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
