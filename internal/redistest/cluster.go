package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Cluster is a Redis Cluster of real processes that belongs to a test. Its methods
// are called from the test's goroutine.
type Cluster struct {
	t     TB
	nodes []*Server      // the primaries of the start, then their replicas
	slots map[string]int // of keys that were asked for
}

// Slots is how many slots a cluster has.
const Slots = 1 << 14

// StartCluster starts a cluster and waits until every node says that it is up and
// every replica is in step: three primaries, with one replica each if replicas. The
// options go to every node.
func StartCluster(t TB, replicas bool, opts ...Option) *Cluster {
	t.Helper()
	if replicas {
		return startCluster(t, []int{0, 1, 2}, opts...)
	}
	return startCluster(t, nil, opts...)
}

// StartClusterOf is StartCluster where the first primary has so many replicas, and the
// others, which only vote, none.
func StartClusterOf(t TB, replicas int, opts ...Option) *Cluster {
	t.Helper()
	stay := Line("cluster-migration-barrier 99") // not to a primary that has none
	return startCluster(t, make([]int, replicas), append([]Option{stay}, opts...)...)
}

// startCluster starts three primaries, and a replica for each that is listed.
func startCluster(t TB, replicated []int, opts ...Option) *Cluster {
	t.Helper()
	const primaries = 3
	c := &Cluster{t: t, slots: make(map[string]int)}
	n := primaries + len(replicated)
	opts = append([]Option{Line(
		"cluster-enabled yes", "cluster-config-file nodes.conf",
		"cluster-node-timeout 1500", "cluster-require-full-coverage no", "cluster-replica-validity-factor 0",
		"repl-diskless-sync-delay 0", "repl-ping-replica-period 1",
	)}, opts...)
	for i := range n {
		s := Start(t, opts...)
		if i == 0 {
			opts = append(opts, sharing(s))
		}
		c.nodes = append(c.nodes, s)
		c.ok(s, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < primaries {
			c.ok(s, addSlots(s, Slots*i/primaries, Slots*(i+1)/primaries)...)
		}
	}
	c.awaitMet()
	for i, s := range c.nodes[primaries:] {
		c.ok(s, "CLUSTER", "REPLICATE", c.ID(c.nodes[replicated[i]]))
	}
	for _, s := range c.nodes { // a node that has not heard of a replica never does if that is killed now
		await(t, "every node knows who is a replica", func() bool {
			return strings.Count(s.Info("CLUSTER", "NODES"), "slave ") == len(replicated)
		})
	}
	c.AwaitUp()
	return c
}

// awaitMet introduces the nodes to each other and waits until every one knows all. It asks again
// after 5 s: on a busy machine a handshake may exceed cluster-node-timeout, and no node repeats it.
func (c *Cluster) awaitMet() {
	c.t.Helper()
	var asked time.Time
	await(c.t, "every node knows every other", func() bool {
		if time.Since(asked) > 5*time.Second {
			for _, s := range c.nodes[1:] {
				c.ok(c.nodes[0], "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(s.port))
			}
			asked = time.Now()
		}
		for _, s := range c.nodes {
			if nodes := s.Info("CLUSTER", "NODES"); strings.Count(nodes, "\n") != len(c.nodes) || strings.Contains(nodes, "handshake") {
				return false
			}
		}
		return true
	})
}

// addSlots is the command for the slots from first to before end.
func addSlots(s *Server, first, end int) []string {
	if s.Can(SlotRanges) {
		return []string{"CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(end - 1)}
	}
	words := []string{"CLUSTER", "ADDSLOTS"}
	for slot := first; slot < end; slot++ {
		words = append(words, strconv.Itoa(slot))
	}
	return words
}

func (c *Cluster) ok(s *Server, words ...string) {
	c.t.Helper()
	if v := s.Do(words...); v != "OK" {
		c.t.Fatalf("%s on %s: %v", strings.Join(words, " "), s.Addr(), v)
	}
}

// AwaitUp waits until every node that runs sees all slots served, and every replica
// is in step with its primary.
func (c *Cluster) AwaitUp() {
	c.t.Helper()
	for _, s := range c.Running() {
		await(c.t, s.Addr()+" sees the cluster up", func() bool {
			info := s.Info("CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r", Slots))
		})
	}
	c.AwaitInStep()
}

// AwaitInStep waits until every replica that runs has what its primary has now.
func (c *Cluster) AwaitInStep() {
	c.t.Helper()
	awaitInStep(c.t, c.nodes)
}

// Nodes returns every node, in the order of the start.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Running returns the nodes that have not been killed.
func (c *Cluster) Running() []*Server {
	var list []*Server
	for _, s := range c.nodes {
		if s.Running() {
			list = append(list, s)
		}
	}
	return list
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// URL returns the redis+cluster:// URL with all nodes (rediss+cluster:// with TLS).
func (c *Cluster) URL() string { return deploymentURL("cluster", c.nodes, c.nodes[0].cfg.Password, "") }

// ID returns the node's id in the cluster.
func (c *Cluster) ID(s *Server) string {
	c.t.Helper()
	return s.Info("CLUSTER", "MYID")
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	if slot, known := c.slots[key]; known {
		return slot
	}
	slot, _ := c.Running()[0].Do("CLUSTER", "KEYSLOT", key).(int64)
	c.slots[key] = int(slot)
	return int(slot)
}

// Owner returns the running node that says of itself that it serves the slot; nil if
// there is none, or if two do, as may be for a moment.
func (c *Cluster) Owner(slot int) *Server {
	c.t.Helper()
	var owner *Server
	for _, s := range c.Running() {
		if !servesSlot(s.Info("CLUSTER", "NODES"), slot) {
			continue
		}
		if owner != nil {
			return nil
		}
		owner = s
	}
	return owner
}

// servesSlot reports whether CLUSTER NODES says that the node which answers serves it.
func servesSlot(nodes string, slot int) bool {
	for line := range strings.Lines(nodes) {
		words := strings.Fields(line) // id, address, flags, primary, sent, received, epoch, link, slots...
		if len(words) < 8 || !strings.Contains(words[2], "myself") {
			continue
		}
		for _, slots := range words[8:] {
			from, to, several := strings.Cut(slots, "-") // "[5->-id" of a slot on its way is no number
			if !several {
				to = from
			}
			first, err := strconv.Atoi(from)
			last, err2 := strconv.Atoi(to)
			if err == nil && err2 == nil && first <= slot && slot <= last {
				return true
			}
		}
	}
	return false
}

// AwaitOwner waits until the slot has one owner.
func (c *Cluster) AwaitOwner(slot int) *Server {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			for _, s := range c.Running() {
				c.t.Logf("slot %d, %s says:\n%s", slot, s.Addr(), s.Info("CLUSTER", "NODES"))
			}
		}
	}()
	var owner *Server
	await(c.t, fmt.Sprintf("slot %d has one owner", slot), func() bool {
		owner = c.Owner(slot)
		return owner != nil
	})
	return owner
}

// Primaries returns the nodes that run and say that they are primaries.
func (c *Cluster) Primaries() []*Server {
	c.t.Helper()
	var list []*Server
	for _, s := range c.Running() {
		if strings.Contains(s.Info("INFO", "replication"), "role:master") {
			list = append(list, s)
		}
	}
	return list
}

// ReplicaOf returns a running replica of the node, or nil.
func (c *Cluster) ReplicaOf(primary *Server) *Server {
	c.t.Helper()
	for _, s := range c.Running() {
		if info := s.Info("INFO", "replication"); strings.Contains(info, "role:slave") &&
			strings.Contains(info, fmt.Sprintf("master_port:%d\r", primary.port)) {
			return s
		}
	}
	return nil
}

// BeginMove opens the migration of a slot: keys that are not at from any more are
// asked for at to.
func (c *Cluster) BeginMove(slot int, from, to *Server) {
	c.t.Helper()
	n := strconv.Itoa(slot)
	c.ok(to, "CLUSTER", "SETSLOT", n, "IMPORTING", c.ID(from))
	c.ok(from, "CLUSTER", "SETSLOT", n, "MIGRATING", c.ID(to))
}

// MoveKeys moves what keys the slot has at from, and returns how many.
func (c *Cluster) MoveKeys(slot int, from, to *Server) int {
	c.t.Helper()
	moved := 0
	for {
		keys, _ := from.Do("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "100").([]any)
		if len(keys) == 0 {
			return moved
		}
		words := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.port), "", "0", "5000", "KEYS"}
		for _, k := range keys {
			words = append(words, k.(string))
		}
		if v := from.Do(words...); v != "OK" && v != "NOKEY" {
			c.t.Fatalf("MIGRATE of slot %d: %v", slot, v)
		}
		moved += len(keys)
	}
}

// MoveSome is MoveKeys of those that are wanted first. It returns how many have stayed.
func (c *Cluster) MoveSome(slot int, from, to *Server, first func(key string) bool) (stayed int) {
	c.t.Helper()
	keys, _ := from.Do("CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "1000").([]any)
	for _, k := range keys {
		key := k.(string)
		if !first(key) {
			stayed++
		} else if v := from.Do("MIGRATE", "127.0.0.1", strconv.Itoa(to.port), key, "0", "5000"); v != "OK" && v != "NOKEY" {
			c.t.Fatalf("MIGRATE of %s: %v", key, v)
		}
	}
	return stayed
}

// EndMove gives the slot to its new node for good. Keys that came into being at from
// meanwhile are moved first.
func (c *Cluster) EndMove(slot int, from, to *Server) {
	c.t.Helper()
	c.MoveKeys(slot, from, to)
	n, id := strconv.Itoa(slot), c.ID(to)
	c.ok(to, "CLUSTER", "SETSLOT", n, "NODE", id)
	c.ok(from, "CLUSTER", "SETSLOT", n, "NODE", id)
	for _, s := range c.Primaries() {
		if s != to && s != from {
			c.ok(s, "CLUSTER", "SETSLOT", n, "NODE", id)
		}
	}
	await(c.t, "every node knows the epochs of all", c.sameEpochs)
}

// sameEpochs reports whether all nodes tell the same of everybody's config epoch. A
// node that takes a slot gets the highest epoch that it knows of. If that is not the
// highest there is, an older claim to the slot, still on its way, wins: the node
// gives the slot up and deletes its keys, and nobody serves it.
func (c *Cluster) sameEpochs() bool {
	epochs := make(map[string]string)
	for _, s := range c.Running() {
		for line := range strings.Lines(s.Info("CLUSTER", "NODES")) {
			words := strings.Fields(line) // id, address, flags, primary, sent, received, epoch, ...
			if len(words) < 7 || strings.Contains(words[2], "fail") {
				continue
			}
			if known, ok := epochs[words[0]]; ok && known != words[6] {
				return false
			}
			epochs[words[0]] = words[6]
		}
	}
	return true
}

// Move moves a slot with its keys.
func (c *Cluster) Move(slot int, to *Server) {
	c.t.Helper()
	from := c.AwaitOwner(slot)
	if from == to {
		return
	}
	c.BeginMove(slot, from, to)
	c.EndMove(slot, from, to)
}

// Failover makes a replica the primary, by CLUSTER FAILOVER, with FORCE or TAKEOVER if
// that is said, and waits until it is.
func (c *Cluster) Failover(replica *Server, how ...string) {
	c.t.Helper()
	await(c.t, "the failover", func() bool {
		if strings.Contains(replica.Info("INFO", "replication"), "role:master") {
			return true
		}
		replica.Do(append([]string{"CLUSTER", "FAILOVER"}, how...)...) // refused while one is under way
		return false
	})
}

// FlushScripts empties the script cache of every node.
func (c *Cluster) FlushScripts() {
	c.t.Helper()
	for _, s := range c.Running() {
		s.Do("SCRIPT", "FLUSH")
	}
}

// Do runs a command at the node that serves the key.
func (c *Cluster) Do(key string, words ...string) any {
	c.t.Helper()
	slot := c.Slot(key)
	var v any
	await(c.t, "slot "+strconv.Itoa(slot)+" is served", func() bool {
		owner := c.Owner(slot)
		if owner == nil {
			return false
		}
		v = owner.Do(words...)
		refused, _ := v.(ReplyError)
		return !strings.HasPrefix(string(refused), "MOVED") && !strings.HasPrefix(string(refused), "CLUSTERDOWN")
	})
	return v
}

// await polls until ok, or fails the test.
func await(t TB, what string, ok func() bool) {
	t.Helper()
	pause := 5 * time.Millisecond
	for deadline := time.Now().Add(startTimeout); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("redistest: not within %v: %s", startTimeout, what)
		}
		time.Sleep(pause)
		pause = min(pause*3/2, 50*time.Millisecond) // asking costs the servers, too
	}
}
