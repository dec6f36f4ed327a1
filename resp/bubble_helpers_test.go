package resp

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-lock/pawl/internal/respio"
	"github.com/pawl-lock/pawl/resp/internal/slot"
)

// bubbleNet is servers behind pipes, for a bubble of testing/synctest: there time is
// virtual, so that time-outs cost nothing and are exact.
type bubbleNet struct {
	mu      sync.Mutex
	servers map[string]*bubbleServer
	serving sync.WaitGroup
}

// bubbleServer answers what answer says, and what that leaves open as a server without
// data would. Its fields are for bubbleNet.set.
type bubbleServer struct {
	answer  func(words []string) string // a reply as it goes on the wire; "": none of its own
	gone    bool                        // the machine has vanished: dials hang, connections are silent
	refuses bool                        // no process: dials fail at once
	slow    time.Duration               // what a dial takes
	lag     time.Duration               // what an answer takes
	dials   int
	out     int // dials that have not ended
	asked   map[string]int
	conns   map[net.Conn]bool
}

// hangUp closes the connections that there are.
func (s *bubbleServer) hangUp() {
	for conn := range s.conns {
		conn.Close()
	}
}

func newBubbleNet() *bubbleNet {
	return &bubbleNet{servers: make(map[string]*bubbleServer)}
}

// set changes a server, which is made if need be.
func (b *bubbleNet) set(addr string, change func(s *bubbleServer)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.servers[addr]
	if s == nil {
		s = &bubbleServer{asked: make(map[string]int), conns: make(map[net.Conn]bool)}
		b.servers[addr] = s
	}
	change(s)
}

// get returns what a server is at this moment.
func (b *bubbleNet) get(addr string) bubbleServer {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := *b.servers[addr]
	s.asked = maps.Clone(s.asked)
	return s
}

func (b *bubbleNet) on(addr string, answer func(words []string) string) {
	b.set(addr, func(s *bubbleServer) { s.answer = answer })
}

func (b *bubbleNet) vanish(addrs ...string) {
	for _, addr := range addrs {
		b.set(addr, func(s *bubbleServer) { s.gone = true })
	}
}

// dials returns how often any server was dialled, out how many dials have not ended,
// conns how many connections there are.
func (b *bubbleNet) dials() (n int) {
	b.each(func(s *bubbleServer) { n += s.dials })
	return n
}

func (b *bubbleNet) out() (n int) {
	b.each(func(s *bubbleServer) { n += s.out })
	return n
}

func (b *bubbleNet) conns() (n int) {
	b.each(func(s *bubbleServer) { n += len(s.conns) })
	return n
}

func (b *bubbleNet) each(f func(s *bubbleServer)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servers {
		f(s)
	}
}

func (b *bubbleNet) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	known := false
	b.mu.Lock()
	if s := b.servers[addr]; s != nil {
		known = true
		s.dials++
		s.out++
	}
	b.mu.Unlock()
	if !known {
		return nil, fmt.Errorf("%s refuses connections", addr)
	}
	defer b.set(addr, func(s *bubbleServer) { s.out-- })
	s := b.get(addr)
	if s.refuses {
		return nil, fmt.Errorf("%s refuses connections", addr)
	}
	if s.gone {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	client, server := net.Pipe()
	b.serving.Go(func() { b.serve(addr, server) })
	return client, nil
}

func (b *bubbleNet) serve(addr string, conn net.Conn) {
	b.set(addr, func(s *bubbleServer) { s.conns[conn] = true })
	defer func() {
		conn.Close()
		b.set(addr, func(s *bubbleServer) { delete(s.conns, conn) })
	}()
	in := respio.NewReader(conn)
	for {
		_, args, err := in.Command()
		if err != nil {
			return
		}
		var words []string
		for _, a := range args {
			words = append(words, string(a))
		}
		s := b.get(addr)
		if s.gone {
			continue
		}
		b.set(addr, func(s *bubbleServer) { s.asked[words[0]]++ })
		reply := ""
		if s.answer != nil {
			reply = s.answer(words)
		}
		switch {
		case reply != "":
		case words[0] == "PING":
			reply = "+PONG\r\n"
		case words[0] == "SUBSCRIBE":
			reply = "*3\r\n" + bulk("subscribe") + bulk(words[1]) + ":1\r\n"
		default:
			reply = "+OK\r\n"
		}
		time.Sleep(s.lag) // virtual time: so long the server takes
		if _, err := conn.Write([]byte(reply)); err != nil {
			return
		}
	}
}

// open is Open over this network; end closes it, within the bubble.
func (b *bubbleNet) open(t *testing.T, cfg Config) (c *Client, end func()) {
	cfg.Dialer, cfg.Transport = b.dial, TransportStd
	c = Open(cfg)
	return c, func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		b.serving.Wait() // a bubble's time ends with its test
	}
}

// within fails the test if cond does not come true in so much virtual time. It returns
// how much it took.
func within(t *testing.T, limit time.Duration, what string, cond func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		synctest.Wait()
		took := time.Since(start)
		switch {
		case cond():
			return took
		case took > limit:
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(max(5*time.Millisecond, limit/500)) // virtual time: a poll, bounded above
	}
}

// stays fails the test if another server than addr serves within d.
func stays(t *testing.T, c *Client, addr string, d time.Duration) {
	t.Helper()
	for range d / (100 * time.Millisecond) {
		time.Sleep(100 * time.Millisecond) // virtual time: nothing may happen for d
		if got := c.AddrOf(0); got != addr {
			t.Fatalf("%s serves, and not %s", got, addr)
		}
	}
}

// slotsReply is an answer to CLUSTER SLOTS: these servers have equal parts.
func slotsReply(addrs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(addrs))
	for i, addr := range addrs {
		host, port, _ := net.SplitHostPort(addr)
		fmt.Fprintf(&b, "*3\r\n:%d\r\n:%d\r\n*2\r\n%s:%s\r\n", slot.Count*i/len(addrs), slot.Count*(i+1)/len(addrs)-1, bulk(host), port)
	}
	return b.String()
}

// hostPortReply is a sentinel's answer: an address.
func hostPortReply(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return "*2\r\n" + bulk(host) + bulk(port)
}

// sentinelsReply is what a sentinel says of others.
func sentinelsReply(addrs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(addrs))
	for _, addr := range addrs {
		host, port, _ := net.SplitHostPort(addr)
		b.WriteString("*4\r\n" + bulk("ip") + bulk(host) + bulk("port") + bulk(port))
	}
	return b.String()
}

// primaryReply is the answer to ROLE of a primary with these replicas.
func primaryReply(replicas ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*3\r\n$6\r\nmaster\r\n:0\r\n*%d\r\n", len(replicas))
	for _, r := range replicas {
		host, port, _ := net.SplitHostPort(r)
		b.WriteString("*3\r\n" + bulk(host) + bulk(port) + bulk("0"))
	}
	return b.String()
}

// replicaReply is that of a replica; state is "connected", or why not.
func replicaReply(primary, state string) string {
	host, port, _ := net.SplitHostPort(primary)
	return "*5\r\n$5\r\nslave\r\n" + bulk(host) + ":" + port + "\r\n" + bulk(state) + ":0\r\n"
}

// says answers one command, by its first word, and leaves the others to the server.
func says(command, reply string) func([]string) string {
	return func(words []string) string {
		if words[0] == command {
			return reply
		}
		return ""
	}
}
