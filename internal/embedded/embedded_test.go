package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/proto"
	"go.uber.org/goleak"

	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/embedded"
	"github.com/pawl-lock/pawl/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests.
const patience = 20 * time.Second

func start(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func dial(t *testing.T, network, addr string) *proto.Client {
	t.Helper()
	conn, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return proto.NewClient(conn)
}

func do(t *testing.T, c *proto.Client, words ...string) string {
	t.Helper()
	reply, err := c.Do(words...)
	if err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	return reply
}

func expect(t *testing.T, c *proto.Client, want string, words ...string) {
	t.Helper()
	if got := do(t, c, words...); got != want {
		t.Errorf("%q: got %q, want %q", words, got, want)
	}
}

func expectRead(t *testing.T, c *proto.Client, want string) {
	t.Helper()
	if got, err := c.Read(); err != nil || got != want {
		t.Errorf("read %q, %v, want %q", got, err, want)
	}
}

// until polls for a condition.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for start := cputime.Now(); !cond(); time.Sleep(time.Millisecond) {
		if start.Elapsed() > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func TestServer_Keys_ExpireAndNeverEarly(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := dial(t, "tcp", s.Addr())
	const ttl = 50 * time.Millisecond
	// Set at many instants, so that some lie just before anything periodic.
	set := make(map[string]time.Time)
	for i := range 30 {
		key := "lock" + strconv.Itoa(i)
		set[key] = time.Now()
		expect(t, c, proto.Int(1), "HSET", key, "me", "1")
		expect(t, c, proto.Int(1), "PEXPIRE", key, strconv.FormatInt(ttl.Milliseconds(), 10))
		time.Sleep(time.Millisecond) // their leases end one after the other
	}
	until(t, "all keys are gone", func() bool {
		for key, at := range set {
			if do(t, c, "EXISTS", key) == proto.Int(1) {
				continue
			}
			if lived := time.Since(at); lived < ttl {
				t.Errorf("%s lived %v of its %v", key, lived, ttl)
			}
			delete(set, key)
		}
		return len(set) == 0
	})
}

// A server with a million keys must still expire them, if less exactly.
func TestServer_ManyKeysExpire_NewOnesStay(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := dial(t, "tcp", s.Addr())
	const n = 2000
	for i := range n {
		do(t, c, "SET", fmt.Sprint("old", i), "v", "PX", "200")
		do(t, c, "SET", fmt.Sprint("new", i), "v", "PX", "600000")
	}
	until(t, "all old keys are gone", func() bool { return do(t, c, "DBSIZE") == proto.Int(n) })
	ttl := do(t, c, "PTTL", "new0")
	left, err := strconv.Atoi(strings.Trim(ttl, ":\r\n"))
	if err != nil || left > 600000 || left < 600000-int(patience.Milliseconds()) {
		t.Errorf("PTTL %q", ttl)
	}
	do(t, c, "FLUSHALL")
	// Few keys again: exact again.
	do(t, c, "SET", "k", "v", "PX", "50")
	until(t, "the key is gone", func() bool { return do(t, c, "EXISTS", "k") == proto.Int(0) })
}

func TestServer_VirtualTime_ExpiresKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := embedded.StartPipe()
		defer s.Close()
		conn, err := s.Dial(t.Context(), "tcp", "ignored:1")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c := proto.NewClient(conn)
		do(t, c, "SET", "lock", "me", "PX", "30000")
		time.Sleep(29*time.Second + 999*time.Millisecond)
		expect(t, c, proto.Int(1), "EXISTS", "lock")
		expect(t, c, proto.Int(1), "PTTL", "lock")
		time.Sleep(time.Millisecond)
		expect(t, c, proto.Int(0), "EXISTS", "lock")
	})
}

func TestServer_HandshakeCommands_AreAnswered(t *testing.T) {
	t.Parallel()
	s := start(t)
	a, b := dial(t, "tcp", s.Addr()), dial(t, "tcp", s.Addr())
	expect(t, a, proto.Inline("OK"), "CLIENT", "SETNAME", "pawl")
	expect(t, a, proto.Inline("OK"), "client", "setinfo", "lib-name", "pawl")
	expect(t, a, proto.String("pawl"), "CLIENT", "GETNAME")
	expect(t, a, proto.Int(1), "CLIENT", "ID")
	expect(t, b, proto.Int(2), "CLIENT", "ID")
	expect(t, a, proto.Int(1), "CLIENT", "ID")
	expect(t, a, proto.Inline("OK"), "SELECT", "3")
	expect(t, a, proto.Array(proto.String("master"), proto.Int(0), proto.Array()), "ROLE")
	// What is still unknown is refused, as it should be.
	if got := do(t, a, "CLIENT", "NO-SUCH"); !strings.HasPrefix(got, "-ERR unknown subcommand") {
		t.Error(got)
	}
}

// A command of ours that was answered at once inside MULTI would be taken for the answer
// to the next one.
func TestServer_Transaction_StaysInStep(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := dial(t, "tcp", s.Addr())
	expect(t, c, proto.Inline("OK"), "MULTI")
	for _, words := range [][]string{{"CLIENT", "ID"}, {"WAIT", "0", "0"}, {"ROLE"}, {"SPUBLISH", "c", "m"}} {
		if got := do(t, c, words...); !strings.HasPrefix(got, "-ERR") {
			t.Errorf("%v inside MULTI: %q", words, got)
		}
	}
	expect(t, c, proto.Inline("QUEUED"), "SET", "k", "v")
	expect(t, c, proto.Array(proto.Inline("OK")), "EXEC")
	expect(t, c, proto.Int(1), "CLIENT", "ID")
	expect(t, c, proto.Inline("OK"), "MULTI")
	expect(t, c, proto.Inline("OK"), "DISCARD")
	expect(t, c, proto.Int(0), "WAIT", "0", "0")
}

func TestServer_ClusterCommands_AreRefused(t *testing.T) {
	t.Parallel()
	c := dial(t, "tcp", start(t).Addr())
	for _, sub := range []string{"SLOTS", "SHARDS", "NODES", "INFO", "MYID"} {
		expect(t, c, proto.Error("ERR This instance has cluster support disabled"), "CLUSTER", sub)
	}
}

func TestServer_PublishFromScripts_ReachesSubscribers(t *testing.T) {
	t.Parallel()
	s := start(t)
	sub, c := dial(t, "tcp", s.Addr()), dial(t, "tcp", s.Addr())
	expect(t, sub, proto.Array(proto.String("subscribe"), proto.String("ch"), proto.Int(1)), "SUBSCRIBE", "ch")
	expect(t, c, proto.Int(1), "EVAL", "return redis.call('PUBLISH', ARGV[1], '0')", "0", "ch")
	expectRead(t, sub, proto.Array(proto.String("message"), proto.String("ch"), proto.String("0")))
	// A sharded channel of the same name is another one.
	expect(t, c, proto.Int(0), "SPUBLISH", "ch", "x")
}

func TestServer_ShardedMessages_ReachShardedSubscribers(t *testing.T) {
	t.Parallel()
	s := start(t)
	sub, c := dial(t, "tcp", s.Addr()), dial(t, "tcp", s.Addr())
	confirm := func(kind, ch string, n int) string {
		return proto.Array(proto.String(kind), proto.String(ch), proto.Int(n))
	}
	expect(t, sub, confirm("ssubscribe", "a", 1), "SSUBSCRIBE", "a", "b")
	expectRead(t, sub, confirm("ssubscribe", "b", 2))
	expect(t, c, proto.Int(1), "EVAL", "return redis.call('SPUBLISH', ARGV[1], '0')", "0", "b")
	expectRead(t, sub, proto.Array(proto.String("smessage"), proto.String("b"), proto.String("0")))
	expect(t, c, proto.Int(0), "PUBLISH", "a", "x")
	expect(t, sub, confirm("sunsubscribe", "a", 1), "SUNSUBSCRIBE", "a")
	expect(t, c, proto.Int(0), "SPUBLISH", "a", "x")
	expect(t, sub, confirm("sunsubscribe", "b", 0), "SUNSUBSCRIBE")
	expect(t, sub, proto.Array(proto.String("sunsubscribe"), "$-1\r\n", proto.Int(0)), "SUNSUBSCRIBE")
	for _, words := range [][]string{{"SPUBLISH", "a"}, {"SSUBSCRIBE"}} {
		if got := do(t, c, words...); !strings.HasPrefix(got, "-ERR wrong number") {
			t.Errorf("%q: %q", words, got)
		}
	}
}

func TestServer_Down_CutsAndRefusesUntilUp(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := dial(t, "tcp", s.Addr())
	do(t, c, "SET", "kept", "v")
	do(t, c, "SET", "short", "v", "PX", "20")
	for range 3 {
		s.Down()
		s.Down() // once more does no harm
		if reply, err := c.Do("PING"); err == nil {
			t.Fatalf("a server that is down said %q", reply)
		}
		if conn, err := net.Dial("tcp", s.Addr()); err == nil {
			conn.Close()
			t.Fatal("a server that is down accepted a connection")
		}
		if _, err := s.Dial(t.Context(), "", ""); !errors.Is(err, embedded.ErrDown) {
			t.Fatal(err)
		}
		if !s.Redis().Exists("kept") {
			t.Fatal("the data is gone")
		}
		until(t, "leases run out while down", func() bool { return !s.Redis().Exists("short") })
		if err := errors.Join(s.Up(), s.Up()); err != nil {
			t.Fatal(err)
		}
		c = dial(t, "tcp", s.Addr())
		expect(t, c, proto.String("v"), "GET", "kept")
		expect(t, c, proto.Inline("OK"), "CLIENT", "SETINFO", "lib-ver", "1")
	}
	s.Close()
	if err := s.Up(); !errors.Is(err, embedded.ErrDown) {
		t.Fatal(err)
	}
}

// No client that dials at the wrong moment is told "unknown command".
func TestServer_ClientsRedial_SeeAWholeServer(t *testing.T) {
	t.Parallel()
	s := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := proto.Dial(s.Addr())
				if err != nil {
					continue
				}
				reply, err := c.Do("CLIENT", "SETINFO", "lib-name", "x")
				if err == nil && reply != proto.Inline("OK") {
					t.Errorf("told %q", reply)
				}
				c.Close()
			}
		})
	}
	for range 50 {
		s.Down()
		if err := s.Up(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServer_AbruptClients_DoNoHarm(t *testing.T) {
	t.Parallel()
	s := start(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				conn, err := net.Dial("tcp", s.Addr())
				if err != nil {
					t.Error(err)
					return
				}
				proto.Write(conn, []string{"SUBSCRIBE", "ch"})
				proto.Write(conn, []string{"SSUBSCRIBE", "ch"})
				fmt.Fprint(conn, "*3\r\n$7\r\nPUB") // half a command
				if (i+j)%2 == 0 {
					conn.(*net.TCPConn).SetLinger(0) // RST instead of FIN
				}
				conn.Close()
			}
		})
		wg.Go(func() {
			c, err := proto.Dial(s.Addr())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for range 100 {
				for _, cmd := range []string{"PUBLISH", "SPUBLISH"} {
					if _, err := c.Do(cmd, "ch", "m"); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	c := dial(t, "tcp", s.Addr())
	until(t, "every subscription is gone", func() bool { return do(t, c, "PUBSUB", "CHANNELS") == proto.Array() })
}

func TestServer_SubscriberStopsReading_IsCutOff(t *testing.T) {
	t.Parallel()
	s := start(t)
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := proto.Write(conn, []string{"SUBSCRIBE", "ch"}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, "tcp", s.Addr())
	until(t, "subscribed", func() bool { return do(t, c, "PUBSUB", "CHANNELS") == proto.Strings("ch") })
	big := strings.Repeat("x", 1<<20)
	until(t, "the silent subscriber is gone", func() bool { return do(t, c, "PUBLISH", "ch", big) == proto.Int(0) })
}

func TestStart_PortTaken_Fails(t *testing.T) {
	t.Parallel()
	s := start(t)
	if _, err := embedded.Start(s.Addr()); err == nil {
		t.Fatal("two servers on one port")
	}
	if _, err := embedded.Start("no port"); err == nil {
		t.Fatal("started on a bad address")
	}
}

func TestServer_URL_NamesTheListener(t *testing.T) {
	t.Parallel()
	s := start(t)
	if want := "redis://" + s.Addr(); s.URL() != want || !strings.HasPrefix(s.Addr(), "127.0.0.1:") {
		t.Fatal(s.URL())
	}
}

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

// TestServer_Scripts_AnswerAsOnARealServer runs the same commands on both.
func TestServer_Scripts_AnswerAsOnARealServer(t *testing.T) {
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

func TestServer_ErrorInsideAScript_KeepsItsCode(t *testing.T) {
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
