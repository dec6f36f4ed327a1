package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// The addresses of pods are used again, so servers of somebody else answer where those of the
// deployment did. foreignFor is for how long they are watched: seconds, or PAWL_FOREIGN_FOR.
func foreignFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PAWL_FOREIGN_FOR")
	if text == "" {
		return 4 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// network leads addresses to servers, as a network of pods does. Others lead where they say.
type network struct {
	mu    sync.Mutex
	leads map[string]string
}

func newNetwork(leads map[string]string) *network { return &network{leads: leads} }

func (n *network) lead(addr, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leads[addr] = to
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	to, led := n.leads[addr]
	n.mu.Unlock()
	if !led {
		to = addr
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

func (n *network) use(c *engine.Config) { c.Dialer = n.dial }

// journal is what an engine logs.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) use(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(j, nil)) }

// reported returns the addresses that were reported as foreign, a line each.
func (j *journal) reported() (addrs []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "a server is not used") {
			_, addr, _ := strings.Cut(line, " addr=")
			addr, _, _ = strings.Cut(addr, " ")
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// holdApart tries whether a name can be held by two engines of one deployment at a time. It
// returns how often the first one got it.
func holdApart(t *testing.T, former, fresh *engine.Engine) (held int) {
	t.Helper()
	stays := 0
	var last error
	for over := time.Now().Add(foreignFor(t)); time.Now().Before(over); time.Sleep(200 * time.Millisecond) { // for that long nothing may happen
		one, err := former.Mutex("y").TryLock(testkit.Within(t, 2*time.Second))
		if err != nil {
			last = err
			continue
		}
		held++
		two, err := fresh.Mutex("y").TryLock(testkit.Within(t, 2*time.Second))
		if err == nil {
			stays++
			_ = two.Unlock(testkit.Ctx(t))
		} else if !errors.Is(err, engine.ErrHeld) {
			t.Errorf("the fresh engine: %v", err)
		}
		_ = one.Unlock(testkit.Ctx(t))
	}
	t.Logf("%d holds in %v, of two engines: %d; the last refusal: %v", held, foreignFor(t), stays, last)
	if stays > 0 {
		t.Errorf("two engines of one configuration held the same name at a time, %d times", stays)
	}
	return held
}

// cutOff ends the connections of clients, as the end of a machine does.
func cutOff(servers ...*redistest.Server) {
	for _, s := range servers {
		s.Do("CLIENT", "KILL", "TYPE", "normal")
		s.Do("CLIENT", "KILL", "TYPE", "pubsub")
	}
}

// Cluster A moves to another address, and cluster B gets the one that A had. The engine's
// configuration names A by a name that always leads to A.
func TestForeign_ClusterAtALearntAddress_IsNotFollowed(t *testing.T) {
	t.Parallel()
	announce := redistest.Line("cluster-announce-ip 10.9.0.1", "cluster-announce-port 7000")
	a, b := redistest.StartLone(t, announce), redistest.StartLone(t, announce)
	n := newNetwork(map[string]string{"a.test:7000": a.Addr(), "10.9.0.1:7000": a.Addr()})
	const url = "redis+cluster://a.test:7000"
	var log journal
	former := testkit.Open(t, url, n.use, log.use)
	h := testkit.MustLock(t, former.Mutex("x"))
	a.Do("CONFIG", "SET", "cluster-announce-ip", "10.9.0.2")
	for _, name := range []string{"a.test", ""} { // Valkey keeps the answer to CLUSTER SLOTS until a name changes
		a.Do("CONFIG", "SET", "cluster-announce-hostname", name)
	}
	testkit.Eventually(t, "A has its new address", func() bool {
		return testkit.HasText(fmt.Errorf("%v", a.Do("CLUSTER", "SLOTS")), "10.9.0.2")
	})
	n.lead("10.9.0.2:7000", a.Addr())
	n.lead("10.9.0.1:7000", b.Addr())
	cutOff(a)
	fresh := testkit.Open(t, url, n.use)
	if holdApart(t, former, fresh) == 0 {
		t.Error("the engine did not find A at its new address")
	}
	if keys, _ := b.Do("KEYS", "*").([]any); len(keys) > 0 || h.Err() != nil {
		t.Errorf("keys at B: %v; the hold from before: %v", keys, h.Err())
	}
	if got := log.reported(); len(got) != 1 || got[0] != "10.9.0.1:7000" {
		t.Errorf("reported: %v", got)
	}
	testkit.MustUnlock(t, h)
}

// The machine of one node is gone, and another cluster's node has its address.
func TestForeign_NodeThatTheLayoutNames_GetsNoCommand(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, false)
	foreign := redistest.StartLone(t)
	first, gone := c.Nodes()[0], c.Nodes()[1]
	n := newNetwork(map[string]string{})
	var log journal
	e := testkit.Open(t, "redis+cluster://"+first.Addr(), n.use, log.use)
	var name, other string // in a slot of the node, and of another
	for i := 0; name == "" || other == ""; i++ {
		if s := fmt.Sprint("x", i); c.Owner(c.Slot(s)) == gone {
			name = s
		} else {
			other = s
		}
	}
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex(name)))
	n.lead(gone.Addr(), foreign.Addr())
	cutOff(gone)
	testkit.Eventually(t, "the foreign node is reported", func() bool { return len(log.reported()) == 1 })
	for over := time.Now().Add(foreignFor(t)); time.Now().Before(over); time.Sleep(200 * time.Millisecond) { // for that long nothing may happen
		if h, err := e.Mutex(name).TryLock(testkit.Within(t, 300*time.Millisecond)); err == nil {
			t.Fatalf("the foreign node gave a lock: %v", h)
		}
		testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex(other)))
	}
	if keys, _ := foreign.Do("KEYS", "*").([]any); len(keys) > 0 {
		t.Errorf("keys at the foreign node: %v", keys)
	}
	if got := log.reported(); len(got) != 1 || got[0] != gone.Addr() {
		t.Errorf("reported: %v", got)
	}
	n.lead(gone.Addr(), gone.Addr())
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex(name)))
}

// Sentinels of somebody else, of a higher epoch, answer at the addresses of two that were learnt.
// Their primary has the same name.
func TestForeign_SentinelsAtLearntAddresses_AreNotBelieved(t *testing.T) {
	t.Parallel()
	ours, theirs := redistest.StartSentinel(t), redistest.StartSentinel(t)
	theirs.Failover() // so theirs is the higher epoch
	n := newNetwork(map[string]string{"s.test:26379": ours.Sentinels()[0].Addr()})
	const url = "redis+sentinel://s.test:26379/" + redistest.MasterName
	var log journal
	former := testkit.Open(t, url, n.use, log.use)
	h := testkit.MustLock(t, former.Mutex("x"))
	for i := 1; i < 3; i++ {
		n.lead(ours.Sentinels()[i].Addr(), theirs.Sentinels()[i].Addr())
	}
	cutOff(ours.Sentinels()...)
	cutOff(ours.Primary())
	fresh := testkit.Open(t, url, n.use)
	if holdApart(t, former, fresh) == 0 {
		t.Error("the engine has lost its primary")
	}
	theirs.Failover() // it is announced
	holdApart(t, former, fresh)
	for _, s := range theirs.Servers() {
		if keys, _ := s.Do("KEYS", "*").([]any); len(keys) > 0 {
			t.Errorf("keys at the foreign primary: %v", keys)
		}
	}
	if got := log.reported(); len(got) == 0 || len(got) > 2 || len(got) == 2 && got[0] == got[1] {
		t.Errorf("reported, where two addresses are foreign: %v", got)
	}
	testkit.MustUnlock(t, h)
	before := ours.Primary()
	ours.Failover()
	testkit.Eventually(t, "a failover of ours is followed", func() bool {
		addr := testkit.Client(former).AddrOf(0)
		return addr != before.Addr() && addr == ours.Primary().Addr()
	})
	testkit.MustUnlock(t, testkit.MustLock(t, former.Mutex("x")))
}

// The primary was promoted, and its address is not configured. Its machine goes, and somebody
// else's primary gets the address.
func TestForeign_PrimaryAtTheAddressOfOneThatWasPromoted_GetsNoCommand(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t, 1)
	foreign := redistest.Start(t)
	a, b := r.Servers()[0], r.Servers()[1]
	n := newNetwork(map[string]string{"a.test:6379": a.Addr()})
	var log journal
	e := testkit.Open(t, "redis+replicas://a.test:6379", n.use, log.use)
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
	r.Promote(b)
	testkit.Eventually(t, "the new primary is followed", func() bool { return testkit.Client(e).AddrOf(0) == b.Addr() })
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))

	b.Kill()
	n.lead(b.Addr(), foreign.Addr())
	for over := time.Now().Add(foreignFor(t)); time.Now().Before(over); time.Sleep(100 * time.Millisecond) { // for that long nothing may happen
		if h, err := e.Mutex("x").TryLock(testkit.Within(t, 300*time.Millisecond)); err == nil {
			t.Fatalf("the foreign primary gave a lock: %v", h)
		}
	}
	if keys, _ := foreign.Do("KEYS", "*").([]any); len(keys) > 0 {
		t.Errorf("keys at the foreign primary: %v", keys)
	}
	testkit.Eventually(t, "the foreign primary is reported", func() bool { return len(log.reported()) > 0 })
	if got := log.reported(); len(got) != 1 || got[0] != b.Addr() {
		t.Errorf("reported: %v", got)
	}
	a.Do("REPLICAOF", "NO", "ONE")
	testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex("x")))
}
