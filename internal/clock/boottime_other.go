//go:build !linux && !darwin

package clock

import "time"

// bootTime is 0: no clock that counts time asleep is read on this platform.
func bootTime() time.Duration { return 0 }
