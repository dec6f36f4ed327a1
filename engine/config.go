package engine

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/inspect"
	"github.com/pawl-lock/pawl/engine/internal/location"
	"github.com/pawl-lock/pawl/engine/internal/lock"
	"github.com/pawl-lock/pawl/engine/internal/lockerr"
	"github.com/pawl-lock/pawl/engine/internal/recovery"
	"github.com/pawl-lock/pawl/internal/redact"
	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// NoTLS is the Config.SentinelTLS of sentinels that do not speak TLS, while their servers do.
var NoTLS = resp.NoTLS

// Config describes an engine. Its zero value connects to 127.0.0.1:6379 with the
// defaults named below. New checks all fields and reports every bad one. For CommandTimeout,
// DialTimeout and CloseTimeout, more than 100 years means no timeout.
//
// A Config that is printed shows no password, with one exception: fmt prints its fields
// as they are for the verbs %p and %w, and in an unexported field of another struct.
type Config struct {
	// Topology is how the servers are arranged:
	//
	//	"standalone"  one server, or a proxy that makes several look like one; the default
	//	"cluster"     a Redis Cluster; Addrs are some of its nodes
	//	"sentinel"    a primary that sentinels watch; Addrs are some of the sentinels
	//	"replicas"    a primary with replicas, promoted by hand; Addrs are all of them
	Topology string
	// Addrs are "host:port" or, for a standalone server, also the path of a unix
	// socket, which starts with "/". Default "127.0.0.1:6379", for sentinels
	// "127.0.0.1:26379". A standalone server has exactly one address. With the other
	// topologies one address that answers is enough.
	Addrs []string
	// Master is what the sentinels call the primary.
	Master string
	// SentinelUsername and SentinelPassword authenticate with the sentinels, which have
	// users of their own.
	SentinelUsername string
	SentinelPassword string
	// SentinelCredentials, if set, replaces SentinelUsername and SentinelPassword, for
	// passwords that rotate. It is called as Credentials is.
	SentinelCredentials func(ctx context.Context) (username, password string, err error)
	// AddrMap, if set, translates the addresses that servers and sentinels announce
	// into addresses that can be dialled from here (NAT, containers). It must be a pure
	// function. Addrs are dialled as they are.
	AddrMap func(addr string) string
	// ShardedPubSub says how releases are announced in a cluster. "auto", the default, does what
	// Redisson does by default: it uses sharded messages if the cluster has them and this
	// user may ask. That is decided once, when the engine has found the cluster, and not
	// again: restart all engines after an upgrade from Redis 6. "on" and "off" are for
	// agreement with processes that are configured so.
	ShardedPubSub string
	// Username and Password authenticate. Username alone is an error.
	Username string
	Password string
	// Credentials, if set, replaces Username and Password, for passwords that rotate.
	// It is called at every connect, once a second while they are refused, on a connecting goroutine. ctx ends with DialTimeout,
	// or with Close, which waits for it.
	Credentials func(ctx context.Context) (username, password string, err error)
	// DB is the database index. In a cluster the server must have more than one, as Valkey
	// from 9.0 on can. Channels do not belong to a database: the same name in
	// two databases causes needless wake-ups, nothing worse.
	DB int
	// TLS, if set, encrypts the connections. ServerName defaults to the host of the
	// address.
	TLS *tls.Config
	// SentinelTLS, if set, is used with the sentinels instead of TLS; NoTLS: none.
	SentinelTLS *tls.Config
	// RefreshTLS, if set, is called before each TLS handshake, on a connecting goroutine. It
	// may change its argument, a copy of TLS or of SentinelTLS with the server's name: for
	// certificates and authorities that are replaced on disk. If it fails, so does the attempt
	// to connect.
	RefreshTLS func(*tls.Config) error
	// Dialer, if set, opens the connections instead of a net.Dialer. It must return when
	// ctx ends, since Close waits for it; the Close of its connections must not block, and
	// must end their Read and Write.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// ClientName is shown by CLIENT LIST, with the engine's ID behind a colon, so that a lock's owner can
	// be found there. Default "pawl".
	ClientName string
	// NameMapper, if set, maps every lock's name to the key on the server, as
	// Redisson's NameMapper does. It must be a pure function.
	NameMapper func(name string) string

	// Lease is the lease of a hold under the watchdog, which renews it after about a third of
	// it. Default 30 s, as in Redisson. At least 30 ms and at most 100 years.
	Lease time.Duration
	// Margin is how much earlier a hold ends here than it can end on the server. It
	// must cover what the server's clock may gain during a lease, and how long this
	// process may not get to run. It must be less than half of Lease, and less than the
	// lease of the option Lease. Default: a tenth of the lease, at least 5 ms and at
	// most 3 s.
	Margin time.Duration
	// HandOverTime is how long a lock may go from one holder to the next in this process before it
	// is released for other processes. An Unlock while others of this process wait in Lock then
	// sends nothing: the next of them gets the lock with its owner and its lease. One command
	// passes on a FencedMutex, with the next token, and a lock with Acked, which replicas
	// acknowledge again. Only locks under the watchdog, without MaxHold and MinHold, are handed
	// over. After ten thousand holders the lock is released as well. Readers share the lock that
	// long: see RWMutex. Default 10 ms, at most an hour; negative, or less than a millisecond:
	// every Unlock releases.
	HandOverTime time.Duration
	// FairWaitTimeout is how long the server keeps the place of a FairMutex waiter whose process
	// died unnoticed; the waiters behind it wait for that time. It must be the same in all
	// processes; the default, 5 minutes, is that of Redisson's fairLockWaitTimeout. An hour at
	// most.
	FairWaitTimeout time.Duration
	// CommandTimeout is how long a connection that has unanswered commands may be
	// silent before it is given up. It is also how long TryLock waits for a connection,
	// and the longest that State, ForceUnlock, Extend and Ping wait for an answer.
	// Default 3 s.
	CommandTimeout time.Duration
	// Replicas is how many replicas must acknowledge each grant and renewal, unless the option
	// Acked says otherwise for one acquisition. A number is at most 1000. Default 0: none.
	Replicas Replicas
	// AckTimeout is how long the replicas have to acknowledge: from 1 ms to an hour. Default
	// 1 s, but at most a sixth of Lease. Renewals never wait longer than a sixth of Lease.
	// A TryLock or Extend that asks for replicas may take CommandTimeout and AckTimeout.
	AckTimeout time.Duration
	// LookupInterval is how often the name of a standalone server is looked up, to follow it to
	// another server while the old one keeps running. That usually takes three answers. Until then
	// engines from before and after may hold the same lock. Default 5 s; negative: never. It has no
	// effect with a Dialer, or if the address is a number.
	LookupInterval time.Duration
	// DialTimeout bounds one connect with its handshake. Default 5 s.
	DialTimeout time.Duration
	// CloseTimeout bounds Close. Default 5 s.
	CloseTimeout time.Duration

	// CommandConns is the number of connections for commands. One for renewals and one for
	// pub/sub come on top. Default 1: one pipelined connection saturates a server. At most
	// 64.
	CommandConns int
	// EventLoops is the number of event loops. Default: a quarter of the CPUs that Go
	// uses, at least 1 and at most 4. More than 64 are refused. They start with the first
	// connection that needs them.
	EventLoops int
	// MaxInFlight bounds the commands of a lane that wait for an answer. Beyond it LockAsync and
	// TryLockAsync fail with ErrOverloaded. Everything else waits its turn, first come, first
	// served, but commands that give a lock back go before those that want one. The same holds
	// beyond 4 MiB that the kernel has not accepted yet. Default 131072.
	MaxInFlight int

	// Executor runs the callbacks of futures. Default: one goroutine for each future
	// that has callbacks. It is called for one future at a time, on a goroutine of the
	// engine. It may wait until it has room, or run the task itself, but then callbacks
	// wait for each other. It must run every task exactly once.
	Executor func(task func())
	// Logger gets what an operator should see, on the goroutine that calls the Observer. Default:
	// none, the engine is silent.
	Logger *slog.Logger
	// Observer is called at events, for metrics and traces. plugin/pawlprom and plugin/pawlotel have
	// one each for Prometheus and OpenTelemetry; Observers makes one of several. Default: none, which costs a
	// branch.
	Observer Observer
	// Service (by default the name of the program) and Labels (1 KiB at most) describe this process to
	// others who call Engine.Inspect. CallSites records where each Lock was called, which costs about a
	// microsecond. NoInspect: this engine neither asks nor answers. See docs/inspect.md.
	Service   string
	Labels    map[string]string
	CallSites bool
	NoInspect bool
	// Lazy makes New return before the connections are up, for a service that may start
	// before its servers. The engine then connects in the background, and tries again
	// until it succeeds. Meanwhile Lock waits, as in any outage; see Engine.Ready and Outage.
	Lazy bool

	ignored  []string      // settings of other clients in the URL
	wheel    wheel.Config  // tests break what is below it
	remember time.Duration // how long releases are, if anything may replace their server; for tests
}

func (c Config) withDefaults() Config {
	c.Addrs = slices.Clone(c.Addrs) // the caller may use the slice again
	if len(c.Addrs) == 0 {
		c.Addrs = []string{"127.0.0.1:6379"}
		if c.Topology == "sentinel" {
			c.Addrs[0] = "127.0.0.1:26379"
		}
	}
	c.Topology = cmp.Or(c.Topology, "standalone")
	c.ShardedPubSub = cmp.Or(c.ShardedPubSub, "auto")
	c.ClientName = cmp.Or(c.ClientName, "pawl")
	c.Service = cmp.Or(c.Service, filepath.Base(os.Args[0]))
	c.Labels = maps.Clone(c.Labels)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.HandOverTime = cmp.Or(c.HandOverTime, 10*time.Millisecond)
	c.FairWaitTimeout = cmp.Or(c.FairWaitTimeout, 5*time.Minute)
	c.CommandTimeout = cmp.Or(c.CommandTimeout, 3*time.Second)
	c.AckTimeout = cmp.Or(c.AckTimeout, max(min(time.Second, c.Lease/6), time.Millisecond))
	c.DialTimeout = cmp.Or(c.DialTimeout, 5*time.Second)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 5*time.Second)
	c.CommandConns = cmp.Or(c.CommandConns, 1)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 1<<17)
	for _, timeout := range []*time.Duration{&c.CommandTimeout, &c.DialTimeout, &c.CloseTimeout} {
		*timeout = min(*timeout, lock.MaxDuration) // which is as good as none
	}
	return c
}

// validate reports every bad field at once. It never prints a password.
func (c Config) validate() error {
	var bad []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf("Config."+format, args...))
		}
	}
	topology, known := topologies[c.Topology]
	check(known, "Topology (%q) must be standalone, cluster, sentinel or replicas", c.Topology)
	alone := topology == resp.Standalone
	check(!alone || len(c.Addrs) == 1, "Addrs (%d) must name one server, or Topology must be set", len(c.Addrs))
	for _, addr := range c.Addrs {
		if !strings.HasPrefix(addr, "/") && strings.ContainsAny(addr, "@=") || strings.Contains(addr, "://") {
			// Not quoted: it may hold a password.
			check(false, "Addrs must be host:port, and not a URL, user:password@host:port or host:port,password=...: give a URL to Open, and the others in fields of their own")
			continue
		}
		check(location.ValidAddr(addr), "Addrs (%q) must be host:port or the path of a unix socket", addr)
		check(alone || addr == "" || addr[0] != '/', "Addrs (%q) must be host:port: the servers of a %s know each other by it", addr, c.Topology)
	}
	check((topology == resp.Sentinel) == (c.Master != ""), "Master (%q) must be set with Topology sentinel, and only then", c.Master)
	check(topology == resp.Sentinel || c.SentinelUsername == "" && c.SentinelPassword == "", "SentinelUsername and SentinelPassword must be empty without Topology sentinel")
	check(c.SentinelUsername == "" || c.SentinelPassword != "", "SentinelUsername (%q) must come with a SentinelPassword", c.SentinelUsername)
	check(topology == resp.Sentinel || c.SentinelTLS == nil && c.SentinelCredentials == nil, "SentinelTLS and SentinelCredentials must be nil without Topology sentinel")
	check(c.SentinelCredentials == nil || c.SentinelUsername == "" && c.SentinelPassword == "", "SentinelCredentials must not be combined with SentinelUsername and SentinelPassword")
	check(c.RefreshTLS == nil || c.TLS != nil || c.SentinelTLS != nil && c.SentinelTLS != NoTLS, "RefreshTLS must come with TLS")
	check(c.AddrMap == nil || !alone, "AddrMap must be nil for a standalone server, whose address is the one given")
	_, known = shardedPubSubs[c.ShardedPubSub]
	check(known, "ShardedPubSub (%q) must be auto, on or off: %s", c.ShardedPubSub, mixedSharding)
	check(topology == resp.Cluster || c.ShardedPubSub == "auto", "ShardedPubSub (%q) must be left alone without Topology cluster", c.ShardedPubSub)
	check(c.Username == "" || c.Password != "" || c.Credentials != nil, "Username (%q) must come with a Password", c.Username)
	check(c.Credentials == nil || (c.Username == "" && c.Password == ""), "Credentials must not be combined with Username and Password")
	check(c.DB >= 0, "DB (%d) must not be negative", c.DB)
	check(c.Lease >= 30*time.Millisecond, "Lease (%v) must be at least 30ms", c.Lease)
	check(c.Lease <= lock.MaxDuration, "Lease (%v) must be at most 100 years", c.Lease)
	check(c.Margin >= 0, "Margin (%v) must not be negative", c.Margin)
	check(c.FairWaitTimeout >= time.Millisecond && c.FairWaitTimeout <= time.Hour, "FairWaitTimeout (%v) must be between 1ms and 1h", c.FairWaitTimeout)
	check(c.Margin <= 0 || c.Margin < c.Lease/2, "Margin (%v) must be less than half of Lease (%v)", c.Margin, c.Lease)
	check(c.CommandTimeout > 0, "CommandTimeout (%v) must be positive", c.CommandTimeout)
	check(c.Replicas.valid(), "Replicas (%d) must be a number up to %d, AllReplicas or MajorityOfReplicas", int(c.Replicas), maxReplicas)
	check(c.AckTimeout >= time.Millisecond && c.AckTimeout <= maxAckTimeout, "AckTimeout (%v) must be between 1ms and %v", c.AckTimeout, maxAckTimeout)
	check(inspect.ClientNameFits(c.ClientName), "ClientName (%q) must be of printable ASCII characters without spaces: the server refuses others", c.ClientName)
	check(inspect.LabelsFit(c.Labels), "Labels must have at most %d bytes", inspect.MaxLabels)
	check(c.DialTimeout > 0, "DialTimeout (%v) must be positive", c.DialTimeout)
	check(c.CloseTimeout > 0, "CloseTimeout (%v) must be positive", c.CloseTimeout)
	check(c.CommandConns > 0 && c.CommandConns <= 64, "CommandConns (%d) must be within 1 and 64", c.CommandConns)
	check(c.EventLoops >= 0 && c.EventLoops <= 64, "EventLoops (%d) must be within 0 and 64", c.EventLoops)
	check(c.MaxInFlight > 0, "MaxInFlight (%d) must be positive", c.MaxInFlight)
	if bad != nil {
		return lockerr.Invalid("%s", strings.Join(bad, "; "))
	}
	return nil
}

var (
	topologies = map[string]resp.Topology{
		"standalone": resp.Standalone, "cluster": resp.Cluster, "sentinel": resp.Sentinel, "replicas": resp.Replicas,
	}
	shardedPubSubs = map[string]resp.Sharding{
		"auto": resp.ShardingAuto, "on": resp.ShardingOn, "off": resp.ShardingOff,
	}
)

// mixedSharding is why there is no setting for the time of a change to sharded messages.
const mixedSharding = "while some engines use sharded messages and others do not, waiters find a release by their look (10 s), " +
	"and a FairMutex does not keep its order; restart all engines after the upgrade from Redis 6"

// client translates for resp.
func (c Config) client() resp.Config {
	network, addr := "tcp", c.Addrs[0]
	if addr[0] == '/' {
		network = "unix"
	}
	return resp.Config{
		Topology: topologies[c.Topology], Addrs: c.Addrs, Master: c.Master,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword, SentinelCredentials: c.SentinelCredentials,
		AddrMap: c.AddrMap, Sharding: shardedPubSubs[c.ShardedPubSub],
		Network: network, Addr: addr, TLS: c.TLS, SentinelTLS: c.SentinelTLS, RefreshTLS: c.RefreshTLS,
		Username: c.Username, Password: c.Password, Credentials: c.Credentials,
		DB: c.DB, ClientName: c.ClientName, Dialer: c.Dialer,
		LookupInterval: c.LookupInterval, DialTimeout: c.DialTimeout, CommandTimeout: c.CommandTimeout,
		AckTimeout: c.AckTimeout, RenewalAckTimeout: min(c.AckTimeout, c.Lease/6), Durable: c.Replicas != 0,
		Lanes: c.CommandConns, EventLoops: c.EventLoops, MaxInFlight: c.MaxInFlight,
	}
}

// keep is how long a release is remembered.
func (c Config) keep() time.Duration {
	if topologies[c.Topology] == resp.Standalone {
		return 0
	}
	return cmp.Or(c.remember, recovery.RememberFor)
}

// String returns the fields that are set, without passwords.
func (c Config) String() string { return redact.Text("Config", redact.Struct(c)) }

// Format implements fmt.Formatter: String, whatever the verb.
func (c Config) Format(f fmt.State, verb rune) { redact.Format(f, verb, c.String()) }

// LogValue implements slog.LogValuer: the fields that are set, without passwords.
func (c Config) LogValue() slog.Value { return slog.GroupValue(redact.Struct(c)...) }

// ParseURL turns a URL into a Config:
//
//	redis://[user[:password]@]host[:port][/db]    port 6379 by default
//	redis+cluster://...@host,host,...[/db]        some nodes of a cluster
//	redis+sentinel://...@host,.../master[/db]     sentinels, port 26379 by default
//	redis+replicas://...@host,...[/db]            a primary and its replicas
//	rediss://, rediss+cluster://, ...             the same over TLS
//	unix://[user[:password]@]/path/to/socket      ?db=N selects the database
//
// valkey and valkeys mean the same as redis and rediss. Settings may follow as a query: db,
// client_name, lease, margin, hand_over_time, fair_wait_timeout, command_timeout, lookup_interval,
// dial_timeout, close_timeout, ack_timeout (positive durations such as 10s), command_conns, sentinel_username,
// sentinel_password, sentinel_tls (on or off), tls_server_name, sharded_pubsub, replicas (all,
// majority or a number). hand_over_time=1ns switches HandOverTime off. An unknown setting is an error.
// Forms and settings of other clients are accepted if their meaning is certain, or the error
// says what to write. Their pools, protocols and timeouts of single reads are ignored, which
// New logs.
//
// A password without a user is the default user's: redis://:secret@host. A user without
// a password is an error, but "user:@" is a user that needs none. IPv6 addresses are written
// in brackets. Errors never contain the password.
func ParseURL(raw string) (Config, error) {
	var c Config
	var serverName, sentinelTLS string
	replicas := "0"
	l, err := location.Parse(raw, &location.Settings{
		Durations: map[string]*time.Duration{
			"lease": &c.Lease, "margin": &c.Margin, "hand_over_time": &c.HandOverTime, "fair_wait_timeout": &c.FairWaitTimeout, "command_timeout": &c.CommandTimeout,
			"lookup_interval": &c.LookupInterval, "dial_timeout": &c.DialTimeout, "close_timeout": &c.CloseTimeout, "ack_timeout": &c.AckTimeout,
		},
		Numbers: map[string]*int{"command_conns": &c.CommandConns},
		Texts: map[string]*string{
			"client_name": &c.ClientName, "sentinel_username": &c.SentinelUsername, "sentinel_password": &c.SentinelPassword,
			"sharded_pubsub": &c.ShardedPubSub, "tls_server_name": &serverName, "replicas": &replicas,
		},
		Switches: map[string]*string{"sentinel_tls": &sentinelTLS},
	})
	if err != nil {
		return Config{}, err
	}
	c.Topology, c.Addrs, c.Master, c.DB, c.ignored = l.Topology, l.Addrs, l.Master, l.DB, l.Ignored
	if c.Username, c.Password = l.Username, l.Password; l.NoPassword {
		c.Username = ""
		c.Credentials = func(context.Context) (string, string, error) { return l.Username, "", nil }
	}
	var ok bool
	if c.Replicas, ok = replicasOf(replicas); !ok {
		return Config{}, lockerr.Invalid("the URL's replicas (%q) must be all, majority, or a number up to %d", lockerr.Shorten(replicas), maxReplicas)
	}
	if l.TLS {
		c.TLS = &tls.Config{ServerName: l.Host, MinVersion: tls.VersionTLS12} // several servers: each under its own name
	}
	if c.SentinelTLS, err = location.SentinelTLS(c.TLS, NoTLS, serverName, sentinelTLS); err != nil {
		return Config{}, err
	}
	if err := c.withDefaults().validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}
