//go:build linux || darwin

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads the clock that counts time asleep, or 0 where the kernel refuses.
func bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
