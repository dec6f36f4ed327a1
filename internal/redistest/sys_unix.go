//go:build unix && !linux

package redistest

import (
	"fmt"
	"syscall"
)

// sysProcAttr puts the server into a process group of its own, so that Ctrl-C
// reaches only this process. Nothing here kills it when this process is killed.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func (l *life) stop() error {
	if err := l.process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("redistest: stop: %w", err)
	}
	return nil
}

func (l *life) cont() error {
	if err := l.process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("redistest: continue: %w", err)
	}
	return nil
}
