package handshake

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/clock"
	"github.com/pawl-lock/pawl/internal/fakenode"
)

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
