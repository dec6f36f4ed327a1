package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/redacttest"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Whatever is printed of a client's parts, in whatever way, holds no password.
func TestFormat_EveryType_HidesPasswords(t *testing.T) {
	t.Parallel()
	const secret, guard = "hunter2hunter2", "guard3guard3"
	s := redistest.Start(t, redistest.Password(secret))
	c := ready(t, Config{Addr: s.Addr(), Password: secret})
	refused := Open(Config{Addr: s.Addr(), Password: secret + "x"})
	t.Cleanup(func() { refused.Close() })
	err := refused.WaitReady(testContext(t))
	var said *ServerError
	if !errors.As(err, &said) {
		t.Fatal(err)
	}
	ch := NewChannel("x", nil)
	full := Config{
		Topology: Sentinel, Network: "tcp", Addr: "ada:" + secret + "@h:1", Addrs: []string{"ada:" + secret + "@h:1"}, Master: "m",
		SentinelUsername: "guard", SentinelPassword: guard, AddrMap: func(a string) string { return a }, Sharding: ShardingOff,
		TLS: &tls.Config{ServerName: "h"}, Username: "ada", Password: secret, DB: 2, ClientName: "billing",
		Credentials: func(context.Context) (string, string, error) { return "", secret, nil },
		Dialer:      func(context.Context, string, string) (net.Conn, error) { return nil, errors.New(secret) },
		DialTimeout: time.Second, Durable: true, Lanes: 2, Transport: TransportStd, Scripts: []string{strings.Repeat("return 1\n", 1000)},
		Clock: clock.System(), Logger: slog.New(slog.DiscardHandler), OnRoutes: func() {}, OnState: func(State) {},
		OnOutage: func(Outage) {}, MaxPause: func() time.Duration { return 0 },
	}
	redacttest.Every(t, map[string][]any{
		"Config": {full, c.cfg, Config{}}, "Client": {c, (*Client)(nil)}, "LaneID": {c.LaneOf(0), LaneID{}},
		"State": {State{ID: c.LaneOf(0), Addr: s.Addr(), Err: err}}, "Outage": {Outage{Addr: s.Addr(), Err: err}}, "Channel": {ch, (*Channel)(nil)},
		"ServerError": {said, *said}, "Refusal": {RefusalOf(said), Refusal{}},
		"Stats": {c.Stats()}, "Shard": {Shard{Primary: s.Addr()}}, "Ack": {Ack{Err: err}, &Ack{Err: err}}, "Acks": {AllReplicas},
		"Reply": {Reply{Err: err}}, "Value": {Value{}}, "ScriptForm": {ScriptForm(0)}, "ServerID": {ServerID(1)}, "ChannelEvent": {Subscribed},
		"Transport": {TransportStd}, "Topology": {Cluster}, "Sharding": {ShardingOn}, "Role": {RolePubSub}, "Priority": {PriorityNormal},
		// These are implemented elsewhere.
		"Request": {any(0)}, "PatientRequest": {any(0)}, "DurableRequest": {any(0)}, "ChannelHandler": {any(0)},
	}, secret, guard)
}
