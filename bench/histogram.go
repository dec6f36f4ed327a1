package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest latency that is told from a longer one.
const longest = int64(10 * time.Minute)

// newHistogram returns a histogram of nanoseconds. Each worker has one of its own,
// merged at the end, so that recording takes no lock; with very many workers they
// are coarser, two digits instead of three, for the sake of memory.
func newHistogram(workers int) *hdrhistogram.Histogram {
	digits := 3
	if workers > 256 {
		digits = 2
	}
	return hdrhistogram.New(1, longest, digits)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	// It cannot be out of range.
	_ = h.RecordValue(max(1, min(int64(d), longest)))
}
