//go:build unix && !linux

package execlock

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopProcess stops this process, unless its group is the session's first: no shell
// could resume that.
func stopProcess(_ syscall.Signal, begun func() bool) {
	if !begun() {
		return
	}
	if sid, err := unix.Getsid(0); err == nil && sid != unix.Getpgrp() {
		_ = unix.Kill(unix.Getpid(), unix.SIGSTOP) // Go keeps others caught
	}
}

// Die ends this process by a signal, as the command ended: a shell that runs a script
// ends it too then. It returns if that is not possible: Go answers SIGQUIT in its
// own way.
func Die(s syscall.Signal) {
	if s == unix.SIGQUIT {
		return
	}
	signal.Reset(s)
	_ = unix.Kill(unix.Getpid(), s)
	select {} // it comes a moment later
}

// canBlock: inBackground works.
const canBlock = false

// inBackground runs f. Without libc Go cannot block a signal for one thread here.
func inBackground(f func()) { f() }

func inheritedIgnored(syscall.Signal) bool { return false }
