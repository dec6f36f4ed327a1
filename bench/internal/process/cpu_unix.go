//go:build unix

package process

import (
	"syscall"
	"time"
)

// cpuTime is the CPU time of this process so far, children not counted.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
