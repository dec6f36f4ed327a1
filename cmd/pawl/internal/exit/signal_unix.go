//go:build unix

package exit

import (
	"os"
	"syscall"
)

// EndSignals ask a process to end. To a SIGQUIT that is not caught Go would answer with its
// stacks, and nothing would be cleaned up.
var EndSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
