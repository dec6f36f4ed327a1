package redistest

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr puts the server into a process group of its own, so that Ctrl-C
// reaches only this process, and ties its life to ours.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func (l *life) stop() error {
	if err := l.process.Signal(unix.SIGSTOP); err != nil {
		return fmt.Errorf("redistest: stop: %w", err)
	}
	// A signal has been sent when kill(2) returns, not yet obeyed. WNOWAIT leaves
	// the exit status to Wait.
	for {
		err := unix.Waitid(unix.P_PID, l.process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("redistest: stop: %w", err)
		}
		return nil
	}
}

func (l *life) cont() error {
	if err := l.process.Signal(unix.SIGCONT); err != nil {
		return fmt.Errorf("redistest: continue: %w", err)
	}
	return nil
}
