//go:build unix

package execlock

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// group is the command's process group.
type group struct {
	id       int // of the group, and of the command that leads it
	terminal terminal
}

// start starts the command at the head of a group of its own.
func (g *group) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	g.terminal.prepare(cmd.SysProcAttr)
	err := cmd.Start()
	g.terminal.started(cmd.SysProcAttr, err)
	if err != nil {
		return err
	}
	g.id = cmd.Process.Pid
	return cmd.Process.Release() // wait is the only one that waits for it
}

// wait returns the command's exit code, as a shell gives it. When the command was
// suspended from its terminal, and with it this process, resumed says that it shall
// go on. (exec.Cmd.Wait tells nothing of a stopped command.)
func (g *group) wait(resumed chan<- struct{}) int {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(g.id, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1 // somebody else has waited for it: its code is unknown
		case status.Stopped():
			if g.terminal.suspended(g.id) {
				resumed <- struct{}{} // the last one was heeded: it stopped again
			}
		case status.Signaled():
			return 128 + int(status.Signal())
		default:
			return status.ExitStatus()
		}
	}
}

func (g *group) close() { g.terminal.close(g.id) }

// signal sends s to the whole group. A group that is stopped is woken: it could not
// heed the signal.
func (g *group) signal(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = unix.Kill(-g.id, number) // ESRCH: it has just ended
		_ = unix.Kill(-g.id, unix.SIGCONT)
	}
}

func (g *group) resume() { _ = unix.Kill(-g.id, unix.SIGCONT) }

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
