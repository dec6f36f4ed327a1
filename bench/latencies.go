package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencies are those of several workers. A histogram of three digits takes 250 kB, so
// with very many workers some share one; all have the same digits, or merging them would
// move the percentiles.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

// maxLatencies is how many histograms there are at most.
const maxLatencies = 256

// newLatencies returns what n workers record into, one after the other in turn.
func newLatencies(n int) []*latencies {
	all := make([]*latencies, min(n, maxLatencies))
	for i := range all {
		all[i] = &latencies{h: newHistogram()}
	}
	return all
}

func (l *latencies) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record(l.h, d)
}

// merged is all of them in one.
func merged(all []*latencies) *hdrhistogram.Histogram {
	sum := newHistogram()
	for _, l := range all {
		l.mu.Lock()
		sum.Merge(l.h)
		l.mu.Unlock()
	}
	return sum
}
