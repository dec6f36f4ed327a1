package topology

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// deployments are all the ways to run a server that the internal/suite below holds on.
var deployments = map[string]func(t *testing.T, opts ...redistest.Option) *testkit.Site{
	"standalone": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		return testkit.Single(testkit.Server(t, opts...))
	},
	"unix socket": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		s := testkit.Single(testkit.Server(t, opts...))
		s.URL = "unix://" + s.Servers()[0].Socket()
		return s
	},
	"IPv6": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			t.Skipf("this machine has no IPv6 loopback: %v", err)
		}
		l.Close()
		s := redistest.Start(t, append(opts, redistest.Line("bind 127.0.0.1 ::1"))...)
		at := testkit.Single(s)
		at.URL = strings.Replace(s.URL(), "127.0.0.1", "[::1]", 1)
		return at
	},
	"TLS": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		s := redistest.Start(t, append(opts, redistest.TLS())...)
		at := testkit.Single(s)
		at.TLS = s.TLSConfig()
		return at
	},
	"TLS, client certificates": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		s := redistest.Start(t, append(opts, redistest.ClientCerts())...)
		at := testkit.Single(s)
		at.TLS = s.TLSConfig()
		return at
	},
	// Its nodes announce their names, and each is known by the name it was dialled
	// under: the configuration has none.
	"cluster of hostnames, TLS, client certificates": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		c := redistest.StartCluster(t, false, append(opts, redistest.ClientCerts(), redistest.Needs(redistest.Hostnames),
			redistest.Line("cluster-announce-hostname localhost", "cluster-preferred-endpoint-type hostname"))...)
		at := testkit.Clustered(c)
		at.TLS = c.Nodes()[0].TLSConfig()
		at.TLS.ServerName = ""
		at.Host = "localhost"
		return at
	},
	"ACL": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		s := redistest.Start(t, append(opts, redistest.User(leastRights(t, forAcks)))...)
		at := testkit.Single(s)
		at.URL = "redis://pawl:secret@" + s.Addr()
		return at
	},
	"cluster, ACL": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		rights := []string{"- Cluster: `", forAcks, "in a cluster also `"}
		if redistest.Can(redistest.ShardedChannels, opts...) {
			rights = append(rights, "from Redis 7.0 on also `")
		}
		c := redistest.StartCluster(t, false, append(opts, redistest.User(leastRights(t, rights...)))...)
		at := testkit.Clustered(c)
		at.URL = strings.Replace(c.URL(), "://", "://pawl:secret@", 1)
		return at
	},
	"replicas, ACL": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		r := redistest.StartReplicated(t, 1, append(opts, redistest.User(leastRights(t, "replicas promoted by hand: `", forAcks)))...)
		at := testkit.Replicated(r)
		at.URL = strings.Replace(r.URL(), "://", "://pawl:secret@", 1)
		return at
	},
	"replicas": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		return testkit.Replicated(redistest.StartReplicated(t, 2, opts...))
	},
	"sentinel": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		return testkit.Replicated(redistest.StartSentinel(t, opts...))
	},
	"cluster": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		return testkit.Clustered(redistest.StartCluster(t, false, opts...))
	},
	"cluster, TLS": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		c := redistest.StartCluster(t, false, append(opts, redistest.TLS())...)
		at := testkit.Clustered(c)
		at.TLS = c.Nodes()[0].TLSConfig()
		return at
	},
	"sentinel, TLS": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		r := redistest.StartSentinel(t, append(opts, redistest.TLS())...)
		at := testkit.Replicated(r)
		at.TLS = r.Servers()[0].TLSConfig()
		return at
	},
	"sentinel, a password for the sentinels and another for the servers": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		return testkit.Replicated(redistest.StartSentinel(t, append(opts, redistest.Password("lock"), redistest.SentinelPassword("guard"))...))
	},
	"cluster, plain messages": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		at := testkit.Clustered(redistest.StartCluster(t, false, opts...))
		at.URL += "?sharded_pubsub=off"
		return at
	},
	"cluster, all replicas acknowledge": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		at := testkit.Clustered(redistest.StartCluster(t, true, opts...))
		at.URL, at.Durable = at.URL+"?replicas=all", true
		return at
	},
	"sentinel, all replicas acknowledge": func(t *testing.T, opts ...redistest.Option) *testkit.Site {
		at := testkit.Replicated(redistest.StartSentinel(t, opts...))
		at.URL, at.Durable = at.URL+"?replicas=all", true
		return at
	},
}

// forAcks comes before the rights in docs/operations.md that Acked needs.
const forAcks = "waiting for replicas: `"

// leastRights is the documented ACL rule, for all names, and what the page says has to be
// added behind the given words.
func leastRights(t *testing.T, more ...string) string {
	t.Helper()
	rule := strings.Join(documentedACL(t)[2:], " ") // without ACL SETUSER
	rule = strings.Replace(rule, "~orders:* ~pawl_queue:{orders:*", "~*", 1)
	for _, words := range more {
		_, after, ok := strings.Cut(operations(t), words)
		commands, _, ends := strings.Cut(after, "`")
		if !ok || !ends {
			t.Fatalf("docs/operations.md does not say: %s", words)
		}
		rule += " " + strings.Join(strings.Fields(commands), " ")
	}
	return rule
}

// The same service, with another URL.
func TestLocksWorkOnEveryDeployment(t *testing.T) {
	t.Parallel()
	onEveryDeployment(t)
}

func TestLocksWorkOnEveryDeploymentOfValkey(t *testing.T) {
	t.Parallel()
	valkey := redistest.OnValkey(t)
	if info := testkit.Server(t, valkey).Info("INFO", "server"); !strings.Contains(info, "valkey_version:") {
		t.Fatalf("that is no Valkey:\n%s", info)
	}
	onEveryDeployment(t, valkey)
}

func onEveryDeployment(t *testing.T, opts ...redistest.Option) {
	for name, start := range deployments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := start(t, slices.Clip(opts)...)
			// How quickly they answer is not what this is about.
			unhurried := func(c *engine.Config) { c.CommandTimeout, c.AckTimeout = testkit.Limit, testkit.Limit }
			a, b := at.Open(t, unhurried), at.Open(t, unhurried)
			for what, f := range map[string]func(t *testing.T, at *testkit.Site, a, b *engine.Engine){
				"exclusion":       deployedExclusion,
				"waiting":         testkit.HandsOver,
				"contention":      testkit.Contends,
				"renewal":         deployedRenewal,
				"re-entry":        deployedReentry,
				"durability":      deployedDurability,
				"force-unlock":    deployedForceUnlock,
				"scripts flushed": deployedScriptFlush,
			} {
				t.Run(what, func(t *testing.T) { f(t, at, a, b) })
			}
			if host, _, _ := net.SplitHostPort(testkit.Client(a).AddrOf(0)); at.Host != "" && host != at.Host {
				t.Errorf("connected to %s, not by name", testkit.Client(a).AddrOf(0))
			}
			can := at.Servers()[0].Can(redistest.ShardedChannels)
			if strings.HasPrefix(name, "cluster") && !strings.Contains(name, "plain") && testkit.Client(a).Sharded() != can {
				t.Errorf("the cluster can have sharded messages: %v; they are used: %v", can, !can)
			}
			t.Run("two commands", func(t *testing.T) { deployedTwoCommands(t, at, a) })
			at.Clean(t)
		})
	}
}

func deployedExclusion(t *testing.T, at *testkit.Site, a, b *engine.Engine) {
	for _, name := range testkit.Spread(t, 12) {
		h := testkit.MustLock(t, a.Mutex(name))
		_, err := b.Mutex(name).TryLock(testkit.Ctx(t))
		if refused := (*engine.NotAcquiredError)(nil); !errors.As(err, &refused) || refused.TTL <= 0 || refused.TTL > 30*time.Second {
			t.Fatalf("TryLock of a lock that is held: %v", err)
		}
		if s, err := b.Mutex(name).State(testkit.Ctx(t)); err != nil || !s.Locked || s.Holders[0].ID != h.Owner() {
			t.Fatalf("State: %+v, %v", s, err)
		}
		if at.Do(name, "HGET", name, h.Owner()) != "1" {
			t.Fatalf("%s: the server does not have the hold", name)
		}
		testkit.MustUnlock(t, h)
		h, err = b.Mutex(name).TryLock(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
	}
}

func deployedRenewal(t *testing.T, at *testkit.Site, _, _ *engine.Engine) {
	testkit.Steady(t, func(t testing.TB) {
		e := at.Open(t, func(c *engine.Config) { c.Lease = 3 * time.Second })
		var holds []*engine.Hold
		for _, name := range testkit.Spread(t, 30) {
			holds = append(holds, testkit.MustLock(t, e.Mutex(name)))
		}
		testkit.Eventually(t, "all are renewed, four times on average", func() bool {
			st := e.Stats()
			return st.Renewed >= uint64(4*len(holds)) || st.Held < len(holds)
		})
		for _, h := range holds {
			if err := h.Err(); err != nil {
				t.Fatalf("%s: %v", h.Name(), err)
			}
			if at.Do(h.Name(), "HEXISTS", h.Name(), h.Owner()) != int64(1) {
				t.Fatalf("%s: gone", h.Name())
			}
			testkit.MustUnlock(t, h)
		}
	})
}

func deployedReentry(t *testing.T, at *testkit.Site, a, _ *engine.Engine) {
	name := testkit.Spread(t, 1)[0]
	outer := testkit.MustLock(t, a.Mutex(name))
	inner, err := a.Mutex(name).Lock(outer.Context(testkit.Ctx(t)))
	if err != nil {
		t.Fatal(err)
	}
	if at.Do(name, "HGET", name, outer.Owner()) != "2" {
		t.Error("the count is not 2")
	}
	testkit.MustUnlock(t, inner)
	testkit.MustUnlock(t, outer)
}

func deployedForceUnlock(t *testing.T, _ *testkit.Site, a, b *engine.Engine) {
	names := testkit.Spread(t, 3)
	var holds []*engine.Hold
	var waits []*engine.Future[*engine.Hold]
	for _, name := range names {
		holds = append(holds, testkit.MustLock(t, a.Mutex(name)))
		// A waiter in the holder's process makes it listen.
		waits = append(waits, a.Mutex(name).LockAsync(testkit.Ctx(t)))
	}
	testkit.Eventually(t, "it listens", func() bool { return testkit.Client(a).Stats().ChannelsConfirmed == len(names) })
	for i, name := range names {
		if ok, err := b.Mutex(name).ForceUnlock(testkit.Ctx(t)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		<-holds[i].Done()
		next, err := waits[i].Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, next)
	}
	testkit.Eventually(t, "it listens no more", func() bool { return a.Stats().Channels == 0 })
}

func deployedScriptFlush(t *testing.T, at *testkit.Site, a, b *engine.Engine) {
	for _, name := range testkit.Spread(t, 10) {
		h := testkit.MustLock(t, a.Mutex(name))
		at.Flush()
		f := b.Mutex(name).LockAsync(testkit.Ctx(t))
		testkit.MustUnlock(t, h)
		h, err := f.Await(testkit.Ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		testkit.MustUnlock(t, h)
	}
}

// Where the primary has replicas they acknowledge; where it has none, that is said.
func deployedDurability(t *testing.T, at *testkit.Site, a, _ *engine.Engine) {
	attached := 0
	for _, s := range at.Servers() {
		want := 0
		fmt.Sscanf(replicationLine(s, "connected_slaves"), "%d", &want)
		testkit.Eventually(t, "ROLE lists what is connected", func() bool {
			attached = len(s.Replicas())
			return attached == want
		})
	}
	for _, name := range testkit.Spread(t, 10) {
		h, err := a.Mutex(name).Lock(testkit.Ctx(t), engine.Acked(engine.AllReplicas))
		if attached == 0 {
			testkit.WantNotAcked(t, err, 0, 1)
			continue
		}
		if err != nil || h.Acked() != attached {
			t.Fatalf("%s, %d replicas attached: %v", name, attached, err)
		}
		inner, err := a.Mutex(name).Lock(h.Context(testkit.Ctx(t)))
		if err != nil || inner.Acked() != attached {
			t.Fatalf("%s, re-entry: %v", name, err)
		}
		testkit.MustUnlock(t, inner)
		testkit.MustUnlock(t, h)
	}
}

// replicationLine reads a value of INFO replication.
func replicationLine(s *redistest.Server, name string) string {
	_, after, _ := strings.Cut(s.Info("INFO", "replication"), name+":")
	value, _, _ := strings.Cut(after, "\r")
	return value
}

// An uncontended lock and unlock are two commands everywhere.
func deployedTwoCommands(t *testing.T, at *testkit.Site, e *engine.Engine) {
	names := testkit.Spread(t, 20)
	pair := func() {
		for _, name := range names {
			testkit.MustUnlock(t, testkit.MustLock(t, e.Mutex(name)))
		}
	}
	pair() // whatever the first ones cost
	before := at.Commands()
	pair()
	after := at.Commands()
	if n := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]; n != int64(2*len(names)) {
		t.Errorf("%d scripts for %d pairs", n, len(names))
	}
	if n := after["wait"] - before["wait"]; (n != 0) != at.Durable {
		t.Errorf("%d WAITs", n)
	}
}

// A client without a certificate, at a server that asks for one, is told so at once.
func TestMissingClientCertificateIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.ClientCerts())
	cfg, err := engine.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.TLS = s.TLSConfig()
	cfg.TLS.Certificates = nil
	if _, err := engine.New(testkit.Ctx(t), cfg); !errors.Is(err, engine.ErrUnavailable) || !testkit.HasText(err, "certificate") {
		t.Errorf("%v", err)
	}
}
