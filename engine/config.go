package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/pawl-lock/pawl/resp"
	"github.com/pawl-lock/pawl/wheel"
)

// Config describes an engine. Its zero value connects to 127.0.0.1:6379 with the
// defaults named below. New checks all fields and reports every bad one.
type Config struct {
	// Topology is how the servers stand together:
	//
	//	"standalone"  one server, or a proxy that makes several look like one; the default
	//	"cluster"     a Redis Cluster; Addrs are some of its nodes
	//	"sentinel"    a primary that sentinels watch; Addrs are some of the sentinels
	//	"replicas"    a primary with replicas, promoted by hand; Addrs are all of them
	Topology string
	// Addrs are "host:port", or, for a standalone server, the path of a unix socket,
	// which starts with "/". Default "127.0.0.1:6379", of sentinels port 26379. A standalone server takes
	// exactly one; of the others one that answers is enough.
	Addrs []string
	// Master is what the sentinels call the primary.
	Master string
	// SentinelUsername and SentinelPassword authenticate with the sentinels, which
	// have users of their own.
	SentinelUsername string
	SentinelPassword string
	// AddrMap, if set, translates the addresses that servers and sentinels tell of
	// into such as can be dialled from here (NAT, containers). It must be a pure
	// function. Addrs are dialled as they are.
	AddrMap func(addr string) string
	// Sharding says, for a cluster, how a release is announced: "auto", the default,
	// decides as Redisson does by default: sharded messages if the cluster has them and
	// this user may ask. "on" and "off" are for processes that must agree with others
	// that were told so. "both" announces both ways, listens to sharded ones and
	// asks every second besides, for the time of a change.
	Sharding string
	// Username and Password authenticate. Username alone is an error.
	Username string
	Password string
	// Credentials, if set, is asked at every connect instead, for passwords that
	// rotate. It runs on a connecting goroutine and is bounded by DialTimeout.
	Credentials func(ctx context.Context) (username, password string, err error)
	// DB is the database index. Channels know no database: the same name in two of
	// them causes needless wake-ups, nothing worse.
	DB int
	// TLS, if set, encrypts. ServerName defaults to the address's host.
	TLS *tls.Config
	// Dialer, if set, opens the connections instead of a net.Dialer.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// ClientName is shown by CLIENT LIST. Default "pawl".
	ClientName string
	// NameMapper, if set, maps every lock name to the key on the server, as
	// Redisson's NameMapper does. It must be a pure function.
	NameMapper func(name string) string

	// Lease is what the watchdog gives a hold and renews after a third of it.
	// Default 30 s, as Redisson's. At least 30 ms.
	Lease time.Duration
	// Margin is by how much a hold ends here before it can end on the server. It
	// must cover what the server's clock may gain during a lease and how long this
	// process may go unscheduled. Default: a tenth of the lease, within 5 ms and 3 s.
	Margin time.Duration
	// CommandTimeout is how long a connection with unanswered commands may be silent
	// before it is given up, and how long TryLock, Extend and State wait for one.
	// Default 3 s.
	CommandTimeout time.Duration
	// Replicas is how many replicas must acknowledge each grant and renewal, unless
	// Acked says otherwise for one acquisition. Default 0: none is asked.
	Replicas Replicas
	// AckTimeout is how long they have. Default 1 s, but no more than a sixth of Lease,
	// which renewals never give them more than.
	AckTimeout time.Duration
	// DialTimeout bounds one connect with its handshake. Default 5 s.
	DialTimeout time.Duration
	// CloseTimeout bounds Close. Default 5 s.
	CloseTimeout time.Duration

	// Lanes is the number of connections for commands, beside one for renewals and
	// one for pub/sub. Default 1: one pipelined connection saturates a server.
	Lanes int
	// EventLoops is the number of event loops. Default: a quarter of the CPUs that Go
	// uses, within 1 and 4. They start with the first connection that needs them.
	EventLoops int
	// MaxInFlight bounds the commands of a lane that wait for an answer: beyond it
	// LockAsync fails with ErrOverloaded, and synchronous calls wait. So they do above
	// 4 MiB that the kernel has not taken yet. Default 131072.
	MaxInFlight int

	// Executor runs the callbacks of futures. Default: a goroutine for each future
	// that has some. It is called for one future at a time, on a goroutine of the
	// engine's own: it may wait until it has room, or run the task right there, but
	// then callbacks wait for each other. It must run every task once.
	Executor func(task func())
	// Logger gets what an operator should see. Default: silent.
	Logger *slog.Logger
	// Hooks are called at events; see Hooks.
	Hooks Hooks
	// Lazy makes New return before the connections are up.
	Lazy bool

	transport resp.Transport // tests force one
	wheel     wheel.Config   // tests break what is below it
}

func (c Config) withDefaults() Config {
	if len(c.Addrs) == 0 {
		c.Addrs = []string{"127.0.0.1:6379"}
		if c.Topology == "sentinel" {
			c.Addrs[0] = "127.0.0.1:26379"
		}
	}
	setDefault(&c.Topology, "standalone")
	setDefault(&c.Sharding, "auto")
	setDefault(&c.ClientName, "pawl")
	setDefault(&c.Lease, 30*time.Second)
	setDefault(&c.CommandTimeout, 3*time.Second)
	setDefault(&c.AckTimeout, max(min(time.Second, c.Lease/6), time.Millisecond))
	setDefault(&c.DialTimeout, 5*time.Second)
	setDefault(&c.CloseTimeout, 5*time.Second)
	setDefault(&c.Lanes, 1)
	setDefault(&c.MaxInFlight, 1<<17)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate reports every bad field at once. It never prints a password.
func (c Config) validate() error {
	var bad []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, invalid("Config."+format, args...))
		}
	}
	topology, known := topologies[c.Topology]
	check(known, "Topology (%q) must be standalone, cluster, sentinel or replicas", c.Topology)
	alone := topology == resp.Standalone
	check(!alone || len(c.Addrs) == 1, "Addrs (%d) must name one server, or Topology must be set", len(c.Addrs))
	for _, addr := range c.Addrs {
		check(validAddr(addr), "Addrs (%q) must be host:port or the path of a unix socket", addr)
		check(alone || addr == "" || addr[0] != '/', "Addrs (%q) must be host:port: the servers of a %s know each other by it", addr, c.Topology)
	}
	check((topology == resp.Sentinel) == (c.Master != ""), "Master (%q) must be set with Topology sentinel, and only then", c.Master)
	check(topology == resp.Sentinel || c.SentinelUsername == "" && c.SentinelPassword == "", "SentinelUsername and SentinelPassword must be empty without Topology sentinel")
	check(c.SentinelUsername == "" || c.SentinelPassword != "", "SentinelUsername (%q) must come with a SentinelPassword", c.SentinelUsername)
	check(c.AddrMap == nil || !alone, "AddrMap must be nil for a standalone server, whose address is the one given")
	check(topology != resp.Cluster || c.DB == 0, "DB (%d) must be 0: a cluster has one database", c.DB)
	_, known = shardings[c.Sharding]
	check(known, "Sharding (%q) must be auto, on, off or both", c.Sharding)
	check(topology == resp.Cluster || c.Sharding == "auto", "Sharding (%q) must be left alone without Topology cluster", c.Sharding)
	check(c.Username == "" || c.Password != "" || c.Credentials != nil, "Username (%q) must come with a Password", c.Username)
	check(c.Credentials == nil || (c.Username == "" && c.Password == ""), "Credentials must not be combined with Username and Password")
	check(c.DB >= 0, "DB (%d) must not be negative", c.DB)
	check(c.Lease >= 30*time.Millisecond, "Lease (%v) must be at least 30ms", c.Lease)
	check(c.Lease <= maxDuration, "Lease (%v) must be at most %v", c.Lease, maxDuration)
	check(c.Margin >= 0, "Margin (%v) must not be negative", c.Margin)
	check(c.Margin < c.Lease/2, "Margin (%v) must be less than half of Lease (%v)", c.Margin, c.Lease)
	check(c.CommandTimeout > 0, "CommandTimeout (%v) must be positive", c.CommandTimeout)
	check(c.Replicas.valid(), "Replicas (%d) must be a number up to %d, AllReplicas or MajorityOfReplicas", int(c.Replicas), maxReplicas)
	check(c.AckTimeout >= time.Millisecond && c.AckTimeout <= maxAckTimeout, "AckTimeout (%v) must be between 1ms and %v", c.AckTimeout, maxAckTimeout)
	check(c.DialTimeout > 0, "DialTimeout (%v) must be positive", c.DialTimeout)
	check(c.CloseTimeout > 0, "CloseTimeout (%v) must be positive", c.CloseTimeout)
	check(c.Lanes > 0 && c.Lanes <= 64, "Lanes (%d) must be within 1 and 64", c.Lanes)
	check(c.EventLoops >= 0 && c.EventLoops <= 64, "EventLoops (%d) must be within 0 and 64", c.EventLoops)
	check(c.MaxInFlight > 0, "MaxInFlight (%d) must be positive", c.MaxInFlight)
	return errors.Join(bad...)
}

var (
	topologies = map[string]resp.Topology{
		"standalone": resp.Standalone, "cluster": resp.Cluster, "sentinel": resp.Sentinel, "replicas": resp.Replicas,
	}
	shardings = map[string]resp.Sharding{
		"auto": resp.ShardingAuto, "on": resp.ShardingOn, "off": resp.ShardingOff, "both": resp.ShardingOn,
	}
)

func validAddr(addr string) bool {
	if len(addr) > 0 && addr[0] == '/' {
		return true
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil && host != ""
}

// client translates for resp.
func (c Config) client() resp.Config {
	network, addr := "tcp", c.Addrs[0]
	if addr[0] == '/' {
		network = "unix"
	}
	return resp.Config{
		Topology: topologies[c.Topology], Addrs: c.Addrs, Master: c.Master,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
		AddrMap: c.AddrMap, Sharding: shardings[c.Sharding],
		Network: network, Addr: addr, TLS: c.TLS,
		Username: c.Username, Password: c.Password, Credentials: c.Credentials,
		DB: c.DB, ClientName: c.ClientName, Dialer: c.Dialer,
		DialTimeout: c.DialTimeout, CommandTimeout: c.CommandTimeout,
		AckTimeout: c.AckTimeout, RenewalAckTimeout: min(c.AckTimeout, c.Lease/6), Durable: c.Replicas != 0,
		Lanes: c.Lanes, EventLoops: c.EventLoops, MaxInFlight: c.MaxInFlight,
		Transport: c.transport, Logger: c.Logger,
	}
}
