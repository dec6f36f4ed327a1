// Package embedded is a Redis server inside this process: miniredis, completed
// by what it leaves to its user. Leases run out by themselves, the commands of a
// client's handshake exist, a client that stops reading is cut off.
//
// It is for demos, examples and users' tests. Its numbers say nothing about
// Redis: it is some forty times slower.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/alicebob/miniredis/v2"

	"github.com/pawl-lock/pawl/internal/pauselistener"
)

// Server is a running server. Its methods are safe for any goroutine.
type Server struct {
	redis *miniredis.Miniredis
	addr  string // "" without a listener
	ttl   *ttlKeeper

	replicas atomic.Int64 // that are said to be attached
	faults   faults

	mu struct {
		sync.Mutex
		closed   bool
		up       bool
		listener *pauselistener.Listener // shut while down; nil after StartPipe
	}
}

// ErrDown means that the server is down or closed.
var ErrDown = errors.New("embedded: server is down")

// Start starts a server on addr, "host:port"; with an empty addr, or port 0, on a
// free port (of 127.0.0.1 if the host is empty too). The caller closes it.
func Start(addr string) (*Server, error) {
	d, err := listen(addr)
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	s := newServer()
	s.addr = d.Addr().String()
	s.upLocked(d)
	return s, nil
}

// StartPipe starts a server that listens nowhere: only Dial reaches it. It fits
// into a testing/synctest bubble, where a socket does not.
func StartPipe() *Server {
	s := newServer()
	s.upLocked(nil)
	return s
}

func newServer() *Server {
	redis := miniredis.NewMiniRedis()
	return &Server{redis: redis, ttl: keepTTL(redis)}
}

// listen finds a free port where addr names none. It picks below the ranges from
// which Linux and macOS choose the local port of an outgoing connection: a client
// that dials the port while the server is down could otherwise be given it as its
// own, connect to itself, and keep the server from coming up again.
func listen(addr string) (*pauselistener.Listener, error) {
	host, port := "", "0"
	if addr != "" {
		var err error
		if host, port, err = net.SplitHostPort(addr); err != nil {
			return nil, err
		}
	}
	if port != "0" {
		return pauselistener.Listen("tcp", addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	const first, end, attempts = 10000, 32000, 50
	var err error
	for range attempts {
		var d *pauselistener.Listener
		d, err = pauselistener.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(first+rand.IntN(end-first))))
		if err == nil {
			return d, nil
		}
	}
	return nil, err
}

// Addr is the address listened on, "host:port"; empty after StartPipe.
func (s *Server) Addr() string { return s.addr }

// URL is Addr as a redis:// URL.
func (s *Server) URL() string { return (&url.URL{Scheme: "redis", Host: s.addr}).String() }

// Redis gives access to the data, also while the server is down. Its SetError
// must not be called: the hook that it takes is in use.
func (s *Server) Redis() *miniredis.Miniredis { return s.redis }

// SetReplicas has the server say that so many replicas are attached, which acknowledge
// everything at once. There are none.
func (s *Server) SetReplicas(n int) { s.replicas.Store(int64(n)) }

// Dial connects without a socket. The address is ignored, so that the method fits
// as a client's dialer.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.up {
		return nil, ErrDown
	}
	client, server := net.Pipe()
	s.redis.Server().ServeConn(&conn{newSlow(server, &s.faults)})
	return client, nil
}

// Down cuts every connection and refuses new ones; the data stays and its leases
// go on running out. When it returns nothing of a client is executing any more.
// On a server that is down it does nothing.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.downLocked()
}

// Up ends Down, on the same port. On a server that is up it does nothing.
func (s *Server) Up() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return ErrDown
	case s.mu.up:
		return nil
	case s.addr == "":
		s.upLocked(nil)
		return nil
	}
	d, err := s.mu.listener.Resume()
	if err != nil {
		return fmt.Errorf("embedded: %w", err)
	}
	s.upLocked(d)
	return nil
}

// Close ends the server and every goroutine of it. Closing twice does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return
	}
	s.mu.closed = true
	s.downLocked()
	if s.mu.listener != nil {
		s.mu.listener.Close()
	}
	s.ttl.close()
}

// upLocked begins to serve. The listener is ours, not miniredis's: that one
// accepts before its commands are registered, and a client that dials all the
// time would be told "unknown command".
func (s *Server) upLocked(d *pauselistener.Listener) {
	// A first Dial is how miniredis starts without a listener.
	first, err := s.redis.Dial()
	if err != nil {
		panic("BUG: embedded: a server without a listener did not start: " + err.Error())
	}
	first.Close()
	srv := s.redis.Server()
	s.addCommands(srv)
	s.mu.up = true
	if d == nil {
		return
	}
	s.mu.listener = d
	go func() {
		defer close(d.Ended)
		for {
			c, err := d.Accept()
			if err != nil {
				return // shut by downLocked
			}
			srv.ServeConn(&conn{newSlow(c, &s.faults)})
		}
	}()
}

func (s *Server) downLocked() {
	if !s.mu.up {
		return
	}
	s.mu.up = false
	if s.mu.listener != nil {
		s.mu.listener.Pause()
		// No connection is handed to a server that has stopped waiting for them.
		<-s.mu.listener.Ended
	}
	s.redis.Close()
	s.faults.late.Wait()
}
