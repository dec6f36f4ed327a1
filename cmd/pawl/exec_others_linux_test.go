package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-lock/pawl/internal/cputime"
)

// groupsOfTheirOwn are commands whose work is done in another process group than
// theirs. $work is a shell script.
var groupsOfTheirOwn = map[string]string{
	"timeout":      `sh -c 'timeout 60 sh "$work"; echo over'`,
	"nested pawl":  `"$pawl" exec inner --grace 60s -- sh -c 'sh "$work"; echo over'`,
	"shell's jobs": `bash -c 'set -m; sh "$work" & wait; echo over'`,
	// With exec: dash starts a command with vfork, and a Ctrl-Z just then stops the child and
	// leaves dash waiting for it, unstoppable, as in any shell.
	"an orphan": `sh -c '(timeout 60 sh "$work" &); exec sleep 60'`,
}

// beginOthers runs a command, and returns the pid of its work.
func beginOthers(t *testing.T, env []string, command, work string) (term *terminal, pid int) {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash, which runs jobs in groups of their own")
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/work", []byte(work), 0o600); err != nil {
		t.Fatal(err)
	}
	term = onTerminal(t, append(env, "dir="+dir, "work="+dir+"/work"), "/bin/bash", "-c", `set -m
		"$pawl" exec a --grace "$grace" -- `+command+` </dev/null
		echo "ended with $?"; read x; fg; echo "then with $?"`)
	t.Cleanup(func() {
		_ = term.v.cmd.Process.Kill()
		_ = term.v.cmd.Wait()
	})
	pid, err := strconv.Atoi(started(t, dir+"/pid"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return term, pid
}

// It would do the work of somebody else's lock.
func TestLostLockEndsWhatTheCommandRunsInOtherGroups(t *testing.T) {
	t.Parallel()
	for name, command := range groupsOfTheirOwn {
		for kind, c := range map[string]struct{ trap, grace string }{
			"obeys": {"", "5m"}, "is stubborn": {"trap '' TERM HUP", "300ms"},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				s, env := server(t)
				term, pid := beginOthers(t, append(env, "grace="+c.grace), command, c.trap+"\necho $$ >$dir/pid; exec sleep 60")
				s.Do("DEL", "a")
				term.awaitText("ended with 76")
				if alive(pid) {
					t.Error("it works without the lock")
				}
			})
		}
	}
}

// What gets SIGKILL takes a moment to end, longer if it has much memory to give back.
func TestLostLockIsOverWhenWhatWasKilledHasEnded(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	term, pid := beginOthers(t, append(env, "grace=1s"), groupsOfTheirOwn["an orphan"], `trap '' TERM HUP
		mkfifo $dir/fifo; exec 3<>$dir/fifo; echo $$ >$dir/pid
		exec dd if=/dev/zero bs=256M count=1 >&3 2>&3`)
	s.Do("DEL", "a")
	term.awaitText("ended with 76")
	if alive(pid) {
		t.Error("it works without the lock")
	}
}

// A script may have jobs of its own when it becomes pawl.
func TestLostLockDoesNotEndWhatTheCommandDidNotStart(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash, which runs jobs in groups of their own")
	}
	s, env := server(t)
	dir := t.TempDir()
	v := prepare(t, append(env, "dir="+dir))
	v.cmd.Args = []string{bash, "-c", `set -m
		sh -c 'sleep 60 >/dev/null 2>&1 & echo $! >$dir/job; until [ -e $dir/lost ]; do sleep 0.01; done; touch $dir/orphan' &
		exec "$0" exec a --grace 2s -- sh -c 'trap "touch $dir/lost; until [ -e $dir/orphan ]; do sleep 0.01; done; sleep 0.2; exit" TERM
			echo up >$dir/up; while :; do sleep 0.01; done'`, v.cmd.Path}
	v.cmd.Path = bash
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if v.cmd.ProcessState == nil {
			_ = v.cmd.Process.Kill()
			_ = v.cmd.Wait()
		}
	})
	job, _ := strconv.Atoi(started(t, dir+"/job"))
	t.Cleanup(func() { _ = syscall.Kill(job, syscall.SIGKILL) })
	started(t, dir+"/up")
	s.Do("DEL", "a")
	v.wait(t).expect(t, 76, "lost")
	if !alive(job) {
		t.Error("a job of the script was killed")
	}
}

// Nobody renews the lock while pawl is stopped.
func TestSuspendedJobRestsInOtherGroupsToo(t *testing.T) {
	t.Parallel()
	for name, command := range groupsOfTheirOwn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, env := server(t)
			env = []string{strings.Replace(env[0], "lease=4s", "lease=1m", 1), "grace=1m"}
			term, pid := beginOthers(t, env, command, `echo $$ >$dir/pid; exec sleep 60`)
			term.typeKeys("\x1a")
			term.awaitText("ended with 1")
			for deadline := cputime.Now(); state(pid) != "T"; time.Sleep(5 * time.Millisecond) {
				if deadline.Elapsed() > time.Second {
					t.Fatalf("it is %s, and works without the lock", state(pid))
				}
			}
			term.typeKeys("\n")
			eventually(t, "it goes on", func() bool { return state(pid) != "T" })
		})
	}
}

// state is a process's, as R, S, T or Z; "" if there is none.
func state(pid int) string {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(after, " ")
	return state
}
