// Package fakenode is a scripted RESP2 server for tests. It answers handshakes,
// PING, scripts and pub/sub by itself, and everything else the way the test
// says: rules pick commands and decide their fate. Nothing in it sleeps; what
// is to be late waits for a Gate.
//
//	n := fakenode.New(t)
//	n.On(fakenode.Is("EVALSHA"), fakenode.Int(1))
//	n.OnNext(1, fakenode.Is("EVALSHA"), fakenode.Error(fakenode.Busy))
//	... client connects to n.Addr() ...
//	n.WaitFor(2, fakenode.Is("EVALSHA"))
package fakenode

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/pauselistener"
)

// waitLimit bounds WaitFor, so that a lost command fails one test instead of
// the whole run.
const waitLimit = 20 * time.Second

// Node is the server. Its methods may be called from any goroutine, except
// those that can fail the test: WaitFor and Up belong to the test's own.
type Node struct {
	t          testing.TB
	network    string
	addr       string
	readBuffer int
	wg         sync.WaitGroup // the accept loop and two goroutines per connection

	mu       sync.Mutex
	changed  chan struct{}           // closed and replaced whenever log or conns change
	listener *pauselistener.Listener // nil while down
	paused   *pauselistener.Listener // while down
	conns    map[int]*Conn
	accepted int
	rules    []*Rule
	log      []Command
	scripts  map[string]bool // by SHA1, in lower-case hex
}

// Option changes what New makes.
type Option func(*Node)

// Unix listens on a unix socket in a temporary directory.
func Unix() Option { return func(n *Node) { n.network = "unix" } }

// ReadBuffer shrinks the kernel's receive buffer of each connection, so that a
// client whose bytes are not read notices soon.
func ReadBuffer(bytes int) Option { return func(n *Node) { n.readBuffer = bytes } }

// New starts a Node on a free port of loopback; the end of the test closes it.
func New(t testing.TB, opts ...Option) *Node {
	t.Helper()
	n := &Node{
		t:       t,
		network: "tcp",
		addr:    "127.0.0.1:0",
		changed: make(chan struct{}),
		conns:   make(map[int]*Conn),
		scripts: make(map[string]bool),
	}
	for _, o := range opts {
		o(n)
	}
	if n.network == "unix" {
		// Not t.TempDir: the test's name would make the path too long for a socket.
		dir, err := os.MkdirTemp("", "fakenode")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		n.addr = filepath.Join(dir, "sock")
	}
	listen := pauselistener.Free
	if n.network == "unix" {
		listen = pauselistener.Listen
	}
	d, err := listen(n.network, n.addr)
	if err != nil {
		t.Fatal(err)
	}
	n.addr = d.Addr().String() // the free port, the same for every Up
	n.open(d)
	t.Cleanup(func() {
		n.Down()
		n.paused.Close()
		n.wg.Wait()
	})
	return n
}

// Network returns "tcp" or "unix".
func (n *Node) Network() string { return n.network }

// Addr returns the address to dial.
func (n *Node) Addr() string { return n.addr }

// On adds a rule: a is what becomes of the commands that m matches. The newest
// rule that matches wins.
func (n *Node) On(m Match, a Action) *Rule { return n.OnNext(-1, m, a) }

// OnNext is On for the next count commands only.
func (n *Node) OnNext(count int, m Match, a Action) *Rule {
	r := &Rule{node: n, match: m, action: a, left: count}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = append(n.rules, r)
	return r
}

// Down refuses connections and resets those there are, like a killed server. Its port
// stays its own.
func (n *Node) Down() {
	n.mu.Lock()
	d := n.listener
	if d != nil {
		d.Pause()
		n.listener, n.paused = nil, d
	}
	n.mu.Unlock()
	if d != nil {
		<-d.Ended
	}
	n.ResetAll()
}

// Up listens again, on the same address, scripts forgotten.
func (n *Node) Up() {
	n.t.Helper()
	d, err := n.paused.Resume()
	if err != nil {
		n.t.Fatal(err)
	}
	n.open(d)
}

func (n *Node) open(d *pauselistener.Listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listener = d
	clear(n.scripts)
	n.wg.Go(func() { n.accept(d) })
}

func (n *Node) accept(d *pauselistener.Listener) {
	defer close(d.Ended)
	for {
		nc, err := d.Accept()
		if err != nil {
			return
		}
		n.mu.Lock()
		if n.listener != d {
			// Down came between Accept and here; it could not see this connection.
			n.mu.Unlock()
			nc.Close()
			return
		}
		n.accepted++
		c := newConn(n, n.accepted, nc)
		n.conns[c.ID] = c
		n.notifyLocked()
		n.wg.Add(2)
		n.mu.Unlock()
		if n.readBuffer > 0 {
			_ = nc.(interface{ SetReadBuffer(int) error }).SetReadBuffer(n.readBuffer)
		}
		go c.read()
		go c.reply()
	}
}

// Conns returns the connections that are open, oldest first.
func (n *Node) Conns() []*Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.conns), func(a, b *Conn) int { return a.ID - b.ID })
}

// ResetAll resets every connection.
func (n *Node) ResetAll() {
	for _, c := range n.Conns() {
		c.Reset()
	}
}

// Publish sends a message to the subscribers of channel and returns how many
// there are. It may block on one that does not read.
func (n *Node) Publish(channel, payload string) int {
	count := 0
	for _, c := range n.Conns() {
		if c.publish(channel, payload) {
			count++
		}
	}
	return count
}

// take records a command and finds its action.
func (n *Node) take(cmd Command) (Action, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(cmd.Words) > 0 {
		n.log = append(n.log, cmd)
		n.notifyLocked()
	}
	for _, r := range slices.Backward(n.rules) {
		if r.left != 0 && r.match(cmd) {
			r.left--
			r.hits++
			return r.action, true
		}
	}
	return Action{}, false
}

func (n *Node) notifyLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *Node) forget(c *Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c.ID)
	n.notifyLocked()
}

// Commands returns the commands received so far that m matches, in the order
// in which they were read. (Across connections that is one possible order.)
func (n *Node) Commands(m Match) []Command {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.commandsLocked(m)
}

func (n *Node) commandsLocked(m Match) []Command {
	var found []Command
	for _, c := range n.log {
		if m(c) {
			found = append(found, c)
		}
	}
	return found
}

// WaitFor waits until at least count commands that m matches have been received
// and returns all of them. It fails the test after 20 s.
func (n *Node) WaitFor(count int, m Match) []Command {
	n.t.Helper()
	var found []Command
	n.wait("commands", func() bool {
		found = n.commandsLocked(m)
		return len(found) >= count
	})
	return found
}

// WaitConns waits until exactly count connections are open.
func (n *Node) WaitConns(count int) {
	n.t.Helper()
	n.wait("connections", func() bool { return len(n.conns) == count })
}

// wait waits for a condition, which is asked with the lock held.
func (n *Node) wait(what string, holds func() bool) {
	n.t.Helper()
	limit, cancel := cputime.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for {
		n.mu.Lock()
		ok, changed, log := holds(), n.changed, n.log
		n.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit.Done():
			n.t.Fatalf("fakenode: still waiting for %s after %v; the last commands received: %v", what, waitLimit, log[max(0, len(log)-10):])
		}
	}
}
