//go:build unix

package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-lock/pawl/internal/redistest"
)

// free checks that nobody holds the lock.
func free(t *testing.T, s *redistest.Server, name string) {
	t.Helper()
	if n := s.Do("EXISTS", name); n != int64(0) {
		t.Errorf("the lock %s is held", name)
	}
}

// started waits for a file that a command makes, and returns what is in it.
func started(t *testing.T, path string) string {
	t.Helper()
	var content []byte
	eventually(t, path+" is written", func() bool {
		content, _ = os.ReadFile(path)
		return strings.HasSuffix(string(content), "\n")
	})
	return strings.TrimSpace(string(content))
}

// alive reports whether a process lives. One that is dead and not waited for is not
// alive: in a container nobody may do that.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil { // there is no /proc, or a zombie has been waited for since
		return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	return !strings.Contains(string(stat), ") Z ")
}

// died returns the signal that ended the process itself, 0 if it exited.
func (v *invocation) died() syscall.Signal {
	if status := v.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return status.Signal()
	}
	return 0
}

func TestExecPassesTheExitCodeOn(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	pawl(t, env, "exec", "a", "--", "true").expect(t, 0)
	pawl(t, env, "exec", "a", "--", "sh", "-c", "exit 7").expect(t, 7)
	pawl(t, env, "exec", "a", "--", "sh", "-c", "kill -KILL $$").expect(t, 128+9)
	pawl(t, env, "exec", "a", "--", "sh", "-c", "kill -TERM $$").expect(t, 128+15)
	free(t, s, "a")
}

func TestExecHoldsTheLockWhileTheCommandRuns(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	v := prepare(t, env, "exec", "a name", "--", "sh", "-c",
		`echo "$PAWL_LOCK_NAME" >`+dir+`/name; read line; echo "read $line"`)
	in, err := v.cmd.StdinPipe() // the command's streams are pawl's
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := started(t, dir+"/name"); got != "a name" {
		t.Errorf("PAWL_LOCK_NAME is %q", got)
	}
	if n := s.Do("HLEN", "a name"); n != int64(1) {
		t.Errorf("%v holders", n)
	}
	if _, err := io.WriteString(in, "a line\n"); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 0, "read a line\n")
	free(t, s, "a name")
}

func TestExecRenewsForAsLongAsTheCommandTakes(t *testing.T) {
	t.Parallel()
	s, env := server(t) // a lease of 2 s
	pawl(t, env, "exec", "a", "--", "sleep", "5").expect(t, 0)
	free(t, s, "a")
}

func TestExecDoesNotRunTheCommandWithoutTheLock(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	h := hold(t, s.URL(), "a")
	for _, c := range []struct {
		flags string
		code  int
	}{
		{"--wait 0s", 75},
		{"--wait 2s", 75},
		{"--wait 2s --lease 5s", 75},
		{"--wait 0s --conflict-exit-code 3", 3},
	} {
		args := append([]string{"exec", "a"}, strings.Fields(c.flags)...)
		v := pawl(t, env, append(args, "--", "echo", "ran")...)
		v.expect(t, c.code, `lock "a" not acquired`)
		if v.stdout.Len() > 0 {
			t.Errorf("%s: the command ran", c.flags)
		}
	}
	v := pawl(t, env, "exec", "a", "--wait", "0s", "--conflict-exit-code", "0", "--", "echo", "ran")
	if v.expect(t, 0); v.stdout.Len()+v.stderr.Len() > 0 {
		t.Errorf("said %q %q", v.stdout.String(), v.stderr.String())
	}
	waiting := start(t, env, "exec", "a", "--", "echo", "ran at last")
	someoneWaits(t, s)
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting.wait(t).expect(t, 0, "ran at last")
}

func TestExecKeepsTheLockForMinHold(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	pawl(t, env, "exec", "a", "--lease", "1m", "--min-hold", "30s", "--", "true").expect(t, 0)
	if ttl, _ := s.Do("PTTL", "a").(int64); ttl < 15000 || ttl > 30000 {
		t.Errorf("the lock lasts %d ms more, want nearly 30000", ttl)
	}
}

func TestExecPassesSignalsToTheWholeGroup(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	for _, sig := range []syscall.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			name, number := "lock-"+strconv.Itoa(int(sig)), strconv.Itoa(int(sig))
			dir := t.TempDir()
			// The grandchild is told too. The release comes after the command's end, for
			// which it takes its time. (A shell ignores Ctrl-C in what it runs in the
			// background, so the grandchild runs in the foreground. If this test fails, it
			// ends with the directory.)
			v := start(t, env, "exec", name, "--", "sh", "-c", `cd `+dir+`
				trap 'while [ ! -e go ]; do sleep 0.01; done; exit 5' `+number+`
				sh -c 'trap "echo told >grandchild; exit" `+number+`; echo up >up; while [ -e up ]; do sleep 0.01; done'
				exit 6`)
			started(t, dir+"/up")
			if err := v.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			started(t, dir+"/grandchild")
			if n := s.Do("HLEN", name); n != int64(1) {
				t.Error("the lock was released before the command had ended")
			}
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			v.wait(t).expect(t, 5)
			free(t, s, name)
		})
	}
}

func TestExecEndsOnASignalWhileItWaits(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	hold(t, s.URL(), "a")
	v := start(t, env, "exec", "a", "--", "echo", "ran")
	someoneWaits(t, s)
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 128+15, "ended by signal")
	if v.stdout.Len() > 0 {
		t.Error("the command ran")
	}
}

func TestExecLeavesIgnoredSignalsIgnored(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	dir := t.TempDir()
	// As under nohup.
	v := prepare(t, env)
	v.cmd.Args = []string{"sh", "-c", `trap "" HUP; exec "$0" exec a -- sh -c 'echo up >` + dir + `/up; sleep 1'`, v.cmd.Path}
	v.cmd.Path = "/bin/sh"
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started(t, dir+"/up")
	if err := v.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 0)
}

func TestExecEndsTheCommandWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*testing.T, *redistest.Server, []string){
		"removed by hand": func(t *testing.T, s *redistest.Server, _ []string) { s.Do("DEL", "a") },
		"force-unlocked": func(t *testing.T, _ *redistest.Server, env []string) {
			pawl(t, env, "unlock", "--force", "a").expect(t, 0, "a: removed")
		},
		"overwritten":    func(t *testing.T, s *redistest.Server, _ []string) { s.Do("SET", "a", "string") },
		"server stopped": func(t *testing.T, s *redistest.Server, _ []string) { s.Stop() },
		"server killed":  func(t *testing.T, s *redistest.Server, _ []string) { s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, env := server(t)
			env[0] += "&close_timeout=500ms"
			dir := t.TempDir()
			v := start(t, env, "exec", "a", "--", "sh", "-c",
				`trap 'echo told; exit 0' TERM; echo up >`+dir+`/up; while :; do sleep 0.01; done`)
			started(t, dir+"/up")
			lose(t, s, env)
			v.wait(t).expect(t, 76, `lock "a" was lost`, "told", "ended with code 0")
		})
	}
}

func TestExecKillsACommandThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	v := start(t, env, "exec", "a", "--grace", "100ms", "--", "sh", "-c",
		`trap '' TERM; sleep 60 & echo $! >`+dir+`/pid; wait; sleep 60`)
	pid, err := strconv.Atoi(started(t, dir+"/pid"))
	if err != nil {
		t.Fatal(err)
	}
	s.Do("DEL", "a")
	v.wait(t).expect(t, 76, "did not end within 100ms", "code 137")
	eventually(t, "what it started is dead", func() bool { return !alive(pid) })
}

// The command ends when it is asked to, and leaves behind what does not.
func TestExecKillsWhatAnObedientCommandLeavesBehind(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	v := start(t, env, "exec", "a", "--grace", "2s", "--", "sh", "-c",
		`sh -c 'trap "" TERM; echo $$ >`+dir+`/pid; while :; do sleep 0.01; done' & trap 'exit 0' TERM; echo up >`+dir+`/up; while :; do sleep 0.01; done`)
	pid, err := strconv.Atoi(started(t, dir+"/pid"))
	if err != nil {
		t.Fatal(err)
	}
	started(t, dir+"/up") // it obeys by now
	s.Do("DEL", "a")
	v.wait(t).expect(t, 76, "code 0")
	eventually(t, "what it started is dead", func() bool { return !alive(pid) })
}

func TestExecWakesAStoppedCommandToEndIt(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	v := start(t, env, "exec", "a", "--grace", "50s", "--", "sh", "-c",
		`trap 'exit 0' TERM; echo up >`+dir+`/up; kill -STOP $$; while :; do sleep 0.01; done`)
	started(t, dir+"/up")
	s.Do("DEL", "a")
	v.wait(t).expect(t, 76, "code 0")
}

func TestExec_OnLostIgnore_LetsTheCommandGoOn(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	said, err := os.Create(dir + "/stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	v := prepare(t, env, "exec", "a", "--on-lost", "ignore", "--", "sh", "-c",
		`echo up >`+dir+`/up; while [ ! -e `+dir+`/go ]; do sleep 0.01; done; exit 3`)
	v.cmd.Stderr = said
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started(t, dir+"/up")
	s.Do("DEL", "a")
	eventually(t, "the loss is reported", func() bool {
		text, err := os.ReadFile(said.Name())
		return err == nil && strings.Contains(string(text), `lock "a" was lost: the server does not have it any more; the command goes on`)
	})
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 3)
}

// Nobody knew that the lock was gone until it was released.
func TestExecReportsALossThatTheReleaseFinds(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	long := []string{strings.Replace(env[0], "lease=4s", "lease=1m", 1)}
	for flag, code := range map[string]int{"term": 76, "ignore": 4} {
		dir := t.TempDir()
		v := start(t, long, "exec", "a", "--on-lost", flag, "--", "sh", "-c",
			`echo up >`+dir+`/up; while [ ! -e `+dir+`/go ]; do sleep 0.01; done; exit 4`)
		started(t, dir+"/up")
		s.Do("DEL", "a")
		if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		v.wait(t).expect(t, code, `lock "a" was lost`)
	}
}

// The work is done: it is no failure that the server cannot be told.
func TestExecPassesTheCodeOnIfTheReleaseFails(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	long := []string{strings.Replace(env[0], "lease=4s", "lease=1m&close_timeout=200ms", 1)}
	dir := t.TempDir()
	v := start(t, long, "exec", "a", "--", "sh", "-c",
		`echo up >`+dir+`/up; while [ ! -e `+dir+`/go ]; do sleep 0.01; done; exit 4`)
	started(t, dir+"/up")
	s.Stop()
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 4, "ends with its lease")
}

func TestExecEndsAFixedLeaseAndMaxHold(t *testing.T) {
	t.Parallel()
	_, env := server(t)
	for flag, why := range map[string]string{"--lease": "its lease ended", "--max-hold": "maximal hold time"} {
		v := pawl(t, env, "exec", "a"+flag, flag, "500ms", "--", "sleep", "30")
		v.expect(t, 76, why, "code 143")
	}
}
