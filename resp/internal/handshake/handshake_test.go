package handshake

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/resp/wire"
)

func TestAnswerToAuthNeverCarriesThePassword(t *testing.T) {
	t.Parallel()
	s := step{name: "AUTH", words: []string{"AUTH", "top-secret"}, secret: "top-secret"}
	for _, line := range []string{
		"ERR unknown command 'AUTH', with args beginning with: 'top-secret' ",
		"ERR unknown command 'AUTH', with args beginning with: 'top-sec",
		"ERR Syntax error near top-secret",
	} {
		err := s.check(wire.Value{Kind: wire.KindError, Bytes: []byte(line)})
		if err == nil || strings.Contains(err.Error(), "top-sec") {
			t.Errorf("%q became %v", line, err)
		}
	}
}

// A user who takes a sentinel for a server is told so, and not shown a page of Lua.
func TestServerWithoutScriptsIsSuspectedToBeASentinel(t *testing.T) {
	t.Parallel()
	s := step{name: "SCRIPT LOAD", words: []string{"SCRIPT", "LOAD", "return 1"}}
	err := s.check(wire.Value{Kind: wire.KindError, Bytes: []byte("ERR unknown command 'SCRIPT', with args beginning with: 'LOAD' 'return 1' ")})
	if text := err.Error(); !strings.Contains(text, "redis+sentinel://") || strings.Contains(text, "return 1") || !Lasting(err) {
		t.Error(text)
	}
}

func TestLibVersionIsOneWord(t *testing.T) {
	t.Parallel()
	if v := libVersion(); v == "" || strings.ContainsAny(v, " \r\n") {
		t.Fatalf("%q", v)
	}
}

// cancelAfter ends a context when the last reply of the handshake has been read.
type cancelAfter struct {
	net.Conn
	cancel context.CancelFunc
}

func (c cancelAfter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if strings.HasSuffix(string(b[:n]), "+PONG\r\n") {
		c.cancel()
	}
	return n, err
}

// The deadline of a context that ended too late to fail the handshake would fail
// the first read afterwards.
func TestContextThatEndsWithTheHandshakeLeavesNoConnection(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	ctx, cancel := context.WithCancel(context.Background())
	cfg := Config{Network: "tcp", Addr: n.Addr(), DialTimeout: 5 * time.Second, Clock: clock.System(), AuthBackoff: NewAuthBackoff(clock.System(), nil), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return cancelAfter{conn, cancel}, err
	}}
	if conn, err := cfg.Connect(ctx, Messages); !errors.Is(err, context.Canceled) || conn != nil {
		t.Fatalf("Connect: %v, %v", conn, err)
	}
	n.WaitConns(0)
}
