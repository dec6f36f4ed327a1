package front

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/engine/internal/testkit"
	"github.com/pawl-lock/pawl/resp/wire"
)

// The scripts of Redisson's RLock, written from its behaviour.
const (
	javaLock = `
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return redis.call('PTTL', KEYS[1])
end
redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return nil`
	javaUnlock = `
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], 0)
return 1`
)

// java is one client of Redisson. Its threads share a subscription, of which each message wakes one.
type java struct {
	addr    string
	latch   chan struct{}
	threads atomic.Int32
}

func newJava(t testing.TB, addr string) *java {
	t.Helper()
	j := &java{addr: addr, latch: make(chan struct{}, 1000)}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(wire.AppendCommand(nil, "SUBSCRIBE", channel)); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for r := bufio.NewReader(conn); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if strings.TrimSpace(line) == "message" {
				j.latch <- struct{}{}
			}
		}
	})
	t.Cleanup(func() { conn.Close(); reading.Wait() })
	return j
}

// thread is one of its threads, with a connection of its own.
type thread struct {
	*java
	owner string
	conn  net.Conn
	r     *bufio.Reader
}

func (j *java) thread(t testing.TB) *thread {
	t.Helper()
	conn, err := net.Dial("tcp", j.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &thread{j, "6f1c7f0a-7d8c-4a54-9e0f-0d2b3f6b8a11:" + strconv.Itoa(int(j.threads.Add(1))), conn, bufio.NewReader(conn)}
}

// eval runs a script that answers with a number; ok is false if it answers with nil.
func (j *thread) eval(words ...string) (n int64, ok bool, err error) {
	if _, err := j.conn.Write(wire.AppendCommand(nil, append([]string{"EVAL"}, words...)...)); err != nil {
		return 0, false, err
	}
	line, err := j.r.ReadString('\n')
	switch line = strings.TrimSpace(line); {
	case err != nil:
		return 0, false, err
	case line == "$-1":
		return 0, false, nil
	case line[0] != ':':
		return 0, false, fmt.Errorf("the server answers %q", line)
	}
	n, err = strconv.ParseInt(line[1:], 10, 64)
	return n, true, err
}

// lock waits as RedissonLock.lock does: for a message, or the end of the lease.
func (j *thread) lock(ctx context.Context) error {
	for {
		left, held, err := j.eval(javaLock, "1", "x", "30000", j.owner)
		if err != nil || !held {
			return err
		}
		timer := time.NewTimer(time.Duration(left) * time.Millisecond)
		select {
		case <-j.latch:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

func (j *thread) unlock() error {
	n, _, err := j.eval(javaUnlock, "2", "x", channel, j.owner)
	if err == nil && n != 1 {
		err = fmt.Errorf("%s did not hold the lock", j.owner)
	}
	return err
}

// Redisson does not queue: it races with the front, and neither side starves.
func TestMutex_BesideRedisson_BothHaveTurns(t *testing.T) {
	t.Parallel()
	const threads, engines, turns = 4, 2, 1000
	s := testkit.Server(t)
	c := newContest(t, testkit.Single(s))
	j := newJava(t, s.Addr())
	ctx, stop := context.WithCancel(testkit.Within(t, limit))
	defer stop()
	var sides [2]atomic.Int64
	var all sync.WaitGroup
	over := func() bool { return sides[0].Load()+sides[1].Load() >= turns }
	for range threads {
		th := j.thread(t)
		all.Go(func() {
			for !over() {
				if err := th.lock(ctx); err != nil {
					t.Errorf("%s: %v", th.owner, err)
					return
				}
				if !c.inside.CompareAndSwap(0, 1) {
					t.Errorf("%s has the lock, and another, too", th.owner)
				}
				sides[0].Add(1)
				_, _ = s.Process.Do("PING")
				c.inside.Store(0)
				if err := th.unlock(); err != nil {
					t.Error(err)
				}
			}
			j.latch <- struct{}{} // a thread that waits need not wait for a message
		})
	}
	for _, e := range c.open(engines) {
		all.Go(func() {
			for !over() {
				if _, err := c.turn(ctx, e); err != nil {
					t.Errorf("%s: %v", e.ID(), err)
					return
				}
				sides[1].Add(1)
			}
		})
	}
	all.Wait()
	redisson, pawl := sides[0].Load(), sides[1].Load()
	t.Logf("Redisson had %d turns, Pawl %d", redisson, pawl)
	if min(redisson, pawl) < turns/6 { // a third to a half on a quiet machine
		t.Errorf("Redisson had %d turns, Pawl %d", redisson, pawl)
	}
	testkit.Eventually(t, "no key is left", func() bool { return s.Do("DBSIZE") == int64(0) })
}
