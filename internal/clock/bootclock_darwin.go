package clock

import "golang.org/x/sys/unix"

// bootClock is mach_continuous_time: it goes on in sleep and, unlike CLOCK_MONOTONIC,
// is not adjusted, as the clock that Go reads is not.
const bootClock = unix.CLOCK_MONOTONIC_RAW
