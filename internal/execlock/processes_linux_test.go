package execlock

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-lock/pawl/internal/cputime"
)

func init() { helpers["headless"] = endMainThread }

// endMainThread ends this process's first thread, and lives on for a while.
func endMainThread() {
	for range 100 {
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() == os.Getpid() {
				_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
			}
			select {} // with this thread, so that another goroutine gets the first one
		}()
		time.Sleep(10 * time.Millisecond) // for the goroutine to get the first thread; if not, another one tries
	}
	<-time.After(time.Minute)
}

// The kernel calls it a zombie. pawl would end while it works without the lock.
func TestProcesses_FirstThreadEnded_Lives(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=headless")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	headless := func() bool {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/stat")
		return bytes.Contains(stat, []byte(") Z "))
	}
	for began := cputime.Now(); !headless(); time.Sleep(5 * time.Millisecond) {
		if began.Elapsed() > 10*time.Second {
			t.Fatal("its first thread does not end")
		}
	}
	own := group{id: cmd.Process.Pid, ended: true} // as if another process had led it
	if !own.ownRemains() {
		t.Error("it is not waited for")
	}
	_ = cmd.Process.Kill()
	for began := cputime.Now(); own.ownRemains(); time.Sleep(5 * time.Millisecond) {
		if began.Elapsed() > 10*time.Second {
			t.Fatal("it lives as a zombie without threads")
		}
	}
}

func TestParseStat_Lines_AreRead(t *testing.T) {
	t.Parallel()
	const rest = " 0 -1 4194560 110 0 0 0 1 2 0 0 20 0 3 0 1234 5678"
	for stat, want := range map[string]process{
		"12 (sleep) S 1 34 5" + rest:         {12, 1, 34, 5, 3, 'S'},
		"12 (a) Z 9 (b) T 1 34 5" + rest:     {12, 1, 34, 5, 3, 'T'},
		"12 (trap ) Z 1 7 ) Z 1 34 5" + rest: {12, 1, 34, 5, 3, 'Z'},
		"12 (sleep) S 1 34":                  {},
		"12 (sleep) S one 34 5" + rest:       {},
		"":                                   {},
	} {
		got, ok := parseStat(stat)
		if ok != (want.pid != 0) || ok && got != want {
			t.Errorf("%q: %v, %v", stat, got, ok)
		}
	}
}

// needsProc skips where /proc is missing or of another PID namespace, as in some containers.
func needsProc(t *testing.T) {
	t.Helper()
	self, err := os.Readlink("/proc/self")
	if err != nil || self != strconv.Itoa(os.Getpid()) {
		t.Skipf("there is no /proc of this PID namespace: /proc/self is %q, %v", self, err)
	}
	if _, known := processes(); !known {
		t.Fatal("there is a /proc of this PID namespace, and it is not read")
	}
}

func TestProcesses_Descent_IsKnown(t *testing.T) {
	t.Parallel()
	needsProc(t)
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	all, _ := members(group)
	if len(all) != 1 || all[0].pid != group || all[0].parent != os.Getpid() || all[0].zombie() || all[0].stopped() {
		t.Errorf("%+v", all)
	}
	if !isOurs(group) {
		t.Error("a child's group is not ours")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if isOurs(group) {
		t.Error("an ended child's group is ours")
	}
	if isOurs(1) {
		t.Error("the first process's group is ours")
	}
	if own, _ := members(unix.Getpgrp()); len(own) == 0 {
		t.Error("our own group has no members")
	}
}
