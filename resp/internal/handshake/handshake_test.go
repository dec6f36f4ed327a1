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

func TestStep_AuthRefused_HidesThePassword(t *testing.T) {
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

// A user who takes a sentinel for a server reads so, and not a page of Lua.
func TestStep_ScriptLoadUnknown_SuspectsASentinel(t *testing.T) {
	t.Parallel()
	s := step{name: "SCRIPT LOAD", words: []string{"SCRIPT", "LOAD", "return 1"}}
	err := s.check(wire.Value{Kind: wire.KindError, Bytes: []byte("ERR unknown command 'SCRIPT', with args beginning with: 'LOAD' 'return 1' ")})
	if text := err.Error(); !strings.Contains(text, "redis+sentinel://") || strings.Contains(text, "return 1") || !Lasting(err) {
		t.Error(text)
	}
}

func TestLibVersion_IsOneWord(t *testing.T) {
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
func TestConnect_ContextEndsWithTheHandshake_LeavesNoConnection(t *testing.T) {
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

func connectTo(n *fakenode.Node, scripts ...string) error {
	cfg := Config{Network: "tcp", Addr: n.Addr(), DialTimeout: 5 * time.Second, Clock: clock.System(), AuthBackoff: NewAuthBackoff(clock.System(), nil), Scripts: scripts}
	conn, err := cfg.Connect(context.Background(), Commands)
	if err == nil {
		conn.Close()
	}
	return err
}

// Loading scripts saves bytes, and is no condition: what is not loaded is sent whole.
func TestConnect_ScriptLoadRefusedInAnyWords_Connects(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"NOPERM this user has no permissions to run the 'script|load' command",
		"ERR unknown command 'script'",
		"ERR unknown subcommand 'LOAD'. Try SCRIPT HELP.",
		"ERR command 'SCRIPT' is not supported",
		"ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array",
		"forbidden",
	} {
		n := fakenode.New(t)
		n.On(fakenode.Is("SCRIPT"), fakenode.Error(line))
		if err := connectTo(n, "return 1", "return 2"); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestConnect_ServerThatKnowsNoScripts_IsSuspectedToBeASentinel(t *testing.T) {
	t.Parallel()
	n := fakenode.New(t)
	n.On(fakenode.Is("SCRIPT"), fakenode.Error("ERR unknown command 'SCRIPT', with args beginning with: 'LOAD' 'return 1' "))
	n.On(fakenode.Is("EVAL"), fakenode.Error("ERR unknown command 'EVAL', with args beginning with: 'return 1' "))
	if err := connectTo(n, "return 1"); err == nil || !strings.Contains(err.Error(), "redis+sentinel://") || !Lasting(err) {
		t.Error(err)
	}
}

// What is wrong with the script itself, the connection or the server stays a refusal.
func TestConnect_ScriptLoadRefusedForAnotherReason_Fails(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"ERR Error compiling script (new function): user_script:1: '=' expected near 'x'",
		"NOAUTH Authentication required.", fakenode.Busy, fakenode.Loading, "ERR max number of clients reached",
	} {
		n := fakenode.New(t)
		n.On(fakenode.Is("SCRIPT"), fakenode.Error(line))
		if err := connectTo(n, "x"); err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
