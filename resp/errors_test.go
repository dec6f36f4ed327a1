package resp

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// The server at hand, whatever its generation.
func TestServerError_ScriptOnARealServer_HasTheCodeOfTheCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.User("narrow on >pw resetchannels ~* +@all -set"))
	client := func(user, password string) *Client {
		return ready(t, Config{Addr: s.Addr(), Username: user, Password: password})
	}
	plain, narrow := client("", ""), client("narrow", "pw")
	refusal := func(c *Client, script, code string) {
		t.Helper()
		_, err := c.Do(context.Background(), "EVAL", script, "0")
		var e *ServerError
		if !errors.As(err, &e) || e.Code != code || !strings.HasPrefix(e.Message, code+" ") || strings.Contains(e.Message, "user_script") {
			t.Errorf("%s: %v, want %s", script, err, code)
		}
	}
	s.Do("HSET", "hash", "a", "1")
	refusal(plain, "return redis.call('GET', 'hash')", "WRONGTYPE")
	refusal(plain, "return redis.pcall('GET', 'hash')", "WRONGTYPE")
	for _, command := range []string{"('SET', 'x', 'y')", "('PUBLISH', 'x', 'y')"} {
		refusal(narrow, "return redis.call"+command, "NOPERM")
		refusal(narrow, "return redis.pcall"+command, "NOPERM")
	}
	const write, try = "return redis.call('SET', 'x', 'y')", "return redis.pcall('SET', 'x', 'y')"
	for code, setting := range map[string]string{"OOM": "maxmemory", "NOREPLICAS": "min-replicas-to-write"} {
		s.Do("CONFIG", "SET", setting, "1")
		refusal(plain, write, code)
		refusal(plain, try, code)
		s.Do("CONFIG", "SET", setting, "0")
	}
	other := client("", "") // READONLY costs a client its connections
	s.Do("REPLICAOF", "127.0.0.1", "1")
	refusal(plain, write, "READONLY")
	refusal(other, try, "READONLY")
}
