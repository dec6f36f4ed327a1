//go:build unix

package main

import (
	"os"
	"syscall"
)

// endSignals ask a process to end. To a SIGQUIT that is not caught Go would answer with its
// stacks, and nothing would be cleaned up.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
