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
type group struct{ leader *os.Process }

func (g *group) prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

func (g *group) started(leader *os.Process) { g.leader = leader }

func (g *group) ended() {}

func (g *group) signal(os.Signal) {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.leader.Pid))
}

func (g *group) kill() { _ = g.leader.Kill() }

func (g *group) killRest(<-chan time.Time) {}
