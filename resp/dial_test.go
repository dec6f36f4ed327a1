package resp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/internal/sockettest"
	"github.com/pawl-lock/pawl/resp/internal/handshake"
	"github.com/pawl-lock/pawl/resp/wire"
)

// A field that is forgotten has its default, and nobody notices.
func TestConfig_HandshakeConfig_HasEveryField(t *testing.T) {
	t.Parallel()
	cfg := Config{
		Topology: Sentinel, Addr: "a:1", TLS: new(tls.Config), Username: "u", Password: "p", DB: 3, Scripts: []string{"return 1"},
		Credentials: func(context.Context) (string, string, error) { return "", "", nil },
		Dialer:      new(net.Dialer).DialContext,
		RefreshTLS:  func(*tls.Config) error { return nil }, sentinel: true,
	}.withDefaults()
	handshakeConfig := reflect.ValueOf(*cfg.handshakeConfig())
	for i := range handshakeConfig.NumField() {
		if handshakeConfig.Field(i).IsZero() {
			t.Errorf("%s is missing", handshakeConfig.Type().Field(i).Name)
		}
	}
}

func TestPurposes_EveryRole_HasOne(t *testing.T) {
	t.Parallel()
	of := make(map[handshake.Purpose]Role)
	for role := range roleProbe + 1 {
		if other, taken := of[purposes[role]]; taken {
			t.Errorf("%v and %v are greeted alike", other, role)
		}
		of[purposes[role]] = role
	}
}

// refusedAddr returns an address at which nobody listens, and nobody will: its
// port belongs to a connection of the test. (A port that was free a moment ago is
// soon the one of another test's server.)
func refusedAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	// Bound by name: to a port that connect chose by itself the kernel may bind a
	// second connection.
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	holder, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Close() })
	return holder.LocalAddr().String()
}

func TestConnect_Refused_IsExplained(t *testing.T) {
	t.Parallel()
	c := open(t, Config{Addr: refusedAddr(t)})
	eventually(t, "a failed attempt", func() bool { return c.LastError(RoleLane, 0) != nil })
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	err := c.WaitReady(ended)
	if opErr := (*net.OpError)(nil); !errors.As(err, &opErr) || !errors.Is(err, context.Canceled) {
		t.Fatalf("WaitReady: %v", err)
	}
	if _, err := c.Do(context.Background(), "PING"); !errors.Is(err, ErrDown) || !errors.Is(err, ErrNotSent) {
		t.Fatalf("Do: %v", err)
	}
}

// A client that dials a port of its own machine, at which nobody listens, may get that
// very port for its own end, and is then connected to itself. Go's dialer sees to it,
// unless it is given a port.
func TestConnect_ToItself_IsRefused(t *testing.T) {
	t.Parallel()
	c := open(t, Config{Addr: "127.0.0.1:1", Lanes: 1,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			self := l.Addr()
			l.Close()
			return (&net.Dialer{LocalAddr: self}).DialContext(ctx, network, self.String())
		}})
	eventually(t, "the echo is noticed", func() bool {
		err := c.LastError(RoleLane, 0)
		return errors.Is(err, ErrProtocol) && strings.Contains(err.Error(), "echoes")
	})
	if s := c.Stats(); s.Connections+s.Reconnects != 0 {
		t.Errorf("counted as connected: %+v", s)
	}
}

// noDeadlines is the connection of an SSH tunnel.
type noDeadlines struct{ net.Conn }

func (noDeadlines) SetDeadline(time.Time) error { return errors.New("deadlines are not supported") }

func dialWithoutDeadlines(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return noDeadlines{conn}, nil
}

func TestConnect_ConnectionWithoutDeadlines_Serves(t *testing.T) {
	t.Parallel()
	c := ready(t, Config{Addr: redistest.Start(t).Addr(), Dialer: dialWithoutDeadlines})
	if _, err := c.Do(testContext(t), "PING"); err != nil {
		t.Fatal(err)
	}
}

func TestConnect_HandshakeHangsWithoutDeadlines_CloseEndsIt(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("PING"), fakenode.Drop())
	c := Open(Config{Addr: n.Addr(), DialTimeout: time.Hour, Dialer: dialWithoutDeadlines})
	n.WaitFor(1, fakenode.Is("PING"))
	if err := c.Close(); err != nil { // the test's time-out is the check
		t.Fatal(err)
	}
}

func TestConnect_EveryFormOfAuth_IsUnderstood(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("s3cret"), redistest.User("alice on >wonder ~* &* +@all"),
		redistest.User("open on nopass ~* &* +@all"))
	for name, cfg := range map[string]Config{
		"password":              {Password: "s3cret"},
		"user and password":     {Username: "alice", Password: "wonder"},
		"user without password": {Username: "open"},
		"credentials": {
			Username: "alice", Password: "outdated",
			Credentials: func(context.Context) (string, string, error) { return "alice", "wonder", nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Addr = s.Addr()
			if _, err := ready(t, cfg).Do(testContext(t), "SET", "k", "v"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestConnect_NeedsAHuman_FailsAtOnce(t *testing.T) {
	t.Parallel()
	open := redistest.Start(t)
	locked := redistest.Start(t, redistest.Password("s3cret"), redistest.User("narrow on >pw ~* &* +@all -select"))
	for name, c := range map[string]struct {
		cfg  Config
		code string
	}{
		"wrong password":          {Config{Addr: locked.Addr(), Password: "guess-1"}, "WRONGPASS"},
		"wrong user":              {Config{Addr: locked.Addr(), Username: "bob", Password: "guess-1"}, "WRONGPASS"},
		"no password":             {Config{Addr: locked.Addr()}, "NOAUTH"},
		"password nobody needs":   {Config{Addr: open.Addr(), Password: "guess-1"}, "ERR"},
		"no such database":        {Config{Addr: open.Addr(), DB: 999}, "ERR"},
		"database not allowed":    {Config{Addr: locked.Addr(), Username: "narrow", Password: "pw", DB: 1}, "NOPERM"},
		"script that is no Lua":   {Config{Addr: open.Addr(), Scripts: []string{"this is no Lua"}}, "ERR"},
		"rotated away credential": {Config{Addr: locked.Addr(), Credentials: func(context.Context) (string, string, error) { return "", "guess-1", nil }}, "WRONGPASS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			c.cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			client := Open(c.cfg)
			err := client.WaitReady(context.Background())
			client.Close()
			e := (*ServerError)(nil)
			if !errors.As(err, &e) || e.Code != c.code {
				t.Fatalf("WaitReady: %v", err)
			}
			if text := err.Error() + log.String(); strings.Contains(text, "guess-1") {
				t.Errorf("a password is shown: %s", text)
			}
			if !strings.Contains(err.Error(), c.cfg.Addr) {
				t.Errorf("the address is not named: %v", err)
			}
		})
	}
}

func TestConnect_PasswordRepaired_Connects(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Password("s3cret"))
	var password atomic.Value
	password.Store("wrong")
	c := open(t, Config{Addr: s.Addr(), Credentials: func(context.Context) (string, string, error) {
		return "", password.Load().(string), nil
	}})
	if err := c.WaitReady(testContext(t)); err == nil {
		t.Fatal("a wrong password was accepted")
	}
	password.Store("s3cret")
	eventually(t, "the new password is used", func() bool { return c.Up(RoleLane, 0) && c.Up(RolePubSub, 0) })
	if err := c.LastError(RoleLane, 0); err != nil {
		t.Errorf("LastError while up: %v", err)
	}
}

func TestConnect_NoRightToLoadScriptsOrPing_Serves(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.User("narrow on >pw ~* &* +get +subscribe +unsubscribe"))
	c := ready(t, Config{Addr: s.Addr(), Username: "narrow", Password: "pw", Scripts: []string{"return 1"}})
	if _, err := c.Do(testContext(t), "GET", "k"); err != nil {
		t.Fatal(err)
	}
}

// TestConnect_HandshakeFails_IsRetriedAndExplained has a node that misbehaves on its
// first connections, and well afterwards.
func TestConnect_HandshakeFails_IsRetriedAndExplained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		match  fakenode.Match
		action fakenode.Action
		want   string // in the error of WaitReady while it lasts
		is     error
	}{
		"loading":            {fakenode.Is("PING"), fakenode.Error(fakenode.Loading), "LOADING", nil},
		"replica, no master": {fakenode.Is("PING"), fakenode.Error(fakenode.MasterDown), "MASTERDOWN", nil},
		"busy":               {fakenode.Is("SCRIPT"), fakenode.Error(fakenode.Busy), "BUSY", nil},
		"maxclients":         {fakenode.Connect, fakenode.Seq(fakenode.Raw("-ERR max number of clients reached\r\n"), fakenode.Close()), "max number of clients", nil},
		"web server":         {fakenode.Connect, fakenode.Raw("HTTP/1.1 400 Bad Request\r\n\r\n"), "Redis server", ErrProtocol},
		"closed at once":     {fakenode.Connect, fakenode.Close(), "", nil},
		"closed before PING": {fakenode.Is("PING"), fakenode.Close(), "expects TLS", io.ErrUnexpectedEOF},
		"reset":              {fakenode.Is("PING"), fakenode.Reset(), "", nil},
		"half a reply":       {fakenode.Is("PING"), fakenode.HalfThenReset("+PONG\r\n"), "PING", nil},
		"one reply too many": {fakenode.Is("PING"), fakenode.Raw("+PONG\r\n+PONG\r\n"), "nothing stands between", ErrProtocol},
		"echo service":       {fakenode.Any, fakenode.Func(func(c *fakenode.Conn, cmd fakenode.Command) { c.Write(wire.AppendCommand(nil, cmd.Words...)) }), "echoes", ErrProtocol},
		"no PONG":            {fakenode.Is("PING"), fakenode.Raw("+OK\r\n"), "PONG", ErrProtocol},
		"silence":            {fakenode.Is("PING"), fakenode.Drop(), "DialTimeout", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := fakenode.New(t)
			rule := n.On(c.match, c.action)
			client := open(t, Config{Addr: n.Addr(), DialTimeout: 300 * time.Millisecond, Scripts: []string{"return 1"}})
			var last error
			defer func() { t.Logf("LastError: %v", last) }()
			// On a busy machine an attempt may end with its time.
			eventually(t, "an attempt fails for this reason", func() bool {
				last = client.LastError(RoleLane, 0)
				return last != nil && strings.Contains(last.Error(), c.want) && (c.is == nil || errors.Is(last, c.is))
			})
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			err := client.WaitReady(ended)
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), n.Addr()) {
				t.Fatalf("WaitReady: %v", err)
			}
			if handshake.Lasting(last) {
				t.Errorf("counts as lasting: %v", last)
			}
			rule.Remove()
			if err := client.WaitReady(testContext(t)); err != nil {
				t.Fatalf("WaitReady, the node being well: %v", err)
			}
		})
	}
}

func TestConnect_Handshake_IsOneRoundTrip(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	g := fakenode.NewGate()
	n.On(fakenode.Is("AUTH"), fakenode.Hold(g, fakenode.Raw("+OK\r\n"))) // everything else waits behind it
	open(t, Config{Addr: n.Addr(), Username: "u", Password: "p", DB: 3, Lanes: 1, Scripts: []string{"return 1", "return 2"}})
	n.WaitFor(3, fakenode.Is("PING")) // all were sent before the first answer
	n.WaitFor(4, fakenode.Is("SCRIPT"))
	g.Open()
}

func TestConnect_DialerOrCredentialsFail_Retries(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var dials, asks atomic.Int32
	c := ready(t, Config{
		Addr: s.Addr(), Lanes: 1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1)%2 == 1 {
				return nil, errors.New("no route today")
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
		Credentials: func(context.Context) (string, string, error) {
			if asks.Add(1)%2 == 1 {
				return "", "", errors.New("the vault is sealed")
			}
			return "", "", nil
		},
	})
	if _, err := c.Do(testContext(t), "PING"); err != nil {
		t.Fatal(err)
	}
}

func TestConnect_DialHangs_CloseEndsIt(t *testing.T) {
	t.Parallel()
	dialling := make(chan struct{}, 8)
	c := Open(Config{Addr: "x:1", DialTimeout: time.Hour,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dialling <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	<-dialling
	if err := c.Close(); err != nil { // the test's time-out is the check
		t.Fatal(err)
	}
}

func TestConnect_HandshakeHangs_CloseEndsIt(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("PING"), fakenode.Drop())
	c := Open(Config{Addr: n.Addr(), DialTimeout: time.Hour})
	n.WaitFor(1, fakenode.Is("PING"))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBackoff_Pauses_GrowWithJitterToTheMaximum(t *testing.T) {
	t.Parallel()
	b := backoff{rand: sockettest.Rand(t)}
	if d := b.next(); d != 0 {
		t.Fatalf("the first attempt waits %v", d)
	}
	seen := map[string]bool{}
	for range 2000 {
		d := b.next()
		if d < 0 || d > backoffMax {
			t.Fatalf("a pause of %v", d)
		}
		switch {
		case d > backoffMax/2:
			seen["long"] = true
		case seen["long"] && d < backoffMax/4:
			seen["jitter"] = true
		}
	}
	if !seen["long"] || !seen["jitter"] {
		t.Fatalf("of growth and jitter there is only %v", seen)
	}
	b.reset()
	if d := b.next(); d > backoffMin {
		t.Fatalf("after a reset: %v", d)
	}
	b.max()
	if d := b.next(); d < backoffMin {
		t.Fatalf("after max: %v", d)
	}
}

func TestConnect_SlowDial_CloseWaitsForIt(t *testing.T) {
	t.Parallel()
	var begun, ended atomic.Int32
	c := Open(Config{Addr: "x:1", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		begun.Add(1)
		<-ctx.Done()
		<-time.After(20 * time.Millisecond) // takes its time
		ended.Add(1)
		return nil, ctx.Err()
	}})
	eventually(t, "a dial", func() bool { return begun.Load() > 0 })
	c.Close()
	if b, e := begun.Load(), ended.Load(); b != e {
		t.Fatalf("%d dials began, %d had ended when Close returned", b, e)
	}
}

// Protected mode answers the connection, whatever was asked first, and lastingly.
func TestConnect_ProtectedMode_FailsAtOnce(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Connect, fakenode.Seq(fakenode.Error("DENIED Redis is running in protected mode"), fakenode.Close()))
	c := open(t, Config{Addr: n.Addr()})
	if err := c.WaitReady(testContext(t)); err == nil || !strings.Contains(err.Error(), "DENIED") {
		t.Errorf("%v", err)
	}
}

// What a server that does not know HELLO says of itself decides. One that says nothing
// is a proxy, or a server whose owner has renamed commands.
func TestConnect_ServerTooOld_IsRefusedUnlikeAProxy(t *testing.T) {
	t.Parallel()
	info := func(version string) fakenode.Action {
		text := "# Server\r\nredis_version:" + version + "\r\nredis_mode:standalone\r\n"
		return fakenode.Raw(fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
	}
	for name, c := range map[string]struct {
		info   fakenode.Action
		tooOld string // what the error says of the version
	}{
		"Redis 5":        {info("5.0.14"), "Redis 5.0.14"},
		"Redis 3":        {info("3.2.100"), "Redis 3.2.100"},
		"proxy":          {info("7.2.4"), ""},
		"Redis 10":       {info("10.0.0"), ""},
		"says nothing":   {fakenode.Error("ERR unknown command `INFO`, with args beginning with: `server`, "), ""},
		"says something": {fakenode.Raw("+OK\r\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := fakenode.New(t)
			n.On(fakenode.Is("HELLO"), fakenode.Error("ERR unknown command `HELLO`, with args beginning with: `2`, "))
			n.On(fakenode.Is("INFO", "server"), c.info)
			client := open(t, Config{Addr: n.Addr(), Lanes: 1})
			err := client.WaitReady(testContext(t))
			if c.tooOld == "" {
				if err != nil {
					t.Fatalf("WaitReady: %v", err)
				}
				return
			}
			// At once: it takes a human.
			if !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), c.tooOld) || !strings.Contains(err.Error(), "6.0") || strings.Contains(err.Error(), "is not ready") {
				t.Fatalf("WaitReady: %v", err)
			}
		})
	}
}

// Before 6.0 there are no users: it is refused with the first word.
func TestConnect_UserOnAServerWithoutUsers_IsExplained(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("AUTH"), fakenode.Error("ERR wrong number of arguments for 'auth' command"))
	c := open(t, Config{Addr: n.Addr(), Username: "ada", Password: "top-secret"})
	err := c.WaitReady(testContext(t))
	if !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), "wrong number of arguments") || strings.Contains(err.Error(), "top-secret") {
		t.Fatalf("WaitReady: %v", err)
	}
}

func TestConnect_PlainAddressOfAClusterNode_Warns(t *testing.T) {
	t.Parallel()
	warned := func(addr string) int {
		var log syncBuffer
		ready(t, Config{Addr: addr, Lanes: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		return log.count("redis+cluster://")
	}
	if n := warned(redistest.StartCluster(t, false).Nodes()[0].Addr()); n != 1 {
		t.Errorf("a node of a cluster: warned %d times, want once", n)
	}
	if n := warned(redistest.Start(t).Addr()); n != 0 {
		t.Errorf("a single server: warned %d times", n)
	}
	mute := fakenode.New(t)
	mute.On(fakenode.Is("HELLO"), fakenode.Error("NOPERM this user has no permissions to run the 'hello' command"))
	if n := warned(mute.Addr()); n != 0 {
		t.Errorf("a server that does not say: warned %d times", n)
	}
}
