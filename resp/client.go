package resp

import (
	"context"
	"maps"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pawl-lock/pawl/resp/internal/pubsub"
	"github.com/pawl-lock/pawl/resp/internal/replication"
	"github.com/pawl-lock/pawl/resp/internal/request"
	"github.com/pawl-lock/pawl/resp/internal/socket"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// Client is the connections to a deployment: to each of its nodes lanes for user
// commands, one for renewals, one for pub/sub. Each connects by itself, again and
// again, until its node serves nothing any more, or until Close.
//
// All methods are safe for any goroutine; none blocks, except WaitReady,
// WaitFirst, Do and Close.
//
// The documentation of the package has its goroutines. Close waits for all of them.
type Client struct {
	cfg      Config
	loops    *socket.Loops
	routes   topology.Slots[node]
	explorer *topology.Explorer

	channels      *pubsub.Registry
	sharded       atomic.Bool
	shardingKnown bool // of the explorer

	groups    atomic.Pointer[topology.Groups] // nil: not asked for yet
	counting  atomic.Bool                     // they are asked for
	highWater replication.HighWater           // where nobody keeps a list

	redirects atomic.Uint64
	changedAt atomic.Int64  // when the routes changed last
	servers   atomic.Uint32 // the latest ServerID
	retired   retired

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	wg     sync.WaitGroup // the ticker and the connecting goroutines

	mu struct {
		sync.Mutex
		closed   bool
		nodes    map[string]*node // by address
		unlisted int              // of these
		change   chan struct{}    // closed, and replaced, when a link came up or failed
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
	c.changedAt.Store(int64(cfg.Clock.Now()))
	c.mu.change = make(chan struct{})
	c.mu.nodes = make(map[string]*node)
	c.loops = socket.NewLoops(cfg.EventLoops, cfg.Transport == TransportStd, func(err error) {
		cfg.Logger.Warn("resp: no event loops, using a goroutine per connection", "err", err)
	})
	c.channels = pubsub.NewRegistry(c.endpointOf, func() { c.explorer.RefreshNow("") })
	c.highWater.Forever = cfg.Topology == Standalone || cfg.Topology == Replicas
	c.counting.Store(cfg.Durable)
	if cfg.Topology == Cluster {
		c.routes.Divide()
	}
	if d := cfg.deployment(); d != nil {
		c.explorer = topology.NewExplorer(c.ctx, d, (*topologyClient)(c))
		c.goLabelled(c.ctx, "explorer", c.explorer.Run)
		c.goLabelled(c.ctx, "watch", c.explorer.Watch)
	} else {
		n := newNode(c, cfg.Network, cfg.Addr)
		c.mu.nodes[cfg.Addr] = n
		c.routes.Serve(n)
		n.open()
		if host, ok := cfg.watchedName(); ok {
			c.goLabelled(c.ctx, "name", func(ctx context.Context) { c.watchName(ctx, n, host) })
		}
	}
	c.goLabelled(c.ctx, "housekeeping", c.housekeep)
	return c
}

// endpointOf returns where the Channels of a slot are.
func (c *Client) endpointOf(slot uint16) *pubsub.Endpoint {
	if n := c.routes.Of(uint64(slot)); n != nil {
		return n.pubsub
	}
	return nil
}

// goLabelled runs f on a goroutine that Close waits for; ctx ends when it begins.
func (c *Client) goLabelled(ctx context.Context, role string, f func(ctx context.Context)) {
	c.wg.Go(func() { pprof.Do(ctx, pprof.Labels("role", "resp "+role), f) })
}

// Submit sends r on the lane of a route. Requests of one route that one goroutine
// submits reach the server in that order, as long as the lane is not full. r is completed in
// any case. If the lane is down, or no node serves the route, it is completed before Submit
// returns. For a lane that is full see Priority.
func (c *Client) Submit(route uint64, r Request) {
	if n := c.routes.Of(route); n != nil {
		n.lane(route).Submit(r)
		return
	}
	c.refuse(r)
}

// SubmitRenewal sends r on the renewal connection of a route's node. Otherwise it is
// like Submit.
func (c *Client) SubmitRenewal(route uint64, r Request) {
	if n := c.routes.Of(route); n != nil {
		n.renewal.Submit(r)
		return
	}
	c.refuse(r)
}

// SubmitDurable sends r on the durable connection of a route's node, in a group with
// others. Otherwise it is like Submit, except that requests may reach the server in
// another order than they were submitted.
func (c *Client) SubmitDurable(route uint64, r DurableRequest) {
	c.submitDurable(route, RoleDurable, r)
}

// SubmitDurableRenewal is SubmitDurable on the durable connection of renewals.
func (c *Client) SubmitDurableRenewal(route uint64, r DurableRequest) {
	c.submitDurable(route, RoleDurableRenewal, r)
}

func (c *Client) submitDurable(route uint64, role Role, r DurableRequest) {
	if n := c.routes.Of(route); n != nil {
		n.durable[role-RoleDurable].Submit(r)
		return
	}
	c.refuse(r)
}

// errRefusedNowhere is for a route that no node serves.
var errRefusedNowhere = &request.Failure{Class: ErrNotSent, Cause: errNowhere}

func (c *Client) refuse(r Request) {
	c.explorer.RefreshSoon() // the latest layout may have had a gap
	c.mu.Lock()
	closed := c.mu.closed
	c.mu.Unlock()
	err := error(errRefusedNowhere)
	if closed {
		err = request.RefusedClosed
	}
	r.Complete(Reply{Err: err, Now: c.cfg.Clock.Now()})
}

// LaneOf returns the current lane of a route, which may move to another node.
func (c *Client) LaneOf(route uint64) LaneID {
	n := c.routes.Of(route)
	if n == nil {
		return LaneID{}
	}
	return LaneID{n, n.laneIndex(route)}
}

// ServerOf returns the current server of a route; 0 if none is known.
func (c *Client) ServerOf(route uint64) ServerID {
	if n := c.routes.Of(route); n != nil {
		return n.id
	}
	return 0
}

// AddrOf returns the address of the current server of a route; "" if none is known.
func (c *Client) AddrOf(route uint64) string {
	if n := c.routes.Of(route); n != nil {
		return n.cfg.Addr
	}
	return ""
}

// Subscribe adds ch. Its handler gets Subscribed when the server has confirmed, and
// then every message. Subscribe never calls the handler itself. Subscribing a Channel
// twice is the same as once.
func (c *Client) Subscribe(ch *Channel) { c.channels.Subscribe(ch) }

// Unsubscribe removes ch. After it has returned, at most one event may still arrive,
// which the loop had picked up before. If ch is subscribed again at once, that event may
// even be the Subscribed of the previous subscription. So take Subscribed to mean "look
// again": that is right in both cases, because the real one follows.
func (c *Client) Unsubscribe(ch *Channel) { c.channels.Unsubscribe(ch) }

// Up reports whether a connection is up, of the node that serves route 0; lane
// counts for RoleLane only.
func (c *Client) Up(role Role, lane int) bool {
	n := c.routes.Of(0)
	if n == nil {
		return false
	}
	up, _, _ := n.link(role, lane).status()
	return up
}

// LastError returns why a connection is not up: the error of the latest attempt,
// or of the loss. It is nil while the connection is up, and before the first
// attempt has ended.
func (c *Client) LastError(role Role, lane int) error {
	n := c.routes.Of(0)
	if n == nil {
		return errNowhere
	}
	_, _, err := n.link(role, lane).status()
	return err
}

// LaneError returns why the lane of a route is not up: the error of the latest
// attempt, or of the loss. It is nil while the lane is up, and before the first
// attempt has ended.
func (c *Client) LaneError(route uint64) error {
	n := c.routes.Of(route)
	if n == nil {
		if _, _, err := c.explorer.Progress(); err != nil {
			return err
		}
		return errNowhere
	}
	_, _, err := n.links[n.laneIndex(route)].status()
	return err
}

// nodes returns the nodes as of now.
func (c *Client) nodes() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.mu.nodes))
}

// impaired reports whether a connection is missing.
func (c *Client) impaired() bool {
	return slices.ContainsFunc(c.nodes(), (*node).impaired)
}

// changed wakes WaitReady.
func (c *Client) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	replace(&c.mu.change)
}

// replace wakes all who wait for *ch.
func replace(ch *chan struct{}) {
	close(*ch)
	*ch = make(chan struct{})
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
		for _, n := range c.nodes() {
			n.close(ErrClosed)
		}
		c.wg.Wait()
		c.closing.err = c.loops.Close()
	})
	return c.closing.err
}
