package resp

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/resp/internal/handshake"
	"github.com/pawl-lock/pawl/resp/internal/topology"
)

// Transport chooses how the bytes of a connection are moved.
type Transport uint8

const (
	// TransportAuto takes gnet's event loops where they can serve the connection,
	// and a net.Conn with a reader goroutine everywhere else (TLS, Windows, the
	// connections of a custom dialer).
	TransportAuto Transport = iota
	// TransportStd always takes the net.Conn.
	TransportStd
)

// Topology is how the servers of a deployment are arranged.
type Topology uint8

const (
	// Standalone is one server, Config.Addr, or what a proxy makes look like one.
	Standalone Topology = iota
	// Cluster is a Redis Cluster; Config.Addrs are some of its nodes.
	Cluster
	// Sentinel is a primary with replicas watched by sentinels, Config.Addrs; they
	// call it Config.Master.
	Sentinel
	// Replicas is a primary with replicas, Config.Addrs, that somebody promotes by
	// hand.
	Replicas
)

func (t Topology) String() string {
	return [...]string{"standalone", "cluster", "sentinel", "replicas"}[t]
}

// Sharding says which kind of channel a Client of a Cluster subscribes to.
type Sharding uint8

const (
	// ShardingAuto is ShardingOn if the cluster has sharded channels and this user may
	// ask for them, else ShardingOff. Redisson decides so by default.
	ShardingAuto Sharding = iota
	// ShardingOn takes sharded channels (SSUBSCRIBE).
	ShardingOn
	// ShardingOff takes plain channels (SUBSCRIBE).
	ShardingOff
)

// Role is what a connection of a Client is for.
type Role uint8

const (
	// RoleLane carries user commands.
	RoleLane Role = iota
	// RoleRenewal carries renewals, so that they never queue behind RoleLane.
	RoleRenewal
	// RolePubSub carries subscriptions and messages.
	RolePubSub
	// RoleDurable carries requests that replicas must acknowledge, RoleDurableRenewal
	// renewals of that kind.
	RoleDurable
	RoleDurableRenewal
	// roleProbe asks a few questions and is closed.
	roleProbe
)

func (r Role) String() string {
	return [...]string{"lane", "renewal", "pubsub", "durable", "durable renewal", "probe"}[r]
}

// State is a change of one connection.
type State struct {
	Role Role
	Lane int    // which of the node's lanes; 0 for the other roles
	ID   LaneID // names that lane among those of all nodes; of RoleLane only
	Up   bool
	Addr string
	// Err says why the connection was lost; nil if Up.
	Err error
	// Reconnects counts how often this connection came back, this time included.
	Reconnects int
}

// Config says how a Client reaches a deployment. The zero value of each field is
// its default, except Addr, or Addrs, which is required.
type Config struct {
	// Topology is Standalone by default.
	Topology Topology
	// Network is "tcp" (default) or "unix", Addr "host:port" or a path: the server of
	// a Standalone.
	Network, Addr string
	// Addrs are the addresses to ask for the servers in all other topologies. One that
	// answers is enough.
	Addrs []string
	// Master is what the sentinels call the primary.
	Master string
	// SentinelUsername and SentinelPassword are for AUTH with the sentinels, which
	// have users of their own.
	SentinelUsername, SentinelPassword string
	// SentinelCredentials, if set, is called before every handshake with a sentinel instead,
	// as Credentials is for servers.
	SentinelCredentials func(ctx context.Context) (username, password string, err error)
	// AddrMap, if set, translates every address that a server or sentinel announces
	// into one that can be dialled from here. It must be a pure function: its results are
	// remembered, and it is called on several goroutines, never on an event loop. If it
	// panics, it has no result. It is called only for addresses that are host and port. It
	// may return the path of a unix socket.
	AddrMap func(addr string) string
	// Sharding is ShardingAuto by default. It matters only in a Cluster.
	Sharding Sharding
	// TLS, if set, is used on every connection. An empty ServerName is taken from
	// Addr, and sent (SNI) even if InsecureSkipVerify is set.
	TLS *tls.Config
	// SentinelTLS, if set, is used on connections to sentinels instead of TLS; NoTLS: none.
	SentinelTLS *tls.Config
	// RefreshTLS, if set, is called before every TLS handshake with a copy of TLS, or of
	// SentinelTLS, which it may change, so that certificates that were replaced are picked up.
	// It runs on the connecting goroutine. If it fails, so does the attempt.
	RefreshTLS func(*tls.Config) error
	// Username and Password go into AUTH; empty is no AUTH. A Password alone is
	// the password of the default user.
	Username, Password string
	// Credentials, if set, is called before every handshake instead, so that
	// rotated secrets are picked up; once a second while a server refuses them. It runs on the connecting goroutine; ctx ends
	// with DialTimeout, or with Close, which waits for it.
	Credentials func(ctx context.Context) (username, password string, err error)
	// DB is selected if not 0.
	DB int
	// ClientName shows up in the server's CLIENT LIST; "pawl" by default.
	ClientName string
	// Dialer replaces the built-in dialer. TLS, if set, is put on top of it. It
	// must return when ctx ends, since Close waits for it; the Close of its
	// connections must not block, and must end their Read and Write.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	// LookupInterval is how often the name of a Standalone server is looked up; 5 s by
	// default, negative for never. If it leads elsewhere by now, though the connections are
	// up, the Client connects anew, after three answers mostly. It has no effect with a Dialer
	// or if Addr is a number.
	LookupInterval time.Duration
	// DialTimeout bounds dial and handshake together; 5 s by default.
	DialTimeout time.Duration
	// CommandTimeout is how long a connection with commands in flight may be silent
	// before it is given up; 3 s by default. A server that answers, however slowly,
	// keeps its connections. A process that is short of CPU does not mistake its own
	// delay for the server's silence: unread answers in the socket count as answers, and
	// the time by which this process runs late is added. On Windows, and for connections
	// of a Dialer that have no SyscallConn, only the latter can be known.
	CommandTimeout time.Duration
	// AckTimeout bounds one WAIT of a durable connection; 1 s by default.
	AckTimeout time.Duration
	// RenewalAckTimeout is that of renewals, AckTimeout by default.
	RenewalAckTimeout time.Duration
	// Durable makes the durable connections at once, so that WaitReady waits for them.
	// Otherwise they are made at first use.
	Durable bool
	// Lanes is the number of connections for user commands; by default 1 below 8
	// CPUs, else 2 to 4.
	Lanes int
	// EventLoops is the number of gnet's event loops; chosen by the number of CPUs
	// by default.
	EventLoops int
	// MaxInFlight bounds the commands of one lane that wait for an answer; see Priority for what
	// happens beyond it. 16384 by default.
	MaxInFlight int
	// Transport is TransportAuto by default.
	Transport Transport
	// Scripts are Lua texts, loaded in every handshake of a lane and the renewal
	// connection, in the same round trip.
	Scripts []string
	// MaxPause, if set, bounds every pause between two attempts to connect, as long as it does not
	// return 0. It must not block.
	MaxPause func() time.Duration
	// Clock is clock.System by default.
	Clock clock.Clock
	// Logger gets lost connections and failed attempts; nil is silent. Its handler runs on
	// the goroutines that connect, and must not block.
	Logger *slog.Logger
	// OnRoutes is called when other nodes than before serve some routes, or when routes
	// are served that were not. It must not block, and must not call Close.
	OnRoutes func()
	// OnOutage is called when the outage of a server begins, and when it ends. The calls of one
	// server are serial and alternate. It runs under a lock: it must not block, and must not call
	// the Client. If it is nil, the Logger gets both.
	OnOutage func(Outage)
	// OnState is called when a connection comes up (from the goroutine that made it)
	// and when it is lost (from an event loop). The calls of one connection are
	// serial and alternate, the first is up, perhaps before Open has returned. It
	// must not block, and must not call Close. Client.Up agrees with it during the
	// call.
	OnState func(State)

	addrs       *topology.AddressMap // of AddrMap; nil without
	authBackoff *handshake.AuthBackoff
	identity    *topology.Identity // nil of a Standalone
	sentinel    bool               // it reaches sentinels
}

// NoTLS is the SentinelTLS of sentinels that do not speak TLS, while the servers do.
var NoTLS = new(tls.Config)

// Limits that are not configurable.
const (
	// maxQueuedBytes bounds what one lane holds for a kernel that accepts nothing.
	maxQueuedBytes = 4 << 20
	// housekeepingEvery is the resolution of CommandTimeout and of pings.
	housekeepingEvery = 100 * time.Millisecond
)

// limited is a pause between two attempts to connect, as MaxPause bounds it.
func (c *Config) limited(pause time.Duration) time.Duration {
	if c.MaxPause != nil {
		if most := c.MaxPause(); most > 0 {
			return min(pause, most)
		}
	}
	return pause
}

// where names the deployment in errors.
func (c *Config) where() string {
	if c.Topology == Standalone {
		return c.Addr
	}
	return c.Topology.String() + " " + strings.Join(c.Addrs, ",")
}

func (c Config) withDefaults() Config {
	c.Addrs = slices.Clone(c.Addrs) // the caller may use the slice again
	if c.AddrMap != nil {
		c.addrs = topology.NewAddressMap(c.AddrMap)
	}
	if c.Network == "" {
		c.Network = "tcp"
	}
	if c.ClientName == "" {
		c.ClientName = "pawl"
	}
	if c.LookupInterval == 0 {
		c.LookupInterval = 5 * time.Second
	}
	if c.DialTimeout <= 0 {
		c.DialTimeout = 5 * time.Second
	}
	if c.CommandTimeout <= 0 {
		c.CommandTimeout = 3 * time.Second
	}
	if c.AckTimeout <= 0 {
		c.AckTimeout = time.Second
	}
	if c.RenewalAckTimeout <= 0 {
		c.RenewalAckTimeout = c.AckTimeout
	}
	if c.Lanes <= 0 {
		// One lane saturates a server's thread; more only spread the client's own
		// work, which needs CPUs beside the server's.
		c.Lanes = min(max(1, runtime.GOMAXPROCS(0)/4), 4)
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 16 << 10
	}
	if c.Clock == nil {
		c.Clock = clock.System()
	}
	c.authBackoff = handshake.NewAuthBackoff(c.Clock, c.MaxPause)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Topology != Standalone {
		c.identity = topology.NewIdentity(c.Topology.kind(), c.Addrs, c.Clock, c.Logger)
	}
	return c
}
