//go:build unix

package main

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/execlock"
	"github.com/pawl-lock/pawl/internal/faultproxy"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// An outage that begins once pawl is connected ends no waiting, whether the server refuses or is
// silent: also while it is being said how many permits there are.
func TestExecWaitsThroughAnOutageToSayHowManyPermitsThereAre(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	s := redistest.Start(t)
	env := []string{target.URLEnv + "=" + s.URL() + "?command_timeout=" + timeout.String()}
	s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	v := start(t, env, ofKind(execlock.Semaphore, "--", "echo", "ran")...)
	tries := func() int64 { return s.CommandStats()["eval"] + s.CommandStats()["evalsha"] }
	eventually(t, "it goes on trying", func() bool { return tries() > 20 }) // six fit into the timeout
	s.Stop()
	<-time.After(2 * timeout) // that long it is silent
	s.Cont()
	s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	v.wait(t).expect(t, 0, "ran")
	nothingLeft(t, s, execlock.Semaphore)
}

// One try is for one answer, of a permit as of a lock: a server that refuses everything for now is waited
// for up to Config.CommandTimeout, and the end says how it refused.
func TestExec_TriesOnceWhileTheServerRefuses_SaysSoAfterCommandTimeout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	env := []string{target.URLEnv + "=" + s.URL() + "?command_timeout=500ms"}
	s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	for _, kind := range []execlock.Kind{execlock.Mutex, execlock.Semaphore} {
		pawl(t, env, ofKind(kind, "--wait", "0", "--", "true")...).expect(t, exit.Server, "not acquired", "NOREPLICAS")
	}
	s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	pawl(t, env, ofKind(execlock.Semaphore, "--wait", "0", "--", "echo", "ran")...).expect(t, 0, "ran")
}

// Nobody else has the permit, so that is no conflict; and the advice is a flag, not a method.
func TestExec_TriesOnceForAPermitOfAnUnsetSemaphore_SaysGivePermits(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	for _, args := range [][]string{nil, {"--conflict-exit-code", "0"}, {"--conflict-exit-code", "7"}} {
		v := pawl(t, env, append(append([]string{"exec", "a", "--kind", "semaphore", "--wait", "0"}, args...), "--", "true")...)
		v.expect(t, exit.NotAcquired, `semaphore "a" not acquired`, "give --permits")
		if said := v.stderr.String(); strings.Contains(said, "SetPermits") || strings.Count(said, "\n") != 1 {
			t.Errorf("%q", said)
		}
	}
}

// Cron starts a job on three machines at the same time, and none has said yet how many permits there are.
// All three get one.
func TestExecsThatTryOnceAtTheSameTimeAllGetAPermit(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := faultproxy.New(t, "tcp", s.Addr())
	proxy.Delay(faultproxy.All, 0, 50*time.Millisecond) // each asks before the others are answered
	env := []string{target.URLEnv + "=redis://" + proxy.Addr()}
	for range 3 {
		s.Do("FLUSHALL")
		var all []*invocation
		for range 3 {
			all = append(all, start(t, env, "exec", "a", "--kind", "semaphore", "--permits", "3", "--wait", "0", "--", "echo", "ran"))
		}
		for _, v := range all {
			v.wait(t).expect(t, 0, "ran")
		}
	}
}

// With the server's data the number of permits is gone. A waiter says it again, and does not
// wait for ever.
func TestExecGetsAPermitAfterTheServerHasLostItsData(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	h := start(t, env, ofKind(execlock.Semaphore, "--on-lost", "ignore", "--", "sh", "-c", `echo up >`+dir+`/up; while [ -e `+dir+`/up ]; do sleep 0.01; done`)...)
	started(t, dir+"/up")
	v := start(t, env, ofKind(execlock.Semaphore, "--", "echo", "ran")...)
	someoneWaits(t, s)
	s.Do("FLUSHALL")
	v.wait(t).expect(t, 0, "ran")
	remove(t, dir+"/up")
	h.wait(t).expect(t, 0)
	nothingLeft(t, s, execlock.Semaphore)
}

// Whoever does not say how many there are is told when there are none any more.
func TestExecThatWaitsSaysThatASemaphoreHasLostItsPermits(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	must(openEngine(t, s.URL()).PermitSemaphore("a").TrySetPermits(t.Context(), 1))(t)
	must(openEngine(t, s.URL()).PermitSemaphore("a").TryAcquire(t.Context(), 1))(t)
	v := prepare(t, env, "exec", "a", "--kind", "semaphore", "--", "echo", "ran")
	v.cmd.Stderr = nil
	said := must(v.cmd.StderrPipe())(t)
	must(0, v.cmd.Start())(t)
	someoneWaits(t, s)
	s.Do("FLUSHALL")
	line := must(bufio.NewReader(said).ReadString('\n'))(t)
	if !strings.Contains(line, `semaphore "a" has no permits`) {
		t.Errorf("it said %q", line)
	}
	must(0, openEngine(t, s.URL()).PermitSemaphore("a").SetPermits(t.Context(), 1))(t)
	v.wait(t).expect(t, 0, "ran")
}
