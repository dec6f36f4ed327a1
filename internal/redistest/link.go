package redistest

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
)

// Link is the network between a primary and one of its replicas: a relay of bytes
// that a test can hold up and cut. (Package faultproxy understands commands; what a
// primary sends to a replica is not made of requests and replies.) Its methods may be
// called from any goroutine.
type Link struct {
	listener net.Listener
	to       string
	wg       sync.WaitGroup

	mu     sync.Mutex
	change chan struct{} // closed and replaced when what follows changes
	held   bool
	cut    bool
	conns  map[net.Conn]bool
}

// Through has a replica follow the primary over a Link of its own, and waits until it
// is in step.
func (r *Replicated) Through(replica, primary *Server) *Link {
	r.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	l := &Link{listener: listener, to: primary.Addr(), change: make(chan struct{}), conns: make(map[net.Conn]bool)}
	l.wg.Go(l.accept)
	r.t.Cleanup(func() {
		listener.Close()
		l.Cut()
		l.wg.Wait()
	})
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	r.followPort(replica, primary, port)
	offset := replicationField(primary, "master_repl_offset")
	await(r.t, replica.Addr()+" is in step over its link", func() bool {
		return field(replica.Info("INFO", "replication"), "master_link_status") == "up" &&
			replicationField(replica, "slave_repl_offset") >= offset && slices.Contains(primary.Replicas(), strconv.Itoa(replica.port))
	})
	return l
}

// Replicas returns the ports of those that ROLE lists; none for a server that is no
// primary.
func (s *Server) Replicas() (ports []string) {
	s.t.Helper()
	role, _ := s.Do("ROLE").([]any)
	if len(role) < 3 {
		return nil
	}
	list, _ := role[2].([]any)
	for _, e := range list {
		if words, _ := e.([]any); len(words) > 1 {
			ports = append(ports, fmt.Sprint(words[1]))
		}
	}
	return ports
}

// Hold delivers nothing any more, either way; both ends believe the other to be slow.
func (l *Link) Hold() { l.set(func() { l.held = true }) }

// Release delivers what was held, and all that follows.
func (l *Link) Release() { l.set(func() { l.held = false }) }

// Cut ends the connection and refuses others. What was held is lost.
func (l *Link) Cut() {
	l.set(func() {
		l.cut = true
		for c := range l.conns {
			c.Close()
		}
	})
}

func (l *Link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.change)
	l.change = make(chan struct{})
}

func (l *Link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.to)
		if err != nil || !l.open(in, out) {
			in.Close()
			if err == nil {
				out.Close()
			}
			continue
		}
		l.wg.Go(func() { l.carry(in, out) })
		l.wg.Go(func() { l.carry(out, in) })
	}
}

// open notes the two ends of a connection; false if the link is cut.
func (l *Link) open(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return false
	}
	for _, c := range conns {
		l.conns[c] = true
	}
	return true
}

// carry relays one direction.
func (l *Link) carry(from, to net.Conn) {
	defer func() {
		from.Close()
		to.Close()
		l.mu.Lock()
		delete(l.conns, from)
		l.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !l.await() {
			return
		}
		if _, failed := to.Write(buf[:n]); failed != nil || err != nil {
			return
		}
	}
}

// await waits while the link is held; false if it is cut.
func (l *Link) await() bool {
	for {
		l.mu.Lock()
		held, cut, change := l.held, l.cut, l.change
		l.mu.Unlock()
		if !held || cut {
			return !cut
		}
		<-change
	}
}
