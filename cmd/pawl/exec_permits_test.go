//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/internal/execlock"
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
	time.Sleep(2 * timeout) // that long the outage lasts
	s.Cont()
	s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	v.wait(t).expect(t, 0, "ran")
	nothingLeft(t, s, execlock.Semaphore)
}

// One try for a permit is over as soon as the server refuses it, as for a lock.
func TestExecThatTriesOnceForAPermitIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	env := []string{target.URLEnv + "=" + s.URL() + "?command_timeout=1h"}
	s.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	for _, kind := range []execlock.Kind{execlock.Mutex, execlock.Semaphore} {
		pawl(t, env, ofKind(kind, "--wait", "0", "--", "true")...).expect(t, exit.Server, "not acquired", "NOREPLICAS")
	}
	s.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	pawl(t, env, ofKind(execlock.Semaphore, "--wait", "0", "--", "echo", "ran")...).expect(t, 0, "ran")
}
