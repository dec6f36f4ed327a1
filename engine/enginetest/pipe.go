package enginetest

import (
	"context"
	"net"
	"sync"
)

// dialer opens a connection.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// buffered makes a dialer of net.Pipe's usable for a pipelining client: on a bare
// pipe, a client that writes and a server that answers would each wait for the
// other to read.
func buffered(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		p := &pipe{Conn: c, more: make(chan struct{}, 1)}
		go p.run()
		return p, nil
	}
}

// pipe is a connection whose Write does not wait for the reader. Its goroutine
// ends with Close, or with the other side.
type pipe struct {
	net.Conn
	more chan struct{} // holds one token while there is something to write

	mu struct {
		sync.Mutex
		waiting []byte
		closed  bool
	}
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return 0, net.ErrClosed
	}
	p.mu.waiting = append(p.mu.waiting, b...)
	select {
	case p.more <- struct{}{}:
	default: // one is there already
	}
	return len(b), nil
}

func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.closed {
		p.mu.closed = true
		close(p.more)
	}
	return p.Conn.Close()
}

func (p *pipe) run() {
	for range p.more {
		p.mu.Lock()
		b := p.mu.waiting
		p.mu.waiting = nil
		p.mu.Unlock()
		if _, err := p.Conn.Write(b); err != nil {
			p.Close()
			return
		}
	}
}
