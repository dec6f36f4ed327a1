package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/redistest"
	"github.com/pawl-lock/pawl/resp/internal/handshake"
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

func TestEveryRoleHasAPurposeOfItsOwn(t *testing.T) {
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

func TestRefusedConnectionIsExplained(t *testing.T) {
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
// unless it is told which port to take.
func TestConnectionToItselfIsRefused(t *testing.T) {
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

func TestConnectionWithoutDeadlinesServes(t *testing.T) {
	t.Parallel()
	c := ready(t, Config{Addr: redistest.Start(t).Addr(), Dialer: dialWithoutDeadlines})
	if _, err := c.Do(testContext(t), "PING"); err != nil {
		t.Fatal(err)
	}
}

func TestCloseEndsAHandshakeThatHangsWithoutDeadlines(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("PING"), fakenode.Drop())
	c := Open(Config{Addr: n.Addr(), DialTimeout: time.Hour, Dialer: dialWithoutDeadlines})
	n.WaitFor(1, fakenode.Is("PING"))
	if err := c.Close(); err != nil { // the test's time-out is the check
		t.Fatal(err)
	}
}
