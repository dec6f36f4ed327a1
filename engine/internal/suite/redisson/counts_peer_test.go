package redisson

import (
	"fmt"
	"testing"
)

// What RSemaphore and RCountDownLatch do on the server, written from that behaviour.

func (j redisson) count(t testing.TB, script string, keys []string, args ...any) any {
	t.Helper()
	v, err := j.eval(script, keys, args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func semaphoreChannel(name string) string { return "redisson_sc:{" + name + "}" }
func latchChannel(name string) string     { return "redisson_countdownlatch__channel__{" + name + "}" }

func (j redisson) trySetPermits(t testing.TB, name string, n int, ttl ...any) any {
	t.Helper()
	return j.count(t, `
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
if ARGV[3] then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3]) else redis.call('SET', KEYS[1], ARGV[1]) end
redis.call(ARGV[2], KEYS[2], ARGV[1])
return 1`, []string{name, semaphoreChannel(name)}, append([]any{n, verb(j.s, "PUBLISH")}, ttl...)...)
}

func (j redisson) tryAcquire(t testing.TB, name string, n int) bool {
	t.Helper()
	return j.count(t, `
local value = redis.call('GET', KEYS[1])
if value and tonumber(value) >= tonumber(ARGV[1]) then
  redis.call('DECRBY', KEYS[1], ARGV[1])
  return 1
end
return 0`, []string{name}, n) == int64(1)
}

func (j redisson) releasePermits(t testing.TB, name string, n int) {
	t.Helper()
	j.count(t, `
local value = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call(ARGV[2], KEYS[2], value)`, []string{name, semaphoreChannel(name)}, n, verb(j.s, "PUBLISH"))
}

func (j redisson) releaseIfExists(t testing.TB, name string, n int) any {
	t.Helper()
	return j.count(t, `
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call(ARGV[2], KEYS[2], redis.call('INCRBY', KEYS[1], ARGV[1]))
return 1`, []string{name, semaphoreChannel(name)}, n, verb(j.s, "PUBLISH"))
}

func (j redisson) addPermits(t testing.TB, name string, n int) {
	t.Helper()
	j.count(t, `
local value = tonumber(redis.call('GET', KEYS[1]) or 0) + tonumber(ARGV[1])
redis.call('SET', KEYS[1], value)
redis.call(ARGV[2], KEYS[2], value)`, []string{name, semaphoreChannel(name)}, n, verb(j.s, "PUBLISH"))
}

func (j redisson) drainPermits(t testing.TB, name string) string {
	t.Helper()
	return fmt.Sprint(j.count(t, `
local value = redis.call('GET', KEYS[1])
if not value then return 0 end
redis.call('SET', KEYS[1], 0)
return value`, []string{name}))
}

func (j redisson) countDown(t testing.TB, name string) {
	t.Helper()
	j.count(t, `
local v = redis.call('DECR', KEYS[1])
if v <= 0 then redis.call('DEL', KEYS[1]) end
if v == 0 then redis.call(ARGV[2], KEYS[2], ARGV[1]) end`, []string{name, latchChannel(name)}, 0, verb(j.s, "PUBLISH"))
}

func (j redisson) trySetCount(t testing.TB, name string, n int) bool {
	t.Helper()
	return j.count(t, `
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
redis.call(ARGV[3], KEYS[2], ARGV[1])
return 1`, []string{name, latchChannel(name)}, 1, n, verb(j.s, "PUBLISH")) == int64(1)
}

// reopenLatch counts a latch of one down, and sets it again, with nothing between.
func (j redisson) reopenLatch(t testing.TB, name string, n int) {
	t.Helper()
	j.count(t, `
redis.call('DEL', KEYS[1])
redis.call(ARGV[3], KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
redis.call(ARGV[3], KEYS[2], '1')`, []string{name, latchChannel(name)}, 0, n, verb(j.s, "PUBLISH"))
}

func (j redisson) deleteLatch(t testing.TB, name string) bool {
	t.Helper()
	return j.count(t, `
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
redis.call(ARGV[2], KEYS[2], ARGV[1])
return 1`, []string{name, latchChannel(name)}, 1, verb(j.s, "PUBLISH")) == int64(1)
}
