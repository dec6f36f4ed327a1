package topology

import (
	"context"
	"fmt"
	"net"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/replyreader"
	"github.com/pawl-lock/pawl/resp/wire"
)

// probes are the connections on which a deployment is asked for its layout: off the hot
// path, and independent of the connections that carry commands. A server's is made when
// the server is first asked. The search may end before it is connected, because other
// servers have answered or its time is over. Connecting goes on: on a slow network, or in
// a process that is short of CPU, one of the next searches finds it done.
//
// Invariants:
//
//  1. There is one probe for a server at most, and one question out on it: a search
//     asks a server once, and waits for its questions to end before it is over.
//  2. The connection of a probe in mu.open belongs to its connecting goroutine until
//     ready is closed, then to the goroutine that asks, and between searches to closeIf. A
//     probe that has been taken out of mu.open is closed by its owner at that time.
//  3. The connecting goroutines end with ctx; close waits for them.
type probes struct {
	clock       clock.Clock
	dialTimeout time.Duration
	timeout     time.Duration // of a search; set between searches
	slow        slowServers
	ctx         context.Context
	cancel      context.CancelFunc
	wg          sync.WaitGroup

	mu struct {
		sync.Mutex
		open        map[probeKey]*probe
		asked       map[string]bool        // in this search
		outstanding map[string]outstanding // of servers that have not answered yet
	}
}

// outstanding is an answer that a server has yet to give.
type outstanding struct {
	since  clock.Instant // when it was first asked
	silent clock.Instant // when it was first asked since it last said that it is full or busy; 0: not yet
}

// probeKey is a server and how to reach it: a sentinel may name a server by the address
// of a sentinel.
type probeKey struct {
	reach Reach
	addr  string
}

// newProbes returns probes that end with ctx, or with close.
func newProbes(ctx context.Context, c *Config, patience time.Duration) *probes {
	s := &probes{clock: c.Clock, dialTimeout: c.DialTimeout, timeout: patience}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.mu.open = make(map[probeKey]*probe)
	s.mu.asked = make(map[string]bool)
	s.mu.outstanding = make(map[string]outstanding)
	return s
}

// ask asks one server, reached by r. An error reply is an error, a *ServerError
// inside.
func (s *probes) ask(ctx context.Context, r Reach, addr string, question ...string) (wire.Value, error) {
	for {
		k := s.at(r, addr)
		if err := s.await(ctx, k); err != nil {
			return wire.Value{}, unansweredBy(ctx, addr, question[0], err)
		}
		if k.err != nil {
			if postponed(k.err) {
				s.reachable(addr)
			}
			return wire.Value{}, k.err
		}
		v, err := k.ask(ctx, question)
		if err == nil {
			k.used = true
			s.answered(addr)
			if v.Kind == wire.KindError {
				err = unansweredBy(ctx, addr, question[0], wire.NewServerError(v.Bytes))
			}
			return v, err
		}
		s.drop(k)
		if !k.used || ctx.Err() != nil {
			return wire.Value{}, unansweredBy(ctx, addr, question[0], err)
		}
		// The server may have closed it since the latest search, and be fine.
	}
}

// at returns the probe of a server, which is being connected if there was none.
func (s *probes) at(r Reach, addr string) *probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.asked[addr] = true
	now := s.clock.Now()
	d, known := s.mu.outstanding[addr]
	if !known {
		d.since = now
	}
	if d.silent == 0 {
		d.silent = now
	}
	s.mu.outstanding[addr] = d
	key := probeKey{r, addr}
	k := s.mu.open[key]
	if k == nil {
		k = &probe{key: key, ready: make(chan struct{})}
		ctx, cancel := context.WithCancel(s.ctx)
		k.cancel = cancel
		s.mu.open[key] = k
		s.wg.Go(func() {
			pprof.Do(ctx, pprof.Labels("role", "resp probe"), func(ctx context.Context) { s.connect(ctx, k) })
		})
	}
	return k
}

// await waits until connecting has ended. For a server that was silent throughout an
// earlier search it waits only for HedgeDelay: if the connection is still being made, one
// of the next searches will find it.
func (s *probes) await(ctx context.Context, k *probe) error {
	patience := s.timeout
	if s.silence(k.key.addr) >= SearchTimeout {
		patience = HedgeDelay
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-k.ready:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w, after %v", ErrSilent, s.silence(k.key.addr).Round(time.Millisecond))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connect is the connecting goroutine of k.
func (s *probes) connect(ctx context.Context, k *probe) {
	defer k.cancel()
	conn, err := k.key.reach.Connect(ctx, k.key.addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.mu.open[k.key] == k
	switch {
	case err != nil && mine:
		delete(s.mu.open, k.key)
	case err == nil && !mine:
		hangUp(conn)
	}
	k.in, k.err, k.since = replyreader.Stream{Conn: conn}, err, s.clock.Now()
	close(k.ready)
}

// connected returns since when the connection has existed on which a server was asked; never, if
// it is gone.
func (s *probes) connected(r Reach, addr string) clock.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.mu.open[probeKey{r, addr}]; k != nil && k.connected() {
		return k.since
	}
	return never
}

// answered notes that a server has answered.
func (s *probes) answered(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.outstanding, addr)
}

// reachable notes that a server is there, though it has not answered.
func (s *probes) reachable(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, known := s.mu.outstanding[addr]; known {
		d.silent = 0
		s.mu.outstanding[addr] = d
	}
}

// silence returns for how long a server with an outstanding answer has said nothing at all.
func (s *probes) silence(addr string) time.Duration {
	_, silent := s.outstanding(addr)
	return silent
}

// outstanding returns for how long an answer of a server has been outstanding, and for how long of
// that it has been silent.
func (s *probes) outstanding(addr string) (waiting, silent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.mu.outstanding[addr]
	if !known {
		return 0, 0
	}
	now := s.clock.Now()
	if d.silent != 0 {
		silent = now.Sub(d.silent)
	}
	return now.Sub(d.since), silent
}

// drop closes the connection of a probe, which the caller has.
func (s *probes) drop(k *probe) {
	s.mu.Lock()
	if s.mu.open[k.key] == k {
		delete(s.mu.open, k.key)
	}
	s.mu.Unlock()
	hangUp(k.in.Conn)
}

// forget closes the connection to a server that is being asked by the caller.
func (s *probes) forget(r Reach, addr string) {
	s.mu.Lock()
	k := s.mu.open[probeKey{r, addr}]
	s.mu.Unlock()
	if k != nil {
		s.drop(k)
	}
}

// tidy ends a search: what was not asked in it is closed and forgotten; all is unless
// keep.
func (s *probes) tidy(keep bool) {
	s.closeIf(func(k *probe) bool { return !keep || !s.mu.asked[k.key.addr] })
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr := range s.mu.outstanding {
		if !keep || !s.mu.asked[addr] {
			delete(s.mu.outstanding, addr)
		}
	}
	clear(s.mu.asked)
}

// renew closes the connections that have lasted for longer than a dial may take: their
// addresses may lead to other servers by now. (Younger ones stay. Where each takes its
// time they would never be there together.)
func (s *probes) renew() {
	now := s.clock.Now()
	s.closeIf(func(k *probe) bool { return k.connected() && now.Sub(k.since) > s.dialTimeout })
}

// closeIf takes out some probes, between searches. cond is called with s.mu held.
func (s *probes) closeIf(cond func(k *probe) bool) {
	var gone []net.Conn
	s.mu.Lock()
	for key, k := range s.mu.open {
		if !cond(k) {
			continue
		}
		delete(s.mu.open, key)
		k.cancel()
		if k.connected() {
			gone = append(gone, k.in.Conn)
		}
	}
	s.mu.Unlock()
	for _, conn := range gone {
		hangUp(conn)
	}
}

// close ends all connections and waits for the connecting goroutines. No question may be
// out.
func (s *probes) close() {
	s.cancel()
	s.tidy(false)
	s.wg.Wait()
}
