package execlock

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/windows"
)

// group is the command's console group. Windows has no signals: being asked to end
// is a Ctrl-Break, whatever the signal was, and what the command has started is
// not killed with it.
type group struct {
	cmd   *exec.Cmd
	ended bool
	end   End
}

func (g *group) start(cmd *exec.Cmd, sig *Signals) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
	g.cmd = cmd
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { // ends with the command, for which attend waits
		_ = cmd.Wait() // what it says is in ProcessState
		sig.children <- os.Kill
	}()
	return nil
}

// look comes when the command has ended.
func (g *group) look() syscall.Signal {
	if g.cmd != nil && g.cmd.ProcessState != nil {
		g.ended, g.end.Code = true, g.cmd.ProcessState.ExitCode()
	}
	return 0
}

func (g *group) signal(os.Signal) error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.cmd.Process.Pid))
}

func (g *group) endOthers() {}

func (g *group) kill() error { return g.cmd.Process.Kill() }

func (g *group) remains() bool { return false }

// Signals are what this process catches, from before it waits for the lock until it
// has been released.
type Signals struct {
	asked    chan os.Signal // to be passed on; before the command runs, to be obeyed
	children chan os.Signal // the command has ended
	resumed  chan os.Signal // never
}

// Catch catches Ctrl-C and Ctrl-Break, for good.
func Catch() *Signals {
	s := &Signals{asked: make(chan os.Signal, 16), children: make(chan os.Signal, 1)}
	signal.Notify(s.asked, os.Interrupt)
	return s
}

func (s *Signals) catchJobControl() {}

func (s *Signals) started() {}

func ends(os.Signal) bool { return true }

// There is no job control.

type (
	terminal    struct{}
	stopRequest struct{}
)

func (*terminal) open() {}

func (*terminal) close() {}

func (c *child) heed(s os.Signal) { c.send(s) }

func (c *child) stopped(syscall.Signal) {}

func (c *child) resumed() {}

func (c *child) leave() {}

func (c *child) leaveTerminal(bool) bool { return false }

func inBackground(f func()) { f() }

// Die does nothing: there are no signals to die of.
func Die(syscall.Signal) {}
