//go:build unix

package execlock

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// group is the command's process group.
type group struct {
	id int
	// terminal is the terminal's descriptor if the group was put into its foreground,
	// where it can read and where Ctrl-C reaches it; else -1.
	terminal int
}

func (g *group) prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	g.terminal = -1
	stdin := int(os.Stdin.Fd())
	if front, err := unix.IoctlGetInt(stdin, unix.TIOCGPGRP); err == nil && front == unix.Getpgrp() {
		g.terminal = stdin
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, stdin
	}
}

func (g *group) started(leader *os.Process) { g.id = leader.Pid }

// ended takes the terminal back.
func (g *group) ended() {
	if g.terminal >= 0 {
		signal.Ignore(syscall.SIGTTOU) // we are in the background
		_ = unix.IoctlSetPointerInt(g.terminal, unix.TIOCSPGRP, unix.Getpgrp())
		signal.Reset(syscall.SIGTTOU)
	}
}

// signal sends s to the whole group. A group that is stopped is woken: it could not
// heed the signal.
func (g *group) signal(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = unix.Kill(-g.id, number) // ESRCH: it has just ended
		_ = unix.Kill(-g.id, unix.SIGCONT)
	}
}

func (g *group) kill() { _ = unix.Kill(-g.id, unix.SIGKILL) }

// killRest waits until what the leader has left running has ended too, and kills it
// at killTime: nothing of the command may go on without the lock. The group's id is
// not given to others while one of its processes lives.
func (g *group) killRest(killTime <-chan time.Time) {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for unix.Kill(-g.id, 0) == nil {
		select {
		case <-poll.C:
		case <-killTime:
			g.kill()
			return
		}
	}
}
