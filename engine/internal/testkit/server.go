package testkit

import (
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/engine/internal/script"
	"github.com/pawl-lock/pawl/internal/cputime"
	"github.com/pawl-lock/pawl/internal/fakenode"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Server starts a redis-server of the test's own.
func Server(t testing.TB, opts ...redistest.Option) *redistest.Server {
	t.Helper()
	return redistest.Start(t, opts...)
}

// Fields returns the lock's hash on the server.
func Fields(t testing.TB, s *redistest.Server, name string) map[string]string {
	t.Helper()
	list, _ := s.Do("HGETALL", name).([]any)
	m := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i].(string)] = list[i+1].(string)
	}
	return m
}

// PTTL is how long the server keeps a key.
func PTTL(t testing.TB, s *redistest.Server, key string) time.Duration {
	t.Helper()
	ms, ok := s.Do("PTTL", key).(int64)
	if !ok {
		t.Fatal("PTTL is no number")
	}
	return time.Duration(ms) * time.Millisecond
}

// Clean fails the test if the server has anything left of Pawl.
func Clean(t testing.TB, s *redistest.Server, engines ...*engine.Engine) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("channels: %v", channels(s))
			for _, e := range engines {
				Report(t, e)
			}
		}
	}()
	// At once, but for what was abandoned while its command was out: that comes back
	// with the answer. A lock that is lost to everybody has its lease of 30 s.
	for start := cputime.Now(); s.Do("DBSIZE") != int64(0); {
		if start.Elapsed() > 5*time.Second {
			t.Errorf("keys are left: %v", s.Do("KEYS", "*"))
			break
		}
		time.Sleep(2 * time.Millisecond) // a poll, bounded above
	}
	Eventually(t, "no channel is subscribed", func() bool { return len(channels(s)) == 0 })
}

// RemovePlaces takes an engine out of all queues. The places of one that was closed while it had no connection
// stay for a minute.
func RemovePlaces(s *redistest.Server, e *engine.Engine) {
	for _, key := range s.Do("KEYS", script.WaitersPrefix+":*").([]any) {
		s.Do("ZREM", key.(string), e.ID())
	}
}

// LockCount is how many keys the server has beside the queues of those that wait.
func LockCount(s *redistest.Server) (n int) {
	for _, key := range s.Do("KEYS", "*").([]any) {
		if !strings.HasPrefix(key.(string), script.WaitersPrefix) {
			n++
		}
	}
	return n
}

// channels are those that somebody listens to, but for what the nodes of a cluster and sentinels
// say to each other.
func channels(s *redistest.Server) []any {
	plain, _ := s.Do("PUBSUB", "CHANNELS", "redisson*").([]any)
	sharded, _ := s.Do("PUBSUB", "SHARDCHANNELS").([]any)
	return append(plain, sharded...)
}

// AcquireOf matches the acquires of a name.
func AcquireOf(name string) faultproxy.Match { return ScriptOn(script.Acquire, name) }

// ReleaseOf matches the releases of a name.
func ReleaseOf(name string) faultproxy.Match { return ScriptOn(script.Release, name) }

// ScriptOn matches the calls of a script for a name.
func ScriptOn(s *script.Script, name string) faultproxy.Match {
	is, has := Calls(s), faultproxy.Has(name)
	return func(c faultproxy.Command) bool { return is(c) && has(c) }
}

// Calls matches the calls of a script. A try in the queue of the engines that wait is an Acquire, too.
func Calls(s *script.Script) fakenode.Match {
	is := fakenode.Is("EVALSHA", s.SHA)
	if s != script.Acquire {
		return is
	}
	joins := fakenode.Is("EVALSHA", script.Join.SHA)
	return func(c fakenode.Command) bool { return is(c) || joins(c) }
}

// Count is the owner's field on the server, "" if it is not there.
func Count(t testing.TB, h *engine.Hold, all map[string]string) string {
	t.Helper()
	if len(all) > 1 {
		t.Errorf("%d owners: %v", len(all), all)
	}
	return all[h.Owner()]
}

// CleanButMarks is clean for counts: the marks expire within a minute, and are deleted here. What was
// given up may be under way still, and leave a mark.
func CleanButMarks(t testing.TB, srv *redistest.Server, engines ...*engine.Engine) {
	t.Helper()
	for _, e := range engines {
		Eventually(t, "no command is under way", func() bool { return e.Stats().InFlight == 0 })
	}
	keys, _ := srv.Do("KEYS", "*:pawl:*").([]any)
	for _, key := range keys {
		if ttl := srv.Do("PTTL", key.(string)).(int64); ttl <= 0 || ttl > 60_000 {
			t.Errorf("the mark %v has %d ms left", key, ttl)
		}
		srv.Do("DEL", key.(string))
	}
	Clean(t, srv, engines...)
}
