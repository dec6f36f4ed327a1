//go:build unix

package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/cmd/pawl/internal/target"
	"github.com/pawl-lock/pawl/engine"
	"github.com/pawl-lock/pawl/internal/execlock"
	"github.com/pawl-lock/pawl/internal/redistest"
)

// sort is a lock named "a", as somebody else takes it, and takes it away.
type sort struct {
	take  func(context.Context, *engine.Engine) error
	force func(context.Context, *redistest.Server, *engine.Engine) (bool, error)
}

var sorts = map[execlock.Kind]sort{
	execlock.Mutex:     sortOf(func(e *engine.Engine) engine.Mutex { return e.Mutex("a") }),
	execlock.Fair:      sortOf(func(e *engine.Engine) engine.Mutex { return e.FairMutex("a") }),
	execlock.Fenced:    sortOf(func(e *engine.Engine) engine.Mutex { return e.FencedMutex("a") }),
	execlock.Read:      sortOf(func(e *engine.Engine) engine.Mutex { return e.RWMutex("a").Reader() }),
	execlock.Write:     sortOf(func(e *engine.Engine) engine.Mutex { return e.RWMutex("a").Writer() }),
	execlock.Semaphore: {takePermit, forcePermit},
}

func sortOf(lock func(*engine.Engine) engine.Mutex) sort {
	take := func(ctx context.Context, e *engine.Engine) error {
		h, err := lock(e).TryLock(ctx)
		if err != nil {
			return err
		}
		return h.Unlock(ctx)
	}
	force := func(ctx context.Context, _ *redistest.Server, e *engine.Engine) (bool, error) {
		return lock(e).ForceUnlock(ctx)
	}
	return sort{take, force}
}

func takePermit(ctx context.Context, e *engine.Engine) error {
	h, err := e.PermitSemaphore("a").TryAcquire(ctx, 1)
	if err != nil {
		return err
	}
	return h.Unlock(ctx)
}

func forcePermit(ctx context.Context, s *redistest.Server, e *engine.Engine) (bool, error) {
	id, _ := s.Do("ZRANGE", "{a}:timeout", "0", "0").([]any)[0].(string)
	return e.PermitSemaphore("a").ForceRelease(ctx, hex.EncodeToString([]byte(id)))
}

// ofKind are the words of an exec that takes "a".
func ofKind(kind execlock.Kind, more ...string) []string {
	words := []string{"exec", "a", "--kind", string(kind)}
	if kind == execlock.Semaphore {
		words = append(words, "--permits", "1")
	}
	return append(words, more...)
}

// nothingLeft checks that the name is free, and that all permits have come back.
func nothingLeft(t *testing.T, s *redistest.Server, kind execlock.Kind) {
	t.Helper()
	if kind != execlock.Semaphore {
		free(t, s, "a")
		return
	}
	if n, ids := s.Do("GET", "a"), s.Do("ZCARD", "{a}:timeout"); n != "1" || ids != int64(0) {
		t.Errorf("%v permits are to be had and %v held, want 1 and none", n, ids)
	}
}

// What the command holds is what the server has, and keeps out whom it should.
func TestExecHoldsALockOfEachKind(t *testing.T) {
	t.Parallel()
	keepsOut := map[execlock.Kind][]execlock.Kind{
		execlock.Mutex:     {execlock.Mutex, execlock.Fenced},
		execlock.Fair:      {execlock.Fair},
		execlock.Fenced:    {execlock.Fenced, execlock.Mutex},
		execlock.Read:      {execlock.Write},
		execlock.Write:     {execlock.Write, execlock.Read},
		execlock.Semaphore: {execlock.Semaphore},
	}
	for _, name := range execlock.Kinds() {
		kind := execlock.Kind(name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, env := server(t)
			dir := t.TempDir()
			v := start(t, env, ofKind(kind, "--", "sh", "-c", `echo "$PAWL_LOCK_NAME" >`+dir+`/name; exec sleep 100`)...)
			if got := started(t, dir+"/name"); got != "a" {
				t.Errorf("PAWL_LOCK_NAME is %q", got)
			}
			for _, other := range keepsOut[kind] {
				if err := sorts[other].take(t.Context(), openEngine(t, s.URL())); !errors.Is(err, engine.ErrHeld) {
					t.Errorf("another's %s got it: %v", other, err)
				}
				pawl(t, env, ofKind(other, "--wait", "0s", "--", "echo", "ran")...).expect(t, exit.NotAcquired, "not acquired")
			}
			if kind == execlock.Read { // another reader gets in
				pawl(t, env, ofKind(kind, "--wait", "0s", "--", "echo", "ran")...).expect(t, 0, "ran")
			}
			if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			v.wait(t).expect(t, 128+15)
			nothingLeft(t, s, kind)
			pawl(t, env, ofKind(kind, "--wait", "0s", "--", "sh", "-c", "exit 3")...).expect(t, 3)
			nothingLeft(t, s, kind)
		})
	}
}

// Somebody takes it away: the command gets SIGTERM, whatever it held.
func TestLossOfALockOfEachKindEndsTheCommand(t *testing.T) {
	t.Parallel()
	for _, name := range execlock.Kinds() {
		kind := execlock.Kind(name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, env := server(t)
			dir := t.TempDir()
			v := start(t, env, ofKind(kind, "--", "sh", "-c", `trap 'echo told; exit 0' TERM; echo up >`+dir+`/up; while :; do sleep 0.01; done`)...)
			started(t, dir+"/up")
			if done, err := sorts[kind].force(t.Context(), s, openEngine(t, s.URL())); !done || err != nil {
				t.Fatalf("it was not taken away: %v, %v", done, err)
			}
			what := "lock"
			if kind == execlock.Semaphore {
				what = "semaphore"
			}
			v.wait(t).expect(t, exit.Lost, what+` "a" was lost`, "told", "ended with code 0")
			nothingLeft(t, s, kind)
		})
	}
}

// A signal while it waits leaves nothing behind.
func TestExecOfEachKindThatIsEndedWhileItWaits(t *testing.T) {
	t.Parallel()
	for _, name := range execlock.Kinds() {
		kind := execlock.Kind(name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, env := server(t)
			dir := t.TempDir()
			holder := kind
			if kind == execlock.Read {
				holder = execlock.Write
			}
			h := start(t, env, ofKind(holder, "--", "sh", "-c", `echo up >`+dir+`/up; exec sleep 100`)...)
			started(t, dir+"/up")
			v := start(t, env, ofKind(kind, "--", "echo", "ran")...)
			someoneWaits(t, s)
			if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if v.wait(t).expect(t, 128+15, "ended by signal"); v.stdout.Len() > 0 {
				t.Error("the command ran")
			}
			if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			h.wait(t).expect(t, 128+15)
			nothingLeft(t, s, kind)
			if n := s.Do("EXISTS", "redisson_lock_queue:{a}"); n != int64(0) {
				t.Error("somebody is left in the queue")
			}
		})
	}
}

func TestExecTellsTheCommandItsFencingToken(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	for want := 1; want <= 3; want++ {
		v := pawl(t, env, "exec", "a", "--kind", "fenced", "--", "sh", "-c", `echo "token $PAWL_TOKEN"`)
		v.expect(t, 0, "token "+strconv.Itoa(want)+"\n")
	}
	// A lock without a token has none, though the one around it has.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	v := pawl(t, env, "exec", "a", "--kind", "fenced", "--", "sh", "-c",
		`echo "$PAWL_LOCK_NAME has $PAWL_TOKEN"; exec "$0" exec b -- sh -c 'echo "$PAWL_LOCK_NAME has ${PAWL_TOKEN-none}"'`, self)
	v.expect(t, 0, "a has 4\nb has none\n")
}

// The first who says how many permits there are is heard, and no other.
func TestExecSharesPermits(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	var holders []*invocation
	for i := range 2 {
		up := fmt.Sprint(dir, "/", i)
		holders = append(holders, start(t, env, "exec", "a", "--kind", "semaphore", "--permits", strconv.Itoa(2+i), "--", "sh", "-c",
			`echo up >`+up+`; while [ -e `+up+` ]; do sleep 0.01; done; exit 5`))
		started(t, up)
	}
	pawl(t, env, "exec", "a", "--kind", "semaphore", "--permits", "9", "--wait", "0s", "--", "true").expect(t, exit.NotAcquired)
	next := start(t, env, "exec", "a", "--kind", "semaphore", "--", "echo", "ran")
	someoneWaits(t, s)
	remove(t, dir+"/0")
	next.wait(t).expect(t, 0, "ran")
	remove(t, dir+"/1")
	for _, v := range holders {
		v.wait(t).expect(t, 5)
	}
	if n, ids := s.Do("GET", "a"), s.Do("ZCARD", "{a}:timeout"); n != "2" || ids != int64(0) {
		t.Errorf("%v permits are to be had and %v held, want 2 and none", n, ids)
	}
}

// The lease of a permit is what a machine that dies gives it back with.
func TestPermitOfAnExecThatIsKilledComesBack(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	env = []string{strings.Replace(env[0], "lease=4s", "lease=6s", 1)} // the next process may be slow to start
	dir := t.TempDir()
	v := start(t, env, ofKind(execlock.Semaphore, "--", "sh", "-c", `echo up >`+dir+`/up; exec sleep 100`)...)
	started(t, dir+"/up")
	if err := v.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	v.wait(t)
	pawl(t, env, ofKind(execlock.Semaphore, "--wait", "0s", "--", "true")...).expect(t, exit.NotAcquired)
	pawl(t, env, ofKind(execlock.Semaphore, "--wait", "20s", "--", "echo", "ran")...).expect(t, 0, "ran")
}

// It would wait for ever, and say nothing.
func TestExecSaysThatASemaphoreHasNoPermits(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	pawl(t, env, "exec", "a", "--kind", "semaphore", "--wait", "1s", "--", "true").
		expect(t, exit.NotAcquired, `semaphore "a" not acquired`, `semaphore "a" has no permits: --permits says how many it has`)
	v := start(t, env, "exec", "a", "--kind", "semaphore", "--", "echo", "ran")
	someoneWaits(t, s)
	if err := openEngine(t, s.URL()).PermitSemaphore("a").SetPermits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 0, "ran")
}

func TestExecTakesSeveralLocksOfAKind(t *testing.T) {
	t.Parallel()
	for _, kind := range []execlock.Kind{execlock.Fair, execlock.Read, execlock.Write} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s, env := server(t)
			dir := t.TempDir()
			v := start(t, env, "exec", "b", "--and", "a", "--and", "b", "--kind", string(kind), "--", "sh", "-c", `echo up >`+dir+`/up; exec sleep 100`)
			started(t, dir+"/up")
			other := kind
			if kind == execlock.Read {
				other = execlock.Write
			}
			for _, name := range []string{"a", "b"} {
				pawl(t, env, "exec", name, "--kind", string(other), "--wait", "0s", "--", "true").expect(t, exit.NotAcquired)
			}
			if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			v.wait(t).expect(t, 128+15)
			free(t, s, "a")
			free(t, s, "b")
		})
	}
}

// Processes get a fair lock in the order in which they came.
func TestExecQueuesForAFairLock(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	h := start(t, env, "exec", "a", "--kind", "fair", "--", "sh", "-c", `echo up >`+dir+`/up; while [ -e `+dir+`/up ]; do sleep 0.01; done`)
	started(t, dir+"/up")
	var waiters []*invocation
	for i := range 3 {
		waiters = append(waiters, start(t, env, "exec", "a", "--kind", "fair", "--", "sh", "-c", fmt.Sprintf(`echo %d >>%s/order`, i, dir)))
		eventually(t, "it is in the queue", func() bool { return s.Do("LLEN", "redisson_lock_queue:{a}") == int64(i+1) })
	}
	remove(t, dir+"/up")
	for _, v := range append(waiters, h) {
		v.wait(t).expect(t, 0)
	}
	if got := strings.Fields(started(t, dir+"/order")); strings.Join(got, " ") != "0 1 2" {
		t.Errorf("they ran in the order %q", got)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// The commands find a lock of any kind, whichever server has it.
func TestLocksOfEveryKindOnEveryTopology(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"cluster":  func(t *testing.T) string { return redistest.StartCluster(t, false).URL() },
		"sentinel": func(t *testing.T) string { return redistest.StartSentinel(t).URL() },
		"valkey":   func(t *testing.T) string { return redistest.Start(t, redistest.OnValkey(t)).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{target.URLEnv + "=" + url(t) + "?lease=4s"}
			dir := t.TempDir()
			for kind, seen := range map[execlock.Kind]string{
				execlock.Fair: "locked (exclusive)", execlock.Fenced: "the last fencing token is 1",
				execlock.Read: "locked (read by 1)", execlock.Write: "locked (write)",
				execlock.Semaphore: "permits to be had: 0, taken: 1",
			} {
				job, up := "job-"+string(kind), dir+"/"+string(kind)
				args := []string{"exec", job, "--kind", string(kind)}
				if kind == execlock.Semaphore {
					args = append(args, "--permits", "1")
				}
				v := start(t, env, append(args, "--", "sh", "-c", `echo up >`+up+`; exec sleep 100`)...)
				started(t, up)
				pawl(t, env, "status", job).expect(t, 0, seen)
				pawl(t, env, "unlock", "--force", job).expect(t, 0, job+": ")
				v.wait(t).expect(t, exit.Lost, "was lost")
			}
		})
	}
}
