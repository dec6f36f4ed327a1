package resp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/pipeline"
	"github.com/pawl-lock/pawl/resp/internal/pubsub"
	"github.com/pawl-lock/pawl/resp/internal/replication"
	"github.com/pawl-lock/pawl/resp/internal/slot"
	"github.com/pawl-lock/pawl/resp/internal/suspicion"
)

// node is the connections to one server: lanes for user commands, one for
// renewals, one for pub/sub, and for each of the first two a durable one, once it is
// used. It belongs to a Client, which makes it when it first
// needs that server and closes it when the server serves nothing any more.
type node struct {
	client    *Client
	id        ServerID
	cfg       Config // the Client's, with this server's address
	lanes     []*pipeline.Lane
	renewal   *pipeline.Lane
	pubsub    *pubsub.Endpoint
	durable   [2]*replication.Lane   // of commands, of renewals
	links     []*link                // the lanes, then as the roles
	highWater *replication.HighWater // of the replicas
	born      clock.Instant

	ctx    context.Context // ends with the node
	cancel context.CancelFunc

	// Of Client.mu:
	idleSince clock.Instant // when it was found to serve nothing
	unlisted  bool          // the latest layout does not name it

	mu struct {
		sync.Mutex
		rise      chan struct{} // closed, and replaced, when a link came up
		suspicion suspicion.State
		outage    outage
		replaced  clock.Instant // when replace last did something
	}
}

// newNode makes the node of an address. Its links do not connect before open.
func newNode(c *Client, network, addr string) *node {
	n := &node{client: c, id: ServerID(c.servers.Add(1)), cfg: c.cfg, highWater: &c.highWater}
	if !c.highWater.Forever {
		n.highWater = new(replication.HighWater)
	}
	n.cfg.Network, n.cfg.Addr, n.born = network, addr, c.cfg.Clock.Now()
	n.ctx, n.cancel = context.WithCancel(c.ctx)
	n.mu.rise = make(chan struct{})
	for i := range n.cfg.Lanes {
		n.lanes = append(n.lanes, n.addLane(RoleLane, i))
	}
	n.renewal = n.addLane(RoleRenewal, 0)
	sub := &link{node: n, role: RolePubSub}
	n.pubsub = c.channels.NewEndpoint(c.sharded.Load(), n.cfg.Clock, n.cfg.CommandTimeout, sub.down, sub.refusesChannels)
	sub.endpoint = n.pubsub
	n.links = append(n.links, sub)
	sub.mu.down = n.born
	for i := range n.durable {
		n.durable[i] = n.addDurable(RoleDurable + Role(i))
	}
	return n
}

func (n *node) addLane(role Role, index int) *pipeline.Lane {
	l := &link{node: n, role: role, index: index}
	return n.laneOf(l, n.cfg.CommandTimeout, n.cfg.MaxInFlight)
}

func (n *node) addDurable(role Role) *replication.Lane {
	l := &link{node: n, role: role}
	l.dormant.Store(!n.cfg.Durable)
	timeout := n.cfg.AckTimeout
	if role == RoleDurableRenewal {
		timeout = n.cfg.RenewalAckTimeout
	}
	lane := n.laneOf(l, n.cfg.CommandTimeout+timeout, 2*replication.MaxGroup) // the queue before it has the limit
	return replication.New(replication.Config{
		Plain:     lane,
		Timeout:   timeout,
		Limit:     n.cfg.MaxInFlight,
		Addr:      n.cfg.Addr,
		HighWater: n.highWater,
		Wake:      l.wake,
		Counted:   n.client.counted,
		Group:     n.client.group,
	})
}

// laneOf makes the lane of a link.
func (n *node) laneOf(l *link, timeout time.Duration, maxInFlight int) *pipeline.Lane {
	lane := pipeline.NewLane(pipeline.Config{
		Clock:          n.cfg.Clock,
		CommandTimeout: timeout,
		MaxInFlight:    maxInFlight,
		MaxQueuedBytes: maxQueuedBytes,
		Down:           l.down,
		Redirect:       l.redirect,
	})
	l.endpoint = lane
	l.mu.down = n.born
	n.links = append(n.links, l)
	return lane
}

// open has every link connect, but those that wait to be used.
func (n *node) open() {
	for _, l := range n.links {
		if l.role < RoleDurable || n.cfg.Durable { // else wake starts it
			n.start(l)
		}
	}
}

// close ends every connection, with err as the cause of what is in flight, and
// keeps the links from making others. It does not wait.
func (n *node) close(err error) {
	n.cancel()
	for _, l := range n.links {
		l.endpoint.Close(err)
	}
	n.outageMayEnd()
}

// replaceAfter is the least time between two replacements of a node's connections.
const replaceAfter = time.Second

// replace has every connection made anew, once what is in flight on it is answered; at most
// once a second. Pub/sub follows when the first of them is back: see resubscribe.
func (n *node) replace(err error) {
	now := n.cfg.Clock.Now()
	n.mu.Lock()
	early := n.mu.replaced != 0 && now.Sub(n.mu.replaced) < replaceAfter
	if !early {
		n.mu.replaced = now
	}
	n.mu.Unlock()
	if early {
		return
	}
	for _, l := range n.links {
		if l.role != RolePubSub {
			l.endpoint.Leave(err)
		}
	}
}

var errOlder = errors.New("resp: another connection to this address was lost, which may lead to another server by now")

// resubscribe makes the pub/sub connection anew if a lane that is up was lost, or could
// not be connected, since pub/sub was dialled. The address may lead to another server by now,
// where the locks are released:
//
//	old server hangs       the lane is given up after CommandTimeout
//	the address moves      the lane is back, at the new server
//	old server goes on     it answers the PING of pub/sub, and nobody publishes there
//
// The same goes for one that was on its way: its dial led to the old server, though it is
// up later than the lane. So each link that comes up asks.
func (n *node) resubscribe() {
	if n.older() {
		n.pubsub.Leave(errOlder)
	}
}

// older reports whether the pub/sub connection may lead to another server than a lane.
func (n *node) older() bool {
	sub := n.link(RolePubSub, 0)
	sub.mu.Lock()
	up, dialled := sub.mu.up, sub.mu.dialled
	sub.mu.Unlock()
	return up && slices.ContainsFunc(n.links, func(l *link) bool { return l != sub && l.backAfter(dialled) })
}

// Outage is the time from when the first connection to a server was lost, or could not be made,
// until all are up, or nothing needs that server any more.
type Outage struct {
	Addr  string
	Since clock.Instant
	Err   error // why it began; if it is over, why nobody needs the server any more, nil if it is back
	Over  bool
}

// outage is that of a node. Its node's mu guards it.
type outage struct {
	on      bool
	lasting bool // a refusal that needs a human has been logged
	since   clock.Instant
}

// outageBegins is called when a connection was lost, on its loop, or could not be made; lasting is
// whether err needs a human, as far as is known. It reports whether that begins an outage.
func (n *node) outageBegins(err error, lasting bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.outage.on || n.ctx.Err() != nil {
		return false
	}
	n.mu.outage = outage{on: true, since: n.cfg.Clock.Now(), lasting: lasting}
	n.reportLocked(Outage{Addr: n.cfg.Addr, Since: n.mu.outage.since, Err: err})
	return true
}

// outageMayEnd is called when a connection came up, and when the node is closed.
func (n *node) outageMayEnd() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if was := n.mu.outage; was.on && (n.ctx.Err() != nil || !n.impaired() && !n.older()) {
		n.mu.outage = outage{}
		o := Outage{Addr: n.cfg.Addr, Since: was.since, Over: true}
		if n.ctx.Err() != nil {
			o.Err = errRetired
		}
		if n.client.ctx.Err() == nil {
			n.reportLocked(o)
		}
	}
}

// firstLasting is called for a failure that needs a human. It reports whether it is the first in
// this outage.
func (n *node) firstLasting() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	first := !n.mu.outage.lasting
	n.mu.outage.lasting = true
	return first
}

// reportLocked reports the beginning and the end of an outage, in order.
func (n *node) reportLocked(o Outage) {
	switch {
	case n.cfg.OnOutage != nil:
		n.cfg.OnOutage(o)
	case o.Over && o.Err != nil:
		n.cfg.Logger.Info("resp: a server that was away is not needed any more", "addr", o.Addr, "after", n.cfg.Clock.Now().Sub(o.Since).Round(time.Millisecond))
	case o.Over:
		n.cfg.Logger.Info("resp: a server is back", "addr", o.Addr, "after", n.cfg.Clock.Now().Sub(o.Since).Round(time.Millisecond))
	default:
		n.cfg.Logger.Log(n.ctx, slog.LevelWarn, "resp: no connection to a server, trying again", "addr", o.Addr, "err", o.Err)
	}
}

// allLanes returns the lanes of every role.
func (n *node) allLanes() []*pipeline.Lane {
	return append(n.lanes[:len(n.lanes):len(n.lanes)], n.renewal, n.durable[0].Plain(), n.durable[1].Plain())
}

// start runs the connecting goroutine of l.
func (n *node) start(l *link) { n.goLabelled("connecting", l.run) }

// goLabelled runs f on a goroutine, unless the node or the Client is being closed. One that
// starts just before ends with the node's context.
func (n *node) goLabelled(role string, f func(ctx context.Context)) {
	c := n.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.closed && n.ctx.Err() == nil {
		c.goLabelled(n.ctx, role, f)
	}
}

// lane returns the lane of a route.
func (n *node) lane(route uint64) *pipeline.Lane { return n.lanes[n.laneIndex(route)] }

func (n *node) laneIndex(route uint64) int {
	return int((route >> slot.Bits) % uint64(len(n.lanes)))
}

func (n *node) link(role Role, lane int) *link {
	if role == RoleLane {
		return n.links[lane]
	}
	return n.links[len(n.lanes)-1+int(role)]
}

// impaired reports whether a connection is missing.
func (n *node) impaired() bool {
	return slices.ContainsFunc(n.links, func(l *link) bool {
		up, _, _ := l.status()
		return !up && !l.dormant.Load()
	})
}

// sibling is closed when the next link comes up.
func (n *node) sibling() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.rise
}

// publish passes s to OnState and to all waiters. An error is a panic of OnState.
func (n *node) publish(s State) error {
	err := n.onState(s)
	if s.Up {
		n.client.changed()
		n.mu.Lock()
		defer n.mu.Unlock()
		replace(&n.mu.rise)
	}
	return err
}

func (n *node) onState(s State) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("resp: BUG: panic in OnState: %v", v)
		}
	}()
	if n.cfg.OnState != nil {
		n.cfg.OnState(s)
	}
	return nil
}

// ServerID names a server for as long as a Client knows it; 0 is none. If it is forgotten
// and comes back it is another.
type ServerID uint32

// LaneID names one lane of one node. It is comparable; the zero LaneID is nowhere:
// the lane of a route that no node serves.
type LaneID struct {
	node  *node
	index int
}

// Up reports whether the lane has a connection.
func (id LaneID) Up() bool {
	if id.node == nil {
		return false
	}
	up, _, _ := id.node.links[id.index].status()
	return up
}

var errNotYet = errors.New("resp: not connected yet")

var errNowhere = errors.New("no node is known that serves this part of the keys")
