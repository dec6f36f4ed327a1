package script

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/resp"
)

// pawl unlock asks for both halves: who is told that one is refused has taken nothing away.
func TestReadWriteForceWithoutARightTakesNothing(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, right := range []string{"hdel", "hget", "hgetall", "del"} {
		for mode, owner := range map[string]string{"read": other.String(), "write": other.String() + ":write"} {
			c.s.Do("FLUSHALL")
			c.s.Do("HSET", lockName, "mode", mode, owner, "1")
			c.s.Do("ACL", "SETUSER", "default", "-"+right)
			_, reader := c.run(readForce(""))
			_, writer := c.run(writeForce(""))
			c.s.Do("ACL", "SETUSER", "default", "+"+right)
			var refused *resp.ServerError
			if !errors.As(errors.Join(reader, writer), &refused) || refused.Code != "NOPERM" {
				t.Errorf("%s without %s: %v, %v, want NOPERM", mode, right, reader, writer)
			}
			if n := c.s.Do("HEXISTS", lockName, owner); n != int64(1) {
				t.Errorf("%s without %s: refused, and taken away", mode, right)
			}
		}
	}
}

// A release that is refused is asked again, and then finds nothing: no half of it may be left.
func TestReadWriteReleaseWithoutARightLeavesNoModeAlone(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, right := range []string{"hget", "hlen", "hdel", "del"} {
		for mode, call := range map[string]encoder{"read": readRelease, "write": writeRelease} {
			c.s.Do("FLUSHALL")
			if mode == "read" {
				_, _ = c.run(readAcquire(me, time.Minute, Owner{}))
			} else {
				_, _ = c.run(write(time.Minute))
			}
			c.s.Do("ACL", "SETUSER", "default", "-"+right)
			_, first := c.run(call)
			c.s.Do("ACL", "SETUSER", "default", "+"+right)
			switch n := c.s.Do("HLEN", lockName); {
			case first == nil && n != int64(0):
				t.Errorf("%s without %s: released, and leaves %v", mode, right, c.s.Do("HGETALL", lockName))
			case first != nil && n != int64(2):
				t.Errorf("%s without %s: %v, and leaves %v", mode, right, first, c.s.Do("HGETALL", lockName))
			}
		}
	}
}

// A writer that may not leave readers behind as readers stays. What it needs not do is left undone,
// and the waiters are told: asked again, the release would find nothing, and tell nobody.
func TestReadWriteReleaseWithoutARightTellsWhoWaits(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, right := range []string{"hset", "pttl", "hgetall", "hrandfield", "pexpire", "exists"} {
		c.s.Do("FLUSHALL")
		_, _ = c.run(write(time.Minute))
		_, _ = c.run(readAcquire(other, time.Second, writer))
		notified := c.s.CommandStats()["publish"]
		c.s.Do("ACL", "SETUSER", "default", "-"+right)
		_, err := c.run(writeRelease)
		c.s.Do("ACL", "SETUSER", "default", "+"+right)
		notified = c.s.CommandStats()["publish"] - notified
		there, mode := c.s.Do("HEXISTS", lockName, writer.String()), c.s.Do("HGET", lockName, "mode")
		if err != nil && (there != int64(1) || mode != "write") || err == nil && (there != int64(0) || mode != "read" || notified == 0) {
			t.Errorf("without %s: %v; the writer is there: %v, the mode is %v, %d messages", right, err, there, mode, notified)
		}
	}
}

// Nobody is no reader, though the first of two attempts could do only half of it.
func TestAWriterThatRetiresInTwoAttemptsKeepsReadersOut(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, right := range []string{"hset", "hdel", "pexpire", "hlen", "hexists"} {
		c.s.Do("FLUSHALL")
		_, _ = c.run(write(time.Minute))
		c.s.Do("ACL", "SETUSER", "default", "-"+right)
		_, first := c.run(writeRetire(10 * time.Second))
		c.s.Do("ACL", "SETUSER", "default", "+"+right)
		var refused *resp.ServerError
		if !errors.As(first, &refused) || refused.Code != "NOPERM" {
			t.Errorf("without %s: %v, want NOPERM", right, first)
		}
		if _, err := c.run(writeRetire(10 * time.Second)); err != nil {
			t.Error(err)
		}
		if mode := c.s.Do("HGET", lockName, "mode"); mode != "write" {
			t.Errorf("without %s, and then with it: the mode is %v", right, mode)
		}
	}
}

// A writer with a MinHold that cannot see how long the readers beside it have does not shorten the
// time of the lock: they would lose it.
func TestAWriterThatCannotSeeItsReadersLeavesThemTheirTime(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for _, right := range []string{"pttl", "hgetall"} {
		c.s.Do("FLUSHALL")
		c.s.Do("HSET", lockName, "mode", "write", writer.String(), "1", other.String(), "1")
		c.s.Do("SET", TimeoutKey(lockName, other, 1), "1", "PX", "60000")
		c.s.Do("PEXPIRE", lockName, "60000")
		c.s.Do("ACL", "SETUSER", "default", "-"+right)
		v, err := c.run(writeRetire(time.Second))
		c.s.Do("ACL", "SETUSER", "default", "+"+right)
		if err != nil || v.Int != Done {
			t.Errorf("without %s: %d, %v", right, v.Int, err)
		}
		if left := c.s.Do("PTTL", lockName).(int64); left < 50000 {
			t.Errorf("without %s: the lock has %d ms left, its reader a minute", right, left)
		}
	}
}
