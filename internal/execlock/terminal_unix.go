//go:build unix

package execlock

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is the standard input, if that is a terminal. Only the group in its
// foreground may read it, and Ctrl-C and Ctrl-Z reach only that one: so the command's
// group is put there, and ours again when it has ended.
type terminal struct {
	fd     int
	exists bool
}

// prepare has the command begin in the foreground if this process is there.
func (t *terminal) prepare(attr *syscall.SysProcAttr) {
	t.fd = int(os.Stdin.Fd())
	front, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	t.exists = err == nil
	if t.exists && front == unix.Getpgrp() {
		attr.Foreground, attr.Ctty = true, t.fd
	}
}

// started comes after the start, or its failure: what is ignored is inherited.
func (t *terminal) started(attr *syscall.SysProcAttr, err error) {
	if !t.exists {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // which stops who changes the foreground from behind
	if err != nil && attr.Foreground {
		// It may have gone there before it failed.
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, unix.Getpgrp())
		signal.Reset(syscall.SIGTTOU)
	}
}

// give hands the foreground from one group to another. If neither has it, it belongs
// to another job, which keeps it.
func (t *terminal) give(from, to int) {
	if front, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err == nil && front == from {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, to)
	}
}

// suspended reacts to a command that was stopped (by Ctrl-Z, or for reading from the
// background): this process stops itself too, so that the shell notices, takes the
// terminal, and can let the job go on. It returns true when the command shall go on.
// Meanwhile the lock is not renewed and may be lost; then the command is ended as
// soon as both go on.
func (t *terminal) suspended(group int) bool {
	if !t.exists {
		return false // somebody else's affair
	}
	_ = unix.Kill(0, unix.SIGTSTP)
	// The stop comes a moment after the call, on whichever thread; without a shell
	// that could let us go on it does not come, and Ctrl-Z has no effect.
	time.Sleep(50 * time.Millisecond)
	t.give(unix.Getpgrp(), group)
	return true
}

// close takes the terminal back.
func (t *terminal) close(group int) {
	if t.exists {
		t.give(group, unix.Getpgrp())
		signal.Reset(syscall.SIGTTOU)
	}
}
