package process

import (
	"runtime"
	"time"
)

// Usage is what this process has used, so far or between two moments.
type Usage struct {
	Elapsed time.Duration
	CPU     time.Duration // user and system
	Allocs  uint64
}

// Meter adds up usage over stages.
type Meter struct {
	Total Usage
	Began time.Time // the stage
	cpu   time.Duration
	count uint64
}

// Start begins a stage.
func (m *Meter) Start() {
	m.count = allocs()
	m.cpu = cpuTime()
	m.Began = time.Now()
}

// Stop ends the stage now.
func (m *Meter) Stop() { m.StopAt(time.Now()) }

// StopAt ends the stage at an instant that may be past: CPU and allocations are
// those of now.
func (m *Meter) StopAt(t time.Time) {
	m.Total.Elapsed += t.Sub(m.Began)
	m.Total.CPU += cpuTime() - m.cpu
	m.Total.Allocs += allocs() - m.count
}

// CPUPercent is the CPU used, in percent of one CPU.
func (u Usage) CPUPercent() float64 {
	if u.Elapsed <= 0 {
		return 0
	}
	return 100 * float64(u.CPU) / float64(u.Elapsed)
}

func allocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// LiveHeap is the heap in use after garbage collection; twice, so that what a
// sync.Pool or a finalizer kept is gone too.
func LiveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
