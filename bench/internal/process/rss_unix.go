//go:build unix

package process

import (
	"runtime"
	"syscall"
)

// MaxRSS is the most memory that this process has had so far.
func MaxRSS() int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(r.Maxrss) // bytes there, kilobytes elsewhere
	}
	return int64(r.Maxrss) << 10
}
