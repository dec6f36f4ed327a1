package redisson

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// redisson plays one client of Redisson 4.7: it leaves on the server what RLock
// leaves there, and answers what it answers. The scripts are written from that
// behaviour.
type redisson struct {
	s    *redistest.Server
	uuid string
}

const (
	javaA = "6f1c7f0a-7d8c-4a54-9e0f-0d2b3f6b8a11"
	javaB = "b0c1a7de-2f35-4c1d-8a77-51c0de9f4e22"
)

func (j redisson) owner(thread int) string { return j.uuid + ":" + strconv.Itoa(thread) }

// javaChannel is where Redisson announces the end of a lock: the name in braces,
// unless there is a brace in it already, matched or not.
func javaChannel(name string) string {
	if strings.Contains(name, "{") {
		return "redisson_lock__channel:" + name
	}
	return "redisson_lock__channel:{" + name + "}"
}

func (j redisson) eval(script string, keys []string, args ...any) (any, error) {
	words := append([]string{"EVAL", script, strconv.Itoa(len(keys))}, keys...)
	for _, a := range args {
		words = append(words, fmt.Sprint(a))
	}
	return j.s.Process.Do(words...)
}

// tryLock is one attempt: granted, or how long the others' lease lasts.
func (j redisson) tryLock(name string, thread int, lease time.Duration) (granted bool, left time.Duration, err error) {
	v, err := j.eval(`
local free = redis.call('EXISTS', KEYS[1]) == 0
if not free and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return redis.call('PTTL', KEYS[1])
end
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return nil`,
		[]string{name}, lease.Milliseconds(), j.owner(thread))
	ms, refused := v.(int64)
	return err == nil && !refused, time.Duration(ms) * time.Millisecond, err
}

// unlock gives one hold back: 1 is free, 0 is still held, nil is not the owner. The
// latch, new for each call, is what protects Redisson from its own repeats.
func (j redisson) unlock(name string, thread int) (any, error) {
	latch := fmt.Sprintf("redisson_unlock_latch:{%s}:%016x%016x", name, rand.Uint64(), rand.Uint64())
	v, err := j.eval(`
local before = redis.call('GET', KEYS[3])
if before then return tonumber(before) end
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return nil end
local free = 0
if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  redis.call('DEL', KEYS[1])
  redis.call(ARGV[5], KEYS[2], ARGV[1])
  free = 1
end
redis.call('SET', KEYS[3], free, 'PX', ARGV[4])
return free`,
		[]string{name, javaChannel(name), latch}, 0, 30000, j.owner(thread), 19256, verb(j.s, "PUBLISH"))
	if err == nil {
		_, err = j.s.Process.Do("DEL", latch)
	}
	return v, err
}

// forceUnlock reports whether anybody held the lock.
func (j redisson) forceUnlock(name string) (bool, error) {
	v, err := j.eval(`
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
redis.call(ARGV[2], KEYS[2], ARGV[1])
return 1`,
		[]string{name, javaChannel(name)}, 0, verb(j.s, "PUBLISH"))
	return v == int64(1), err
}

// mustTryLock locks as Redisson does, or fails the test.
func (j redisson) mustTryLock(t testing.TB, name string, thread int, lease time.Duration) {
	t.Helper()
	if granted, left, err := j.tryLock(name, thread, lease); !granted || err != nil {
		t.Fatalf("Redisson's tryLock(%q): granted %t, left %v, %v", name, granted, left, err)
	}
}

// mustUnlock unlocks as Redisson does, and expects an answer.
func (j redisson) mustUnlock(t testing.TB, name string, thread int, want any) {
	t.Helper()
	if v, err := j.unlock(name, thread); v != want || err != nil {
		t.Fatalf("Redisson's unlock(%q) answers %v, %v; want %v", name, v, err, want)
	}
}

// listener listens to one channel with bytes of its own, so that the test judges what is
// on the wire.
type listener struct {
	conn    net.Conn
	r       *bufio.Reader
	channel string
	message string // what a message begins with
}

func listen(t testing.TB, s *redistest.Server, channel string) *listener {
	t.Helper()
	conn, err := net.Dial("unix", s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	e := &listener{conn: conn, r: bufio.NewReader(conn), channel: channel, message: verb(s, "message")}
	subscribe := verb(s, "subscribe")
	e.say(t, subscribe, channel)
	e.expect(t, fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:1\r\n", len(subscribe), subscribe, len(channel), channel))
	return e
}

func (e *listener) say(t testing.TB, verb, word string) {
	t.Helper()
	if _, err := fmt.Fprintf(e.conn, "*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(verb), verb, len(word), word); err != nil {
		t.Fatal(err)
	}
}

// hears expects a message as the next thing on the channel.
func (e *listener) hears(t testing.TB, message string) {
	t.Helper()
	e.expect(t, fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(e.message), e.message, len(e.channel), e.channel, len(message), message))
}

// hearsNothing expects that nothing was sent up to now: the answer to a ping comes
// next.
func (e *listener) hearsNothing(t testing.TB) {
	t.Helper()
	e.say(t, "PING", "now")
	e.expect(t, "*2\r\n$4\r\npong\r\n$3\r\nnow\r\n")
}

func (e *listener) expect(t testing.TB, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(e.r, got)
	if err != nil || string(got) != want {
		t.Fatalf("on channel %q: %q, %v; want %q", e.channel, got[:n], err, want)
	}
}
