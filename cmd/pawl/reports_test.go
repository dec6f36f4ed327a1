package main

import (
	"strings"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// Waiters whom nobody tells sleep for the rest of the lease: the user learns why, once.
func TestReports_NoRightToPublish_SaysThatWaitersSleepOn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.User("bob on >w0nder ~* resetchannels &* +@all -publish"))
	env := []string{target.URLEnv + "=redis://bob:w0nder@" + s.Addr()}
	s.Do("HSET", "mutex", "somebody:1", "1")
	s.Do("HSET", "rw", "mode", "write", "somebody:1:write", "1")
	s.Do("HSET", "fair", "somebody:1", "1")
	s.Do("RPUSH", "redisson_lock_queue:{fair}", "somebody:2")
	s.Do("ZADD", "redisson_lock_timeout:{fair}", "922337203685477", "somebody:2")
	s.Do("SET", "permits", "1")
	s.Do("ZADD", "{permits}:timeout", "922337203685477", "fedcba9876543210", "922337203685477", "0123456789abcdef")
	for _, args := range []string{
		"unlock --force mutex", "unlock --force rw", "unlock --force fair", "unlock --force permits",
		"exec a -- true", "exec a --and b --kind write -- true", "exec s --kind semaphore --permits 2 -- true",
	} {
		v := pawl(t, env, strings.Fields(args)...)
		v.expect(t, 0, "pawl: released, but this user may not publish")
		if n := strings.Count(v.stderr.String(), "may not publish"); n != 1 {
			t.Errorf("%s: said %d times: %s", args, n, v.stderr.String())
		}
	}
	pawl(t, env, "exec", "a", "--", "sh", "-c", "exit 3").expect(t, 3, "may not publish")
	v := pawl(t, env, "status", "mutex")
	v.expect(t, 0, "mutex: free")
	if v.stderr.Len() > 0 {
		t.Errorf("status releases nothing: %s", v.stderr.String())
	}
}
