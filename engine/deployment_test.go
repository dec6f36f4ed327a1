package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// site is one deployment under test, and how to look at it from behind.
type site struct {
	url     string
	tls     *tls.Config
	servers func() []*redistest.Server            // those that may hold keys, as of now
	do      func(key string, words ...string) any // at the server that serves the key
	flush   func()                                // empties every script cache
	host    string                                // that the nodes announce, if not 127.0.0.1
	durable bool                                  // every operation waits for replicas
}

// deployments are all the ways to run a server that the suite below holds on.
var deployments = map[string]func(t *testing.T, opts ...redistest.Option) *site{
	"standalone": func(t *testing.T, opts ...redistest.Option) *site { return single(server(t, opts...)) },
	"unix socket": func(t *testing.T, opts ...redistest.Option) *site {
		s := single(server(t, opts...))
		s.url = "unix://" + s.servers()[0].Socket()
		return s
	},
	"IPv6": func(t *testing.T, opts ...redistest.Option) *site {
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			t.Skipf("this machine has no IPv6 loopback: %v", err)
		}
		l.Close()
		s := redistest.Start(t, append(opts, redistest.Line("bind 127.0.0.1 ::1"))...)
		at := single(s)
		at.url = strings.Replace(s.URL(), "127.0.0.1", "[::1]", 1)
		return at
	},
	"TLS": func(t *testing.T, opts ...redistest.Option) *site {
		s := redistest.Start(t, append(opts, redistest.TLS())...)
		at := single(s)
		at.tls = s.TLSConfig()
		return at
	},
	"TLS, client certificates": func(t *testing.T, opts ...redistest.Option) *site {
		s := redistest.Start(t, append(opts, redistest.ClientCerts())...)
		at := single(s)
		at.tls = s.TLSConfig()
		return at
	},
	// Its nodes announce their names, and each is known by the name it was dialled
	// under: the configuration has none.
	"cluster of hostnames, TLS, client certificates": func(t *testing.T, opts ...redistest.Option) *site {
		c := redistest.StartCluster(t, false, append(opts, redistest.ClientCerts(), redistest.Needs(redistest.Hostnames),
			redistest.Line("cluster-announce-hostname localhost", "cluster-preferred-endpoint-type hostname"))...)
		at := clustered(c)
		at.tls = c.Nodes()[0].TLSConfig()
		at.tls.ServerName = ""
		at.host = "localhost"
		return at
	},
	"ACL": func(t *testing.T, opts ...redistest.Option) *site {
		s := redistest.Start(t, append(opts, redistest.User(leastRights(t, forAcks)))...)
		at := single(s)
		at.url = "redis://pawl:secret@" + s.Addr()
		return at
	},
	"cluster, ACL": func(t *testing.T, opts ...redistest.Option) *site {
		rights := []string{"- Cluster: `", forAcks, "in a cluster also `"}
		if redistest.Can(redistest.ShardedChannels, opts...) {
			rights = append(rights, "from Redis 7.0 on also `")
		}
		c := redistest.StartCluster(t, false, append(opts, redistest.User(leastRights(t, rights...)))...)
		at := clustered(c)
		at.url = strings.Replace(c.URL(), "://", "://pawl:secret@", 1)
		return at
	},
	"replicas, ACL": func(t *testing.T, opts ...redistest.Option) *site {
		r := redistest.StartReplicated(t, 1, append(opts, redistest.User(leastRights(t, "replicas promoted by hand: `", forAcks)))...)
		at := replicated(r)
		at.url = strings.Replace(r.URL(), "://", "://pawl:secret@", 1)
		return at
	},
	"replicas": func(t *testing.T, opts ...redistest.Option) *site {
		return replicated(redistest.StartReplicated(t, 2, opts...))
	},
	"sentinel": func(t *testing.T, opts ...redistest.Option) *site {
		return replicated(redistest.StartSentinel(t, opts...))
	},
	"cluster": func(t *testing.T, opts ...redistest.Option) *site {
		return clustered(redistest.StartCluster(t, false, opts...))
	},
	"cluster, TLS": func(t *testing.T, opts ...redistest.Option) *site {
		c := redistest.StartCluster(t, false, append(opts, redistest.TLS())...)
		at := clustered(c)
		at.tls = c.Nodes()[0].TLSConfig()
		return at
	},
	"sentinel, TLS": func(t *testing.T, opts ...redistest.Option) *site {
		r := redistest.StartSentinel(t, append(opts, redistest.TLS())...)
		at := replicated(r)
		at.tls = r.Servers()[0].TLSConfig()
		return at
	},
	"sentinel, a password for the sentinels and another for the servers": func(t *testing.T, opts ...redistest.Option) *site {
		return replicated(redistest.StartSentinel(t, append(opts, redistest.Password("lock"), redistest.SentinelPassword("guard"))...))
	},
	"cluster, plain messages": func(t *testing.T, opts ...redistest.Option) *site {
		at := clustered(redistest.StartCluster(t, false, opts...))
		at.url += "?sharding=off"
		return at
	},
	"cluster, all replicas acknowledge": func(t *testing.T, opts ...redistest.Option) *site {
		at := clustered(redistest.StartCluster(t, true, opts...))
		at.url, at.durable = at.url+"?replicas=all", true
		return at
	},
	"sentinel, all replicas acknowledge": func(t *testing.T, opts ...redistest.Option) *site {
		at := replicated(redistest.StartSentinel(t, opts...))
		at.url, at.durable = at.url+"?replicas=all", true
		return at
	},
	"cluster, both kinds of messages": func(t *testing.T, opts ...redistest.Option) *site {
		at := clustered(redistest.StartCluster(t, false, append(opts, redistest.Needs(redistest.ShardedChannels))...))
		at.url += "?sharding=both"
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
	rule = strings.Replace(rule, "~orders:*", "~*", 1)
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

func single(s *redistest.Server) *site {
	return &site{
		url:     s.URL(),
		servers: func() []*redistest.Server { return []*redistest.Server{s} },
		do:      func(_ string, words ...string) any { return s.Do(words...) },
		flush:   func() { s.Do("SCRIPT", "FLUSH") },
	}
}

func replicated(r *redistest.Replicated) *site {
	return &site{
		url:     r.URL(),
		servers: func() []*redistest.Server { return []*redistest.Server{r.Primary()} },
		do:      func(_ string, words ...string) any { return r.Primary().Do(words...) },
		flush:   func() { r.Primary().Do("SCRIPT", "FLUSH") },
	}
}

func clustered(c *redistest.Cluster) *site {
	return &site{url: c.URL(), servers: c.Primaries, do: c.Do, flush: c.FlushScripts}
}

func (at *site) open(t testing.TB, change ...func(*Config)) *Engine {
	t.Helper()
	return open(t, at.url, append([]func(*Config){patientWithReplicas}, append(change, func(c *Config) {
		if at.tls != nil {
			c.TLS = at.tls
		}
	})...)...)
}

// clean fails the test if the servers have anything left.
func (at *site) clean(t testing.TB) {
	t.Helper()
	for _, s := range at.servers() {
		eventually(t, "no key is left on "+s.Addr(), func() bool { return s.Do("DBSIZE") == int64(0) })
		eventually(t, "no channel is left on "+s.Addr(), func() bool {
			plain, _ := s.Do("PUBSUB", "CHANNELS", "redisson*").([]any)
			sharded, _ := s.Do("PUBSUB", "SHARDCHANNELS").([]any)
			return len(plain)+len(sharded) == 0
		})
	}
}

func (at *site) commands() map[string]int64 {
	sum := make(map[string]int64)
	for _, s := range at.servers() {
		for name, n := range s.CommandStats() {
			sum[name] += n
		}
	}
	return sum
}

// The same service, with another URL.
func TestLocksWorkOnEveryDeployment(t *testing.T) {
	t.Parallel()
	onEveryDeployment(t)
}

func TestLocksWorkOnEveryDeploymentOfValkey(t *testing.T) {
	t.Parallel()
	valkey := redistest.OnValkey(t)
	if info := server(t, valkey).Info("INFO", "server"); !strings.Contains(info, "valkey_version:") {
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
			unhurried := func(c *Config) { c.CommandTimeout, c.AckTimeout = limit, limit }
			a, b := at.open(t, unhurried), at.open(t, unhurried)
			for what, f := range map[string]func(t *testing.T, at *site, a, b *Engine){
				"exclusion":       deployedExclusion,
				"waiting":         deployedWaiting,
				"contention":      deployedContention,
				"renewal":         deployedRenewal,
				"re-entry":        deployedReentry,
				"durability":      deployedDurability,
				"force-unlock":    deployedForceUnlock,
				"scripts flushed": deployedScriptFlush,
			} {
				t.Run(what, func(t *testing.T) { f(t, at, a, b) })
			}
			if host, _, _ := net.SplitHostPort(a.table.Client.AddrOf(0)); at.host != "" && host != at.host {
				t.Errorf("connected to %s, not by name", a.table.Client.AddrOf(0))
			}
			can := at.servers()[0].Can(redistest.ShardedChannels)
			if strings.HasPrefix(name, "cluster") && !strings.Contains(name, "plain") && a.table.Client.Sharded() != can {
				t.Errorf("the cluster can have sharded messages: %v; they are used: %v", can, !can)
			}
			t.Run("two commands", func(t *testing.T) { deployedTwoCommands(t, at, a) })
			at.clean(t)
		})
	}
}

// spread returns names that lie in many slots, apart from those of other tests.
func spread(t testing.TB, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s/%d", t.Name(), i)
		if i%3 == 2 {
			names[i] = fmt.Sprintf("%s/{%d}", t.Name(), i)
		}
	}
	return names
}

func deployedExclusion(t *testing.T, at *site, a, b *Engine) {
	for _, name := range spread(t, 30) {
		h := mustLock(t, a.Mutex(name))
		_, err := b.Mutex(name).TryLock(ctxT(t))
		if refused := (*NotAcquiredError)(nil); !errors.As(err, &refused) || refused.TTL <= 0 || refused.TTL > 30*time.Second {
			t.Fatalf("TryLock of a lock that is held: %v", err)
		}
		if s, err := b.Mutex(name).State(ctxT(t)); err != nil || !s.Locked || s.Holders[0].ID != h.Owner() {
			t.Fatalf("State: %+v, %v", s, err)
		}
		if at.do(name, "HGET", name, h.Owner()) != "1" {
			t.Fatalf("%s: the server does not have the hold", name)
		}
		mustUnlock(t, h)
		h, err = b.Mutex(name).TryLock(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
	}
}

// The lease is 30 s: a waiter that is not woken sleeps longer than the test.
func deployedWaiting(t *testing.T, _ *site, a, b *Engine) {
	names := spread(t, 60)
	holds := make([]*Hold, len(names))
	futures := make([]*Future[*Hold], len(names))
	for i, name := range names {
		holds[i] = mustLock(t, a.Mutex(name))
		futures[i] = b.Mutex(name).LockAsync(ctxT(t))
	}
	eventually(t, "all listen", func() bool { return b.table.Client.Stats().ChannelsConfirmed == len(names) })
	for _, h := range holds {
		mustUnlock(t, h)
	}
	for _, f := range futures {
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
	}
}

func deployedContention(t *testing.T, _ *site, a, b *Engine) {
	name := spread(t, 1)[0]
	inside := 0
	done := make(chan error)
	const workers, rounds = 8, 15
	for i := range workers {
		m := []*Engine{a, b}[i%2].Mutex(name)
		go func() {
			for range rounds {
				err := m.Do(ctxT(t), func(context.Context, *Hold) error {
					inside++
					return nil
				})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if inside != workers*rounds {
		t.Errorf("%d of %d", inside, workers*rounds)
	}
}

func deployedRenewal(t *testing.T, at *site, _, _ *Engine) {
	steady(t, func(t testing.TB) {
		e := at.open(t, func(c *Config) { c.Lease = 3 * time.Second })
		var holds []*Hold
		for _, name := range spread(t, 100) {
			holds = append(holds, mustLock(t, e.Mutex(name)))
		}
		eventually(t, "all are renewed, four times on average", func() bool {
			st := e.Stats()
			return st.Renewed >= uint64(4*len(holds)) || st.Held < len(holds)
		})
		for _, h := range holds {
			if err := h.Err(); err != nil {
				t.Fatalf("%s: %v", h.Name(), err)
			}
			if at.do(h.Name(), "HEXISTS", h.Name(), h.Owner()) != int64(1) {
				t.Fatalf("%s: gone", h.Name())
			}
			mustUnlock(t, h)
		}
	})
}

func deployedReentry(t *testing.T, at *site, a, _ *Engine) {
	name := spread(t, 1)[0]
	outer := mustLock(t, a.Mutex(name))
	inner, err := a.Mutex(name).Lock(outer.Context(ctxT(t)))
	if err != nil {
		t.Fatal(err)
	}
	if at.do(name, "HGET", name, outer.Owner()) != "2" {
		t.Error("the count is not 2")
	}
	mustUnlock(t, inner)
	mustUnlock(t, outer)
}

func deployedForceUnlock(t *testing.T, _ *site, a, b *Engine) {
	for _, name := range spread(t, 3) {
		h := mustLock(t, a.Mutex(name))
		// A waiter in the holder's process makes it listen.
		f := a.Mutex(name).LockAsync(ctxT(t))
		eventually(t, "it listens", func() bool { return a.table.Client.Stats().ChannelsConfirmed > 0 })
		if ok, err := b.Mutex(name).ForceUnlock(ctxT(t)); !ok || err != nil {
			t.Fatal(ok, err)
		}
		<-h.Done()
		next, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, next)
		eventually(t, "it listens no more", func() bool { return a.Stats().Channels == 0 })
	}
}

func deployedScriptFlush(t *testing.T, at *site, a, b *Engine) {
	for _, name := range spread(t, 10) {
		h := mustLock(t, a.Mutex(name))
		at.flush()
		f := b.Mutex(name).LockAsync(ctxT(t))
		mustUnlock(t, h)
		h, err := f.Await(ctxT(t))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, h)
	}
}

// Where the primary has replicas they acknowledge; where it has none, that is said.
func deployedDurability(t *testing.T, at *site, a, _ *Engine) {
	attached := 0
	for _, s := range at.servers() {
		want := 0
		fmt.Sscanf(replicationLine(s, "connected_slaves"), "%d", &want)
		eventually(t, "ROLE lists what is connected", func() bool {
			attached = len(s.Replicas())
			return attached == want
		})
	}
	for _, name := range spread(t, 10) {
		h, err := a.Mutex(name).Lock(ctxT(t), Acked(AllReplicas))
		if attached == 0 {
			notAcked(t, err, 0, 1)
			continue
		}
		if err != nil || h.Acked() != attached {
			t.Fatalf("%s, %d replicas attached: %v", name, attached, err)
		}
		inner, err := a.Mutex(name).Lock(h.Context(ctxT(t)))
		if err != nil || inner.Acked() != attached {
			t.Fatalf("%s, re-entry: %v", name, err)
		}
		mustUnlock(t, inner)
		mustUnlock(t, h)
	}
}

// replicationLine reads a value of INFO replication.
func replicationLine(s *redistest.Server, name string) string {
	_, after, _ := strings.Cut(s.Info("INFO", "replication"), name+":")
	value, _, _ := strings.Cut(after, "\r")
	return value
}

// An uncontended lock and unlock are two commands everywhere.
func deployedTwoCommands(t *testing.T, at *site, e *Engine) {
	names := spread(t, 50)
	pair := func() {
		for _, name := range names {
			mustUnlock(t, mustLock(t, e.Mutex(name)))
		}
	}
	pair() // whatever the first ones cost
	before := at.commands()
	pair()
	after := at.commands()
	if n := after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]; n != int64(2*len(names)) {
		t.Errorf("%d scripts for %d pairs", n, len(names))
	}
	if n := after["wait"] - before["wait"]; (n != 0) != at.durable {
		t.Errorf("%d WAITs", n)
	}
}

// A client without a certificate, at a server that asks for one, is told so at once.
func TestMissingClientCertificateIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.ClientCerts())
	cfg, err := ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.TLS = s.TLSConfig()
	cfg.TLS.Certificates = nil
	if _, err := New(ctxT(t), cfg); !errors.Is(err, ErrUnavailable) || !hasText(err, "certificate") {
		t.Errorf("%v", err)
	}
}
