//go:build !unix

package main

import "time"

// cpuTime is 0: it is not measured on this platform.
func cpuTime() time.Duration { return 0 }
