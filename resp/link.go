package resp

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/handshake"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// endpoint is what a link keeps connected: a lane or the pub/sub side.
type endpoint interface {
	// Attach takes over a connection after its handshake. After nil the link's down is called
	// once, when that connection has ended; after an error it is not.
	Attach(ls *socket.Loops, conn net.Conn) error
	// Err returns nil while there is a connection that has not been left, and else why not.
	Err() error
	// Leave ends the connection, if there is one, once everything in flight is answered.
	Leave(err error)
	// CheckAge is called every housekeepingEvery. now is the past if this process is
	// behind.
	CheckAge(now clock.Instant)
	// Close ends the connection, if there is one, and every later one at birth.
	Close(err error)
}

// link keeps one endpoint connected, for the life of its node.
//
//	connecting --attached--> announcing --OnState(up) returned--> up
//	    ^                        |                                 |
//	    |                      down                              down
//	    +---- OnState(down) -----+------- OnState(down) -----------+
//
// Invariants
//
//  1. There is a connecting goroutine in the first two phases and none while up.
//     It belongs to Client.wg.
//
//  2. The calls of OnState alternate and never overlap: up is called by the
//     connecting goroutine. A loss that comes while that call runs is only noted;
//     the same goroutine reports it afterwards:
//
//     goroutine: attach            OnState(up) .... sees the loss  OnState(down)
//     loop:              OnClose -> down: noted
//
//  3. mu.up is true from before OnState(up) until just before OnState(down). For all who ask
//     (status) the link is down earlier, from Leave or the end of the connection on, and the
//     endpoint says why: what they would send now is refused.
type link struct {
	node     *node
	role     Role
	index    int
	endpoint endpoint
	dormant  atomic.Bool // it does not connect before wake

	mu struct {
		sync.Mutex
		up         bool
		announcing bool
		lost       error // why, if it was lost while announcing
		last       error // of the latest failed attempt or loss; nil while up
		lasting    bool  // last needs a human: kept, because to ask it may call a user's code
		connects   int
		dialled    clock.Instant // when the making of the latest connection began
		remote     netip.Addr    // of the latest connection
		since      clock.Instant // of the latest connection
		away       clock.Instant // of the latest loss, or failed attempt; 0: there was none
		down       clock.Instant // since then there is none; 0: there is one
		pausing    bool          // the latest attempt failed, and the next one is not due
	}

	// The connecting goroutine's.
	backoff backoff
}

// wake has a dormant link connect.
func (l *link) wake() {
	if l.dormant.Load() && l.dormant.CompareAndSwap(true, false) {
		l.node.start(l)
	}
}

// run is the connecting goroutine: it ends when the link is up or ctx ends.
func (l *link) run(ctx context.Context) {
	n := l.node
	if _, connects, last := l.status(); connects > 0 {
		l.log(slog.LevelDebug, "resp: connection lost", last) // here: no user code on the loop
	}
	kick := n.sibling()
	for l.backoff.wait(ctx, kick, l.limited) {
		kick = n.sibling() // before the attempt: a sibling may get through during it
		dialled := n.cfg.Clock.Now()
		l.pauses(false)
		conn, err := n.cfg.connect(ctx, l.role)
		if err == nil {
			l.announce()
			remote := remoteOf(conn)
			if err = l.endpoint.Attach(n.client.loops, conn); err == nil {
				if l.attached(dialled, remote) {
					return
				}
				continue
			}
			l.mu.Lock()
			l.mu.announcing = false
			l.mu.Unlock()
		}
		if ctx.Err() != nil {
			return
		}
		l.failed(dialled, err)
	}
}

// limited is a pause as far as it may last: credentials that were refused are tried again when
// their pause ends.
func (l *link) limited(pause time.Duration) time.Duration {
	cfg := &l.node.cfg
	pause = cfg.limited(pause)
	if left := cfg.authBackoff.Left(cfg.Addr, purposes[l.role]); left > 0 {
		pause = min(pause, left)
	}
	return pause
}

// announce opens the phase in which a loss is noted and not reported.
func (l *link) announce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.announcing = true
	l.mu.lost = nil
}

// attached reports the connection, and its loss if that came meanwhile. It
// returns whether the link is up and the goroutine's work done.
func (l *link) attached(dialled clock.Instant, remote netip.Addr) bool {
	n := l.node
	l.mu.Lock()
	l.mu.up = true
	l.mu.down = 0
	l.mu.last, l.mu.lasting = nil, false
	l.mu.connects++
	l.mu.dialled, l.mu.since, l.mu.remote = dialled, n.cfg.Clock.Now(), remote
	state := l.stateLocked(nil)
	l.mu.Unlock()
	n.resubscribe()
	bug := n.publish(state)

	l.mu.Lock()
	l.mu.announcing = false
	lost := l.mu.lost
	if lost != nil {
		state = l.lostLocked(lost)
	}
	l.mu.Unlock()
	if lost == nil {
		n.outageMayEnd()
		if bug != nil {
			l.log(slog.LevelError, "resp: connection up", bug)
		}
		return true
	}
	bug = errors.Join(bug, n.publish(state))
	n.outageBegins(lost, false)
	l.log(levelOf(bug), "resp: connection lost at once", errors.Join(lost, bug))
	return false
}

// down is called by the endpoint when its connection has ended; on its loop.
func (l *link) down(err error) {
	l.mu.Lock()
	if l.mu.announcing {
		l.mu.lost = err
		l.mu.Unlock()
		return
	}
	state := l.lostLocked(err)
	l.mu.Unlock()
	bug := l.node.publish(state)
	if bug != nil {
		err = errors.Join(err, bug)
		l.mu.Lock()
		l.mu.last = err
		l.mu.Unlock()
	}
	l.node.outageBegins(err, false) // no method of err is called on a loop: it may be a Dialer's own
	if l.node.ctx.Err() == nil {
		// Not first when a dial fails: to a machine that is gone it takes DialTimeout.
		l.node.client.explorer.RefreshSoon()
	}
	l.node.start(l)
}

// lostLocked leaves the phase up.
func (l *link) lostLocked(err error) State {
	l.mu.up = false
	l.mu.last, l.mu.lasting = err, false
	l.mu.away = l.node.cfg.Clock.Now()
	l.mu.down = l.mu.away
	// A connection that lasted proves the server healthy: no need to be shy.
	if l.mu.away.Sub(l.mu.since) > backoffMax {
		l.backoff.reset()
	}
	return l.stateLocked(err)
}

// backAfter reports whether the link is up again after a loss, or after an attempt that
// failed, later than t.
func (l *link) backAfter(t clock.Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.up && t.Before(l.mu.away)
}

// failed keeps the error of an attempt for WaitReady and LastError.
func (l *link) failed(dialled clock.Instant, err error) {
	lasting := handshake.Lasting(err)
	l.mu.Lock()
	l.mu.last, l.mu.lasting, l.mu.away, l.mu.pausing = err, lasting, dialled, true
	l.mu.Unlock()
	level := slog.LevelDebug
	foreign := errors.Is(err, topology.ErrForeign) // it is reported once for all connections
	if !foreign && !l.node.outageBegins(err, lasting) && lasting && l.node.firstLasting() {
		level = slog.LevelWarn // the others say nothing new
	}
	l.log(level, "resp: cannot connect, trying again", err)
	l.node.client.explorer.RefreshSoon() // perhaps another server has taken its place
	if handshake.Permanent(err) {
		l.backoff.max() // it takes a human; no need to hurry, nor to flood the server's log
	}
	l.node.client.changed()
}

// pauses notes whether the link waits for its next attempt.
func (l *link) pauses(yes bool) {
	l.mu.Lock()
	l.mu.pausing = yes
	l.mu.Unlock()
}

// levelOf is the level of a loss: what is wrong with it, if anything, or what its outage has
// reported already.
func levelOf(bug error) slog.Level {
	if bug != nil {
		return slog.LevelError
	}
	return slog.LevelDebug
}

func (l *link) log(level slog.Level, text string, err error) {
	cfg := &l.node.cfg
	cfg.Logger.Log(l.node.ctx, level, text, "role", l.role.String(), "lane", l.index, "addr", cfg.Addr, "err", err)
}

func (l *link) stateLocked(err error) State {
	return State{
		Role: l.role, Lane: l.index, ID: l.laneID(), Addr: l.node.cfg.Addr,
		Up: l.mu.up, Err: err, Reconnects: max(0, l.mu.connects-1),
	}
}

// laneID names the lane of the link, if it has one.
func (l *link) laneID() LaneID {
	if l.role != RoleLane {
		return LaneID{}
	}
	return LaneID{l.node, l.index}
}

// status is the answer to Client.Up and the others who look from outside.
func (l *link) status() (up bool, connects int, last error) {
	l.mu.Lock()
	up, connects, last = l.mu.up, l.mu.connects, l.mu.last
	l.mu.Unlock()
	if up {
		last = l.endpoint.Err()
	}
	return up && last == nil, connects, last
}

// The first attempt after a loss comes within backoffMin: the server may have
// closed one connection and be fine. The next ones follow decorrelated jitter,
// each between backoffMin and three times the one before, so that many clients of
// a restarted server spread out by themselves. When one link of a client gets through,
// its siblings try at once, since the outage seems to be over. But they do so only once
// until a connection has lasted: links that die at birth would otherwise kick each other
// for ever.
const (
	backoffMin = 10 * time.Millisecond
	backoffMax = time.Second
)

// backoff paces the attempts of one link.
type backoff struct {
	rand   *rand.Rand // nil: the global source
	tried  bool
	kicked bool // a pause has been cut short since reset
	prev   time.Duration
}

func (b *backoff) reset() { b.prev, b.kicked = 0, false }
func (b *backoff) max()   { b.prev = backoffMax }

// next returns the pause before the next attempt. The very first has none.
func (b *backoff) next() time.Duration {
	if !b.tried {
		b.tried = true
		return 0
	}
	if b.prev == 0 {
		b.prev = backoffMin
		return b.jitter(backoffMin)
	}
	b.prev = min(backoffMax, backoffMin+b.jitter(3*b.prev-backoffMin))
	return b.prev
}

func (b *backoff) jitter(d time.Duration) time.Duration {
	if b.rand != nil {
		return time.Duration(b.rand.Int64N(int64(d)))
	}
	return time.Duration(rand.Int64N(int64(d)))
}

// wait pauses, as far as it may, or until kick is closed; false if ctx ended.
func (b *backoff) wait(ctx context.Context, kick <-chan struct{}, limited func(time.Duration) time.Duration) bool {
	if b.kicked {
		kick = nil
	}
	t := time.NewTimer(limited(b.next()))
	defer t.Stop()
	select {
	case <-t.C:
	case <-kick:
		b.kicked = true
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
