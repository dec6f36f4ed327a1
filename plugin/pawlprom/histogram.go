package pawlprom

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bounds are those of the buckets, from 100 µs to a minute: a round trip, and a lease.
var bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second,
}

// histogram counts durations. A duration costs two atomic additions: that of package prometheus costs ten times
// as much, mostly for its native buckets, which this one does not have. In a hand-over of a lock in the process, which takes
// a microsecond, that is much.
type histogram struct {
	counts [len(bounds) + 1]atomic.Uint64 // of each bucket, and of what is longer
	sum    atomic.Uint64                  // in nanoseconds
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(uint64(d))
}

// metric is what Prometheus reads.
func (h *histogram) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(bounds))
	var n uint64
	for i, most := range bounds {
		n += h.counts[i].Load()
		buckets[most.Seconds()] = n
	}
	n += h.counts[len(bounds)].Load()
	return prometheus.MustNewConstHistogram(desc, n, float64(h.sum.Load())/float64(time.Second), buckets, labels...)
}

func (h *histogram) count() (n uint64) {
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// lazy is a histogram that is made when the first duration comes. One without any shows nothing.
type lazy struct{ made atomic.Pointer[histogram] }

func (l *lazy) observe(d time.Duration) {
	h := l.made.Load()
	if h == nil {
		l.made.CompareAndSwap(nil, new(histogram))
		h = l.made.Load()
	}
	h.observe(d)
}
