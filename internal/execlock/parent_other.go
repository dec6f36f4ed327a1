//go:build unix && !linux

package execlock

import "syscall"

// dieWithParent does nothing: no other system than Linux has it.
func dieWithParent(*syscall.SysProcAttr) {}
