package embedded_test

import (
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2/proto"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// Scripts of the shapes that locks use, Redisson's among them.
const (
	luaAcquire = `
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
	redis.call('hincrby', KEYS[1], ARGV[2], 1)
	redis.call('pexpire', KEYS[1], ARGV[1])
	return nil
end
return redis.call('pttl', KEYS[1])`
	luaRelease = `
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return -3 end
if tonumber(ARGV[3]) > 0 then redis.call('hset', KEYS[1], ARGV[2], ARGV[3]) return 0 end
if redis.call('hdel', KEYS[1], ARGV[2]) == 1 then redis.call('publish', ARGV[1], '0') return 1 end`
	luaRenewMany = `
local answer = {}
for i, key in ipairs(KEYS) do
	local held = redis.pcall('hexists', key, ARGV[i + 1])
	if type(held) == 'table' and held.err then
		answer[i] = -9
	elseif held == 1 then
		answer[i] = redis.call('pexpire', key, ARGV[1])
	else
		answer[i] = 0
	end
end
return answer`
	luaUnguarded = `redis.call('set', KEYS[1], 'text') return redis.call('hget', KEYS[1], 'f')`
)

// TestScriptsAnswerAsOnARealServer runs the same commands on both.
func TestScriptsAnswerAsOnARealServer(t *testing.T) {
	t.Parallel()
	here, there := dial(t, "tcp", start(t).Addr()), dial(t, "unix", redistest.Start(t, redistest.Needs(redistest.ExpiryConditions)).Socket())
	eval := func(script, numKeys string, rest ...string) []string {
		return append([]string{"EVAL", script, numKeys}, rest...)
	}
	for _, words := range [][]string{
		eval(luaAcquire, "1", "lock", "30000", "me"),
		eval(luaAcquire, "1", "lock", "30000", "me"),
		{"HGET", "lock", "me"},
		{"PEXPIRE", "lock", "0"}, // at once
		{"EXISTS", "lock"},
		{"HSET", "forever", "other", "1"},
		eval(luaAcquire, "1", "forever", "30000", "me"),
		eval(luaRelease, "1", "forever", "ch", "me", "0"),
		eval(luaRelease, "1", "forever", "ch", "other", "2"),
		{"HGETALL", "forever"},
		eval(luaRelease, "1", "forever", "ch", "other", "0"),
		{"EXISTS", "forever"},
		{"HSET", "a", "me", "1"},
		{"SET", "b", "text"},
		eval(luaRenewMany, "3", "a", "b", "c", "30000", "me", "me", "me"),
		eval(luaRenewMany, "0", "30000"),
		{"PEXPIRE", "a", "60000", "GT"},
		{"PEXPIRE", "a", "10000", "GT"},
		{"PERSIST", "a"},
		{"PTTL", "a"},
		{"PTTL", "absent"},
		{"TYPE", "a"},
		{"EVALSHA", strings.Repeat("0", 40), "0"},
		{"SCRIPT", "EXISTS", strings.Repeat("0", 40)},
		{"SCRIPT", "LOAD", luaAcquire},
		eval(`return {1, 'two', redis.status_reply('THREE'), {4}}`, "0"),
		eval(`return {1, false, 3}`, "0"),
		eval(`return redis.error_reply('WRONG it is')`, "0"),
		eval(`return 9007199254740991`, "0"),
		eval(`return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', '1000')`, "1", "b", "v"),
		eval(`return redis.call('incr', KEYS[1])`, "1", "token"),
		{"HGET", "b", "f"},
	} {
		got, want := do(t, here, words...), do(t, there, words...)
		if words[0] == "EVALSHA" { // Valkey says the rest in other words
			got, _, _ = strings.Cut(got, " ")
			want, _, _ = strings.Cut(want, " ")
		}
		if got != want {
			t.Errorf("%q:\n here %q\nthere %q", words, got, want)
		}
	}
}

func TestErrorInsideAScriptKeepsItsCode(t *testing.T) {
	t.Parallel()
	here, there := dial(t, "tcp", start(t).Addr()), dial(t, "unix", redistest.Start(t, redistest.Needs(redistest.ScriptErrorCodes)).Socket())
	for _, c := range []*proto.Client{here, there} {
		if got := do(t, c, "EVAL", luaUnguarded, "1", "k"); !strings.HasPrefix(got, "-WRONGTYPE Operation against a key") {
			t.Errorf("%q", got)
		}
		if got := do(t, c, "EVAL", "this is no lua", "0"); !strings.HasPrefix(got, "-ERR Error compiling script") {
			t.Errorf("%q", got)
		}
	}
}
