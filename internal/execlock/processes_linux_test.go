package execlock

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	for stat, want := range map[string]process{
		"12 (sleep) S 1 34 5 0":         {12, 1, 34, 5, 'S'},
		"12 (a) Z 9 (b) T 1 34 5":       {12, 1, 34, 5, 'T'},
		"12 (trap ) Z 1 7 ) Z 1 34 5 0": {12, 1, 34, 5, 'Z'},
		"12 (sleep) S 1 34":             {},
		"12 (sleep) S one 34 5":         {},
		"":                              {},
	} {
		got, ok := parseStat(stat)
		if ok != (want.pid != 0) || ok && got != want {
			t.Errorf("%q: %v, %v", stat, got, ok)
		}
	}
}

func TestProcessesKnowTheirDescent(t *testing.T) {
	t.Parallel()
	if _, known := processes(); !known {
		t.Skip("there is no /proc of this PID namespace")
	}
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
