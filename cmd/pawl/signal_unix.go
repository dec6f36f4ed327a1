//go:build unix

package main

import (
	"os"
	"syscall"
)

// endSignals ask a process to end.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// passedOn are the signals that exec passes on to its command. SIGQUIT is among
// them because Go would end the process on it, and leave the lock to its lease.
var passedOn = []os.Signal{
	os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}
