package bench

import (
	"runtime"
	"time"
)

// usage is what this process has used, so far or between two moments.
type usage struct {
	elapsed time.Duration
	cpu     time.Duration // user and system
	allocs  uint64
}

// meter adds up usage over stages.
type meter struct {
	total usage
	began time.Time
	cpu   time.Duration
	count uint64
}

func (m *meter) start() {
	m.count = allocs()
	m.cpu = cpuTime()
	m.began = time.Now()
}

func (m *meter) stop() { m.stopAt(time.Now()) }

// stopAt ends the stage at an instant that may be past: CPU and allocations are
// those of now.
func (m *meter) stopAt(t time.Time) {
	m.total.elapsed += t.Sub(m.began)
	m.total.cpu += cpuTime() - m.cpu
	m.total.allocs += allocs() - m.count
}

// cpuPercent is the CPU used, in percent of one CPU.
func (u usage) cpuPercent() float64 {
	if u.elapsed <= 0 {
		return 0
	}
	return 100 * float64(u.cpu) / float64(u.elapsed)
}

func allocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// liveHeap is the heap in use after garbage collection; twice, so that what a
// sync.Pool or a finalizer kept is gone too.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
