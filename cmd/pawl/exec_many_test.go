//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-lock/pawl/cmd/pawl/internal/exit"
	"github.com/pawl-lock/pawl/internal/execlock"
)

func TestExecHoldsAllLocksWhileTheCommandRuns(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	v := start(t, env, "exec", "b", "--and", "a c", "--and", "b", "--", "sh", "-c", `echo "$PAWL_LOCK_NAME" >`+dir+`/names; exec sleep 100`)
	if got := started(t, dir+"/names"); got != "b\na c\nb" {
		t.Errorf("PAWL_LOCK_NAME is %q", got)
	}
	for _, name := range []string{"b", "a c"} {
		if n := s.Do("HLEN", name); n != int64(1) {
			t.Errorf("%s: %v holders", name, n)
		}
	}
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 128+15)
	free(t, s, "b")
	free(t, s, "a c")
}

// While one is held by somebody else, no other is kept, and the error names that one.
func TestExecTakesAllLocksOrNone(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	h := hold(t, s.URL(), "m")
	for _, wait := range []string{"0s", "3s"} {
		v := pawl(t, env, "exec", "a", "--and", "m", "--and", "z", "--wait", wait, "--", "echo", "ran")
		if v.expect(t, 75, `lock "m" not acquired`); v.stdout.Len() > 0 {
			t.Error("the command ran")
		}
		free(t, s, "a")
		free(t, s, "z")
	}
	v := start(t, env, "exec", "a", "--and", "m", "--and", "z", "--", "echo", "ran at last")
	someoneWaits(t, s)
	eventually(t, "it keeps no other", func() bool { return s.Do("EXISTS", "a", "z") == int64(0) })
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 0, "ran at last")
	for _, name := range []string{"a", "m", "z"} {
		free(t, s, name)
	}
}

func TestLossOfOneLockEndsTheCommand(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	v := start(t, env, "exec", "a", "--and", "b", "--", "sh", "-c", `echo up >`+dir+`/up; exec sleep 100`)
	started(t, dir+"/up")
	pawl(t, env, "unlock", "--force", "b").expect(t, 0)
	v.wait(t).expect(t, 76, `lock "b"`, "SIGTERM")
	free(t, s, "a")
}

// A signal while it waits leaves nothing behind.
func TestExecOfSeveralLocksThatIsEndedWhileItWaits(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	hold(t, s.URL(), "m")
	v := start(t, env, "exec", "a", "--and", "m", "--", "echo", "ran")
	someoneWaits(t, s)
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 128+15, "ended by signal")
	free(t, s, "a")
}

func TestMinHoldOfSeveralLocksIsRefused(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	pawl(t, env, "exec", "a", "--and", "b", "--min-hold", "5s", "--", "true").expect(t, exit.Usage, "--min-hold goes with one name")
	pawl(t, env, "exec", "a", "--and", "", "--", "true").expect(t, exit.Usage, "name of the lock is missing")
	free(t, s, "a")
}

// The command would not start: better to say so before the locks are taken.
func TestExec_MoreNamesThanTheEnvironmentHolds_Refuses(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	args := []string{"exec", strings.Repeat("x", execlock.MaxNames%100)}
	for i := range execlock.MaxNames / 100 {
		args = append(args, "--and", fmt.Sprintf("%099d", i))
	}
	pawl(t, env, append(args, "--", "sh", "-c", `echo "$PAWL_LOCK_NAME" | wc -c`)...).expect(t, 0, fmt.Sprint(execlock.MaxNames+1))
	args[1] += "x"
	pawl(t, env, append(args, "--", "echo", "ran")...).expect(t, exit.Usage, "$PAWL_LOCK_NAME")
	if n := s.Do("DBSIZE"); n != int64(0) {
		t.Errorf("%v locks are left", n)
	}
}

func TestStatusOfSeveralLocks(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	h := hold(t, s.URL(), "b")
	v := pawl(t, env, "status", "c", "b", "a")
	v.expect(t, 0)
	if got, want := v.stdout.String(), "c: free\nb: locked (exclusive), its lease ends in "; !strings.HasPrefix(got, want) ||
		!strings.HasSuffix(got, "holder "+h.Owner()+", count 1\na: free\n") {
		t.Errorf("%s", got)
	}
	v = pawl(t, env, "status", "c", "b", "--format", "json")
	v.expect(t, 0)
	var list []struct {
		Name   string
		Locked bool
	}
	if err := json.Unmarshal(v.stdout.Bytes(), &list); err != nil || len(list) != 2 || list[0].Name != "c" || list[0].Locked || list[1].Name != "b" || !list[1].Locked {
		t.Errorf("%v %+v", err, list)
	}
	pawl(t, env, "status", "--quiet", "c", "b").expect(t, 0)
	pawl(t, env, "status", "--quiet", "c", "a").expect(t, 1)
	pawl(t, env, "status", "c", "").expect(t, exit.Usage, "name of the lock is missing")
}
