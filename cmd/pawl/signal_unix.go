//go:build unix

package main

import (
	"os"
	"syscall"
)

// endSignals ask a process to end.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
