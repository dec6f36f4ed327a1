package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/env"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// site is an engine of a process, and its connections to a server. It is the engine's
// world, too.
type site struct {
	*process
	name   string
	server *server
	epoch  int // of the server, as it knows it
	engine *engine.Engine
	events env.Events

	nodes  []*node          // one, unless it is a cluster
	layout map[uint16]*node // who serves a slot, as far as it knows
	timers map[*wheel.Timer]uint64
	armed  uint64
	closed bool          // its client is
	asleep bool          // its timers are closed
	ending clock.Instant // since when it may end holds, which a Shutdown waits for
	denied clock.Instant // when it was last told that a release is denied

	polling polling // for the lock that polls

	forcing map[string]bool   // names that a program of it takes by force
	forced  map[string]forced // what became of that

	permits ledger          // of the semaphore
	victims map[string]bool // permits that programs of it give back by force
}

// node is a server as a site is connected to it.
type node struct {
	server  *server
	lanes   [2]*conn
	renewal *conn
	pubsub  *pubsub
}

const margin = 100 * time.Millisecond

func (p *process) newSite(i int) *site {
	s := p.sim
	x := &site{process: p, name: p.name, server: s.servers[i], epoch: s.servers[i].epochOf(), timers: make(map[*wheel.Timer]uint64), forcing: make(map[string]bool), forced: make(map[string]forced), permits: newLedger(), victims: make(map[string]bool)}
	if len(s.servers) > 1 {
		x.name = fmt.Sprintf("%s@%d", p.name, i+1)
	}
	for _, v := range s.nodesOf(x.server) {
		n := &node{server: v, renewal: &conn{p: x, server: v, role: resp.RoleRenewal}, pubsub: newPubsub(x, v)}
		for i := range n.lanes {
			n.lanes[i] = &conn{p: x, server: v, role: resp.RoleLane, lane: lane{n, x, i, x.epoch}}
		}
		x.nodes = append(x.nodes, n)
	}
	if s.cluster != nil {
		x.layout = make(map[uint16]*node)
		for number, t := range s.cluster.slots {
			x.layout[number] = x.nodeAt(t.at)
		}
	}
	w := env.Env{
		Front:  s.front,
		Clock:  (*siteClock)(x),
		Client: func(_ resp.Config, e env.Events) env.Client { x.events = e; return (*client)(x) },
		Timers: func(wheel.Config) env.Timers { return (*timers)(x) },
		Go: func(f func()) {
			if !s.over {
				s.after(s.soon(), p, func() { s.start(p, f) })
			}
		},
		After:     p.timeAfter,
		Wait:      s.wait,
		AfterFunc: p.afterFunc,
		Int64N: func(n int64) int64 {
			if s.dictated {
				return 0
			}
			return s.random.Int64N(n)
		},
		RandRead: func(b []byte) {
			for ; len(b) >= 8; b = b[8:] {
				s.secrets++
				secret := s.secrets // of a story
				if !s.dictated {
					secret = s.random.Uint64()
				}
				binary.LittleEndian.PutUint64(b, secret)
			}
		},
	}
	cfg := engine.Config{
		Addrs: []string{fmt.Sprintf("sim%d:6379", i)}, Lease: s.lease, Margin: margin, CommandTimeout: commandTimeout,
		FairWaitTimeout: 10 * time.Second,
		NoInspect:       !s.inspected, // it decides nothing about locks
	}
	if !s.dictated {
		cfg.FairWaitTimeout = []time.Duration{time.Second, 10 * time.Second, time.Minute}[s.seed%3]
		cfg.HandOverTime = []time.Duration{0, time.Second, time.Minute, time.Minute, time.Minute, -1}[s.draw(6)]
	}
	switch {
	case x.server.replica != nil:
		cfg.Topology = "replicas"
	case s.cluster != nil:
		cfg.Topology, cfg.ShardedPubSub = "cluster", s.cluster.mode
	}
	e, err := engine.New(env.With(context.Background(), w), cfg)
	if err != nil {
		panic("BUG: sim: " + err.Error())
	}
	x.engine = e
	for _, c := range x.conns() {
		s.after(s.between(0, 50*time.Millisecond), p, c.connect)
	}
	for _, n := range x.nodes {
		s.after(s.between(0, 50*time.Millisecond), p, n.pubsub.connect)
	}
	return x
}

func (x *site) conns() (all []*conn) {
	for _, n := range x.nodes {
		all = append(all, n.lanes[0], n.lanes[1], n.renewal)
	}
	return all
}

// wanted are its subscriptions.
func (x *site) wanted() (all []*subscription) {
	for _, n := range x.nodes {
		all = append(all, n.pubsub.wanted...)
	}
	return all
}

// owns reports whether an owner is the site's, and not one that a MinHold has left.
func (x *site) owns(owner string) bool {
	number, is := strings.CutPrefix(owner, x.engine.ID()+":")
	return is && number[0] != '-'
}

// forgotten reports whether an owner was granted late, to a process that is being closed: it
// gives back once what it may have, and does not stay to do so again.
func (s *Sim) forgotten(owner string) bool {
	return s.late[owner] && slices.ContainsFunc(s.processes, func(p *process) bool {
		return p.refuses != 0 && slices.ContainsFunc(p.sites, func(x *site) bool { return x.owns(owner) })
	})
}

// owned reports whether an owner is one that a MinHold of the site has left.
func (x *site) owned(owner string) bool {
	return strings.HasPrefix(owner, x.engine.ID()+":-")
}

// kill ends the site with its process.
func (x *site) kill() {
	for _, c := range x.conns() {
		c.end(errCut)
	}
	x.endPubsub()
}

func (x *site) endPubsub() {
	for _, n := range x.nodes {
		n.pubsub.up = false
		n.pubsub.life++
	}
}

// The methods below are the site as a clock.
type siteClock site

func (p *siteClock) Now() clock.Instant   { return p.sim.now }
func (p *siteClock) Stamp() clock.Instant { return p.sim.now }
func (p *siteClock) Wall() time.Time      { return wallAt(p.sim.now) }

// The methods below are the site as timers.
type timers site

func (p *timers) Schedule(t *wheel.Timer, at clock.Instant) {
	s := p.sim
	if p.asleep {
		return
	}
	p.armed++
	number := p.armed
	p.timers[t] = number
	fire := func() {
		if p.timers[t] == number {
			delete(p.timers, t)
			t.Fire(s.now)
		}
	}
	s.at(max(at, s.now), nil, func() { // how late it is, is decided by how things are then
		late := s.between(0, 12*time.Millisecond)
		if !s.mild() && s.chance(200) {
			late = s.between(0, margin/2)
		}
		s.after(late, p.process, fire)
	})
}

func (p *timers) Cancel(t *wheel.Timer) bool {
	_, was := p.timers[t]
	delete(p.timers, t)
	return was
}

func (p *timers) Close() {
	p.asleep = true
	clear(p.timers)
}

func (p *timers) Stats() wheel.Stats { return wheel.Stats{} }

// lane names one of a site.
type lane struct {
	node  *node
	p     *site
	index int
	epoch int
}

// Up implements env.Lane.
func (l lane) Up() bool { return l.epoch == l.p.epoch && l.node.lanes[l.index].up }

// The methods below are the site as a client.
type client site

func (p *client) node(route uint64) *node { return (*site)(p).nodeOf(resp.Slot(route)) }
func (p *client) index(route uint64) int {
	if p.layout != nil {
		route >>= 14 // its slot has chosen the node
	}
	return int(route % 2)
}
func (p *client) conn(route uint64) *conn { return p.node(route).lanes[p.index(route)] }

func (p *client) WaitFirst(context.Context) error                   { return nil }
func (p *client) Submit(route uint64, r resp.Request)               { p.conn(route).submit(r) }
func (p *client) SubmitRenewal(route uint64, r resp.Request)        { p.node(route).renewal.submit(r) }
func (p *client) SubmitDurable(route uint64, r resp.DurableRequest) { p.conn(route).submit(r) }
func (p *client) SubmitDurableRenewal(route uint64, r resp.DurableRequest) {
	p.node(route).renewal.submit(r)
}
func (p *client) Subscribe(ch *resp.Channel)   { (*site)(p).subscribe(ch) }
func (p *client) Unsubscribe(ch *resp.Channel) { (*site)(p).unsubscribe(ch) }
func (p *client) LaneOf(route uint64) env.Lane { return p.conn(route).lane }
func (p *client) ServerOf(route uint64) resp.ServerID {
	return resp.ServerID(p.epoch + 1 + slices.Index(p.nodes, p.node(route)))
}
func (p *client) AddrOf(uint64) string { return p.name }
func (p *client) Clustered() bool      { return p.layout != nil }
func (p *client) Sharded() bool        { return p.layout != nil && p.sim.cluster.sharded }
func (p *client) Stats() resp.Stats    { return resp.Stats{} }

// Close ends the connections, and with them what is out.
func (p *client) Close() error {
	p.closed = true
	for _, c := range (*site)(p).conns() {
		c.end(resp.ErrClosed)
	}
	for _, n := range p.nodes {
		n.pubsub.wanted = nil
	}
	(*site)(p).endPubsub()
	return nil
}

func (p *client) Route(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	if p.layout != nil { // as the real one
		return h.Sum64()&^(1<<14-1) | uint64(resp.SlotOf(name))
	}
	return h.Sum64()
}

func (p *client) RenewalError(route uint64) error {
	if p.node(route).renewal.up {
		return nil
	}
	return errCut
}

func (p *client) DownSince(route uint64) clock.Instant {
	if c := p.conn(route); !c.up {
		return max(c.lost, 1)
	}
	return 0
}

func (p *client) Pausing(uint64) error                     { return nil }
func (p *client) Missing() (map[string]clock.Instant, int) { return nil, len(p.nodes) }
func (p *client) Ready() error                             { return p.LaneError(0) }

func (p *client) LaneError(route uint64) error {
	if p.conn(route).up {
		return nil
	}
	return errCut
}
