package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-lock/pawl/internal/cputime"
)

// asPID1 starts a command line as the first process of a PID namespace, as in a
// container.
func asPID1(t *testing.T, env []string, args ...string) *invocation {
	t.Helper()
	v := prepare(t, env, args...)
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID}
	if err := v.cmd.Start(); errors.Is(err, unix.EPERM) {
		t.Skipf("this user may not make a PID namespace: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // ends all of it
		if v.cmd.ProcessState == nil {
			_ = v.cmd.Process.Kill()
			_ = v.cmd.Wait()
		}
	})
	return v
}

// patiently has the lock outlast a process that starves for seconds, and a renewal find
// soon that it is gone.
func patiently(env []string) []string {
	return []string{strings.Replace(env[0], "lease=4s", "lease=6s", 1)}
}

// children returns the states of a process's children.
func children(pid int) (states []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		if _, after, ok := strings.Cut(string(stat), ") "); ok {
			if fields := strings.Fields(after); fields[1] == strconv.Itoa(pid) {
				states = append(states, fields[0])
			}
		}
	}
	return states
}

// Orphans of a container become children of PID 1.
func TestExecAsPID1LeavesNoZombies(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	v := asPID1(t, patiently(env), "exec", "a", "--grace", "20s", "--", "sh", "-c",
		`for i in 1 2 3 4 5; do (sh -c 'while [ ! -e `+dir+`/go ]; do sleep 0.02; done' &); done; echo up >`+dir+`/up; exec sleep 60`)
	started(t, dir+"/up")
	eventually(t, "the orphans are its children", func() bool { return len(children(v.cmd.Process.Pid)) == 6 })
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "only the command is left", func() bool { return len(children(v.cmd.Process.Pid)) == 1 })
	began := cputime.Now()
	s.Do("DEL", "a")
	v.wait(t).expect(t, 76, "code 143")
	quick(t, began, 10*time.Second, "ending a command that obeys")
}

// The kernel keeps PID 1 alive where a signal would end another process: Go exits with 2 then.
func TestExecAsPID1EndsOnASignalWhileItConnects(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	v := asPID1(t, nil, "exec", "a", "--addr", "redis://"+l.Addr().String()+"?dial_timeout=30s", "--", "true")
	silent, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 143, "pawl: ended by signal: terminated")
}

// So do children that it had before it was pawl. It looks after them while it waits
// for the lock, too.
func TestExecReapsWhileItWaits(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	hold(t, s.URL(), "a")
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/stay", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	v := prepare(t, env)
	v.cmd.Args = []string{"sh", "-c", `sh -c 'while [ -e ` + dir + `/stay ]; do sleep 0.02; done' & exec "$0" exec a -- true`, v.cmd.Path}
	v.cmd.Path = "/bin/sh"
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.cmd.Process.Kill(); _ = v.cmd.Wait() })
	someoneWaits(t, s)
	if n := len(children(v.cmd.Process.Pid)); n != 1 {
		t.Errorf("it has %d children, want the shell's", n)
	}
	if err := os.Remove(dir + "/stay"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has no children", func() bool { return len(children(v.cmd.Process.Pid)) == 0 })
	if !alive(v.cmd.Process.Pid) {
		t.Error("it has none because it has ended")
	}
}

// A zombie whose parent does not look after it belongs to the group as long as that
// parent lives. It does no work without the lock.
func TestExecDoesNotWaitForZombies(t *testing.T) {
	t.Parallel()
	s, env := server(t)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/stay", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// The parent of the loop becomes another program, in a session of its own. The loop
	// ends only then: a shell waits for what ends while it is one.
	v := start(t, patiently(env), "exec", "a", "--grace", "20s", "--", "sh", "-c",
		`(sh -c 'while [ -e `+dir+`/stay ]; do sleep 0.02; done' & echo $! >`+dir+`/zombie; exec setsid sh -c 'echo $$ >`+dir+`/parent; exec sleep 60 >/dev/null 2>&1') & trap 'exit 0' TERM; while :; do sleep 0.01; done`)
	parent, _ := strconv.Atoi(started(t, dir+"/parent"))
	t.Cleanup(func() { _ = syscall.Kill(parent, syscall.SIGKILL) })
	zombie := started(t, dir+"/zombie")
	eventually(t, "its parent is no shell", func() bool {
		comm, _ := os.ReadFile("/proc/" + strconv.Itoa(parent) + "/comm")
		return string(comm) == "sleep\n"
	})
	if err := os.Remove(dir + "/stay"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is a zombie", func() bool {
		stat, _ := os.ReadFile("/proc/" + zombie + "/stat")
		return strings.Contains(string(stat), ") Z ")
	})
	began := cputime.Now()
	s.Do("DEL", "a")
	if err := syscall.Kill(parent, 0); err != nil {
		t.Fatal(err)
	}
	v.wait(t).expect(t, 76, "code 0")
	quick(t, began, 10*time.Second, "ending a command that obeys")
}
