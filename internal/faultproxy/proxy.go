// Package faultproxy is a TCP proxy in front of a real Redis server that does to
// connections what networks do, and to single commands what only a test can
// arrange: it reads RESP, so "the server executed it and the answer was lost" is
// one call. Nothing in it sleeps, Delay excepted.
//
//	p := faultproxy.New(t, "unix", server.Socket())
//	... client connects to p.Addr() ...
//	cut := p.CutAfterRequest(faultproxy.Is("EVALSHA", sha))
//	... client calls ...
//	cut.Wait(1)
//
// It understands RESP2 without MONITOR, CLIENT REPLY and inline pub/sub modes:
// every command has one reply, except that SUBSCRIBE and its relatives have one
// per channel.
package faultproxy

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/pauselistener"
)

// waitLimit bounds Trap.Wait, so that what never comes fails one test instead
// of the whole run.
const waitLimit = 20 * time.Second

// Proxy is the proxy. Its methods may be called at any time from any goroutine,
// except those that can fail the test: Up, WaitConns and Trap.Wait belong to
// the test's own.
type Proxy struct {
	t                 testing.TB
	addr              string // where it listens
	upNetwork, upAddr string
	ctx               context.Context // ends with the proxy; bounds dialling
	wg                sync.WaitGroup  // accept loops and the goroutines of connections

	mu       sync.Mutex
	changed  chan struct{}           // closed and replaced when a trap or a connection is news
	listener *pauselistener.Listener // nil while down
	paused   *pauselistener.Listener // the listener while down, its port kept
	conns    map[int]*conn
	stats    Stats
	traps    []*Trap
	holes    []Select
	holds    []hold
	lags     []lag
}

// Stats counts what has passed.
type Stats struct {
	Accepted  int            // connections so far
	Open      int            // of these still open
	Received  map[string]int // commands from clients, by name in upper case
	Forwarded map[string]int // of these written to the server
}

// New starts a Proxy on a free port of loopback in front of the server at this
// address; the end of the test closes it. The server need not be up yet.
func New(t testing.TB, upstreamNetwork, upstreamAddr string) *Proxy {
	t.Helper()
	// Not the test's own context: that one ends before cleanups run, and a test
	// may close its client in one.
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{
		t:         t,
		upNetwork: upstreamNetwork,
		upAddr:    upstreamAddr,
		ctx:       ctx,
		changed:   make(chan struct{}),
		conns:     make(map[int]*conn),
		stats:     Stats{Received: make(map[string]int), Forwarded: make(map[string]int)},
	}
	d, err := pauselistener.Free("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = d.Addr().String()
	p.open(d)
	t.Cleanup(func() {
		cancel()
		p.Down()
		p.paused.Close()
		p.wg.Wait()
	})
	return p
}

// Addr returns the TCP address that clients dial.
func (p *Proxy) Addr() string { return p.addr }

// Down refuses connections and cuts those there are, as when a server is killed.
// Its port stays its own.
func (p *Proxy) Down() {
	p.mu.Lock()
	d := p.listener
	if d != nil {
		d.Pause()
		p.listener, p.paused = nil, d
	}
	p.mu.Unlock()
	if d != nil {
		<-d.Ended // or it would take the first connection after Up for its own, and refuse it
	}
	p.Cut(All)
}

// Up accepts connections again, on the same address.
func (p *Proxy) Up() {
	p.t.Helper()
	d, err := p.paused.Resume()
	if err != nil {
		p.t.Fatal(err)
	}
	p.open(d)
}

func (p *Proxy) open(d *pauselistener.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener = d
	p.wg.Go(func() { p.accept(d) })
}

func (p *Proxy) accept(d *pauselistener.Listener) {
	defer close(d.Ended)
	for {
		nc, err := d.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.listener != d {
			// Down came between Accept and here; it could not see this connection.
			p.mu.Unlock()
			nc.Close()
			return
		}
		p.stats.Accepted++
		c := newConn(p, p.stats.Accepted, nc)
		p.conns[c.id] = c
		p.wg.Go(c.run)
		p.notifyLocked()
		p.mu.Unlock()
	}
}

func (p *Proxy) forget(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c.id)
	p.notifyLocked()
}

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Open = len(p.conns)
	s.Received, s.Forwarded = maps.Clone(s.Received), maps.Clone(s.Forwarded)
	return s
}

// Conns returns the connections that are open.
func (p *Proxy) Conns() []Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Info
	for _, c := range p.conns {
		info := c.infoLocked()
		info.Commands = maps.Clone(info.Commands)
		all = append(all, info)
	}
	return all
}

// WaitConns waits until exactly count open connections are picked by sel. It
// fails the test after 20 s.
func (p *Proxy) WaitConns(count int, sel Select) {
	p.t.Helper()
	p.wait("connections", func() bool {
		picked := 0
		for _, c := range p.conns {
			if sel(c.infoLocked()) {
				picked++
			}
		}
		return picked == count
	})
}

// wait waits for a condition, which is asked with the lock held.
func (p *Proxy) wait(what string, holds func() bool) {
	p.t.Helper()
	limit, cancel := cputime.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for {
		p.mu.Lock()
		ok, changed := holds(), p.changed
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit.Done():
			p.t.Fatalf("faultproxy: still waiting for %s after %v; so far: %+v", what, waitLimit, p.Stats())
		}
	}
}

func (p *Proxy) notifyLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}
