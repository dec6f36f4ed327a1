package wire

import (
	"strings"
	"testing"
)

// What servers answered, word for word: redis-server 6.2.14, 7.0.15, 8.0.2, 8.2.3 and 8.6.2, and
// Valkey 9.1.2; what Valkey 8.0.1 and 8.1.1 say is what Redis 8.0 does.
func TestServerError_RefusedInAScript_HasTheCodeOfTheCommand(t *testing.T) {
	t.Parallel()
	const (
		call = "ERR Error running script (call to f_c00cc63bb85d8a9162bf449cd785855846172f77): @user_script:8: "
		raw  = "@user_script: 8: "
		end  = " script: c00cc63bb85d8a9162bf449cd785855846172f77, on @user_script:8."
		end9 = " script: on @user_script:17." // Valkey 9.1 does not say which script
	)
	for _, c := range []struct {
		message string
		lines   []string
	}{
		{"READONLY You can't write against a read only replica.", []string{
			call + raw + "-READONLY You can't write against a read only replica.",
			raw + "-READONLY You can't write against a read only replica.",
			"READONLY You can't write against a read only replica." + end,
			"READONLY You can't write against a read only replica." + end9,
		}},
		{"OOM command not allowed when used memory > 'maxmemory'.", []string{
			call + raw + "-OOM command not allowed when used memory > 'maxmemory'.",
			raw + "-OOM command not allowed when used memory > 'maxmemory'.",
			"OOM command not allowed when used memory > 'maxmemory'." + end,
		}},
		{"NOREPLICAS Not enough good replicas to write.", []string{
			call + raw + "-NOREPLICAS Not enough good replicas to write.",
			raw + "-NOREPLICAS Not enough good replicas to write.",
			"NOREPLICAS Not enough good replicas to write." + end,
		}},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", []string{
			call + "WRONGTYPE Operation against a key holding the wrong kind of value",
			"WRONGTYPE Operation against a key holding the wrong kind of value", // pcall, everywhere
			"WRONGTYPE Operation against a key holding the wrong kind of value" + end,
			"WRONGTYPE Operation against a key holding the wrong kind of value" + end9,
		}},
		{"NOPERM The user executing the script can't run this command or subcommand", []string{
			call + raw + "The user executing the script can't run this command or subcommand",
			raw + "The user executing the script can't run this command or subcommand",
			"ERR The user executing the script can't run this command or subcommand" + end,
			"ERR The user executing the script can't run this command or subcommand",
		}},
		{"NOPERM The user executing the script can't publish to the channel mentioned in the command", []string{
			call + raw + "The user executing the script can't publish to the channel mentioned in the command",
			"ERR The user executing the script can't publish to the channel mentioned in the command" + end,
		}},
		{"NOPERM ACL failure in script: No permissions to access a key", []string{
			"ERR ACL failure in script: No permissions to access a key" + end,
			"ERR ACL failure in script: No permissions to access a key" + end9,
			"ERR ACL failure in script: No permissions to access a key",
		}},
		{"TRYAGAIN Script attempted to access a non local key in a cluster node", []string{
			"ERR Script attempted to access a non local key in a cluster node" + end,
			"ERR Script attempted to access a non local key in a cluster node", // pcall
			"ERR Attempted to access a non local key in a cluster node" + end9,
			"ERR Attempted to access a non local key in a cluster node",
			call + raw + "Lua script attempted to access a non local key in a cluster node",
			raw + "Lua script attempted to access a non local key in a cluster node",
			"ERR Unable to execute command 'mget' in script because undeclared keys were accessed during rehashing of the slot" + end,
			"ERR Unable to execute command 'mget' in script because undeclared keys were accessed during rehashing of the slot",
		}},
		{"ERR user_script:8: attempt to compare number with string", []string{
			call + "user_script:8: attempt to compare number with string",
			"ERR user_script:8: attempt to compare number with string" + end,
			"ERR user_script:8: attempt to compare number with string" + end9,
		}},
		{"ERR Unknown Redis command called from Lua script", []string{
			call + raw + "Unknown Redis command called from Lua script",
			raw + "Unknown Redis command called from Lua script",
		}},
	} {
		for _, line := range c.lines {
			e := NewServerError([]byte(line))
			if code, _, _ := strings.Cut(c.message, " "); e.Code != code || e.Message != c.message {
				t.Errorf("%q\nis %q: %q,\nwant %q", line, e.Code, e.Message, c.message)
			}
		}
	}
}

// An error that quotes what a user wrote is what it is, whatever that says.
func TestServerError_QuotesAnother_KeepsItsOwnCode(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"ERR unknown command 'ERR Error running script (call to f_0): @user_script:1: READONLY', with args beginning with: 'READONLY' ",
		"ERR unknown command `NOSUCH`, with args beginning with: `@user_script: 1: -READONLY x`, ",
		"ERR Error running script (call to f_x): @user_script:1: @user_script: 1: -READONLY x", // no SHA
		"ERR Error running script (call to f_c00cc63bb85d8a9162bf449cd785855846172f77): @user_script:x: -READONLY",
		"ERR no such thing: The user executing the script can't run",
		"ERR unknown command 'Attempted to access a non local key in a cluster node', with args beginning with: ",
		"ERR the text \" script: on @user_script:1.\" is quoted",
		"ERR ", "ERR", "@user_script: 1", "@user_script:1: x", " script: ",
		"WRONGTYPE of @user_script: 1: -READONLY x",
	} {
		e := NewServerError([]byte(line))
		if code, _, _ := strings.Cut(line, " "); e.Code != code || e.Message != line {
			t.Errorf("%q is %q: %q", line, e.Code, e.Message)
		}
	}
	// The same behind a script's error: user_script is where Lua's error() was called.
	line := "ERR Error running script (call to f_913fe641966fcaeb713b90856ef1c03b8b877ba5): @user_script:1: user_script:1: WRONGTYPE x"
	if e := NewServerError([]byte(line)); e.Code != "ERR" || e.Message != "ERR user_script:1: WRONGTYPE x" {
		t.Errorf("%q is %q: %q", line, e.Code, e.Message)
	}
}
