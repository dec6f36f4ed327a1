package redistest

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Replicated is a primary with replicas, by hand or under sentinels, that belongs to
// a test. Its methods are called from the test's goroutine.
type Replicated struct {
	t         TB
	servers   []*Server
	sentinels []*Server
}

// MasterName is what the sentinels call the primary.
const MasterName = "mymaster"

// StartReplicated starts a primary with n replicas and waits until they are in step.
// The options go to every server.
func StartReplicated(t TB, n int, opts ...Option) *Replicated {
	t.Helper()
	r := &Replicated{t: t}
	opts = append([]Option{Line("repl-diskless-sync-delay 0", "repl-ping-replica-period 1", "repl-timeout 5")}, opts...)
	for i := range n + 1 {
		s := Start(t, opts...)
		if i == 0 {
			opts = append(opts, sharing(s))
		}
		r.servers = append(r.servers, s)
	}
	for _, s := range r.servers[1:] {
		r.follow(s, r.servers[0])
	}
	r.AwaitInStep()
	return r
}

// StartSentinel is StartReplicated with two replicas and three sentinels, which take
// a primary for dead after a second: less, and on a busy machine they replace the new
// one, too.
func StartSentinel(t TB, opts ...Option) *Replicated {
	t.Helper()
	return StartSentinelOf(t, 2, opts...)
}

// StartSentinelOf is StartSentinel with so many replicas.
func StartSentinelOf(t TB, replicas int, opts ...Option) *Replicated {
	t.Helper()
	r := StartReplicated(t, replicas, opts...)
	primary := r.servers[0]
	for range 3 {
		lines := []string{
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", MasterName, primary.port),
			fmt.Sprintf("sentinel down-after-milliseconds %s 1000", MasterName),
			fmt.Sprintf("sentinel failover-timeout %s 3000", MasterName),
		}
		if p := primary.cfg.Password; p != "" {
			lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", MasterName, p))
		}
		guard := primary.cfg.sentinelPassword
		if guard != "" {
			lines = append(lines, "sentinel sentinel-pass "+guard) // for each other
		}
		r.sentinels = append(r.sentinels, Start(t, sentinel, sharing(primary), Password(guard), Line(lines...)))
	}
	for _, s := range r.sentinels {
		await(t, "the sentinels know each other and the replicas", func() bool {
			v, _ := s.Do("SENTINEL", "SENTINELS", MasterName).([]any)
			w, _ := s.Do("SENTINEL", "REPLICAS", MasterName).([]any)
			return len(v) == 2 && len(w) == replicas
		})
	}
	return r
}

func sentinel(c *Config) { c.sentinel = true }

func (r *Replicated) follow(replica, primary *Server) {
	r.t.Helper()
	r.followPort(replica, primary, strconv.Itoa(primary.port))
}

// followPort has the replica reach its primary at a port.
func (r *Replicated) followPort(replica, primary *Server, port string) {
	r.t.Helper()
	if p := primary.cfg.Password; p != "" {
		replica.Do("CONFIG", "SET", "masterauth", p)
	}
	if v := replica.Do("REPLICAOF", "127.0.0.1", port); v != "OK" {
		r.t.Fatalf("REPLICAOF: %v", v)
	}
}

// AwaitInStep waits until every replica that runs has what its primary has now.
func (r *Replicated) AwaitInStep() {
	r.t.Helper()
	awaitInStep(r.t, r.servers)
}

// awaitInStep compares offsets: a link that is up says nothing yet, since the primary
// sends what is written after the first copy only once the replica has reported, a
// second later.
func awaitInStep(t TB, servers []*Server) {
	t.Helper()
	written := make(map[string]int64) // by the primary's port
	for _, s := range servers {
		if s.Running() {
			written[strconv.Itoa(s.port)] = replicationField(s, "master_repl_offset")
		}
	}
	for _, s := range servers {
		if !s.Running() {
			continue
		}
		await(t, s.Addr()+" is in step", func() bool {
			info := s.Info("INFO", "replication")
			if strings.Contains(info, "role:master") {
				return true
			}
			offset, known := written[field(info, "master_port")]
			return known && strings.Contains(info, "master_link_status:up") && replicationField(s, "slave_repl_offset") >= offset
		})
	}
}

func replicationField(s *Server, name string) int64 {
	n, _ := strconv.ParseInt(field(s.Info("INFO", "replication"), name), 10, 64)
	return n
}

// field reads a line of INFO.
func field(info, name string) string {
	_, after, _ := strings.Cut(info, name+":")
	value, _, _ := strings.Cut(after, "\r")
	return value
}

// Primary returns the server that says that it is the primary; of several, the one
// with replicas.
func (r *Replicated) Primary() *Server {
	r.t.Helper()
	var found *Server
	await(r.t, "there is a primary", func() bool {
		for _, s := range r.servers {
			if !s.Running() {
				continue
			}
			info := s.Info("INFO", "replication")
			if strings.Contains(info, "role:master") && (found == nil || !strings.Contains(info, "connected_slaves:0")) {
				found = s
			}
		}
		return found != nil
	})
	return found
}

// Servers returns the primary of the start and its replicas, Sentinels the sentinels.
func (r *Replicated) Servers() []*Server { return r.servers }

// Sentinels returns the sentinels, if there are any.
func (r *Replicated) Sentinels() []*Server { return r.sentinels }

// URL returns the redis+sentinel:// URL, or the redis+replicas:// one if there are no
// sentinels (rediss with TLS).
func (r *Replicated) URL() string {
	if len(r.sentinels) > 0 {
		u := deploymentURL("sentinel", r.sentinels, r.servers[0].cfg.Password, "/"+MasterName)
		if p := r.sentinels[0].cfg.Password; p != "" {
			u += "?" + url.Values{"sentinel_password": {p}}.Encode()
		}
		return u
	}
	return deploymentURL("replicas", r.servers, r.servers[0].cfg.Password, "")
}

// Promote makes a server the primary by hand: it follows nobody, and then the others
// that run follow it.
func (r *Replicated) Promote(s *Server) {
	r.t.Helper()
	if v := s.Do("REPLICAOF", "NO", "ONE"); v != "OK" {
		r.t.Fatalf("REPLICAOF NO ONE: %v", v)
	}
	for _, other := range r.servers {
		if other != s && other.Running() {
			r.follow(other, s)
		}
	}
}

// Failover has the sentinels make another server the primary, and waits until they
// say so and it is.
func (r *Replicated) Failover() {
	r.t.Helper()
	before := r.Primary()
	await(r.t, "the sentinels begin a failover", func() bool {
		return r.sentinels[0].Do("SENTINEL", "FAILOVER", MasterName) == "OK"
	})
	r.AwaitOther(before)
}

// Forget has the sentinels forget the replicas that are down, by SENTINEL RESET, and waits
// until they have found the others again.
func (r *Replicated) Forget() {
	r.t.Helper()
	// A RESET in the middle of a failover would leave two primaries, and the sentinels
	// with the one that nobody follows. On a busy machine they may begin another failover
	// at any time; and a primary that they have left follows the next one only because they
	// remember it.
	await(r.t, "all that run follow the primary, which all sentinels see and leave alone", func() bool {
		primary := r.Primary()
		for _, s := range r.sentinels {
			v, _ := s.Do("SENTINEL", "MASTER", MasterName).([]any)
			if len(v) < 10 || v[4] != "port" || v[5] != strconv.Itoa(primary.port) || v[8] != "flags" || v[9] != "master" {
				return false
			}
		}
		running := 0
		for _, s := range r.servers {
			if s.Running() {
				running++
			}
		}
		return len(primary.Replicas()) == running-1
	})
	for _, s := range r.sentinels {
		s.Do("SENTINEL", "RESET", MasterName)
	}
	for _, s := range r.sentinels {
		await(r.t, "the sentinel has found the replicas that are attached", func() bool {
			v, _ := s.Do("SENTINEL", "REPLICAS", MasterName).([]any)
			return len(v) == len(r.Primary().Replicas())
		})
	}
}

// AwaitOther waits until the sentinels name another primary than this one.
func (r *Replicated) AwaitOther(before *Server) {
	r.t.Helper()
	await(r.t, "another primary", func() bool {
		for _, s := range r.sentinels {
			if !s.Running() {
				continue
			}
			v, _ := s.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName).([]any)
			if len(v) == 2 && v[1] != strconv.Itoa(before.port) {
				return true
			}
		}
		return false
	})
}

// deploymentURL is redis+kind://:password@host,host/path.
func deploymentURL(kind string, servers []*Server, password, path string) string {
	scheme, user := "redis", ""
	if servers[0].cert != nil {
		scheme = "rediss"
	}
	if password != "" {
		user = url.UserPassword("", password).String() + "@"
	}
	return scheme + "+" + kind + "://" + user + strings.Join(addrs(servers), ",") + path
}

func addrs(servers []*Server) []string {
	var list []string
	for _, s := range servers {
		list = append(list, s.Addr())
	}
	return list
}

// sharing starts a server like s: with TLS the two trust one certificate, for they
// speak it with each other, too.
func sharing(s *Server) Option {
	return func(c *Config) {
		c.Binary, c.TLS, c.ClientCerts, c.cert = s.cfg.Binary, s.cfg.TLS, s.cfg.ClientCerts, s.cert
	}
}
