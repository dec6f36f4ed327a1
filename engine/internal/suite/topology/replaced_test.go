package topology

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// namedShard is a primary of a cluster that is announced by a name, and its successors: they have
// its name and port, and loopback addresses of their own. What the name leads to is DNS.
type namedShard struct {
	name, port string
	machine    *redistest.Server
	leadsTo    atomic.Pointer[string] // an address
}

// namedCluster is one of three such shards.
type namedCluster struct{ shards []*namedShard }

func (s *namedShard) announced(ip string) redistest.Option {
	return redistest.Line("bind "+ip, "port "+s.port, "cluster-announce-ip "+ip, "cluster-announce-hostname "+s.name, "protected-mode no")
}

var inNamedCluster = redistest.Line("cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 1500",
	"cluster-preferred-endpoint-type hostname", "cluster-replica-validity-factor 0", "repl-diskless-sync-delay 0")

func startNamedCluster(t *testing.T) *namedCluster {
	t.Helper()
	if l, err := net.Listen("tcp", "127.0.0.2:0"); err != nil {
		t.Skip("this machine has one loopback address: ", err)
	} else {
		l.Close()
	}
	c := new(namedCluster)
	for i, name := range []string{"one.test", "two.test", "three.test"} {
		m := redistest.StartLone(t, redistest.Needs(redistest.Hostnames), inNamedCluster, redistest.Line("cluster-announce-hostname "+name))
		_, port, _ := net.SplitHostPort(m.Addr())
		s := &namedShard{name: name, port: port, machine: m}
		s.lead("127.0.0.1")
		c.shards = append(c.shards, s)
		for _, words := range [][]string{
			{"CLUSTER", "FLUSHSLOTS"}, {"CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i + 1)},
			{"CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(16384 * i / 3), fmt.Sprint(16384*(i+1)/3 - 1)},
		} {
			mustDo(t, m, words...)
		}
	}
	for _, s := range c.shards[1:] {
		mustDo(t, c.shards[0].machine, "CLUSTER", "MEET", "127.0.0.1", s.port)
	}
	for _, s := range c.shards {
		c.awaitKnown(t, s.machine)
	}
	return c
}

func mustDo(t *testing.T, s *redistest.Server, words ...string) {
	t.Helper()
	if v := s.Do(words...); v != "OK" {
		t.Fatalf("%v: %v", words, v)
	}
}

// awaitKnown waits until a machine knows who serves what.
func (c *namedCluster) awaitKnown(t *testing.T, m *redistest.Server) {
	t.Helper()
	testkit.Eventually(t, "it knows all names", func() bool {
		nodes := m.Info("CLUSTER", "NODES")
		for _, s := range c.shards {
			if !strings.Contains(nodes, ","+s.name) {
				return false
			}
		}
		return strings.Contains(m.Info("CLUSTER", "INFO"), "cluster_slots_ok:16384\r") && strings.Contains(m.Info("CLUSTER", "INFO"), "cluster_state:ok")
	})
}

func (s *namedShard) lead(ip string) {
	addr := net.JoinHostPort(ip, s.port)
	s.leadsTo.Store(&addr)
}

// open connects an engine, for which the dialer is DNS.
func (c *namedCluster) open(t *testing.T, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	var seeds []string
	for _, s := range c.shards {
		seeds = append(seeds, net.JoinHostPort(s.name, s.port))
	}
	return testkit.Open(t, "redis+cluster://"+strings.Join(seeds, ","), append(change, func(cfg *engine.Config) {
		cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(addr)
			for _, s := range c.shards {
				if s.name == host {
					return new(net.Dialer).DialContext(ctx, network, *s.leadsTo.Load())
				}
			}
			return nil, fmt.Errorf("no such name: %s", addr)
		}
	})...)
}

// replace gives a shard another machine, and the name with it. The old one lives on, as a replica.
func (c *namedCluster) replace(t *testing.T, s *namedShard) (old *redistest.Server) {
	t.Helper()
	const ip = "127.0.0.2"
	old = s.machine
	m := redistest.Start(t, inNamedCluster, s.announced(ip))
	mustDo(t, m, "CLUSTER", "MEET", "127.0.0.1", s.port)
	c.awaitKnown(t, m)
	mustDo(t, m, "CLUSTER", "REPLICATE", old.Info("CLUSTER", "MYID"))
	testkit.Eventually(t, "the new machine is in step", func() bool { return strings.Contains(m.Info("INFO", "replication"), "master_link_status:up") })
	s.machine = m
	s.lead(ip)
	asked := cputime.Mark{}
	testkit.Eventually(t, "the failover", func() bool {
		if strings.Contains(m.Info("INFO", "replication"), "role:master") {
			return true
		}
		// Again, if the old one has lost its patience: not before that, for each request begins anew.
		if asked == (cputime.Mark{}) || asked.Elapsed() > 3*time.Second {
			m.Do("CLUSTER", "FAILOVER")
			asked = cputime.Now()
		}
		return false
	})
	testkit.Eventually(t, "the old machine knows", func() bool { return strings.Contains(old.Info("INFO", "replication"), "role:slave") })
	return old
}

// nameIn is a name whose slot is the shard's.
func (c *namedCluster) nameIn(i int, prefix string) string {
	for n := 0; ; n++ {
		name := prefix + strconv.Itoa(n)
		if slot, _ := c.shards[0].machine.Do("CLUSTER", "KEYSLOT", name).(int64); slot >= int64(16384*i/3) && slot < int64(16384*(i+1)/3) {
			return name
		}
	}
}

// The machines of a cluster behind stable names are replaced, one after the other, under load.
func TestCluster_MachinesReplacedBehindStableNames_LosesNothing(t *testing.T) {
	t.Parallel()
	const held, waiting = 200, 50
	c := startNamedCluster(t)
	keeper, waiter, other := c.open(t), c.open(t), c.open(t)
	var holds, wanted []*engine.Hold
	var waits []*engine.Future[*engine.Hold]
	for i := range held {
		holds = append(holds, testkit.MustLock(t, keeper.Mutex(fmt.Sprint("held", i))))
	}
	for i := range waiting {
		wanted = append(wanted, testkit.MustLock(t, keeper.Mutex(fmt.Sprint("wanted", i))))
		waits = append(waits, waiter.Mutex(fmt.Sprint("wanted", i)).LockAsync(testkit.Within(t, 10*testkit.Limit)))
	}
	testkit.Eventually(t, "all waiters listen", func() bool { return testkit.Client(waiter).Stats().ChannelsConfirmed == waiting })

	// In each shard somebody locks and unlocks all the time.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	passed := make([]atomic.Int64, len(c.shards))
	for i := range c.shards {
		m := other.Mutex(c.nameIn(i, "other"))
		wg.Go(func() {
			for testkit.Pause(stop, time.Millisecond) {
				ctx, cancel := cputime.WithTimeout(context.Background(), testkit.Limit)
				h, err := m.Lock(ctx)
				if err == nil {
					err = h.Unlock(ctx)
				}
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				passed[i].Add(1)
			}
		})
	}
	defer func() { close(stop); wg.Wait() }()

	for i, s := range c.shards {
		old := c.replace(t, s)
		start, before := cputime.Now(), passed[i].Load()
		testkit.Eventually(t, "the next success", func() bool { return passed[i].Load() >= before+2 })
		took := start.Elapsed()
		t.Logf("%s: goes on %v after the old machine knew", s.name, took.Round(time.Millisecond))
		if took > time.Second {
			t.Errorf("%s: a name goes on after %v", s.name, took)
		}
		from, to := len(wanted)*i/len(c.shards), len(wanted)*(i+1)/len(c.shards)
		for j := from; j < to; j++ {
			testkit.MustUnlock(t, wanted[j])
		}
		for j := from; j < to; j++ {
			h, err := waits[j].Await(testkit.Ctx(t))
			if err != nil {
				t.Fatalf("waiter %d: %v", j, err)
			}
			testkit.MustUnlock(t, h)
		}
		renewed := keeper.Stats().Renewed
		testkit.RenewAll(keeper)
		testkit.Eventually(t, "all are renewed", func() bool { return keeper.Stats().Renewed >= renewed+held })
		old.Kill()
	}
	for i, h := range holds {
		if err := h.Err(); err != nil {
			t.Errorf("hold %d: %v", i, err)
		}
	}
	for _, e := range []*engine.Engine{keeper, waiter, other} {
		s := e.Stats()
		t.Logf("reconnects: %d, redirects: %d", s.Reconnects, s.Redirects)
		if len(s.Lost) != 0 || s.UnknownOutcomes != 0 {
			t.Errorf("stats: %+v", s)
		}
		if most := 2 * 3 * len(c.shards); s.Reconnects > most {
			t.Errorf("%d connections were made anew, want three for each machine", s.Reconnects)
		}
	}
}

// connectionsOf are the clients that a server has, by their ids there.
func connectionsOf(s *redistest.Server) (ids []string) {
	for line := range strings.Lines(s.Info("CLIENT", "LIST")) {
		if id, _, _ := strings.Cut(line, " "); strings.Contains(line, " name=pawl:") {
			ids = append(ids, id)
		}
	}
	return ids
}

// A failover is no reason to give connections up: neither those to the old primary, whom MOVED
// leaves, nor those to servers that serve nobody as long as one is missing.
func TestCluster_OrdinaryFailover_KeepsConnections(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, true, redistest.Line("cluster-require-full-coverage yes"))
	e := testkit.Clustered(cluster).Open(t, testkit.LeaseOf(time.Minute))
	h := testkit.MustLock(t, e.Mutex("x"))
	slot := cluster.Slot("x")
	cluster.Failover(cluster.ReplicaOf(cluster.AwaitOwner(slot)))
	testkit.MustUnlock(t, h)
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	if n := e.Stats().Reconnects; n != 0 {
		t.Errorf("%d connections were made anew", n)
	}

	// Another primary is gone, with its replica. So all others serve nobody.
	primary := cluster.AwaitOwner(slot)
	var gone *redistest.Server
	for _, s := range cluster.Primaries() {
		if s != primary {
			gone = s
		}
	}
	testkit.Eventually(t, "the client has connections to the primary", func() bool { return len(connectionsOf(primary)) >= 3 })
	before := connectionsOf(primary)
	cluster.ReplicaOf(gone).Kill()
	gone.Kill()
	testkit.Eventually(t, "the cluster is down", func() bool {
		v, _ := primary.Do("GET", "x").(redistest.ReplyError)
		return strings.HasPrefix(string(v), "CLUSTERDOWN")
	})
	f := e.Mutex("x").LockAsync(testkit.Ctx(t))
	const outage = 2500 * time.Millisecond // long enough for two questions
	began := time.Now()
	testkit.Eventually(t, "the outage has lasted", func() bool { return time.Since(began) > outage })
	gone.Restart()
	h, err := f.Await(testkit.Ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	testkit.MustUnlock(t, h)
	after := connectionsOf(primary)
	lost := 0
	for _, id := range before {
		if !slices.Contains(after, id) {
			lost++
		}
	}
	if len(before)-lost < 3 {
		t.Errorf("of %d connections %d are gone", len(before), lost)
	}
}
