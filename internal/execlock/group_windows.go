package execlock

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// group is the command's console group. Windows has no signals: being asked to end
// is a Ctrl-Break, whatever the signal was, and what the command has started is
// not killed with it.
type group struct{ cmd *exec.Cmd }

func (g *group) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
	g.cmd = cmd
	return cmd.Start()
}

func (g *group) wait(chan<- struct{}) int {
	_ = g.cmd.Wait() // what it says is in ProcessState
	return g.cmd.ProcessState.ExitCode()
}

func (g *group) close() {}

func (g *group) signal(os.Signal) {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.cmd.Process.Pid))
}

func (g *group) resume() {}

func (g *group) kill() { _ = g.cmd.Process.Kill() }

func (g *group) killRest(<-chan time.Time) {}
