package execlock

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/pawl-lock/pawl/engine"
)

func init() {
	helpers["ctrl-z while it reads"] = func() { stopWhileItReads(0, 10*time.Second) }
	helpers["ctrl-z long ago"] = func() { stopWhileItReads(stopHeeded, 300*time.Millisecond) }
}

// stopWhileItReads is a job on a terminal of its own. Its command reads the terminal, so the
// kernel stops it, and it is asked to stop before that is known:
//
//	it is stopped (SIGTTIN), Ctrl-Z, we pass SIGTSTP on, we lend it the terminal, SIGCONT
//
// SIGCONT takes a pending SIGTSTP back. The helper says by what the command is stopped at last, within
// that time, if the Ctrl-Z is so old.
func stopWhileItReads(old, within time.Duration) {
	c := &child{runner: &runner{Config: Config{Say: func(string, ...any) {}}}, hold: new(engine.Hold)}
	c.terminal.open()
	cmd := exec.Command("sh", "-c", "read x")
	cmd.Stdin = os.Stdin
	if err := c.group.start(cmd, nil); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.group.tell(unix.SIGKILL) }()
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, c.group.id, &info, unix.WSTOPPED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	c.askToStop(syscall.SIGTSTP)
	c.stopAt = c.stopAt.Add(-old)
	first := c.group.look()
	c.stopped(first)
	for began := time.Now(); time.Since(began) < within; time.Sleep(time.Millisecond) { // for that long nothing may happen
		if last := c.group.look(); last != 0 {
			fmt.Println(unix.SignalName(first), "then", unix.SignalName(last))
			return
		}
	}
	fmt.Println(unix.SignalName(first), "then it is not stopped")
}

func TestTerminal_CtrlZWhileLent_IsNotLost(t *testing.T) {
	t.Parallel()
	for helper, want := range map[string]string{
		"ctrl-z while it reads": "SIGTTIN then SIGTSTP",
		"ctrl-z long ago":       "SIGTTIN then it is not stopped", // which it has ignored
	} {
		t.Run(helper, func(t *testing.T) {
			t.Parallel()
			if got := onATerminal(t, helper); got != want {
				t.Errorf("the command was stopped by %s, want %s", got, want)
			}
		})
	}
}

// onATerminal runs a helper on a terminal of its own, and returns what it says.
func onATerminal(t *testing.T, helper string) string {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	self := exec.Command(os.Args[0])
	self.Env = append(os.Environ(), helperEnv+"="+helper)
	self.Stdin = slave
	self.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := self.Output()
	slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
