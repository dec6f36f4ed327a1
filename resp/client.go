package resp

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"sync"
)

// Client is the connections to one node: lanes for user commands, one for
// renewals, one for pub/sub. Each connects by itself, again and again, until
// Close.
//
// All methods are safe for any goroutine; none blocks, except WaitReady, Do and
// Close.
//
// Goroutines, all awaited by Close: the transport's (an event loop or two for
// all connections; with std two per connection), one ticker, and one per link
// while it has no connection.
type Client struct {
	cfg     Config
	loops   *loops
	lanes   []*lane
	renewal *lane
	pubsub  *pubsub
	links   []*link // the lanes, then renewal, then pubsub

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	wg     sync.WaitGroup // the ticker and the connecting goroutines

	mu struct {
		sync.Mutex
		closed bool
		change chan struct{} // closed, and replaced, when a link came up or failed
		rise   chan struct{} // closed, and replaced, when a link came up
	}
	closing struct {
		sync.Once
		err error
	}
}

// Open returns a Client that begins to connect. It never blocks and never fails:
// see WaitReady for the first outcome.
func Open(cfg Config) *Client {
	cfg = cfg.withDefaults()
	c := &Client{cfg: cfg}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.mu.change, c.mu.rise = make(chan struct{}), make(chan struct{})

	c.loops = newLoops(cfg.EventLoops, cfg.Transport == TransportStd, func(err error) {
		cfg.Logger.Warn("resp: no event loops, using a goroutine per connection", "err", err)
	})
	for i := range cfg.Lanes {
		c.lanes = append(c.lanes, c.addLane(RoleLane, i))
	}
	c.renewal = c.addLane(RoleRenewal, 0)
	sub := &link{client: c, role: RolePubSub}
	c.pubsub = &pubsub{subs: newSubs(), clock: cfg.Clock, timeout: cfg.CommandTimeout, down: sub.down}
	sub.endpoint = c.pubsub
	c.links = append(c.links, sub)

	for _, l := range c.links {
		c.start(l)
	}
	c.goLabelled("housekeeping", c.housekeep)
	return c
}

// goLabelled runs f on a goroutine that Close waits for; ctx ends when it begins.
func (c *Client) goLabelled(role string, f func(ctx context.Context)) {
	c.wg.Go(func() { pprof.Do(c.ctx, pprof.Labels("pawl", role), f) })
}

func (c *Client) addLane(role Role, index int) *lane {
	l := &link{client: c, role: role, index: index}
	lane := newLane(laneConfig{
		clock:          c.cfg.Clock,
		commandTimeout: c.cfg.CommandTimeout,
		maxInFlight:    c.cfg.MaxInFlight,
		maxQueuedBytes: maxQueuedBytes,
		down:           l.down,
	})
	l.endpoint = lane
	c.links = append(c.links, l)
	return lane
}

// start runs the connecting goroutine of l, unless the Client is being closed.
func (c *Client) start(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.closed {
		c.goLabelled("connecting", l.run)
	}
}

// Submit sends r on the lane of hash. Requests of one hash submitted by one
// goroutine reach the server in that order. r is completed in any case; if the
// lane is down or full, before Submit returns.
func (c *Client) Submit(hash uint64, r Request) { c.lanes[c.LaneOf(hash)].submit(r) }

// SubmitRenewal sends r on the renewal connection; else it is like Submit.
func (c *Client) SubmitRenewal(r Request) { c.renewal.submit(r) }

// LaneOf returns the lane of hash.
func (c *Client) LaneOf(hash uint64) int { return int(hash % uint64(len(c.lanes))) }

// Lanes returns how many lanes there are.
func (c *Client) Lanes() int { return len(c.lanes) }

// Subscribe adds ch: its handler hears Subscribed when the server has confirmed,
// and then of every message. It never calls the handler itself. Subscribing a
// Channel twice is subscribing it once.
func (c *Client) Subscribe(ch *Channel) {
	if c.pubsub.subs.subscribe(ch) {
		c.pubsub.wake()
	}
}

// Unsubscribe removes ch. An event that the loop has picked up just before may
// still arrive after it has returned, and no other. If ch is subscribed again at
// once, that event may even be the Subscribed of the time before: take Subscribed
// for "look again", which is right in either case, since the true one follows.
func (c *Client) Unsubscribe(ch *Channel) {
	if c.pubsub.subs.unsubscribe(ch) {
		c.pubsub.wake()
	}
}

func (c *Client) link(role Role, lane int) *link {
	switch role {
	case RoleLane:
		return c.links[lane]
	case RoleRenewal:
		return c.links[len(c.lanes)]
	default:
		return c.links[len(c.lanes)+1]
	}
}

// Up reports whether a connection is up; lane counts for RoleLane only.
func (c *Client) Up(role Role, lane int) bool {
	up, _, _ := c.link(role, lane).status()
	return up
}

// LastError returns why a connection is not up: the error of the latest attempt,
// or of the loss. It is nil while the connection is up, and before the first
// attempt has ended.
func (c *Client) LastError(role Role, lane int) error {
	_, _, err := c.link(role, lane).status()
	return err
}

// WaitReady returns nil once every connection has been up. An error that only a
// human can mend (a wrong password, a database that does not exist, a missing
// permission) is returned at once, as a *ServerError inside; the Client goes on
// trying all the same. When ctx ends, the error holds its cause and the latest
// error of a connection.
func (c *Client) WaitReady(ctx context.Context) error {
	for {
		c.mu.Lock()
		closed, change := c.mu.closed, c.mu.change
		c.mu.Unlock()
		if closed {
			return ErrClosed
		}
		ready, err := c.progress()
		if ready {
			return nil
		}
		if lasting(err) {
			return err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("resp: %s is not ready: %w", c.cfg.Addr, context.Cause(ctx)), err)
		}
	}
}

// progress reports whether every link has been up, and else the error that tells
// most about why not: a lasting one before a passing one.
func (c *Client) progress() (ready bool, err error) {
	ready = true
	for _, l := range c.links {
		_, connects, last := l.status()
		if connects > 0 {
			continue
		}
		ready = false
		if err == nil || lasting(last) {
			err = last
		}
	}
	return ready, err
}

// changed wakes WaitReady.
func (c *Client) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	replace(&c.mu.change)
}

// sibling is closed when the next link comes up.
func (c *Client) sibling() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.rise
}

// replace wakes all who wait for *ch.
func replace(ch *chan struct{}) {
	close(*ch)
	*ch = make(chan struct{})
}

// notice tells everybody of s. An error is a panic of OnState.
func (c *Client) notice(s State) error {
	err := c.onState(s)
	if s.Up {
		c.mu.Lock()
		defer c.mu.Unlock()
		replace(&c.mu.change)
		replace(&c.mu.rise)
	}
	return err
}

func (c *Client) onState(s State) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("resp: BUG: panic in OnState: %v", v)
		}
	}()
	if c.cfg.OnState != nil {
		c.cfg.OnState(s)
	}
	return nil
}

// Close ends every connection: what is in flight fails as its state demands, with
// ErrClosed as the cause, and what is submitted later is refused. It returns when
// every goroutine of the Client has ended; later calls wait for the first. It
// must not be called from Complete, a ChannelHandler or OnState.
func (c *Client) Close() error {
	c.closing.Do(func() {
		c.mu.Lock()
		c.mu.closed = true
		c.mu.Unlock()
		c.changed()
		c.cancel()
		for _, l := range c.links {
			l.endpoint.close(ErrClosed)
		}
		c.wg.Wait()
		c.closing.err = c.loops.close()
	})
	return c.closing.err
}
