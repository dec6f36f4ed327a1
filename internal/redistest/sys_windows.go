package redistest

import (
	"errors"
	"syscall"
)

func sysProcAttr() *syscall.SysProcAttr { return nil }

var errNoSignals = errors.New("redistest: Windows cannot stop and continue a process")

func (l *life) stop() error { return errNoSignals }
func (l *life) cont() error { return errNoSignals }
