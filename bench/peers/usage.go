package main

import (
	"runtime"
	"time"
)

// usage is what this process has used so far.
type usage struct {
	cpu    time.Duration // user and system
	allocs uint64
}

func takeUsage() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{cpu: cpuTime(), allocs: m.Mallocs}
}

func (u usage) since(before usage) usage {
	return usage{cpu: u.cpu - before.cpu, allocs: u.allocs - before.allocs}
}
