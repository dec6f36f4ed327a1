package request

import (
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/resp/wire"
)

// What servers, proxies and managed services say, and what follows from it.
func TestRefusalOf_WhatServersSay_IsClassed(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		line string
		want Refusal
	}{
		{"MOVED 3999 127.0.0.1:6381", Refusal{OfDeployment, No, Passing}},
		{"ASK 3999 127.0.0.1:6381", Refusal{OfDeployment, No, Passing}},
		{"CLUSTERDOWN Hash slot not served", Refusal{OfDeployment, No, Passing}},
		{"ERR No such master with that name", Refusal{OfDeployment, No, Permanent}},
		{"ERR This instance has cluster support disabled", Refusal{OfDeployment, No, Permanent}},
		{"LOADING Redis is loading the dataset in memory", Refusal{OfNode, No, Passing}},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", Refusal{OfNode, No, Passing}},
		{"READONLY You can't write against a read only replica.", Refusal{OfNode, No, Passing}},
		{"READONLY You can't write against a read only replica. script: 0123456789abcdef0123456789abcdef01234567, on @user_script:8.", Refusal{OfNode, No, Passing}},
		{"READONLY You can't write against a read only replica. script: on @user_script:8.", Refusal{OfNode, No, Passing}},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Refusal{OfNode, No, Passing}},
		{"OOM command not allowed when used memory > 'maxmemory'.", Refusal{OfNode, No, Passing}},
		{"MISCONF Redis is configured to save RDB snapshots", Refusal{OfNode, No, Passing}},
		{"NOREPLICAS Not enough good replicas to write.", Refusal{OfNode, No, Passing}},
		{"ERR max number of clients reached", Refusal{OfConnection, No, Passing}},
		{"ERR max number of clients + cluster connections reached", Refusal{OfConnection, No, Passing}},
		{"DENIED Redis is running in protected mode", Refusal{OfConnection, No, Permanent}},
		{"NOAUTH Authentication required.", Refusal{OfConnection, No, Unauthorized}},
		{"WRONGPASS invalid username-password pair or user is disabled.", Refusal{OfConnection, No, Unauthorized}},
		{"ERR invalid password", Refusal{OfConnection, No, Unauthorized}},
		{"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?", Refusal{OfConnection, No, Unclear}},
		{"ERR Client sent AUTH, but no password is set", Refusal{OfConnection, No, Unclear}},
		{"ERR invalid DB index", Refusal{OfConnection, No, Permanent}},
		{"ERR DB index is out of range", Refusal{OfConnection, No, Permanent}},
		{"ERR SELECT is not allowed in cluster mode", Refusal{OfConnection, No, Permanent}},
		{"TRYAGAIN Multiple keys request during rehashing of slot", Refusal{OfCommand, No, Passing}},
		{"ERR Script attempted to access a non local key in a cluster node", Refusal{OfCommand, Perhaps, Passing}},
		{"ERR Lua script attempted to access a non local key in a cluster node", Refusal{OfCommand, Perhaps, Passing}},
		{"ERR Attempted to access a non local key in a cluster node script: on @user_script:17.", Refusal{OfCommand, Perhaps, Passing}},
		{"ERR Unable to execute command 'mget' in script because undeclared keys were accessed during rehashing of the slot script: 0123456789abcdef0123456789abcdef01234567, on @user_script:8.", Refusal{OfCommand, Perhaps, Passing}},
		{"NOPERM this user has no permissions to run the 'eval' command", Refusal{OfCommand, No, Unauthorized}},
		{"ERR ACL failure in script: this user has no permissions", Refusal{OfCommand, No, Unauthorized}},
		{"CROSSSLOT Keys in request don't hash to the same slot", Refusal{OfCommand, No, Permanent}},
		{"NOSCRIPT No matching script. Please use EVAL.", Refusal{OfCommand, No, Permanent}},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", Refusal{OfCommand, No, Permanent}},
		{"ERR unknown command 'SSUBSCRIBE'", Refusal{OfCommand, No, Permanent}},
		{"ERR unknown subcommand 'SHARDNUMSUB'. Try PUBSUB HELP.", Refusal{OfCommand, No, Permanent}},
		{"ERR Unknown subcommand or wrong number of arguments for 'SHARDNUMSUB'", Refusal{OfCommand, No, Permanent}},
		{"ERR wrong number of arguments for 'auth' command", Refusal{OfCommand, No, Permanent}},
		{"ERR Error compiling script (new function)", Refusal{OfCommand, No, Permanent}},
	} {
		if got := RefusalOf(wire.NewServerError([]byte(x.line))); got != x.want {
			t.Errorf("%s: of %v, executed %v, lasts %v; want of %v, executed %v, lasts %v",
				x.line, got.Of, got.Executed, got.Lasts, x.want.Of, x.want.Executed, x.want.Lasts)
		}
	}
}

// A text that nobody foresaw says something of its command alone, which may have been executed:
// nothing is closed, nothing is given up, and nothing is taken for certain.
func TestRefusalOf_UnforeseenText_HarmsNobody(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"ERR", "", "upstream failure", "no upstream host", "ERR handle request, command 'EVAL' is not allowed",
		"ERR 'EVAL' command keys must in same slot", "movED 1 a:1", "NOAUTHORITY x", "ERR user_script:1: x",
	} {
		r := RefusalOf(wire.NewServerError([]byte(line)))
		if r != (Refusal{}) || r.Of != OfCommand || r.Executed != Perhaps || r.NotNow() || r.NeedsHuman() || r.Unready() {
			t.Errorf("%q: %+v", line, r)
		}
	}
}

// Every row can be reached: no earlier one begins with less of its text.
func TestRefusals_EveryRow_CanBeReached(t *testing.T) {
	t.Parallel()
	codes := make(map[string]bool)
	for i, row := range Refusals {
		if (row.Code == "") == (row.Text == "") || codes[row.Code] && row.Code != "" {
			t.Errorf("row %d has not one of a code and a text, or its code stands twice: %+v", i, row)
		}
		codes[row.Code] = true
		for _, before := range Refusals[:i] {
			if before.Text != "" && row.Text != "" && strings.HasPrefix(row.Text, before.Text) {
				t.Errorf("%q hides %q", before.Text, row.Text)
			}
		}
	}
}

func TestNames_CommandIsNamedInAnyWords_IsFound(t *testing.T) {
	t.Parallel()
	for line, named := range map[string]bool{
		"ERR unknown command 'EVALSHA', with args beginning with: 'a'":      true,
		"ERR unknown command `evalsha`":                                     true,
		"NOPERM this user has no permissions to run the 'evalsha' command":  true,
		"ERR handle request, command 'EVALSHA' is not allowed":              true,
		"unsupported command: EvalSha":                                      true,
		"ERR unknown command 'EVAL'":                                        false,
		"NOSCRIPT No matching script. Please use EVAL.":                     false,
		"LOADING evalsha has to wait":                                       false,
		"NOAUTH evalsha needs a password":                                   false,
		"WRONGTYPE Operation against a key holding the wrong kind of value": false,
	} {
		if got := Names(wire.NewServerError([]byte(line)), "evalsha"); got != named {
			t.Errorf("%s: %v", line, got)
		}
	}
}
