package latency

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Recorder is a histogram that several workers share. A histogram of three digits takes 250 kB, so
// with very many workers some share one; all have the same digits, or merging them would
// move the percentiles.
type Recorder struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

// maxRecorders is how many histograms there are at most.
const maxRecorders = 256

// Recorders returns what n workers record into: worker i into element i mod the length.
func Recorders(n int) []*Recorder {
	all := make([]*Recorder, min(n, maxRecorders))
	for i := range all {
		all[i] = &Recorder{h: NewHistogram()}
	}
	return all
}

// Record adds one duration. A nil Recorder records nothing.
func (r *Recorder) Record(d time.Duration) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	Record(r.h, d)
}

// Merged is all of them in one.
func Merged(all []*Recorder) *hdrhistogram.Histogram {
	sum := NewHistogram()
	for _, r := range all {
		r.mu.Lock()
		sum.Merge(r.h)
		r.mu.Unlock()
	}
	return sum
}
