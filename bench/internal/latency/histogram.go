package latency

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest latency that is told from a longer one.
const longest = int64(10 * time.Minute)

// NewHistogram returns a histogram of nanoseconds, with three digits.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, 3) }

// Record adds one duration to a histogram that nobody else has.
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	// It cannot be out of range.
	_ = h.RecordValue(max(1, min(int64(d), longest)))
}
