package interop

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp"
)

// patience is for answers of Java that come after work.
const patience = 3 * time.Minute

// site is one deployment. Its methods may be called from any goroutine.
type site struct {
	single  *redistest.Server
	cluster *redistest.Cluster

	mu     sync.Mutex
	owners map[int]*redistest.Server // of slots
}

func startSite(t testing.TB, clustered bool) *site {
	t.Helper()
	if clustered {
		return &site{cluster: redistest.StartCluster(t, false), owners: make(map[int]*redistest.Server)}
	}
	return &site{single: testkit.Server(t)}
}

func (s *site) servers() []*redistest.Server {
	if s.cluster != nil {
		return s.cluster.Nodes()
	}
	return []*redistest.Server{s.single}
}

func (s *site) addrs() (all []string) {
	for _, server := range s.servers() {
		all = append(all, server.Addr())
	}
	return all
}

func (s *site) url() string {
	if s.cluster != nil {
		return s.cluster.URL()
	}
	return s.single.URL()
}

// serverOf is the server with a key. Slots are not moved, but by tests that do not ask.
func (s *site) serverOf(key string) *redistest.Server {
	if s.cluster == nil {
		return s.single
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := int(resp.SlotOf(key))
	if s.owners[slot] == nil {
		s.owners[slot] = s.cluster.AwaitOwner(slot)
	}
	return s.owners[slot]
}

// do runs a command at the server with the key.
func (s *site) do(t testing.TB, key string, words ...string) any {
	t.Helper()
	v, err := s.serverOf(key).Process.Do(words...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
	return v
}

// settings of both sides.
type settings struct {
	lease         time.Duration // of both watchdogs
	plainChannels bool          // in a cluster, too
	ownJVM        bool          // to be killed
}

// calm is what both have by default.
var calm = settings{lease: 30 * time.Second}

// stage is where both meet: deployments, and on each an engine and a Redisson client.
type stage struct {
	settings
	sites   []*site
	engines []*engine.Engine
	jvm     *jvm
	clients []string // names in the JVM
}

// ground is a layout of servers.
type ground struct {
	name    string
	sites   int
	cluster bool
}

// grounds are the layouts that a kind is tested on. A cluster has sharded channels, unless the
// server is too old for them.
func (k kind) grounds() []ground {
	if k.servers > 1 {
		return []ground{{name: fmt.Sprint(k.servers, "-servers"), sites: k.servers}}
	}
	return []ground{{name: "standalone", sites: 1}, {name: "cluster", sites: 1, cluster: true}}
}

func newStage(t testing.TB, g ground, set settings) *stage {
	t.Helper()
	s := &stage{settings: set}
	for range g.sites {
		s.sites = append(s.sites, startSite(t, g.cluster))
	}
	if set.ownJVM {
		s.jvm = startJVM(t)
		t.Cleanup(s.jvm.end)
	} else {
		s.jvm = startedJVM(t)
	}
	for _, at := range s.sites {
		s.engines = append(s.engines, s.engine(t, at))
		s.clients = append(s.clients, s.jvm.connect(t, at, set))
	}
	return s
}

// engine opens one more engine.
func (s *stage) engine(t testing.TB, at *site) *engine.Engine {
	t.Helper()
	return testkit.Open(t, at.url(), func(c *engine.Config) {
		c.Lease = s.lease
		if s.plainChannels {
			c.ShardedPubSub = "off"
		}
	})
}

// listeners is how many channels of locks somebody listens to, whose names have this in them.
func (s *stage) listeners(part string) (n int) {
	for _, at := range s.sites {
		for _, server := range at.servers() {
			for _, question := range [][]string{{"PUBSUB", "CHANNELS", "redisson*" + part + "*"}, {"PUBSUB", "SHARDCHANNELS", "redisson*" + part + "*"}} {
				v, _ := server.Process.Do(question...) // an old server does not know the second
				list, _ := v.([]any)
				n += len(list)
			}
		}
	}
	return n
}

// asleep begins something of an engine that waits, and returns when that sleeps: it has been
// refused, listens, and has been refused again. The name is one to which nobody has listened.
func (s *stage) asleep(t testing.TB, e *engine.Engine, name string, begin func()) {
	t.Helper()
	before, waiting := testkit.Client(e).Stats().Commands, e.Stats().Waiting
	begin()
	testkit.Eventually(t, "Go waits", func() bool {
		own := testkit.Client(e).Stats()
		return e.Stats().Waiting > waiting && s.listeners(name) > 0 && own.Commands >= before+2 && own.InFlight == 0
	})
}

// polls begins something that waits by asking again and again, and returns when it has done so.
func (s *stage) polls(t testing.TB, begin func()) {
	t.Helper()
	before := s.scripts()
	begin()
	testkit.Eventually(t, "it waits", func() bool { return s.scripts() > before+1 })
}

// scripts is how many scripts the servers have run.
func (s *stage) scripts() (n int64) {
	for _, at := range s.sites {
		for _, server := range at.servers() {
			stats, _ := server.Process.CommandStats()
			n += stats["evalsha"] + stats["eval"]
		}
	}
	return n
}

// clean fails the test if anything is left on the servers. Redisson takes back its latch of an
// unlock after it has answered.
func (s *stage) clean(t testing.TB) {
	t.Helper()
	for _, at := range s.sites {
		for _, server := range at.servers() {
			testkit.Eventually(t, "no key is left on "+server.Addr(), func() bool {
				counters, _ := server.Do("KEYS", "redisson_lock_token:*").([]any) // these stay
				return server.Do("DBSIZE") == int64(len(counters))
			})
		}
	}
	testkit.Eventually(t, "no channel is left", func() bool { return s.listeners("") == 0 })
}

// onEachStage runs a test for each kind, on each of its grounds. Kinds share the servers.
func onEachStage(t *testing.T, set settings, has func(k kind) bool, test func(t *testing.T, s *stage, k kind)) {
	onStages(t, set, kinds, has, test)
}

// onEachStageWithReaders is onEachStage with reading, too.
func onEachStageWithReaders(t *testing.T, set settings, has func(k kind) bool, test func(t *testing.T, s *stage, k kind)) {
	onStages(t, set, append(slices.Clone(kinds), reading), has, test)
}

func onStages(t *testing.T, set settings, kinds []kind, has func(k kind) bool, test func(t *testing.T, s *stage, k kind)) {
	stages := make(map[ground]*stage)
	t.Run("of", func(t0 *testing.T) { // returns when those that are parallel have ended, too
		for _, k := range kinds {
			if !has(k) {
				continue
			}
			for _, g := range k.grounds() {
				if stages[g] == nil {
					stages[g] = newStage(t, g, set)
				}
				s := stages[g]
				t0.Run(k.name+"/"+g.name, func(t *testing.T) { test(t, s, k) })
			}
		}
	})
	for _, s := range stages {
		if !t.Failed() {
			s.clean(t)
		}
	}
}

// onEachGround runs a test on each of the grounds, with the kinds that are tested there.
func onEachGround(t *testing.T, test func(t *testing.T, g ground, own []kind)) {
	grounds := make(map[ground][]kind)
	for _, k := range kinds {
		for _, g := range k.grounds() {
			grounds[g] = append(grounds[g], k)
		}
	}
	for g, own := range grounds {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			test(t, g, own)
		})
	}
}

// every is the set of all kinds.
func every(kind) bool { return true }
