package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/engine/internal/sim/model"
	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/resp/wire"
)

// cluster is servers that share out the slots. They have one map of keys: a key is at one of
// them at a time, and which one that is says its slot.
type cluster struct {
	nodes   []*server
	slots   map[uint16]*slot
	mode    string // Config.ShardedPubSub
	sharded bool
}

// slot is that of one name, and who serves it.
//
//	at ----> moving: a key that is there stays, ----> to
//	         until it is sent to the other one;
//	         what is new is made there
type slot struct {
	name  string
	at    *server
	to    *server       // nil: it does not move
	away  bool          // its key is at the other one, or would be
	since clock.Instant // when it last came to rest
}

// divide makes the server a cluster of n.
func (s *Sim) divide(n int, mode string) {
	c := &cluster{slots: make(map[uint16]*slot), mode: mode, sharded: mode != "off"}
	for i := range n {
		v := s.newServer(fmt.Sprintf("node %d", i+1))
		v.Data = s.server.Data // the same
		c.nodes = append(c.nodes, v)
	}
	for i, name := range names {
		c.slots[resp.SlotOf(name)] = &slot{name: name, at: c.nodes[i%n]}
	}
	s.cluster, s.server = c, c.nodes[0]
	s.servers = []*server{s.server}
}

// nodesOf are the nodes of a cluster, or a server by itself.
func (s *Sim) nodesOf(v *server) []*server {
	if s.cluster != nil {
		return s.cluster.nodes
	}
	return []*server{v}
}

// keeps returns the server that has the key of a name: v, unless it is a cluster.
func (s *Sim) keeps(v *server, name string) *server {
	if s.cluster == nil {
		return v
	}
	t := s.cluster.slots[resp.SlotOf(name)]
	if t.look(v); t.away {
		return t.to
	}
	return t.at
}

// look notes that a slot that moves has lost its key: another one is made at the other node.
func (t *slot) look(v *server) {
	if t.to != nil && !t.away && t.name != permits && v.Get(t.name) == nil {
		t.away = true
	}
}

// split reports whether a script cannot have all its keys while their slot moves.
func (c *cluster) split(t *slot, sha string, keys int) bool {
	if keys == 1 {
		return false
	}
	switch s := model.BySHA[sha]; {
	case model.IsFair(s), s == script.Join:
		return true // an empty queue is no key
	case s == script.ReadAcquire, s == script.ReadReenter:
		return true // one of the keys is not there
	case s == script.Fenced, s == script.Several, s == script.ReadRenew:
		return t.away
	}
	return false
}

const tryAgain = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"

// refuse is what a node says to a command on a key that it does not serve, and where it sends
// it; nil if it serves it.
func (c *cluster) refuse(v *server, words []string, asking bool) (reply []byte, to *server) {
	number := resp.SlotOf(words[3])
	n, _ := strconv.Atoi(words[2])
	if slices.ContainsFunc(words[3:3+n], func(key string) bool { return resp.SlotOf(key) != number }) {
		return []byte("-CROSSSLOT Keys in request don't hash to the same slot\r\n"), nil
	}
	t := c.slots[number]
	t.look(v)
	if t.to != nil && words[1] == script.Counter.SHA && words[2] == "2" && (v == t.at && !t.away || v == t.to && asking && t.away) && v.Get(words[4]) == nil {
		return []byte("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"), nil // it has one of two keys
	}
	switch {
	case t.to != nil && c.split(t, words[1], n): // its other keys may be elsewhere
		return []byte(tryAgain), nil
	case t.to != nil && model.IsPermit(model.BySHA[words[1]]): // its two keys are apart
		return []byte(tryAgain), nil
	case v == t.at && t.away:
		return fmt.Appendf(nil, "-ASK %d %s\r\n", number, t.to.name), t.to
	case v == t.at, v == t.to && asking && t.away:
		return nil, nil
	case v == t.to && asking: // the key has not come
		return []byte(tryAgain), nil
	default:
		return fmt.Appendf(nil, "-MOVED %d %s\r\n", number, t.at.name), t.at
	}
}

// migrations moves slots from node to node, one at a time, in lulls, too.
func (s *Sim) migrations() {
	if s.calm {
		return
	}
	all := s.cluster.slots
	number := slices.Sorted(maps.Keys(all))[s.random.IntN(len(all))]
	if s.favours != nil && !s.chance(3) {
		number = resp.SlotOf(s.draws())
	}
	others := slices.DeleteFunc(slices.Clone(s.cluster.nodes), func(v *server) bool { return v == all[number].at })
	s.migrate(number, others[s.random.IntN(len(others))], s.between(0, 5*time.Second), s.between(0, 2*time.Minute), s.migrations)
}

// migrate moves a slot: the key after a while, and then the slot itself.
func (s *Sim) migrate(number uint16, to *server, key, rest time.Duration, then func()) {
	t := s.cluster.slots[number]
	s.tell("the slot of %s moves from %s to %s", t.name, t.at.name, to.name)
	t.to = to
	t.look(t.at)
	s.after(key, nil, func() {
		if !t.away {
			s.tell("the key %s is at %s", t.name, to.name)
			t.away = true
		}
		s.after(rest, nil, func() {
			s.tell("the slot of %s is at %s", t.name, to.name)
			from := t.at
			t.at, t.to, t.away = to, nil, false
			t.since = s.now
			if t.name == permits || slices.Contains(apart, t.name) { // nobody could take it, or read, or give permits back
				s.excused[t.name] = max(s.excused[t.name], s.now)
			}
			s.dropSubscriptions(from, t.name)
			s.after(s.between(0, 20*time.Second), nil, then)
		})
	})
}

// barred reports whether nobody can take a lock, because its slot moves.
func (s *Sim) barred(name string) bool {
	if name != permits && !slices.Contains(apart, name) || s.cluster == nil {
		return false
	}
	t := s.cluster.slots[resp.SlotOf(name)] // not every world has permits
	return t != nil && t.to != nil
}

// dropSubscriptions has a node end the subscriptions to sharded channels of a slot that it
// does not serve any more.
func (s *Sim) dropSubscriptions(v *server, name string) {
	if !s.cluster.sharded {
		return
	}
	for _, p := range s.processes {
		for _, x := range p.sites {
			for _, n := range x.nodes {
				if n.server == v && !p.dead {
					n.pubsub.drop(name)
				}
			}
		}
	}
}

// hears reports whether a node tells those who are subscribed there.
func (c *cluster) hears(by, at *server, verb string) bool {
	if c.sharded {
		return by == at && verb != "PUBLISH"
	}
	return verb != "SPUBLISH"
}

// nodeOf is where a site sends what belongs to a slot.
func (x *site) nodeOf(number uint16) *node {
	if n := x.layout[number]; n != nil {
		return n
	}
	return x.nodes[0]
}

func (x *site) nodeAt(v *server) *node {
	for _, n := range x.nodes {
		if n.server == v {
			return n
		}
	}
	panic("BUG: sim: no such node")
}

// learn notes that a slot is at another node.
func (x *site) learn(number uint16, to *server) {
	if n := x.nodeAt(to); x.layout[number] != n {
		x.layout[number] = n
		x.sim.after(x.sim.soon(), x.process, func() {
			if !x.closed {
				x.events.Routes()
			}
		})
	}
}

// maxHops is how often a command is sent on.
const maxHops = 5

// redirect sends a command on that a node has refused, and reports whether it did.
func (c *conn) redirect(f *flight, e *wire.ServerError) bool {
	if f.to == nil || f.hops == maxHops {
		return false
	}
	if e.Code == "MOVED" {
		c.p.learn(resp.SlotOf(model.Words(f.command)[3]), f.to)
	}
	to, asking := c.p.nodeAt(f.to).like(c), e.Code == "ASK"
	if !to.up {
		f.request.Complete(resp.Reply{Err: resp.NotSent(resp.ErrDown), Now: c.p.sim.now, Moving: asking})
		return true
	}
	to.send(f.request, f.since, f.hops+1, asking)
	return true
}

// like is the connection to a node that takes what c takes.
func (n *node) like(c *conn) *conn {
	if c.role == resp.RoleRenewal {
		return n.renewal
	}
	return n.lanes[c.lane.index]
}

// nameOf is the name whose end a channel announces.
func nameOf(channel string) string {
	_, name, _ := strings.Cut(channel, "{")
	name, _, _ = strings.Cut(name, "}")
	return name
}

// channelOf is that of a name.
func (s *Sim) channelOf(name string) string {
	if s.kindOf(name) == rw {
		return "redisson_rwlock:{" + name + "}"
	}
	return "redisson_lock__channel:{" + name + "}"
}

// unheard notes a message that went to a node where nobody can be subscribed: a waiter looks
// by himself.
func (s *Sim) unheard(name string) {
	s.excused[name] = max(s.excused[name], s.now.Add(lock.LongestSleepMissed))
}

// barredSince is how long ago a slot stopped moving in which a name of several keys is.
func (s *Sim) barredSince(name string) time.Duration {
	if s.cluster == nil {
		return time.Hour
	}
	t := s.cluster.slots[resp.SlotOf(name)]
	if t.to != nil {
		return 0
	}
	return s.now.Sub(t.since)
}

// fairMoved reports whether the slot of the FairMutex has moved so lately, or moves: what is given back of it
// waits for that.
func (s *Sim) fairMoved(lately time.Duration) bool {
	return s.cluster != nil && s.cluster.slots[resp.SlotOf(fair)] != nil && s.barredSince(fair) < lately
}
