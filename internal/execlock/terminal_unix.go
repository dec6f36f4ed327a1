//go:build unix

package execlock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the one that controls this process, wherever its streams lead, if there
// is one.
type terminal struct {
	file *os.File
	lent bool // its foreground, to the command's group
	// modes and theirs are those of our job and of the command, kept while the other has
	// the terminal; nil: not known.
	modes, theirs *term.State
}

func (t *terminal) open() {
	t.file, _ = os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0) // ENXIO: none
}

func (t *terminal) close() {
	if t.file != nil {
		t.file.Close()
	}
}

func (t *terminal) exists() bool { return t.front() > 0 }

// front is the process group in the foreground, -1 if nobody can say.
func (t *terminal) front() int {
	if t.file == nil {
		return -1
	}
	front, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return front
}

func (t *terminal) setFront(group int) (err error) {
	inBackground(func() { err = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) })
	return err
}

// lend puts the command's group into the foreground, if it is our job's.
func (t *terminal) lend(group int) bool {
	switch t.front() {
	case group:
		t.lent = true
	case unix.Getpgrp():
		t.modes, _ = term.GetState(int(t.file.Fd()))
		if t.lent = t.setFront(group) == nil; t.lent {
			t.set(t.theirs)
		}
	default:
		return false // another job has it
	}
	return t.lent
}

// isLent reports whether the command has the foreground from us: its group, or one
// that it gave it to, as an interactive shell does, or one that is no more. Any other
// has it from our shell.
func (t *terminal) isLent(group int) bool {
	if !t.lent {
		return false
	}
	front := t.front()
	t.lent = front > 0 && (front == group || errors.Is(unix.Kill(-front, 0), unix.ESRCH) || isOurs(front))
	return t.lent
}

// tidy undoes what the command did to the terminal's modes, as shells do after a command
// that died of a signal. They do not see that one did: we exit with a code.
func (t *terminal) tidy() { t.set(t.modes) }

func (t *terminal) set(modes *term.State) {
	if modes != nil {
		inBackground(func() { _ = term.Restore(int(t.file.Fd()), modes) })
	}
}

// serveJob lets those of our job go on that were stopped because the command had the
// foreground. It returns false if another job has it.
func (t *terminal) serveJob(group int) bool {
	if t.front() != unix.Getpgrp() {
		theirs, _ := term.GetState(int(t.file.Fd())) // fails without a terminal, as takeBack does
		if !t.takeBack(group) {
			return false
		}
		t.theirs = theirs
		t.set(t.modes)
	}
	_ = unix.Kill(0, unix.SIGCONT)
	return true
}

// takeBack returns the foreground to our job, and reports whether the command had it.
func (t *terminal) takeBack(group int) bool {
	if !t.isLent(group) {
		return false
	}
	t.lent = t.setFront(unix.Getpgrp()) != nil
	return true
}
